//! Plans with a bug: what the maps should have for a Service is changed before it is written.
//!
//! Bugs of agents that derive frontends and backends wrongly, whatever their watches and maps do.

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use lb_abi::address_flags::VIP;
use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::{Backend, Protocol, TransportAddress},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{ServicePlan, Set},
};

/// How long a backend may take to say that a port is closed.
const PATIENCE: Duration = Duration::from_millis(200);

/// A planner whose plans are changed.
#[derive(Debug)]
pub struct Replanned {
    planner: Planner,
    change: fn(&mut ServicePlan),
}

impl Replanned {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, change: fn(&mut ServicePlan)) -> Self {
        Self { planner, change }
    }
}

impl DesiredState for Replanned {
    fn apply(&mut self, event: Event) -> Dirty {
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        (self.change)(&mut plan);
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}

/// A cluster IP also serves at the ports of its backends: of an agent that keeps both numbers of a Service port in one
/// table.
pub fn target_ports_served(plan: &mut ServicePlan) {
    for port in plan.ports.values_mut() {
        let targets: BTreeSet<u16> = port.cluster.iter().map(|backend| backend.address.port).collect();
        let own = port
            .frontends
            .clone()
            .into_iter()
            .filter(|(_, frontend)| frontend.own);
        for (address, frontend) in own {
            for target in &targets {
                let also = TransportAddress {
                    port: *target,
                    ..address
                };
                port.frontends.entry(also).or_insert(frontend);
            }
        }
    }
}

/// What a load balancer's address has no port for is left to the node's routes.
pub fn balancers_unreserved(plan: &mut ServicePlan) {
    for flags in plan.addresses.values_mut().filter(|flags| **flags & VIP == 0) {
        *flags = 0;
    }
}

/// Connections from outside to a Service without backends are dropped, not refused.
pub fn silent_outside(plan: &mut ServicePlan) {
    for port in plan.ports.values_mut().filter(|port| port.cluster.is_empty()) {
        for frontend in port.frontends.values_mut().filter(|frontend| !frontend.own) {
            frontend.external = Set::Local;
            frontend.silent = true;
        }
    }
}

/// A backend whose port is closed is replaced by an address that drops everything: of an agent that checks backends,
/// and takes those out that do not answer without telling clients so.
pub fn closed_ports_dropped(plan: &mut ServicePlan) {
    let checked = |backend: &Backend| {
        let mut backend = *backend;
        if is_closed(backend.address) {
            backend.address.address = match backend.address.address {
                // Documentation (RFC 5737), discard-only (RFC 6666).
                IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
                IpAddr::V6(_) => Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1).into(),
            };
            backend.local = false;
        }
        backend
    };
    for port in plan.ports.values_mut() {
        for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
            *set = set.iter().map(checked).collect();
        }
    }
}

/// Whether a port says that it is closed.
fn is_closed(address: TransportAddress) -> bool {
    let to = SocketAddr::new(address.address, address.port);
    let refused =
        |done: io::Result<()>| done.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    match address.protocol {
        Protocol::Udp => refused(datagram(to)),
        Protocol::Tcp | Protocol::Sctp => refused(TcpStream::connect_timeout(&to, PATIENCE).map(drop)),
    }
}

/// Sends an empty datagram, and waits for an error.
fn datagram(to: SocketAddr) -> io::Result<()> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&[])?;
    socket.recv(&mut [0]).map(drop)
}
