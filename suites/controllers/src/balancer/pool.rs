//! The addresses of load balancers: who holds which.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use crate::cache::Key;

/// Ranges and who holds what of them. Bound: the addresses of the ranges.
pub(super) struct Pool {
    ranges: Vec<IpNet>,
    held: BTreeMap<IpAddr, Key>,
}

impl Pool {
    pub(super) fn new(ranges: Vec<IpNet>) -> Self {
        Self {
            ranges,
            held: BTreeMap::new(),
        }
    }

    /// Takes addresses for held by a service, unless another has them.
    pub(super) fn hold(&mut self, owner: &Key, addresses: &[String]) {
        for address in addresses.iter().filter_map(|text| text.parse().ok()) {
            self.held.entry(address).or_insert_with(|| owner.clone());
        }
    }

    pub(super) fn release(&mut self, owner: &Key) {
        self.held.retain(|_, holder| holder != owner);
    }

    /// One address of each family: what the service has, what it asks for (`spec.loadBalancerIP`), or the first that is
    /// free. What it holds of other families is given up. `None` if one can't be had; nothing changes then.
    pub(super) fn give(
        &mut self,
        owner: &Key,
        families: &[String],
        asked: Option<&str>,
    ) -> Option<Vec<String>> {
        let asked: Option<IpAddr> = asked.and_then(|text| text.parse().ok());
        let free = |address: &IpAddr| self.held.get(address).is_none_or(|holder| holder == owner);
        let mut given = Vec::new();
        for family in families {
            let fits = |address: &IpAddr| address.is_ipv6() == (family == "IPv6");
            let mut ranges = self.ranges.iter().filter(|range| fits(&range.addr()));
            let address = match asked.filter(fits) {
                Some(address) => ranges
                    .any(|range| range.contains(&address))
                    .then_some(address)
                    .filter(free),
                None => {
                    let mut mine = self.held.iter().filter(|(_, holder)| *holder == owner);
                    let mine = mine
                        .find(|(address, _)| fits(address))
                        .map(|(address, _)| *address);
                    mine.or_else(|| ranges.flat_map(hosts).find(free))
                }
            };
            given.push(address?);
        }
        self.release(owner);
        self.held
            .extend(given.iter().map(|address| (*address, owner.clone())));
        Some(given.iter().map(IpAddr::to_string).collect())
    }
}

/// Addresses for hosts. The first of an IPv6 range is that of its routers (RFC 4291, 2.6.1), which `IpNet::hosts` gives.
fn hosts(range: &IpNet) -> impl Iterator<Item = IpAddr> + use<> {
    let first = range.network();
    let routers = first.is_ipv6() && range.prefix_len() < range.max_prefix_len();
    range.hosts().filter(move |host| !routers || *host != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_kept_asked_for_and_released() {
        let ranges = ["10.0.9.0/30", "fd00:9::/126"].map(|text| text.parse().expect("a range"));
        let mut pool = Pool::new(ranges.to_vec());
        let owner = |name: &str| ("default".to_owned(), name.to_owned());
        let four = ["IPv4".to_owned()];
        let both = ["IPv4".to_owned(), "IPv6".to_owned()];
        let found = |text: &[&str]| Some(text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(pool.give(&owner("a"), &four, None), found(&["10.0.9.1"]));
        assert_eq!(
            pool.give(&owner("a"), &four, None),
            found(&["10.0.9.1"]),
            "it keeps what it has"
        );
        assert_eq!(
            pool.give(&owner("b"), &both, Some("10.0.9.1")),
            None,
            "another has it"
        );
        assert_eq!(
            pool.give(&owner("b"), &both, Some("10.0.8.1")),
            None,
            "in no range"
        );
        assert_eq!(
            pool.give(&owner("b"), &both, None),
            found(&["10.0.9.2", "fd00:9::1"])
        );
        assert_eq!(
            pool.give(&owner("c"), &four, None),
            None,
            "two addresses are all of that range"
        );
        pool.release(&owner("a"));
        assert_eq!(pool.give(&owner("c"), &four, None), found(&["10.0.9.1"]));
        pool.hold(&owner("d"), &["10.0.9.2".to_owned()]);
        assert_eq!(
            pool.give(&owner("d"), &four, Some("10.0.9.2")),
            None,
            "it was held before"
        );
    }
}
