//! The addresses of load balancers, and the services that have them.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use crate::cache::Key;

/// Ranges, and their addresses that are or were assigned. Bound: the addresses of the ranges.
pub(super) struct Pool {
    ranges: Vec<IpNet>,
    assigned: BTreeMap<IpAddr, Key>,
    /// When each address was released: the number of its release, from 1.
    released: BTreeMap<IpAddr, u64>,
    releases: u64,
}

impl Pool {
    pub(super) fn new(ranges: Vec<IpNet>) -> Self {
        Self {
            ranges,
            assigned: BTreeMap::new(),
            released: BTreeMap::new(),
            releases: 0,
        }
    }

    /// Notes the addresses that a service has already, unless another one has them.
    pub(super) fn reserve(&mut self, owner: &Key, addresses: &[String]) {
        for address in addresses.iter().filter_map(|text| text.parse().ok()) {
            self.assigned.entry(address).or_insert_with(|| owner.clone());
        }
    }

    pub(super) fn release(&mut self, owner: &Key) {
        let released = self.assigned.extract_if(.., |_, holder| holder == owner);
        for (address, _) in released {
            self.releases += 1;
            self.released.insert(address, self.releases);
        }
    }

    /// Assigns one address of each family: the requested one (`spec.loadBalancerIP`), the one that the service has, or the
    /// free one that has been free for the longest. Its addresses of other families are released. `None`, without any
    /// change, if one is not available.
    ///
    /// Not the first free one: conntrack leaves a connection untranslated whose first packet met no rule, for two minutes
    /// after its last SYN. The next Service at that address would lose connections from the source ports of clients that
    /// had dialled the former one.
    pub(super) fn assign(
        &mut self,
        owner: &Key,
        families: &[String],
        requested: Option<&str>,
    ) -> Option<Vec<String>> {
        let requested: Option<IpAddr> = requested.and_then(|text| text.parse().ok());
        let free = |address: &IpAddr| self.assigned.get(address).is_none_or(|holder| holder == owner);
        let mut addresses = Vec::new();
        for family in families {
            let fits = |address: &IpAddr| address.is_ipv6() == (family == "IPv6");
            let mut ranges = self.ranges.iter().filter(|range| fits(&range.addr()));
            let address = match requested.filter(fits) {
                Some(address) => ranges
                    .any(|range| range.contains(&address))
                    .then_some(address)
                    .filter(free),
                None => {
                    let mut mine = self.assigned.iter().filter(|(_, holder)| *holder == owner);
                    let mine = mine
                        .find(|(address, _)| fits(address))
                        .map(|(address, _)| *address);
                    let freed = |address: &IpAddr| self.released.get(address).copied().unwrap_or_default();
                    mine.or_else(|| ranges.flat_map(hosts).filter(free).min_by_key(freed))
                }
            };
            addresses.push(address?);
        }
        self.release(owner);
        self.assigned
            .extend(addresses.iter().map(|address| (*address, owner.clone())));
        Some(addresses.iter().map(IpAddr::to_string).collect())
    }
}

/// Host addresses of a range. `IpNet::hosts` includes the first of an IPv6 range, which belongs to routers (RFC 4291, 2.6.1).
fn hosts(range: &IpNet) -> impl Iterator<Item = IpAddr> + use<> {
    let first = range.network();
    let routers = first.is_ipv6() && range.prefix_len() < range.max_prefix_len();
    range.hosts().filter(move |host| !routers || *host != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_assigned_kept_requested_and_released() {
        let ranges = ["10.0.9.0/30", "fd00:9::/126"].map(|text| text.parse().expect("a range"));
        let mut pool = Pool::new(ranges.to_vec());
        let owner = |name: &str| ("default".to_owned(), name.to_owned());
        let ipv4 = ["IPv4".to_owned()];
        let both = ["IPv4".to_owned(), "IPv6".to_owned()];
        let found = |text: &[&str]| Some(text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(pool.assign(&owner("a"), &ipv4, None), found(&["10.0.9.1"]));
        assert_eq!(
            pool.assign(&owner("a"), &ipv4, None),
            found(&["10.0.9.1"]),
            "it keeps what it has"
        );
        assert_eq!(
            pool.assign(&owner("b"), &both, Some("10.0.9.1")),
            None,
            "another service has it"
        );
        assert_eq!(
            pool.assign(&owner("b"), &both, Some("10.0.8.1")),
            None,
            "in no range"
        );
        assert_eq!(
            pool.assign(&owner("b"), &both, None),
            found(&["10.0.9.2", "fd00:9::1"])
        );
        assert_eq!(
            pool.assign(&owner("c"), &ipv4, None),
            None,
            "two addresses are all of that range"
        );
        pool.release(&owner("a"));
        assert_eq!(pool.assign(&owner("c"), &ipv4, None), found(&["10.0.9.1"]));
        pool.reserve(&owner("d"), &["10.0.9.2".to_owned()]);
        assert_eq!(
            pool.assign(&owner("d"), &ipv4, Some("10.0.9.2")),
            None,
            "it was assigned before"
        );
    }

    #[test]
    fn an_address_is_assigned_again_after_all_that_were_free_before() {
        let mut pool = Pool::new(vec!["10.0.9.0/29".parse().expect("a range")]);
        let owner = |name: &str| ("default".to_owned(), name.to_owned());
        let ipv4 = ["IPv4".to_owned()];
        let mut given = Vec::new();
        for name in ["a", "b"] {
            given.extend(pool.assign(&owner(name), &ipv4, None).expect("a free one"));
        }
        pool.release(&owner("b"));
        pool.release(&owner("a"));
        for name in ["c", "d", "e", "f", "g", "h"] {
            given.extend(pool.assign(&owner(name), &ipv4, None).expect("a free one"));
        }
        let expected = ["1", "2", "3", "4", "5", "6", "2", "1"].map(|host| format!("10.0.9.{host}"));
        assert_eq!(given, expected);
    }
}
