//! Cilium's service maps.
//!
//! | map | key | value |
//! |---|---|---|
//! | `cilium_lb4_services_v2` (12, 12), since 1.6 | address, port, slot, protocol, scope, 2 zeros | backend id (of slot 0: affinity seconds), slots, reverse NAT index, flags, flags 2, quarantined slots |
//! | `cilium_lb6_services_v2` (24, 12) | likewise, address of 16 bytes | likewise |
//! | `cilium_lb4_backends` (2, 8), 1.6 to 1.10 | id | address, port, protocol, zero |
//! | `cilium_lb4_backends_v2` (4, 8), 1.11 and 1.12 | id | address, port, protocol, state |
//! | `cilium_lb4_backends_v3` (4, 12), since 1.13 | id | address, port, protocol, state, cluster, zone |
//! | `cilium_lb6_backends…` (2 or 4, 20 or 24) | likewise | likewise |
//! | `cilium_lb4_reverse_nat` (2, 6), `cilium_lb6_reverse_nat` (2, 18) | index | the service's address and port |
//! | `cilium_lb4_reverse_sk` (16, 8), `cilium_lb6_reverse_sk` (32, 20) | cookie, backend | the service's address and port, index |
//!
//! Addresses, ports and the index are in network order, the rest in the machine's. The protocol is 0 in services before
//! 1.17, and after it where services are not told apart by protocol; scope is 0 outside, 1 inside of a service whose
//! two policies differ.

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

/// `SVC_FLAG_EXTERNAL_IP`, of the first byte of flags.
const EXTERNAL_IP: u8 = 1;
/// `SVC_FLAG_EXT_LOCAL_SCOPE`, of the first byte.
const EXTERNAL_LOCAL: u8 = 1 << 2;
/// `SVC_FLAG_HOSTPORT`, of the first byte.
const HOST_PORT: u8 = 1 << 3;
/// `SVC_FLAG_SOURCE_RANGE`, of the first byte.
const SOURCE_RANGE: u8 = 1 << 7;
/// `SVC_FLAG_L7LOADBALANCER`, of the second byte.
const L7: u8 = 1 << 2;
/// `SVC_FLAG_TWO_SCOPES`, of the second byte.
const TWO_SCOPES: u8 = 1 << 5;
/// `LB_LOOKUP_SCOPE_INT`.
const INSIDE: u8 = 1;

/// The maps of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cilium(BTreeMap<Family, Maps>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maps {
    services: u32,
    backends: u32,
    /// Backends are numbered by 16 bits.
    short_ids: bool,
}

/// A service, or one of its slots.
struct Entry {
    backend: u32,
    count: u16,
    flags: u8,
    flags2: u8,
}

const fn services_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "cilium_lb4_services_v2",
        Family::V6 => "cilium_lb6_services_v2",
    }
}

const fn backends_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "cilium_lb4_backends_v3",
        Family::V6 => "cilium_lb6_backends_v3",
    }
}

fn is_services(map: &Map, family: Family) -> bool {
    map.name == bytes::kept(services_name(family)) && bytes::is_of(map, bytes::address_size(family) + 8, 12)
}

/// Version of a map of backends, if it is one.
fn backends_version(map: &Map, family: Family) -> Option<u32> {
    let short = bytes::address_size(family) + 4;
    let known = [(1, 2, short), (2, 4, short), (3, 4, short + 4)];
    let (version, ..) = known.into_iter().find(|(_, key, value)| {
        map.name == bytes::kept(backends_name(family)) && bytes::is_of(map, *key, *value)
    })?;
    Some(version)
}

/// What a map of one of Cilium's programs holds.
pub(super) fn layout_of(map: &Map) -> Option<String> {
    [Family::V4, Family::V6].into_iter().find_map(|family| {
        if is_services(map, family) {
            return Some(format!("Cilium services v2 ({family})"));
        }
        if let Some(version) = backends_version(map, family) {
            return Some(format!("Cilium backends v{version} ({family})"));
        }
        let (name, nat, socket) = match family {
            Family::V4 => ("cilium_lb4_reverse_nat", (2, 6), (16, 8)),
            Family::V6 => ("cilium_lb6_reverse_nat", (2, 18), (32, 20)),
        };
        let is = |(key, value)| map.name == bytes::kept(name) && bytes::is_of(map, key, value);
        if is(nat) {
            Some(format!("Cilium reverse NAT ({family})"))
        } else if is(socket) {
            Some(format!("Cilium reverse NAT of sockets ({family})"))
        } else {
            None
        }
    })
}

impl Cilium {
    pub(super) fn recognise(maps: &[&Map]) -> Option<Self> {
        let of = |family| {
            let services = maps.iter().find(|map| is_services(map, family))?;
            let (backends, version) = maps
                .iter()
                .find_map(|map| Some((map, backends_version(map, family)?)))?;
            let found = Maps {
                services: services.id,
                backends: backends.id,
                short_ids: version == 1,
            };
            Some((family, found))
        };
        let found: BTreeMap<Family, Maps> = [Family::V4, Family::V6].into_iter().filter_map(of).collect();
        (!found.is_empty()).then_some(Self(found))
    }

    pub(super) fn generation(&self) -> Vec<u32> {
        self.0.values().map(|maps| maps.services).collect()
    }

