//! Addresses: the flags of each in the map, the flags that are wanted, and the number of its frontends.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::Address;

use crate::{hash::HashMap, names::ObjectId};

/// ADDRESSES. An address is shared by all Services that have frontends there, and by the node itself. It has the
/// flags of all. An address without flags can be wanted, too.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The map, as it was written.
    there: HashMap<Address, u32>,
    /// The flags that each Service, or the node, wants.
    wanted: BTreeMap<(Address, ObjectId), u32>,
    /// The addresses that each of them wants, in order.
    of: HashMap<ObjectId, Box<[Address]>>,
    /// How many entries of FRONTENDS each has.
    frontends: HashMap<Address, u32>,
    /// Addresses that may have to be deleted, or lose flags.
    leaving: BTreeSet<Address>,
}

impl Addresses {
    /// Adopts an entry.
    pub(super) fn adopt(&mut self, address: Address, flags: u32) {
        self.there.insert(address, flags);
        self.leaving.insert(address);
    }

    /// Notes what a Service, or the node, wants.
    pub(super) fn want(&mut self, service: ObjectId, plan: &[(Address, u32)]) {
        let before = self.of.get(&service).map_or(&[][..], |of| of);
        let same = before.len() == plan.len()
            && plan.iter().zip(before).all(|(&(address, flags), &before)| {
                address == before && self.wanted.get(&(address, service)) == Some(&flags)
            });
        if same {
            return;
        }
        for &address in before {
            self.wanted.remove(&(address, service));
            if self.there.contains_key(&address) {
                self.leaving.insert(address);
            }
        }
        for &(address, flags) in plan {
            self.wanted.insert((address, service), flags);
        }
        if plan.is_empty() {
            self.of.remove(&service);
        } else {
            self.of
                .insert(service, plan.iter().map(|(address, _)| *address).collect());
        }
    }

    /// The flags that are wanted of an address; `None`: it is not wanted.
    pub(super) fn wanted(&self, address: Address) -> Option<u32> {
        let from = self.wanted.range((address, ObjectId::NODE)..);
        let all = from.take_while(|((other, _), _)| *other == address);
        all.map(|(_, flags)| *flags).reduce(|union, flags| union | flags)
    }

    /// Whether frontends may be put at an address: the map has it, with any flags, or it is the unspecified address
    /// of node ports, which is never in the map.
    pub(super) fn may_have_frontends(&self, address: Address) -> bool {
        self.there.contains_key(&address) || is_unspecified(address)
    }

    /// The flags to put so that the map has all that are wanted; `None`: it has them.
    pub(super) fn missing(&self, address: Address) -> Option<u32> {
        let wanted = self.wanted(address)?;
        let enough = self.there.get(&address).is_some_and(|there| wanted & !there == 0);
        // Excess flags are removed later: see `excess`.
        (!enough).then(|| wanted | self.there.get(&address).copied().unwrap_or(0) & KNOWN)
    }

    /// Addresses with flags that are not wanted, with those that are; `None`: the address is not wanted, and has no
    /// frontend any more.
    pub(super) fn excess(&mut self) -> Vec<(Address, Option<u32>)> {
        let mut excess = Vec::new();
        for address in std::mem::take(&mut self.leaving) {
            let Some(&there) = self.there.get(&address) else {
                continue;
            };
            let wanted = self.wanted(address);
            if wanted.is_some_and(|wanted| there & !wanted == 0) {
                continue;
            }
            self.leaving.insert(address);
            if wanted.is_some() || !self.frontends.contains_key(&address) {
                excess.push((address, wanted));
            }
        }
        excess
    }

    /// It has been put. The result: whether an entry was replaced.
    pub(super) fn put(&mut self, address: Address, flags: u32) -> bool {
        self.there.insert(address, flags).is_some()
    }

    /// It has been deleted. The result: whether there was an entry.
    pub(super) fn deleted(&mut self, address: Address) -> bool {
        self.leaving.remove(&address);
        self.there.remove(&address).is_some()
    }

    /// It has one more frontend.
    pub(super) fn occupied(&mut self, address: Address) {
        *self.frontends.entry(address).or_default() += 1;
    }

    /// It has one frontend less.
    pub(super) fn vacated(&mut self, address: Address) {
        if let Some(count) = self.frontends.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.frontends.remove(&address);
            }
        }
    }

    /// The map, as it was written.
    pub(super) const fn written(&self) -> &HashMap<Address, u32> {
        &self.there
    }
}

/// Flags that an agent of this version writes. The first write removes others.
const KNOWN: u32 = lb_abi::address_flags::ALL;

