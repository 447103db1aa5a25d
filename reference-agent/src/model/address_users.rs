//! The Services that use an address.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{hash::HashMap, names::ObjectId};

/// How often each Service uses each address.
#[derive(Debug, Default)]
pub(super) struct AddressUsers(HashMap<IpAddr, Users>);

/// Most addresses have one user, which takes no tree.
#[derive(Debug)]
enum Users {
    One(ObjectId, u32),
    #[expect(
        clippy::box_collection,
        reason = "there is an entry for each endpoint address, and few have several users"
    )]
    Several(Box<BTreeMap<ObjectId, u32>>),
}

impl AddressUsers {
    /// Whether no address is used.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any Service uses an address.
    pub(super) fn is_used(&self, address: IpAddr) -> bool {
        self.0.contains_key(&address)
    }

    /// The Services that use an address.
    pub(super) fn of(&self, address: IpAddr) -> impl Iterator<Item = ObjectId> {
        let (one, several) = match self.0.get(&address) {
            None => (None, None),
            Some(Users::One(id, _)) => (Some(*id), None),
            Some(Users::Several(all)) => (None, Some(all.keys().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// A Service uses an address once more.
    pub(super) fn add(&mut self, address: IpAddr, by: ObjectId) {
        match self.0.entry(address).or_insert(Users::One(by, 0)) {
            Users::One(id, count) if *id == by => *count += 1,
            Users::Several(all) => *all.entry(by).or_default() += 1,
            users => {
                let Users::One(id, count) = *users else { return };
                *users = Users::Several(Box::new(BTreeMap::from([(id, count), (by, 1)])));
            }
        }
    }

    /// A Service uses an address once less.
    pub(super) fn remove(&mut self, address: IpAddr, by: ObjectId) {
        let Some(users) = self.0.get_mut(&address) else {
            return;
        };
        let rest = match users {
            Users::One(id, count) => {
                if *id == by {
                    *count -= 1;
                }
                (*count > 0).then_some((*id, *count))
            }
            Users::Several(all) => {
                if let Some(count) = all.get_mut(&by) {
                    *count -= 1;
                    if *count == 0 {
                        all.remove(&by);
                    }
                }
                if all.len() > 1 {
                    return;
                }
                all.pop_first()
            }
        };
        match rest {
            Some((id, count)) => *users = Users::One(id, count),
            None => _ = self.0.remove(&address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Interner, ObjectName};

    #[test]
    fn an_address_is_used_until_each_service_has_removed_it_as_often_as_added() {
        let (mut names, mut users) = (Interner::default(), AddressUsers::default());
        let [x, y] = ["x", "y"].map(|name| names.acquire(&ObjectName::new("t", name)));
        let address = IpAddr::from([1, 1, 1, 1]);
        let of = |users: &AddressUsers| users.of(address).collect::<Vec<_>>();
        for id in [x, y, x] {
            users.add(address, id);
        }
        assert_eq!(of(&users), [x, y]);
        users.remove(address, x);
        assert_eq!(of(&users), [x, y]);
        users.remove(address, y);
        assert_eq!(of(&users), [x]);
        users.remove(address, y);
        assert_eq!(of(&users), [x], "y has none left");
        users.remove(address, x);
        assert!(!users.is_used(address) && of(&users).is_empty());
    }
}
