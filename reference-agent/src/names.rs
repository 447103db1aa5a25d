//! Identity: numbers for (namespace, name).
//!
//! A name is a pair, compared whole. Nothing in the agent is keyed by a concatenation of names or looked up by a
//! prefix of one: a release for `t` can't reach what belongs to `t-ext` (Cilium issue 43619).

use std::{fmt, sync::Arc};

use crate::hash::HashMap;

/// Namespace and name of an API object. Clones share their text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace; empty for cluster-scoped objects, such as Nodes.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// From both parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Number of an [`ObjectName`] while anything refers to it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    /// The node itself, which is in plans and not in the API. No [`Interner`] returns it.
    pub const NODE: Self = Self(0);
}

/// Names, such as those of zones: sorted, each once. An empty set takes no heap memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NameSet(Box<[Arc<str>]>);

impl NameSet {
    /// Whether a name is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|one| (**one).cmp(name)).is_ok()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// All names, to be replaced by equal ones.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        self.0.iter_mut()
    }
}

impl<T: Into<Arc<str>>> FromIterator<T> for NameSet {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut names: Vec<_> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        Self(names.into_boxed_slice())
    }
}

/// Numbers names, and forgets those without references.
#[derive(Debug, Default)]
pub struct Interner {
    last: u64,
    ids: HashMap<ObjectName, ObjectId>,
    entries: HashMap<ObjectId, Entry>,
}

#[derive(Debug)]
struct Entry {
    name: ObjectName,
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
        self.ids.insert(name.clone(), id);
        let name = name.clone();
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
    pub fn name(&self, id: ObjectId) -> Option<&ObjectName> {
        self.entries.get(&id).map(|entry| &entry.name)
    }

    /// How many names it has.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it has no names.
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
    fn a_set_of_names_has_each_once_and_finds_it() {
        let names: NameSet = ["b", "a", "b"].into_iter().collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(names.contains("a") && names.contains("b") && !names.contains("ab"));
        assert!(NameSet::default().is_empty() && !names.is_empty());
    }

    #[test]
    fn no_name_has_the_number_of_the_node() {
        let mut interner = Interner::default();
        assert_ne!(interner.acquire(&ObjectName::new("", "")), ObjectId::NODE);
    }

    #[test]
    fn what_has_no_namespace_shows_as_its_name() {
        assert_eq!(ObjectName::new("", "node1").to_string(), "node1");
        assert_eq!(ObjectName::new("t", "x").to_string(), "t/x");
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
