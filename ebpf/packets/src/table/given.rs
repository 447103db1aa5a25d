//! What is in the maps.

use lb_abi::{
    Address, AddressRange, AffinityKey, Backend, BackendId, Config, FragmentKey, Frontend, FrontendKey, Meta,
    Port, SCTP, Service, ServiceId, SlotKey, SourceKey, TCP, UDP, address_flags, backend_flags,
};

use super::{BACKEND, Connection, SERVICE};
use crate::{
    build::End,
    test_node::{Addresses, V4, V6},
};

/// Maps, as one list of entries: each can be left out in turn.
#[derive(Clone, PartialEq, Debug)]
pub struct Given {
    /// META.
    pub meta: Meta,
    /// CONFIG.
    pub config: Config,
    /// All others.
    pub entries: Vec<Entry>,
    /// Sockets that the node holds open.
    pub sockets: Vec<OpenSocket>,
}

/// An entry of a map. Ages are in seconds before the row begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Entry {
    /// Of ADDRESSES.
    Address(Address, u32),
    /// Of FRONTENDS.
    Frontend(FrontendKey, Frontend),
    /// Of SERVICES.
    Service(ServiceId, Service),
    /// Of SLOTS.
    Slot(SlotKey, BackendId),
    /// Of BACKENDS.
    Backend(BackendId, Backend),
    /// Of SOURCES.
    Source(SourceKey),
    /// Of AFFINITY; the backend, and its age.
    Affinity(AffinityKey, BackendId, i32),
    /// Of FRAGMENTS: source and destination port, how many wait for the first one, and its age.
    Fragment(FragmentKey, [Port; 2], u32, i32),
    /// Of CONNTRACK, one or two.
    Connection(Connection),
}

/// A socket that is open while a row is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenSocket {
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// To what it is bound.
    pub end: End,
    /// To what it is connected; without a peer, a TCP socket listens.
    pub peer: Option<End>,
}

/// No network namespace's cookie.
pub(crate) const ELSEWHERE: u64 = u64::MAX;

/// The only port, in nearly all rows, that is allocated: so that the packet out is known.
pub const SNAT_PORT: u16 = 62_000;

impl Default for Given {
    /// A node with its addresses in CONFIG, one port to allocate, and no limits; no services.
    fn default() -> Self {
        Self {
            meta: Meta::CURRENT,
            config: Config {
                // No namespace's: an agent that is tested beside these programs, and may not look at other processes, sees that they
                // are another node's.
                node_netns: ELSEWHERE,
                node_v4: V4.node.into(),
                node_v6: V6.node.into(),
                snat_first: SNAT_PORT,
                snat_last: SNAT_PORT,
                ..Config::NONE
            },
            entries: Vec::new(),
            sockets: Vec::new(),
        }
    }
}

impl Given {
    /// A node whose addresses are NODE, a load balancer's that is one, and ClusterIPs that are VIP.
    pub fn node(at: &Addresses) -> Self {
        Self::default()
            .address(at.node.into(), address_flags::NODE)
            .address(at.node_also.into(), address_flags::NODE)
            .address(at.load_balancer.into(), address_flags::LOAD_BALANCER)
            .address(at.cluster_ip.into(), address_flags::VIP)
            .address(at.cluster_ip_also.into(), address_flags::VIP)
    }