/// Whether it is the address of node ports.
pub(super) fn is_unspecified(address: Address) -> bool {
    [Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6].contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Interner, ObjectName};
    use lb_abi::address_flags::{NODE, VIP};

    const ADDRESS: Address = Address::v4([10, 96, 0, 1]);

    fn services() -> [ObjectId; 2] {
        let mut names = Interner::default();
        ["x", "y"].map(|name| names.acquire(&ObjectName::new("t", name)))
    }

    #[test]
    fn an_address_has_the_flags_that_all_services_want() {
        let ([x, y], mut addresses) = (services(), Addresses::default());
        addresses.want(x, &[(ADDRESS, VIP)]);
        assert_eq!(addresses.missing(ADDRESS), Some(VIP));
        addresses.put(ADDRESS, VIP);
        addresses.want(y, &[(ADDRESS, NODE)]);
        assert_eq!(addresses.wanted(ADDRESS), Some(VIP | NODE));
        assert_eq!(addresses.missing(ADDRESS), Some(VIP | NODE), "a flag is missing");
        addresses.put(ADDRESS, VIP | NODE);
        assert_eq!(addresses.missing(ADDRESS), None);
        assert_eq!(addresses.excess(), []);

        // One gives it up: its flags go, the address stays.
        addresses.want(x, &[]);
        assert_eq!(addresses.excess(), [(ADDRESS, Some(NODE))]);
        assert_eq!(addresses.excess(), [(ADDRESS, Some(NODE))], "until it is done");
        addresses.put(ADDRESS, NODE);
        assert_eq!(addresses.excess(), []);
        addresses.want(y, &[]);
        assert_eq!(addresses.excess(), [(ADDRESS, None)]);
        addresses.deleted(ADDRESS);
        assert_eq!(addresses.excess(), []);
        assert!(!addresses.may_have_frontends(ADDRESS));
    }

    #[test]
    fn no_flags_differ_from_no_address() {
        let ([x, y], mut addresses) = (services(), Addresses::default());
        addresses.want(x, &[(ADDRESS, 0)]);
        assert_eq!(addresses.missing(ADDRESS), Some(0));
        addresses.put(ADDRESS, 0);
        assert_eq!(
            (addresses.missing(ADDRESS), addresses.excess()),
            (None, Vec::new())
        );
        // A second one, with a flag, comes and goes.
        addresses.want(y, &[(ADDRESS, VIP)]);
        addresses.put(ADDRESS, VIP);
        addresses.want(y, &[]);
        assert_eq!(addresses.excess(), [(ADDRESS, Some(0))]);
        addresses.put(ADDRESS, 0);
        addresses.want(x, &[]);
        assert_eq!(addresses.excess(), [(ADDRESS, None)]);
    }

    #[test]
    fn a_flag_that_changes_is_given_before_the_other_is_taken() {
        let ([x, _], mut addresses) = (services(), Addresses::default());
        addresses.want(x, &[(ADDRESS, VIP)]);
        addresses.put(ADDRESS, VIP);
        addresses.want(x, &[(ADDRESS, NODE)]);
        assert_eq!(addresses.missing(ADDRESS), Some(VIP | NODE));
        addresses.put(ADDRESS, VIP | NODE);
        assert_eq!(addresses.excess(), [(ADDRESS, Some(NODE))]);
    }

    #[test]
    fn an_unchanged_plan_marks_no_address() {
        let ([x, _], mut addresses) = (services(), Addresses::default());
        addresses.want(x, &[(ADDRESS, VIP)]);
        addresses.put(ADDRESS, VIP);
        addresses.want(x, &[(ADDRESS, VIP)]);
        assert!(addresses.leaving.is_empty());
    }

    #[test]
    fn an_unwanted_address_stays_while_it_has_frontends() {
        let mut addresses = Addresses::default();
        addresses.adopt(ADDRESS, VIP);
        addresses.occupied(ADDRESS);
        addresses.occupied(ADDRESS);
        addresses.vacated(ADDRESS);
        assert_eq!(addresses.excess(), []);
        addresses.vacated(ADDRESS);
        assert_eq!(addresses.excess(), [(ADDRESS, None)]);
    }

    #[test]
    fn replacing_and_deleting_free_memory_and_inserting_does_not() {
        let mut addresses = Addresses::default();
        assert!(!addresses.put(ADDRESS, VIP));
        assert!(addresses.put(ADDRESS, VIP | NODE));
        assert!(addresses.deleted(ADDRESS));
        assert!(!addresses.deleted(ADDRESS));
    }
}
