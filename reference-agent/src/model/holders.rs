//! Which Services have something to do with an address.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{hash::HashMap, names::ObjectId};

/// Addresses, and Services by how often they have each.
#[derive(Debug, Default)]
pub(super) struct Holders(HashMap<IpAddr, Held>);

/// An address that two Services have is the exception: one alone takes no tree.
#[derive(Debug)]
enum Held {
    One(ObjectId, u32),
    #[expect(
        clippy::box_collection,
        reason = "an entry for each endpoint address: the exception may cost, the rule not"
    )]
    Several(Box<BTreeMap<ObjectId, u32>>),
}

impl Holders {
    /// Whether no Service has any.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any Service has it.
    pub(super) fn is_held(&self, address: IpAddr) -> bool {
        self.0.contains_key(&address)
    }

    /// Who has it.
    pub(super) fn of(&self, address: IpAddr) -> impl Iterator<Item = ObjectId> {
        let (one, several) = match self.0.get(&address) {
            None => (None, None),
            Some(Held::One(id, _)) => (Some(*id), None),
            Some(Held::Several(all)) => (None, Some(all.keys().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// It has it once more.
    pub(super) fn hold(&mut self, address: IpAddr, by: ObjectId) {
        match self.0.entry(address).or_insert(Held::One(by, 0)) {
            Held::One(id, count) if *id == by => *count += 1,
            Held::Several(all) => *all.entry(by).or_default() += 1,
            held => {
                let Held::One(id, count) = *held else { return };
                *held = Held::Several(Box::new(BTreeMap::from([(id, count), (by, 1)])));
            }
        }
    }

    /// It has it once less.
    pub(super) fn release(&mut self, address: IpAddr, by: ObjectId) {
        let Some(held) = self.0.get_mut(&address) else {
            return;
        };
        let rest = match held {
            Held::One(id, count) => {
                if *id == by {
                    *count -= 1;
                }
                (*count > 0).then_some((*id, *count))
            }
            Held::Several(all) => {
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
            Some((id, count)) => *held = Held::One(id, count),
            None => _ = self.0.remove(&address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Interner, ObjectName};

    #[test]
    fn an_address_is_held_until_everyone_has_released_it_as_often_as_held() {
        let (mut names, mut holders) = (Interner::default(), Holders::default());
        let [x, y] = ["x", "y"].map(|name| names.acquire(&ObjectName::new("t", name)));
        let address = IpAddr::from([1, 1, 1, 1]);
        let of = |holders: &Holders| holders.of(address).collect::<Vec<_>>();
        for id in [x, y, x] {
            holders.hold(address, id);
        }
        assert_eq!(of(&holders), [x, y]);
        holders.release(address, x);
        assert_eq!(of(&holders), [x, y]);
        holders.release(address, y);
        assert_eq!(of(&holders), [x]);
        holders.release(address, y);
        assert_eq!(of(&holders), [x], "who does not hold releases nothing");
        holders.release(address, x);
        assert!(!holders.is_held(address) && of(&holders).is_empty());
    }
}
