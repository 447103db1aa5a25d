//! Calico's service maps.
//!
//! | map | key | value |
//! |---|---|---|
//! | `cali_v4_nat_fe` (8, 16) | address, port, protocol, zero | id, backends, local ones, affinity seconds |
//! | `cali_v4_nat_fe2` (16, 16) | prefix length, address, port, protocol, client, zero | the same |
//! | `cali_v4_nat_fe3` (16, 20), as of 3.31 | the same | and flags |
//! | `cali_v6_nat_fe3` (40, 20), as of 3.31 | the same with addresses of 16 bytes | the same |
//! | `cali_v4_nat_be` (8, 8), `cali_v6_nat_be` (8, 20) | id, ordinal | address, port, zeros |
//!
//! The version of the frontends is the number that their name ends with. Addresses are in network order, everything else is in the machine's, ports too. From version 2 on the frontends are
//! a trie that ends with the client's range (`loadBalancerSourceRanges`); a client that nothing is known of is looked
//! up as the unspecified address, as the programs at sockets do. Node ports are frontends of the address of all ones.
//! Local backends come first.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{Answer, From, Frontends, MOST_BACKENDS, MOST_FRONTENDS, Question, bytes};
use crate::{
    destination::{Destination, Family, Protocol},
    map_bytes::{MapBytes, ReadError},
    report::Map,
};

/// `NAT_FE_DROP_COUNT`: clients in no range.
const BLACK_HOLE: u32 = u32::MAX;
/// `NATFlgExternalLocal`.
const EXTERNAL_LOCAL: u32 = 1;
/// `NATFlgInternalLocal`.
const INTERNAL_LOCAL: u32 = 1 << 1;
/// `NATFlgExclude`.
const EXCLUDE: u32 = 1 << 2;

/// The maps of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calico(BTreeMap<Family, Maps>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maps {
    frontends: u32,
    backends: u32,
    version: u32,
}

/// A value of the frontends.
struct Entry {
    id: u32,
    count: u32,
    local: u32,
    flags: u32,
}

/// Version of a map of frontends, if it is one.
fn version(map: &Map, family: Family) -> Option<u32> {
    let known = match family {
        Family::V4 => [
            ("cali_v4_nat_fe", 8, 16, 1),
            ("cali_v4_nat_fe2", 16, 16, 2),
            ("cali_v4_nat_fe3", 16, 20, 3),
        ]
        .as_slice(),
        Family::V6 => [("cali_v6_nat_fe3", 40, 20, 3)].as_slice(),
    };
    let fits = |(name, key, value, _): &&(&str, usize, usize, u32)| {
        map.name == *name && bytes::is_of(map, *key, *value)
    };
    known.iter().find(fits).map(|(.., version)| *version)
}

fn is_backends(map: &Map, family: Family) -> bool {
    let name = match family {
        Family::V4 => "cali_v4_nat_be",
        Family::V6 => "cali_v6_nat_be",
    };
    map.name == name && bytes::is_of(map, 8, bytes::address_size(family) + 4)
}

/// What a map of one of Calico's programs holds.
pub(super) fn layout_of(map: &Map) -> Option<String> {
    [Family::V4, Family::V6].into_iter().find_map(|family| {
        if let Some(version) = version(map, family) {
            return Some(format!("Calico NAT frontends v{version} ({family})"));
        }
        is_backends(map, family).then(|| format!("Calico NAT backends ({family})"))
    })
}

impl Calico {
    pub(super) fn recognise(maps: &[&Map]) -> Option<Self> {
        let of = |family| {
            let (frontends, version) = maps
                .iter()
                .find_map(|map| Some((map.id, version(map, family)?)))?;
            let backends = maps.iter().find(|map| is_backends(map, family))?.id;
            let found = Maps {
                frontends,
                backends,
                version,
            };
            Some((family, found))
        };
        let found: BTreeMap<Family, Maps> = [Family::V4, Family::V6].into_iter().filter_map(of).collect();
        (!found.is_empty()).then_some(Self(found))
    }

    pub(super) fn generation(&self) -> Vec<u32> {
        self.0.values().map(|maps| maps.frontends).collect()
    }

