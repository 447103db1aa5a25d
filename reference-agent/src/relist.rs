//! Watch stream of one kind → events, without losses over a relist.
//!
//! A watch that has expired starts again with a list, and there are no events of what was deleted meanwhile. `Relist`
//! keeps the names that it has passed on, and passes a deletion on for each one that a complete list lacks.
//!
//! Objects of the first list are passed on at once: nothing is written before it is complete, and a list of fifty thousand slices needs
//! no second copy in memory. Of later ones, what has changed is passed on together when the list is complete: it is one state of the API, in
//! which one slice may have taken what another one has lost.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hash, RandomState},
    time::SystemTime,
};

use crate::{
    feed::Change,
    model::{Event, Kind, Node, Service, ServiceCidr, Slice},
    names::ObjectName,
};

/// An item of the watch of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched<T> {
    /// A list begins.
    Init,
    /// An object of that list.
    InitApply(T),
    /// The list is complete.
    InitDone,
    /// Added or modified.
    Apply(T),
    /// Deleted.
    Delete(ObjectName),
}

/// A kind of object that can be watched.
pub trait Object: Hash {
    /// The kind.
    const KIND: Kind;
    /// Namespace and name.
    fn name(&self) -> ObjectName;
    /// The event that it was created or changed.
    fn applied(self) -> Event;
    /// The event that one of this name was deleted.
    fn deleted(name: ObjectName) -> Event;
}

impl Object for Service {
    const KIND: Kind = Kind::Service;

    fn name(&self) -> ObjectName {
        self.name.clone()
    }

    fn applied(self) -> Event {
        Event::ServiceApplied(self)
    }

    fn deleted(name: ObjectName) -> Event {
        Event::ServiceDeleted(name)
    }
}

impl Object for Slice {
    const KIND: Kind = Kind::EndpointSlice;

    fn name(&self) -> ObjectName {
        self.name.clone()
    }

    fn applied(self) -> Event {
        Event::SliceApplied(self)
    }

    fn deleted(name: ObjectName) -> Event {
        Event::SliceDeleted(name)
    }
}

impl Object for Node {
    const KIND: Kind = Kind::Node;

    fn name(&self) -> ObjectName {
        ObjectName::new("", &*self.name)
    }

    fn applied(self) -> Event {
        Event::NodeApplied(self)
    }

    fn deleted(name: ObjectName) -> Event {
        Event::NodeDeleted(name.name.to_string())
    }
}

impl Object for ServiceCidr {
    const KIND: Kind = Kind::ServiceCidr;

    fn name(&self) -> ObjectName {
        ObjectName::new("", &*self.name)
    }

    fn applied(self) -> Event {
        Event::ServiceCidrApplied(self)
    }

    fn deleted(name: ObjectName) -> Event {
        Event::ServiceCidrDeleted(name.name.to_string())
    }
}

/// What has been passed on of one kind.
#[derive(Debug, Default)]
pub struct Relist {
    /// A hash of each object by its name.
    known: HashMap<ObjectName, u64>,
    /// Has a random key, so that nobody who writes objects can choose two with one hash.
    hasher: RandomState,
    /// Whether a list was complete.
    has_listed: bool,
    /// The current list.
    list: Option<List>,
}

#[derive(Debug, Default)]
struct List {
    /// Known names that are not in it yet.
    missing: HashSet<ObjectName>,
    /// What has changed since it was passed on.
    changed: Vec<(Change, ObjectName, u64)>,
}

