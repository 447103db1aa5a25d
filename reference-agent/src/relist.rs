//! Watch stream of one kind → events, without losses over a relist.
//!
//! A watch that has expired starts again with a list, and there are no events of what was deleted meanwhile. `Relist`
//! keeps the names that it has passed on, and passes a deletion on for each one that a complete list lacks.
//!
//! Objects of a list are passed on at once, so that a list of fifty thousand slices needs no second copy in memory.

use std::collections::HashSet;

use crate::{
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
pub trait Object {
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

/// The names of one kind that have been passed on.
#[derive(Debug, Default)]
pub struct Relist {
    known: HashSet<ObjectName>,
    /// Known names that are not in the current list yet.
    missing: Option<HashSet<ObjectName>>,
}

impl Relist {
    /// Takes an item of the watch. The result: events, in the order in which they are to be applied.
    pub fn take<T: Object>(&mut self, watched: Watched<T>) -> Vec<Event> {
        match watched {
            Watched::Init => {
                self.missing = Some(self.known.clone());
                Vec::new()
            }
            Watched::InitApply(object) | Watched::Apply(object) => {
                let name = object.name();
                if let Some(missing) = &mut self.missing {
                    missing.remove(&name);
                }
                self.known.insert(name);
                vec![object.applied()]
            }
            Watched::Delete(name) => {
                if let Some(missing) = &mut self.missing {
                    missing.remove(&name);
                }
                self.known.remove(&name);
                vec![T::deleted(name)]
            }
            Watched::InitDone => {
                let mut gone: Vec<_> = self.missing.take().into_iter().flatten().collect();
                gone.sort();
                for name in &gone {
                    self.known.remove(name);
                }
                let deleted = gone.into_iter().map(T::deleted);
                deleted.chain([Event::Synced(T::KIND)]).collect()
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

    fn listed(relist: &mut Relist, names: &[&str]) -> Vec<Event> {
        relist.take::<Slice>(Watched::Init);
        for name in names {
            relist.take(Watched::InitApply(slice(name)));
        }
        relist.take::<Slice>(Watched::InitDone)
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
        assert_eq!(relist.take::<Slice>(Watched::Init), []);
        relist.take(Watched::InitApply(slice("a")));
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
        relist.take::<Node>(Watched::Init);
        let applied = relist.take(Watched::InitApply(node("a")));
        assert_eq!(applied, [Event::NodeApplied(node("a"))]);
        relist.take::<Node>(Watched::InitDone);
        relist.take::<Node>(Watched::Init);
        let gone = [Event::NodeDeleted("a".to_owned()), Event::Synced(Kind::Node)];
        assert_eq!(relist.take::<Node>(Watched::InitDone), gone);
    }

    #[test]
    fn what_was_deleted_by_an_event_is_not_deleted_again() {
        let mut relist = Relist::default();
        listed(&mut relist, &["a"]);
        assert_eq!(
            relist.take::<Slice>(Watched::Delete(ObjectName::new("t", "a"))),
            [deleted("a")]
        );
        assert_eq!(listed(&mut relist, &[]), [Event::Synced(Kind::EndpointSlice)]);
    }
}
