//! Our own maps: `lb-abi`, and the rules of DATAPATH.md ("Finding a frontend", "Choosing a backend", "Sockets").

use std::{
    collections::BTreeSet,
    mem::offset_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use lb_abi::{
    ABI_VERSION, Address, AddressRange, Affinity, AffinityKey, Chosen, ChosenKey, Config, FORMER_NAMES, Flow,
    FragmentKey, Frontend, Held, HeldKey, MAGIC, Port, Ports, SERVICE_RANGES, Service, SocketRevnat,
    SocketRevnatKey, SourceKey, Traffic, Tuple, address_flags, frontend_flags,
};

use super::{Answer, From, Frontends, MOST_BACKENDS, MOST_FRONTENDS, Question, bytes};
use crate::{
    destination::{Destination, Protocol},
    map_bytes::{MapBytes, ReadError},
    report::Map,
};

/// Names and sizes (key, value) of the maps that are read here.
const FRONTENDS: (&str, usize, usize) = ("FRONTENDS", 20, 16);
const ADDRESSES: (&str, usize, usize) = ("ADDRESSES", 16, 4);
const SERVICES: (&str, usize, usize) = ("SERVICES", 4, 8);
const SLOTS: (&str, usize, usize) = ("SLOTS", 12, 4);
const BACKENDS: (&str, usize, usize) = ("BACKENDS", 4, 20);
const META: (&str, usize, usize) = ("META", 4, 16);
const CONFIG: (&str, usize, usize) = ("CONFIG", 4, size_of::<Config>());
const SOURCES: (&str, usize, usize) = ("SOURCES", size_of::<SourceKey>(), 4);

/// The others, which are told by their names and sizes, and not read.
const UNREAD: [(&str, usize, usize); 11] = [
    ("KEPT", 4, size_of::<Service>()),
    ("CHOSEN", size_of::<ChosenKey>(), size_of::<Chosen>()),
    (
        "SOCKET_REVNAT",
        size_of::<SocketRevnatKey>(),
        size_of::<SocketRevnat>(),
    ),
    ("SOCKET_BACKEND", 8, size_of::<lb_abi::Backend>()),
    ("AFFINITY", size_of::<AffinityKey>(), size_of::<Affinity>()),
    ("FRAGMENTS", size_of::<FragmentKey>(), size_of::<Ports>()),
    ("HELD", size_of::<HeldKey>(), size_of::<Held>()),
    ("CONNTRACK", size_of::<Tuple>(), size_of::<Flow>()),
    ("COUNTERS", 4, 8),
    ("SERVICE_TRAFFIC", 4, size_of::<Traffic>()),
    ("BACKEND_TRAFFIC", 4, size_of::<Traffic>()),
];

/// Ids of our maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    pub(super) frontends: u32,
    addresses: u32,
    services: u32,
    slots: u32,
    backends: u32,
    /// Not every program has them.
    config: Option<u32>,
    sources: Option<u32>,
}

/// What a map of one of our programs holds.
pub(super) fn layout_of(map: &Map) -> Option<String> {
    let (key, value) = sizes(&map.name)?;
    bytes::is_of(map, key, value).then(|| format!("Plumbline {}, ABI {ABI_VERSION}", map.name))
}

/// Sizes of keys and values of a map of ours.
pub(super) fn sizes(name: &str) -> Option<(usize, usize)> {
    let read = [
        FRONTENDS, ADDRESSES, SERVICES, SLOTS, BACKENDS, META, CONFIG, SOURCES,
    ];
    // A map that was adopted from an earlier version keeps the name that it was made with.
    let former = FORMER_NAMES.into_iter().find(|(former, _)| *former == name);
    let name = former.map_or(name, |(_, name)| name);
    let mut known = read.into_iter().chain(UNREAD);
    let (_, key, value) = known.find(|(known, ..)| *known == name)?;
    Some((key, value))
}