impl Relist {
    /// Takes an item of the watch, and when the change behind it happened. The result: events, in the order in which they are to be
    /// applied, with no write between them.
    pub fn take<T: Object>(&mut self, watched: Watched<T>, triggered: Option<SystemTime>) -> Vec<Change> {
        match watched {
            Watched::Init => {
                self.list = Some(List {
                    missing: self.known.keys().cloned().collect(),
                    changed: Vec::new(),
                });
                Vec::new()
            }
            Watched::InitApply(object) => {
                let (name, hash) = (object.name(), self.hasher.hash_one(&object));
                let event = object.applied();
                let change = Change { event, triggered };
                if let Some(list) = &mut self.list {
                    list.missing.remove(&name);
                    if self.has_listed {
                        if self.known.get(&name) != Some(&hash) {
                            list.changed.push((change, name, hash));
                        }
                        return Vec::new();
                    }
                }
                self.known.insert(name, hash);
                vec![change]
            }
            Watched::Apply(object) => {
                self.known.insert(object.name(), self.hasher.hash_one(&object));
                let event = object.applied();
                vec![Change { event, triggered }]
            }
            Watched::Delete(name) => {
                self.known.remove(&name);
                vec![T::deleted(name).into()]
            }
            Watched::InitDone => {
                let List { missing, changed } = self.list.take().unwrap_or_default();
                self.has_listed = true;
                let mut gone: Vec<_> = missing.into_iter().collect();
                gone.sort();
                for name in &gone {
                    self.known.remove(name);
                }
                let changed: Vec<_> = changed
                    .into_iter()
                    .map(|(change, name, hash)| {
                        self.known.insert(name, hash);
                        change
                    })
                    .collect();
                let deleted = gone.into_iter().map(T::deleted);
                let ends = deleted.chain([Event::Synced(T::KIND)]).map(Change::from);
                changed.into_iter().chain(ends).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str) -> Slice {
        let name = ObjectName::new("t", name);
        Slice {
            name,
            service: None,
            ports: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    fn deleted(name: &str) -> Event {
        Event::SliceDeleted(ObjectName::new("t", name))
    }

    fn take<T: Object>(relist: &mut Relist, watched: Watched<T>) -> Vec<Event> {
        let changes = relist.take(watched, None);
        changes.into_iter().map(|change| change.event).collect()
    }

    fn listed(relist: &mut Relist, names: &[&str]) -> Vec<Event> {
        take::<Slice>(relist, Watched::Init);
        for name in names {
            take(relist, Watched::InitApply(slice(name)));
        }
        take::<Slice>(relist, Watched::InitDone)
    }

    #[test]
    fn what_has_changed_comes_at_once_when_a_later_list_is_complete() {
        let mut relist = Relist::default();
        listed(&mut relist, &["a", "b", "c"]);
        let changed = |name| Slice {
            service: Some("s".into()),
            ..slice(name)
        };
        let applied = |name| Event::SliceApplied(changed(name));
        let synced = Event::Synced(Kind::EndpointSlice);
        for _ in 0..2 {
            assert_eq!(take::<Slice>(&mut relist, Watched::Init), []);
            assert_eq!(take(&mut relist, Watched::InitApply(changed("b"))), []);
        }
        assert_eq!(take(&mut relist, Watched::InitApply(slice("c"))), []);
        assert_eq!(take(&mut relist, Watched::InitApply(changed("d"))), []);
        assert_eq!(
            take::<Slice>(&mut relist, Watched::InitDone),
            [applied("b"), applied("d"), deleted("a"), synced.clone()]
        );
        // What an event has changed is compared with that.
        assert_eq!(take(&mut relist, Watched::Apply(changed("c"))), [applied("c")]);
        assert_eq!(take::<Slice>(&mut relist, Watched::Init), []);
        for one in [changed("b"), slice("c"), changed("d")] {
            assert_eq!(take(&mut relist, Watched::InitApply(one)), []);
        }
        let end = take::<Slice>(&mut relist, Watched::InitDone);
        assert_eq!(end, [Event::SliceApplied(slice("c")), synced]);
    }

    #[test]
    fn what_a_second_list_does_not_name_is_deleted() {
        let mut relist = Relist::default();
        assert_eq!(
            listed(&mut relist, &["a", "b", "c"]),
            [Event::Synced(Kind::EndpointSlice)]
        );
        assert_eq!(
            listed(&mut relist, &["b"]),
            [deleted("a"), deleted("c"), Event::Synced(Kind::EndpointSlice)]
        );
        assert_eq!(listed(&mut relist, &["b"]), [Event::Synced(Kind::EndpointSlice)]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing_and_the_next_one_counts_from_the_start() {
        let mut relist = Relist::default();
        listed(&mut relist, &["a", "b"]);
        assert_eq!(take::<Slice>(&mut relist, Watched::Init), []);
        take(&mut relist, Watched::InitApply(slice("a")));
        assert_eq!(
            listed(&mut relist, &["b"]),
            [deleted("a"), Event::Synced(Kind::EndpointSlice)]
        );
    }

    #[test]
    fn nodes_are_told_apart_by_their_name_alone() {
        let mut relist = Relist::default();
        let node = |name: &str| Node {
            name: name.to_owned(),
            ..Node::default()
        };
        take::<Node>(&mut relist, Watched::Init);
        let applied = take(&mut relist, Watched::InitApply(node("a")));
        assert_eq!(applied, [Event::NodeApplied(node("a"))]);
        take::<Node>(&mut relist, Watched::InitDone);
        take::<Node>(&mut relist, Watched::Init);
        let gone = [Event::NodeDeleted("a".to_owned()), Event::Synced(Kind::Node)];
        assert_eq!(take::<Node>(&mut relist, Watched::InitDone), gone);
    }

    #[test]
    fn what_was_deleted_by_an_event_is_not_deleted_again() {
        let mut relist = Relist::default();
        listed(&mut relist, &["a"]);
        assert_eq!(
            take::<Slice>(&mut relist, Watched::Delete(ObjectName::new("t", "a"))),
            [deleted("a")]
        );
        assert_eq!(listed(&mut relist, &[]), [Event::Synced(Kind::EndpointSlice)]);
    }
}
