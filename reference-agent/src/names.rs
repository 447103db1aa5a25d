//! Identity: numbers for (namespace, name).
//!
//! A name is a pair, compared whole. Nothing in the agent is keyed by a concatenation of names or looked up by a
//! prefix of one: a release for `t` can't reach what belongs to `t-ext` (Cilium issue 43619).

use std::{collections::HashMap, fmt, sync::Arc};

/// Namespace and name of an API object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// From both parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Number of an [`ObjectName`], for as long as anything refers to it. Never handed out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

/// Hands out numbers for names, and forgets names that nothing refers to any more.
#[derive(Debug, Default)]
pub struct Interner {
    last: u64,
    ids: HashMap<Arc<ObjectName>, ObjectId>,
    entries: HashMap<ObjectId, Entry>,
}

#[derive(Debug)]
struct Entry {
    name: Arc<ObjectName>,
    references: usize,
}

impl Interner {
    /// The number of a name, with one more reference to it.
    pub fn acquire(&mut self, name: &ObjectName) -> ObjectId {
        if let Some(&id) = self.ids.get(name) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.references += 1;
            }
            return id;
        }
        self.last += 1;
        let id = ObjectId(self.last);
        let name = Arc::new(name.clone());
        self.ids.insert(Arc::clone(&name), id);
        self.entries.insert(id, Entry { name, references: 1 });
        id
    }

    /// One reference less.
    pub fn release(&mut self, id: ObjectId) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.references -= 1;
        if entry.references == 0 {
            self.ids.remove(&entry.name);
            self.entries.remove(&id);
        }
    }

    /// The number of a name that something refers to.
    pub fn get(&self, name: &ObjectName) -> Option<ObjectId> {
        self.ids.get(name).copied()
    }

    /// The name of a number that something refers to.
    pub fn name(&self, id: ObjectId) -> Option<&Arc<ObjectName>> {
        self.entries.get(&id).map(|entry| &entry.name)
    }

    /// How many names it knows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_whose_concatenation_is_equal_have_numbers_of_their_own() {
        let mut interner = Interner::default();
        let a = interner.acquire(&ObjectName::new("a", "b-c"));
        let b = interner.acquire(&ObjectName::new("a-b", "c"));
        assert_ne!(a, b);
    }

    #[test]
    fn a_number_is_kept_while_referred_to_and_never_comes_back() {
        let mut interner = Interner::default();
        let name = ObjectName::new("t", "x");
        let first = interner.acquire(&name);
        assert_eq!(interner.acquire(&name), first);
        interner.release(first);
        assert_eq!(interner.get(&name), Some(first));
        interner.release(first);
        assert_eq!(interner.get(&name), None);
        assert!(interner.is_empty());
        assert_ne!(interner.acquire(&name), first);
    }
}