    pub(super) fn ask(&self, source: &dyn MapBytes, question: &Question) -> Result<Answer, ReadError> {
        let wanted = question.destination;
        let Some(maps) = self.0.get(&Family::of(wanted.address)) else {
            return Ok(Answer::NotAService);
        };
        if let Some(answer) = maps.find(source, wanted, question.from)? {
            return Ok(answer);
        }
        let surrogate = Destination {
            address: match wanted.address {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            },
            ..wanted
        };
        let answer = maps.find(source, surrogate, question.from)?;
        Ok(match answer.unwrap_or(Answer::NotAService) {
            Answer::Backends { backends, holes, .. } => Answer::Backends {
                backends,
                holes,
                only_if: Some(format!("cilium_ipcache has {} as a node's", wanted.address)),
            },
            other => other,
        })
    }

    pub(super) fn frontends(&self, source: &dyn MapBytes) -> Result<Frontends, ReadError> {
        let mut all = Frontends {
            found: BTreeSet::new(),
            complete: true,
        };
        for (family, maps) in &self.0 {
            let size = bytes::address_size(*family);
            all.complete &= source.each(maps.services, MOST_FRONTENDS, &mut |key, _| {
                all.found.extend(frontend(key, size, *family));
            })?;
        }
        Ok(all)
    }
}

/// The frontend of a key of slot 0. Where protocols are not told apart, it is shown as TCP's.
fn frontend(key: &[u8], size: usize, family: Family) -> Option<Destination> {
    let port = bytes::port_at(key, size)?;
    // Port 0 is the wildcard by which other ports of a service's address are dropped (since 1.17).
    (bytes::u16_at(key, size + 2)? == 0 && port != 0).then_some(())?;
    Some(Destination {
        protocol: Protocol::from_number(*key.get(size + 4)?).unwrap_or(Protocol::Tcp),
        address: bytes::address_at(key, 0, family)?,
        port,
    })
}

impl Maps {
    fn find(
        &self,
        source: &dyn MapBytes,
        wanted: Destination,
        from: From,
    ) -> Result<Option<Answer>, ReadError> {
        // With the protocol first; then as all services are stored by releases that do not tell protocols apart.
        for protocol in [wanted.protocol.number(), 0] {
            let Some(mut service) = self.entry(source, wanted, protocol, 0, 0)? else {
                continue;
            };
            let mut scope = 0;
            if from != From::Outside && service.flags2 & TWO_SCOPES != 0 {
                let Some(inside) = self.entry(source, wanted, protocol, INSIDE, 0)? else {
                    return Ok(None);
                };
                (service, scope) = (inside, INSIDE);
            }
            return self
                .answer(source, wanted, (protocol, scope), &service, from)
                .map(Some);
        }
        Ok(None)
    }

    fn answer(
        &self,
        source: &dyn MapBytes,
        wanted: Destination,
        (protocol, scope): (u8, u8),
        service: &Entry,
        from: From,
    ) -> Result<Answer, ReadError> {
        if service.flags2 & L7 != 0 {
            let because = "it is redirected to an L7 proxy".to_owned();
            return Ok(Answer::LeftToPackets { because });
        }
        if service.count == 0 {
            let because =
                "it has no backend (some releases and settings let it pass unchanged instead)".to_owned();
            let silent = from == From::Outside && service.flags & EXTERNAL_LOCAL != 0;
            return Ok(if silent {
                Answer::Dropped { because }
            } else {
                Answer::Refused { because }
            });
        }
        let (mut backends, mut holes) = (BTreeSet::new(), 0);
        for slot in 1..=service
            .count
            .min(u16::try_from(MOST_BACKENDS).unwrap_or(u16::MAX))
        {
            let entry = self.entry(source, wanted, protocol, scope, slot)?;
            let backend = match entry {
                Some(entry) => self.backend(source, entry.backend, Family::of(wanted.address))?,
                None => None,
            };
            match backend {
                Some(backend) => drop(backends.insert(backend)),
                None => holes += 1,
            }
        }
        let only_if = if from == From::Socket && service.flags & (EXTERNAL_IP | HOST_PORT) != 0 {
            Some(format!("cilium_ipcache has {} as this host's", wanted.address))
        } else if from == From::Outside && service.flags & SOURCE_RANGE != 0 {
            Some("the client is in loadBalancerSourceRanges".to_owned())
        } else {
            None
        };
        Ok(Answer::Backends {
            backends,
            holes,
            only_if,
        })
    }

    fn entry(
        &self,
        source: &dyn MapBytes,
        wanted: Destination,
        protocol: u8,
        scope: u8,
        slot: u16,
    ) -> Result<Option<Entry>, ReadError> {
        let mut key = bytes::octets(wanted.address);
        key.extend(wanted.port.to_be_bytes());
        key.extend(slot.to_ne_bytes());
        key.extend([protocol, scope, 0, 0]);
        let value = source.lookup(self.services, &key)?;
        Ok(value.and_then(|value| {
            Some(Entry {
                backend: bytes::u32_at(&value, 0)?,
                count: bytes::u16_at(&value, 4)?,
                flags: *value.get(8)?,
                flags2: *value.get(9)?,
            })
        }))
    }

    fn backend(
        &self,
        source: &dyn MapBytes,
        id: u32,
        family: Family,
    ) -> Result<Option<SocketAddr>, ReadError> {
        let key = match (self.short_ids, u16::try_from(id)) {
            (true, Ok(short)) => short.to_ne_bytes().to_vec(),
            (true, Err(_)) => return Ok(None),
            (false, _) => id.to_ne_bytes().to_vec(),
        };
        let value = source.lookup(self.backends, &key)?;
        Ok(value.and_then(|value| {
            let address = bytes::address_at(&value, 0, family)?;
            let port = bytes::port_at(&value, bytes::address_size(family))?;
            Some(SocketAddr::new(address, port))
        }))
    }
}
