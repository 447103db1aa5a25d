//! Addresses of frontends: what the map says of each, who wants what, and how many frontends are there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lb_abi::Address;

use crate::names::ObjectId;

/// ADDRESSES. An address is shared by all Services that have frontends there, and has the flags of all.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// As it is.
    there: HashMap<Address, u32>,
    /// As it should be, by who wants it.
    wanted: HashMap<Address, BTreeMap<ObjectId, u32>>,
    of: HashMap<ObjectId, BTreeSet<Address>>,
    /// How many entries of FRONTENDS each has.
    frontends: HashMap<Address, usize>,
    /// Those that may have to go, or to lose flags.
    leaving: BTreeSet<Address>,
    /// Whether an entry was replaced or deleted since the last barrier, as
    /// [`frontend_freed`](super::written::Written::frontend_freed).
    pub(super) freed: bool,
}

impl Addresses {
    /// Takes over an entry of an adopted map.
    pub(super) fn adopt(&mut self, address: Address, flags: u32) {
        self.there.insert(address, flags);
        self.leaving.insert(address);
    }

    /// Notes what a Service wants.
    pub(super) fn want(&mut self, service: ObjectId, plan: &BTreeMap<Address, u32>) {
        for address in self.of.remove(&service).into_iter().flatten() {
            if let Some(wanted) = self.wanted.get_mut(&address) {
                wanted.remove(&service);
                if wanted.is_empty() {
                    self.wanted.remove(&address);
                }
            }
            self.leaving.insert(address);
        }
        for (&address, &flags) in plan {
            self.wanted.entry(address).or_default().insert(service, flags);
        }
        if !plan.is_empty() {
            self.of.insert(service, plan.keys().copied().collect());
        }
    }

    /// What all want of an address together; 0: it is nobody's.
    pub(super) fn wanted(&self, address: Address) -> u32 {
        let wanted = self.wanted.get(&address).into_iter().flatten();
        wanted.fold(0, |union, (_, flags)| union | flags)
    }

    /// Whether the map has it, with whatever flags: frontends may be put there.
    pub(super) fn is_there(&self, address: Address) -> bool {
        self.there.contains_key(&address)
    }

    /// Whether the map has all that is wanted of it.
    pub(super) fn is_enough(&self, address: Address) -> bool {
        self.there
            .get(&address)
            .is_some_and(|there| self.wanted(address) & !there == 0)
    }

    /// Those of which the map says more than anybody wants, and no frontend needs it any more, with what it should
    /// say; 0: nothing.
    pub(super) fn excess(&mut self) -> Vec<(Address, u32)> {
        let mut excess = Vec::new();
        for address in std::mem::take(&mut self.leaving) {
            let Some(&there) = self.there.get(&address) else {
                continue;
            };
            let wanted = self.wanted(address);
            if there & !wanted == 0 && wanted != 0 {
                continue;
            }
            self.leaving.insert(address);
            if wanted != 0 || !self.frontends.contains_key(&address) {
                excess.push((address, wanted));
            }
        }
        excess
    }

    /// It has been put.
    pub(super) fn put(&mut self, address: Address, flags: u32) {
        self.freed |= self.there.insert(address, flags).is_some();
    }

    /// It has been deleted.
    pub(super) fn deleted(&mut self, address: Address) {
        self.freed |= self.there.remove(&address).is_some();
        self.leaving.remove(&address);
    }

    /// One more frontend is there.
    pub(super) fn occupied(&mut self, address: Address) {
        *self.frontends.entry(address).or_default() += 1;
    }

    /// One frontend less is there.
    pub(super) fn vacated(&mut self, address: Address) {
        if let Some(count) = self.frontends.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.frontends.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Interner, ObjectName};
    use lb_abi::address_flags::{NODE, SILENT, VIP};

    const ADDRESS: Address = Address::v4([10, 96, 0, 1]);

    fn services() -> [ObjectId; 2] {
        let mut names = Interner::default();
        ["x", "y"].map(|name| names.acquire(&ObjectName::new("t", name)))
    }

    fn flags(flags: u32) -> BTreeMap<Address, u32> {
        BTreeMap::from([(ADDRESS, flags)])
    }

    #[test]
    fn an_address_has_the_flags_of_all_who_want_it() {
        let ([x, y], mut addresses) = (services(), Addresses::default());
        addresses.want(x, &flags(VIP | SILENT));
        addresses.put(ADDRESS, VIP | SILENT);
        addresses.want(y, &flags(VIP | NODE));
        assert_eq!(addresses.wanted(ADDRESS), VIP | SILENT | NODE);
        assert!(!addresses.is_enough(ADDRESS), "a flag is missing");
        addresses.put(ADDRESS, VIP | SILENT | NODE);
        assert!(addresses.is_enough(ADDRESS));
        assert_eq!(addresses.excess(), []);

        // One gives it up: its flags go, the address stays.
        addresses.want(x, &BTreeMap::new());
        assert_eq!(addresses.excess(), [(ADDRESS, VIP | NODE)]);
        assert_eq!(addresses.excess(), [(ADDRESS, VIP | NODE)], "until it is done");
        addresses.put(ADDRESS, VIP | NODE);
        assert_eq!(addresses.excess(), []);
        addresses.want(y, &BTreeMap::new());
        assert_eq!(addresses.excess(), [(ADDRESS, 0)]);
        addresses.deleted(ADDRESS);
        assert_eq!(addresses.excess(), []);
        assert!(!addresses.is_there(ADDRESS));
    }

    #[test]
    fn an_address_that_nobody_wants_stays_while_frontends_are_there() {
        let mut addresses = Addresses::default();
        addresses.adopt(ADDRESS, VIP);
        addresses.occupied(ADDRESS);
        addresses.occupied(ADDRESS);
        addresses.vacated(ADDRESS);
        assert_eq!(addresses.excess(), []);
        addresses.vacated(ADDRESS);
        assert_eq!(addresses.excess(), [(ADDRESS, 0)]);
    }

    #[test]
    fn replacing_and_deleting_free_memory_and_inserting_does_not() {
        let mut addresses = Addresses::default();
        addresses.put(ADDRESS, VIP);
        assert!(!addresses.freed);
        addresses.put(ADDRESS, VIP | NODE);
        assert!(std::mem::take(&mut addresses.freed));
        addresses.deleted(ADDRESS);
        assert!(addresses.freed);
    }
}
