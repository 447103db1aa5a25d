//! Families of addresses, and service ports in the maps.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Mutex,
};

use lb_abi::{
    Address, Backend, BackendId, Counter, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, TCP, UDP,
    address_flags,
};
use lb_loader::Datapath;

/// How a client's socket names addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
    /// An IPv6 socket that names IPv4-mapped addresses.
    Mapped,
}

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Mapped];

    /// An address as the client names it.
    fn name(self, v4: Ipv4Addr, v6: Ipv6Addr) -> IpAddr {
        match self {
            Self::V4 => v4.into(),
            Self::V6 => v6.into(),
            Self::Mapped => v4.to_ipv6_mapped().into(),
        }
    }

    /// A port of the ClusterIP of the tests; no interface has it and no route leads to it.
    pub(super) fn cluster_ip(self, port: u16) -> SocketAddr {
        let v6 = Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1);
        SocketAddr::new(self.name(Ipv4Addr::new(10, 96, 0, 1), v6), port)
    }

    /// A port of an address that only ADDRESSES says is the node's.
    pub(super) fn node(self, port: u16) -> SocketAddr {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
        SocketAddr::new(self.name(Ipv4Addr::new(192, 0, 2, 7), v6), port)
    }

    /// A port at loopback.
    pub(super) fn loopback(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.name(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST), port)
    }

    /// The unspecified address: of node ports in FRONTENDS, and of sockets that take everything.
    pub(super) fn unspecified(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.name(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED), port)
    }

    /// What a client's socket is bound to, so that it is of this family and can send to all of its addresses.
    pub(super) fn client(self) -> SocketAddr {
        match self {
            Self::V4 => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            Self::V6 | Self::Mapped => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        }
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) const BOTH: [Self; 2] = [Self::Tcp, Self::Udp];

    const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

/// A key of FRONTENDS.
pub(super) fn frontend_key(protocol: Protocol, at: SocketAddr) -> FrontendKey {
    FrontendKey {
        address: Address::from(at.ip()),
        port: Port::new(at.port()),
        protocol: protocol.number(),
        pad: 0,
    }
}

/// A value of BACKENDS.
pub(super) fn backend(protocol: Protocol, at: SocketAddr) -> Backend {
    let FrontendKey {
        address,
        port,
        protocol,
        ..
    } = frontend_key(protocol, at);
    Backend {
        address,
        port,
        protocol,
        flags: 0,
    }
}

/// A backend's id: of equal backends equal, in the order in which this process has asked.
pub(super) fn backend_id(protocol: Protocol, at: SocketAddr) -> BackendId {
    static KNOWN: Mutex<Vec<Backend>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().expect("nobody panics with it");
    let backend = backend(protocol, at);
    let index = known
        .iter()
        .position(|other| *other == backend)
        .unwrap_or_else(|| {
            known.push(backend);
            known.len() - 1
        });
    BackendId::try_from(index + 1).expect("a few backends")
}

/// A service port in the maps.
#[derive(Clone, Copy)]
pub(super) struct ServicePort<'a> {
    datapath: &'a Datapath,
    pub(super) id: ServiceId,
    protocol: Protocol,
}

impl<'a> ServicePort<'a> {
    /// In generation 1, with these backends, and no frontend yet.
    pub(super) fn new(
        datapath: &'a Datapath,
        id: ServiceId,
        protocol: Protocol,
        backends: &[SocketAddr],
    ) -> Self {
        let this = Self {
            datapath,
            id,
            protocol,
        };
        this.switch(1, backends);
        this
    }

    /// Without anything in the maps: a hole.
    pub(super) const fn missing(datapath: &'a Datapath, id: ServiceId, protocol: Protocol) -> Self {
        Self {
            datapath,
            id,
            protocol,
        }
    }

    /// Switches to a generation with these backends, each of which is marked as a member; what others had stays.
    pub(super) fn switch(&self, generation: u32, backends: &[SocketAddr]) {
        let maps = self.datapath.maps();
        for (index, at) in (0..).zip(backends) {
            let id = backend_id(self.protocol, *at);
            maps.backends
                .put(&id, &backend(self.protocol, *at))
                .expect("the backend is put");
            for key in [
                self.slot(generation, index),
                SlotKey::member(self.id, generation, id),
            ] {
                maps.slots.put(&key, &id).expect("the slot is put");
            }
        }
        let slots = u32::try_from(backends.len()).expect("a few backends");
        self.set(Service { generation, slots });
    }

    /// Writes SERVICES alone.
    pub(super) fn set(&self, service: Service) {
        self.datapath
            .maps()
            .services
            .put(&self.id, &service)
            .expect("the service is switched");
    }

    /// The key of a slot.
    pub(super) const fn slot(&self, generation: u32, index: u32) -> SlotKey {
        SlotKey {
            service: self.id,
            generation,
            index,
        }
    }

    /// Gives it a frontend for all clients, and returns its address.
    pub(super) fn at(&self, address: SocketAddr) -> SocketAddr {
        let frontend = Frontend {
            internal: self.id,
            external: self.id,
            ..Frontend::default()
        };
        self.frontend(address, frontend)
    }

    /// Gives it a frontend, and returns its address.
    pub(super) fn frontend(&self, address: SocketAddr, frontend: Frontend) -> SocketAddr {
        let key = frontend_key(self.protocol, address);
        self.datapath
            .maps()
            .frontends
            .put(&key, &frontend)
            .expect("the frontend is put");
        address
    }
}

/// Writes ADDRESSES.
pub(super) fn put_address(datapath: &Datapath, address: IpAddr, flags: u32) {
    let address = Address::from(address);
    datapath
        .maps()
        .addresses
        .put(&address, &flags)
        .expect("the address is put");
}

/// Makes the node's address and loopback the node's, of all families.
pub(super) fn put_node_addresses(datapath: &Datapath) {
    for family in Family::ALL {
        for at in [family.node(0), family.loopback(0)] {
            put_address(datapath, at.ip(), address_flags::NODE);
        }
    }
}

/// A counter's value.
pub(super) fn count(datapath: &Datapath, counter: Counter) -> u64 {
    datapath
        .maps()
        .counters()
        .expect("the counters are read")
        .get(counter)
}

/// Asserts what a counter was added while something was done.
#[track_caller]
pub(super) fn counts<T>(datapath: &Datapath, counter: Counter, expected: u64, done: impl FnOnce() -> T) -> T {
    let before = count(datapath, counter);
    let result = done();
    let added = count(datapath, counter) - before;
    assert_eq!(added, expected, "{counter:?} was added");
    result
}
