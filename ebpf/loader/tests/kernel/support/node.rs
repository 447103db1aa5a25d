//! The datapath of a test's node, and services in it.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    process::Child,
    sync::Mutex,
};

use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, TCP, UDP,
};
use lb_loader::{Datapath, Options};

use super::isolation::start_victim;

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

/// A test's node.
pub(crate) struct Node {
    pub(crate) options: Options,
    test: &'static str,
    victim: bool,
}

impl Node {
    pub(super) fn new(bpffs: PathBuf, cgroup: PathBuf, test: &'static str, victim: bool) -> Self {
        Self {
            options: Options::new(bpffs, cgroup),
            test,
            victim,
        }
    }

    /// Whether this process is the one that the test kills.
    pub(crate) const fn is_victim(&self) -> bool {
        self.victim
    }

    /// Starts the process that the test kills: the test's body again, on this node.
    pub(crate) fn start_victim(&self) -> Child {
        start_victim(self.test)
    }

    /// Opens the datapath; nothing is attached.
    pub(crate) fn open(&self) -> Datapath {
        Datapath::open(&self.options).expect("the datapath opens")
    }

    /// Opens and attaches.
    pub(crate) fn start(&self) -> Datapath {
        let mut datapath = self.open();
        datapath.attach().expect("the programs are attached");
        datapath
    }

    /// Folder of the pinned links or maps.
    pub(crate) fn pins(&self, folder: &str) -> PathBuf {
        self.options.bpffs.join("plumbline/v1").join(folder)
    }
}

fn backend(protocol: Protocol, address: SocketAddrV4) -> Backend {
    Backend {
        address: Address::v4(address.ip().octets()),
        port: Port::new(address.port()),
        protocol: protocol.number(),
        flags: 0,
    }
}

/// A backend's id: of equal addresses equal, in the order in which this process has asked.
fn backend_id(address: SocketAddrV4) -> BackendId {
    static KNOWN: Mutex<Vec<SocketAddrV4>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().expect("nobody panics with it");
    let index = known
        .iter()
        .position(|other| *other == address)
        .unwrap_or_else(|| {
            known.push(address);
            known.len() - 1
        });
    BackendId::try_from(index + 1).expect("a few backends")
}

/// Makes an address a frontend of a service port.
pub(crate) fn frontend(datapath: &Datapath, protocol: Protocol, address: SocketAddrV4, service: ServiceId) {
    let Backend {
        address,
        port,
        protocol,
        ..
    } = backend(protocol, address);
    let key = FrontendKey {
        address,
        port,
        protocol,
        pad: 0,
    };
    let frontend = Frontend {
        internal: service,
        external: service,
        ..Frontend::default()
    };
    datapath
        .maps()
        .frontends
        .put(&key, &frontend)
        .expect("the frontend is put");
}

/// Switches a service port to a generation with these backends, in the order that the agent keeps: backends, slots,
/// switch, wait, and the slots of the generation before last go.
pub(crate) fn switch(
    datapath: &Datapath,
    protocol: Protocol,
    service: ServiceId,
    generation: u32,
    backends: &[SocketAddrV4],
) {
    let maps = datapath.maps();
    let before = maps.services.get(&service).expect("the service is read");
    for (index, address) in (0..).zip(backends) {
        let id = backend_id(*address);
        maps.backends
            .put(&id, &backend(protocol, *address))
            .expect("the backend is put");
        maps.slots
            .put(
                &SlotKey {
                    service,
                    generation,
                    index,
                },
                &id,
            )
            .expect("the slot is put");
    }
    let slots = u32::try_from(backends.len()).expect("a few backends");
    maps.services
        .put(&service, &Service { generation, slots })
        .expect("the service is switched");
    if let Some(Service {
        generation: old,
        slots,
    }) = before
    {
        datapath.barrier().expect("the barrier");
        for index in 0..slots {
            let key = SlotKey {
                service,
                generation: old,
                index,
            };
            assert!(
                maps.slots.delete(&key).expect("the old slot goes"),
                "{key:?} was there"
            );
        }
    }
}

impl Node {
    /// ClusterIP of the tests; no interface has it and no route leads to it.
    pub(crate) const CLUSTER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

    /// One service port, whose id is the port, at this port of the ClusterIP.
    pub(crate) fn service(
        &self,
        datapath: &Datapath,
        protocol: Protocol,
        port: u16,
        backends: &[SocketAddrV4],
    ) -> SocketAddrV4 {
        let address = SocketAddrV4::new(Self::CLUSTER_IP, port);
        let service = ServiceId::from(port);
        switch(datapath, protocol, service, 1, backends);
        frontend(datapath, protocol, address, service);
        address
    }
}