    pub(super) fn ask(&self, source: &dyn MapBytes, question: &Question) -> Result<Answer, ReadError> {
        let wanted = question.destination;
        let Some(maps) = self.0.get(&Family::of(wanted.address)) else {
            return Ok(Answer::NotAService);
        };
        if let Some(entry) = maps.entry(source, wanted)? {
            return maps.answer(source, wanted, &entry, question.from, None);
        }
        let node_port = Destination {
            address: node_ports(Family::of(wanted.address)),
            ..wanted
        };
        let Some(entry) = maps.entry(source, node_port)? else {
            return Ok(Answer::NotAService);
        };
        let only_if = format!(
            "cali_v4_routes or cali_v6_routes has {} as a host's",
            wanted.address
        );
        maps.answer(source, wanted, &entry, question.from, Some(only_if))
    }

    pub(super) fn frontends(&self, source: &dyn MapBytes) -> Result<Frontends, ReadError> {
        let mut all = Frontends {
            found: BTreeSet::new(),
            complete: true,
        };
        for (family, maps) in &self.0 {
            all.complete &= source.each(maps.frontends, MOST_FRONTENDS, &mut |key, _| {
                all.found.extend(maps.frontend(key, *family));
            })?;
        }
        Ok(all)
    }
}

/// The address of node ports.
const fn node_ports(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::BROADCAST),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
    }
}

impl Maps {
    /// Where the address begins in a key.
    const fn offset(&self) -> usize {
        if self.version == 1 { 0 } else { 4 }
    }

    fn frontend(&self, key: &[u8], family: Family) -> Option<Destination> {
        let (offset, size) = (self.offset(), bytes::address_size(family));
        Some(Destination {
            address: bytes::address_at(key, offset, family)?,
            port: bytes::u16_at(key, offset + size)?,
            protocol: Protocol::from_number(*key.get(offset + size + 2)?)?,
        })
    }

    fn entry(&self, source: &dyn MapBytes, wanted: Destination) -> Result<Option<Entry>, ReadError> {
        let address = bytes::octets(wanted.address);
        let size = address.len();
        let mut key = Vec::new();
        if self.version > 1 {
            // All of it: address, port, protocol, client.
            let bits = u32::try_from((2 * size + 3) * 8).unwrap_or(u32::MAX);
            key.extend(bits.to_ne_bytes());
        }
        key.extend(address);
        key.extend(wanted.port.to_ne_bytes());
        key.push(wanted.protocol.number());
        if self.version > 1 {
            key.extend(std::iter::repeat_n(0, size));
        }
        key.push(0);
        let value = source.lookup(self.frontends, &key)?;
        Ok(value.and_then(|value| {
            Some(Entry {
                id: bytes::u32_at(&value, 0)?,
                count: bytes::u32_at(&value, 4)?,
                local: bytes::u32_at(&value, 8)?,
                flags: bytes::u32_at(&value, 16).unwrap_or(0),
            })
        }))
    }

    fn answer(
        &self,
        source: &dyn MapBytes,
        wanted: Destination,
        entry: &Entry,
        from: From,
        only_if: Option<String>,
    ) -> Result<Answer, ReadError> {
        if entry.flags & EXCLUDE != 0 {
            return Ok(Answer::NotAService);
        }
        if entry.count == BLACK_HOLE {
            let because = "only clients in loadBalancerSourceRanges are served".to_owned();
            return Ok(match from {
                From::Socket => Answer::LeftToPackets { because },
                From::Inside | From::Outside => Answer::Dropped { because },
            });
        }
        let local = match from {
            From::Socket | From::Inside => entry.flags & INTERNAL_LOCAL != 0,
            From::Outside => entry.flags & EXTERNAL_LOCAL != 0,
        };
        let count = if local { entry.local } else { entry.count };
        if count == 0 {
            let because = if local {
                "it has no backend on this node, and its policy is Local"
            } else {
                "it has no backend"
            };
            return Ok(Answer::Refused {
                because: because.to_owned(),
            });
        }
        let (mut backends, mut holes) = (BTreeSet::new(), 0);
        for ordinal in 0..count.min(MOST_BACKENDS) {
            let key = [entry.id, ordinal].map(u32::to_ne_bytes).concat();
            let value = source.lookup(self.backends, &key)?;
            let family = Family::of(wanted.address);
            let backend = value.and_then(|value| {
                let address = bytes::address_at(&value, 0, family)?;
                Some(SocketAddr::new(
                    address,
                    bytes::u16_at(&value, bytes::address_size(family))?,
                ))
            });
            match backend {
                Some(backend) => drop(backends.insert(backend)),
                None => holes += 1,
            }
        }
        Ok(Answer::Backends {
            backends,
            holes,
            only_if,
        })
    }
}
