//! A Service of two ports, one of TCP and one of UDP, and what it does not have at the same address: other ports, its
//! backend's own ports, and each port by the other protocol. The backend listens on all of them.

use std::net::IpAddr;

use cluster::{Family, Place};
use harness::{
    capture::Capture,
    context::Context,
    destination::Destination,
    frontends::{self, Frontends},
    pods::endpoints,
    probing::identities,
    verdict::Halt,
};
use oracle::history::Transport;
use serde_json::json;

/// Transport, Service port and target port, as in the manifest.
const PORTS: [(Transport, u16, u16); 2] = [(Transport::Tcp, 7480, 8080), (Transport::Udp, 7481, 8081)];
/// What the Service does not have.
const CLOSED: [(&str, Transport, u16); 6] = [
    ("port", Transport::Tcp, 7482),
    ("port", Transport::Udp, 7482),
    ("target port", Transport::Tcp, 8080),
    ("target port", Transport::Udp, 8081),
    ("protocol", Transport::Tcp, 7481),
    ("protocol", Transport::Udp, 7480),
];
/// Ports of the backend, by both protocols.
const LISTENS: [u16; 5] = [7480, 7481, 7482, 8080, 8081];

/// A Service, and an address of it.
pub(super) struct Staged {
    family: Family,
    address: IpAddr,
    serves: Vec<Destination>,
    closed: Vec<Destination>,
}

impl Staged {
    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// What it has: served on each axis.
    pub(super) fn serves(&self) -> Vec<Destination> {
        self.serves.clone()
    }

    /// What it does not have.
    pub(super) fn closed(&self) -> Vec<Destination> {
        self.closed.clone()
    }
}

/// Creates one Service of each family and one backend of all; its address is the ClusterIP, or that of its load
/// balancer.
pub(super) async fn stage(cx: &Context, kind: &str) -> Result<Vec<Staged>, Halt> {
    cx.phase("staging: a Service of two ports");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &LISTENS, &LISTENS).await?;
    let mut all = Vec::new();
    for family in cx.families() {
        let service = format!("narrow-{family}").to_lowercase();
        let endpoints = endpoints(&backends, family)?;
        let values =
            json!({ "namespace": namespace, "service": service, "type": kind, "endpoints": endpoints });
        let made = Frontends::create(cx, family, values).await?;
        let axis = |what: &str| format!("{family}, {what}");
        let [(tcp, port, target), _] = PORTS;
        let by = identities(&backends, tcp, target);
        let at = match kind {
            "LoadBalancer" => made.at_balancers(cx, &axis("port"), tcp, port, &by).await?,
            _ => vec![made.at_cluster_ip(&axis("port"), tcp, port, &by)],
        };
        let none = || Halt::Harness(format!("{} has no address", made.service));
        let address = at.first().ok_or_else(none)?.address.ip();
        let closed = CLOSED.map(|(what, transport, port)| {
            Destination::none(&axis(what), "closed", transport, (address, port).into())
        });
        let mut serves = Vec::new();
        for what in ["port", "target port", "protocol"] {
            for (transport, port, target) in PORTS {
                let by = identities(&backends, transport, target);
                serves.push(made.at(&axis(what), "open", transport, (address, port).into(), &by));
            }
        }
        all.push(Staged {
            family,
            address,
            serves,
            closed: closed.to_vec(),
        });
    }
    Ok(all)
}

/// Captures on every node's uplink, the device of its InternalIP, what goes to and comes from these addresses. Each
/// with its node.
pub(super) async fn uplinks(cx: &Context, staged: &[Staged]) -> Result<Vec<(String, Capture)>, Halt> {
    let addresses: Vec<IpAddr> = staged.iter().map(|one| one.address).collect();
    let mut captures = Vec::new();
    let family = cx.families().first().copied().unwrap_or(Family::IPv4);
    for (node, internal) in frontends::node_addresses(cx, family) {
        let place = Place::Host { node: node.clone() };
        captures.push((node, Capture::start(cx, &place, internal, &addresses).await?));
    }
    Ok(captures)
}