impl Ours {
    /// `None`: of another ABI version, or the program does without one of the maps.
    pub(super) fn recognise(source: &dyn MapBytes, maps: &[&Map]) -> Result<Option<Self>, ReadError> {
        let find = |(name, key, value): (&str, usize, usize)| {
            maps.iter()
                .find(|map| map.name == name && bytes::is_of(map, key, value))
                .map(|map| map.id)
        };
        let Some(meta) = find(META) else { return Ok(None) };
        let meta = source.lookup(meta, &0_u32.to_ne_bytes())?.unwrap_or_default();
        if !meta.starts_with(&MAGIC) || bytes::u32_at(&meta, MAGIC.len()) != Some(ABI_VERSION) {
            return Ok(None);
        }
        let all = || {
            Some(Self {
                frontends: find(FRONTENDS)?,
                addresses: find(ADDRESSES)?,
                services: find(SERVICES)?,
                slots: find(SLOTS)?,
                backends: find(BACKENDS)?,
                config: find(CONFIG),
                sources: find(SOURCES),
            })
        };
        Ok(all())
    }

    pub(super) fn ask(&self, source: &dyn MapBytes, question: &Question) -> Result<Answer, ReadError> {
        let wanted = question.destination;
        let known = self.address_flags(source, wanted.address)?;
        let flags = known.unwrap_or(0);
        let (frontend, only_if) = match self.frontend(source, wanted, question.from)? {
            Some(frontend) => (Some(frontend), None),
            None if flags & address_flags::NODE != 0 => {
                let unspecified = match wanted.address {
                    IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let node_port = Destination {
                    address: unspecified,
                    ..wanted
                };
                let loopback = wanted.address.is_loopback() || wanted.address.is_unspecified();
                let only_if =
                    loopback.then(|| "the client is in the node's own network namespace".to_owned());
                (self.frontend(source, node_port, question.from)?, only_if)
            }
            None => (None, None),
        };
        let Some((service, frontend)) = frontend else {
            let refused = |because: &str| Answer::Refused {
                because: because.to_owned(),
            };
            return Ok(if flags & address_flags::VIP != 0 {
                refused("the address is a service's, which has no such port")
            } else if question.from == From::Outside
                && flags & (address_flags::LOAD_BALANCER | address_flags::NODE)
                    == address_flags::LOAD_BALANCER
            {
                refused("the address is a load balancer's, which has no such port, and is not routed on")
            } else if known.is_none() && self.is_nobodys(source, wanted.address)? {
                refused("cluster IPs are from that range, and no service has the address")
            } else {
                Answer::NotAService
            });
        };
        let ranged = frontend.flags & frontend_flags::SOURCE_RANGES != 0;
        if ranged && question.from == From::Socket {
            let because = "it has loadBalancerSourceRanges, which only packets can be held to".to_owned();
            return Ok(Answer::LeftToPackets { because });
        }
        let only_if =
            only_if.or_else(|| ranged.then(|| "the client is in loadBalancerSourceRanges".to_owned()));
        self.choose(source, service, frontend, question.from, only_if)
    }

    fn choose(
        &self,
        source: &dyn MapBytes,
        service: u32,
        frontend: Frontend,
        from: From,
        only_if: Option<String>,
    ) -> Result<Answer, ReadError> {
        let word = source.lookup(self.services, &service.to_ne_bytes())?;
        let Service { generation, slots } = word
            .and_then(|word| bytes::at(&word, 0))
            .map(|word| Service::from_word(u64::from_ne_bytes(word)))
            .unwrap_or_default();
        if generation == 0 {
            let because = format!("service port {service} is not there, although a frontend leads to it");
            return Ok(Answer::Refused { because });
        }
        if slots == 0 {
            let because = "it has no backend".to_owned();
            return Ok(
                if from == From::Outside && frontend.flags & frontend_flags::SILENT != 0 {
                    Answer::Dropped { because }
                } else {
                    Answer::Refused { because }
                },
            );
        }
        let (mut ids, mut backends, mut holes) = (BTreeSet::new(), BTreeSet::new(), 0);
        // A Maglev table has more slots than backends: every slot is asked for its id, every id once for its address.
        for index in 0..slots.min(lb_abi::capacity::SLOTS) {
            let key = [service, generation, index].map(u32::to_ne_bytes).concat();
            match source
                .lookup(self.slots, &key)?
                .and_then(|id| bytes::u32_at(&id, 0))
            {
                Some(id) if ids.len() < MOST_BACKENDS as usize => drop(ids.insert(id)),
                Some(_) => {}
                None => holes += 1,
            }
        }
        for id in ids {
            let found = source.lookup(self.backends, &id.to_ne_bytes())?;
            match found.and_then(|value| backend(&value)) {
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

    /// The service port in the scope, and the frontend.
    fn frontend(
        &self,
        source: &dyn MapBytes,
        wanted: Destination,
        from: From,
    ) -> Result<Option<(u32, Frontend)>, ReadError> {
        let value = source.lookup(self.frontends, &frontend_key(wanted))?;
        let frontend = value.and_then(|value| {
            Some(Frontend {
                internal: bytes::u32_at(&value, 0)?,
                external: bytes::u32_at(&value, 4)?,
                flags: bytes::u32_at(&value, 8)?,
                affinity_seconds: bytes::u32_at(&value, 12)?,
            })
        });
        Ok(frontend.and_then(|frontend| {
            let service = match from {
                From::Socket | From::Inside => frontend.internal,
                From::Outside => frontend.external,
            };
            (service != 0).then_some((service, frontend))
        }))
    }

    /// `None`: the address is not known.
    fn address_flags(&self, source: &dyn MapBytes, address: IpAddr) -> Result<Option<u32>, ReadError> {
        let key = match address {
            IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Address::LOOPBACK_V4,
            IpAddr::V6(v6) if v6.is_unspecified() => Address::LOOPBACK_V6,
            _ => Address::from(address),
        };
        let value = source.lookup(self.addresses, &key.octets())?;
        Ok(value.and_then(|value| bytes::u32_at(&value, 0)))
    }

    /// Whether an address is in a Service range and none of the cluster's machines or pods has it.
    fn is_nobodys(&self, source: &dyn MapBytes, address: IpAddr) -> Result<bool, ReadError> {
        let (Some(config), Some(sources)) = (self.config, self.sources) else {
            return Ok(false);
        };
        let address = Address::from(address);
        let config = source.lookup(config, &0_u32.to_ne_bytes())?.unwrap_or_default();
        let mut ranges = (0..SERVICE_RANGES).filter_map(|index| {
            let at = offset_of!(Config, service_ranges) + index * size_of::<AddressRange>();
            Some(AddressRange {
                address: Address::v6(bytes::at(&config, at)?),
                mask: Address::v6(bytes::at(&config, at + size_of::<Address>())?),
            })
        });
        if !ranges.any(|range| range.contains(address)) {
            return Ok(false);
        }
        let client = SourceKey::client(SourceKey::CLUSTER, address);
        let mut key = client.prefix_length.to_ne_bytes().to_vec();
        key.extend(client.service);
        key.extend(client.address.octets());
        Ok(source.lookup(sources, &key)?.is_none())
    }

    pub(super) fn frontends(&self, source: &dyn MapBytes) -> Result<Frontends, ReadError> {
        let mut found = BTreeSet::new();
        let complete = source.each(self.frontends, MOST_FRONTENDS, &mut |key, _| {
            found.extend(destination(key));
        })?;
        Ok(Frontends { found, complete })
    }
}

/// A key of FRONTENDS, in bytes.
pub(super) fn frontend_key(destination: Destination) -> Vec<u8> {
    let mut key = Address::from(destination.address).octets().to_vec();
    key.extend(Port::new(destination.port).0);
    key.extend([destination.protocol.number(), 0]);
    key
}

/// The destination that a key of FRONTENDS names.
fn destination(key: &[u8]) -> Option<Destination> {
    Some(Destination {
        protocol: Protocol::from_number(*key.get(18)?)?,
        address: Address::v6(bytes::at(key, 0)?).into(),
        port: Port(bytes::at(key, 16)?).get(),
    })
}

fn backend(value: &[u8]) -> Option<SocketAddr> {
    let address = IpAddr::from(Address::v6(bytes::at(value, 0)?));
    Some(SocketAddr::new(address, Port(bytes::at(value, 16)?).get()))
}