    /// With one more entry, or another one in the place of that of the same key.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Self {
        self.entries.retain(|other| !entry.same_key(other));
        self.entries.push(entry);
        self
    }

    /// Without the entries that these are the keys of.
    #[must_use]
    pub fn without(mut self, matches: impl Fn(&Entry) -> bool) -> Self {
        self.entries.retain(|entry| !matches(entry));
        self
    }

    /// ADDRESSES.
    #[must_use]
    pub fn address(self, address: Address, flags: u32) -> Self {
        self.with(Entry::Address(address, flags))
    }

    /// FRONTENDS: this end leads to service ports by scope.
    #[must_use]
    pub fn frontend(self, (address, port): End, protocol: u8, frontend: Frontend) -> Self {
        let key = FrontendKey {
            address: address.into(),
            port: Port::new(port),
            protocol,
            pad: 0,
        };
        self.with(Entry::Frontend(key, frontend))
    }

    /// SERVICES and SLOTS: a service port of generation 1 with one slot for each of these backends, all members of it.
    #[must_use]
    pub fn service(mut self, id: ServiceId, backends: &[BackendId]) -> Self {
        let service = Service {
            generation: 1,
            slots: backends.len() as u32,
        };
        self = self.with(Entry::Service(id, service));
        for (index, &backend) in (0..).zip(backends) {
            let slot = SlotKey {
                service: id,
                generation: 1,
                index,
            };
            self = self
                .with(Entry::Slot(slot, backend))
                .with(Entry::Slot(SlotKey::member(id, 1, backend), backend));
        }
        self
    }

    /// BACKENDS: one of this node.
    #[must_use]
    pub fn local_backend(self, id: BackendId, end: End, protocol: u8) -> Self {
        self.backend(id, end, protocol, backend_flags::LOCAL)
    }

    /// BACKENDS: one of another node.
    #[must_use]
    pub fn remote_backend(self, id: BackendId, end: End, protocol: u8) -> Self {
        self.backend(id, end, protocol, 0)
    }

    fn backend(self, id: BackendId, (address, port): End, protocol: u8, flags: u8) -> Self {
        let backend = Backend {
            address: address.into(),
            port: Port::new(port),
            protocol,
            flags,
        };
        self.with(Entry::Backend(id, backend))
    }

    /// The backend that rows are about: of the service port that they are about, of this node if it is.
    #[must_use]
    pub fn behind(self, local: bool, end: End, protocol: u8) -> Self {
        let flags = if local { backend_flags::LOCAL } else { 0 };
        self.service(SERVICE, &[BACKEND])
            .backend(BACKEND, end, protocol, flags)
    }

    /// CONNTRACK.
    #[must_use]
    pub fn connection(self, connection: Connection) -> Self {
        self.with(Entry::Connection(connection))
    }

    /// CONFIG: the ports of those that the kernel gives to sockets.
    #[must_use]
    pub const fn local_ports(mut self, first: u16, last: u16) -> Self {
        self.config.local_first = first;
        self.config.local_last = last;
        self
    }

    /// CONFIG: a range that cluster IPs are from.
    #[must_use]
    pub const fn service_range(mut self, range: AddressRange) -> Self {
        self.config.service_ranges[0] = range;
        self
    }

    /// CONFIG: the ports that are allocated.
    #[must_use]
    pub const fn ports(mut self, first: u16, last: u16) -> Self {
        self.config.snat_first = first;
        self.config.snat_last = last;
        self
    }

    /// META.
    #[must_use]
    pub const fn meta(mut self, meta: Meta) -> Self {
        self.meta = meta;
        self
    }

    /// A socket of the node: UDP, or TCP that listens.
    #[must_use]
    pub fn held(self, protocol: u8, end: End) -> Self {
        self.socket(protocol, end, None)
    }

    /// A socket of the node that is connected, as one is whose destination a socket program has replaced.
    #[must_use]
    pub fn connected(self, protocol: u8, end: End, peer: End) -> Self {
        self.socket(protocol, end, Some(peer))
    }

    fn socket(mut self, protocol: u8, end: End, peer: Option<End>) -> Self {
        assert!(
            [TCP, UDP].contains(&protocol),
            "SCTP sockets are not looked up: {SCTP}"
        );
        self.sockets.push(OpenSocket { protocol, end, peer });
        self
    }
}

impl Entry {
    /// Whether both have the same key of the same map.
    pub fn same_key(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(a, _), Self::Address(b, _)) => a == b,
            (Self::Frontend(a, _), Self::Frontend(b, _)) => a == b,
            (Self::Service(a, _), Self::Service(b, _)) | (Self::Backend(a, _), Self::Backend(b, _)) => a == b,
            (Self::Slot(a, _), Self::Slot(b, _)) => a == b,
            (Self::Source(a), Self::Source(b)) => a == b,
            (Self::Affinity(a, ..), Self::Affinity(b, ..)) => a == b,
            (Self::Fragment(a, ..), Self::Fragment(b, ..)) => a == b,
            _ => false,
        }
    }
}
