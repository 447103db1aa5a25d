//! `frontend-moves-owner`: a frontend passes from Service A to Service B by two writes within a second, and back. From
//! the Service propagation limit on, every new connection and datagram from outside, and every further datagram of
//! sockets that never pause, reaches the new owner's backend; the former owner's, alive and answering, gets nothing.
//!
//! A flow whose own datagrams renew it would keep its former owner for ever. All frontends of both families move at
//! once. Load balancer addresses are those that a controller has assigned to a Service on another port, so that they
//! are routed to nodes.
use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontends::{self, Frontends},
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "frontend-moves-owner",
    area: super::AREA,
    claims: &["frontend-moves-owner"],
    sentence: "clients that send without pause follow a node port that passes to another Service",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("frontend_moves_owner.yaml"),
    longest: Duration::from_secs(600),
    // The Service propagation limit of both moves, which the case waits for in full.
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(moves(cx, &[Kind::NodePort])),
};
pub(crate) const LB: Case = Case {
    id: "frontend-moves-owner-lb",
    sentence: "clients follow an external IP, a load balancer's address and a node port that pass to another Service",
    features: &["loadbalancer", "external-ips"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses, Capability::Outside],
        ..CASE.needs
    },
    run: |cx| {
        Box::pin(moves(
            cx,
            &[Kind::ExternalIp, Kind::Balancer, Kind::NodePortToBalancer],
        ))
    },
    ..CASE
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// A load balancer class without a controller: the case writes the status.
const BY_HAND: &str = "plumbline.example/written-by-hand";
/// Sockets that send without a pause, to each address.
const SOCKETS: u32 = 4;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// The moving frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NodePort,
    ExternalIp,
    Balancer,
    /// From a Service's node port to another's port, whose load balancer addresses are the nodes' own.
    NodePortToBalancer,
}

impl Kind {
    /// Types of the two Services.
    fn types(self) -> [&'static str; 2] {
        match self {
            Self::NodePort => ["NodePort", "ClusterIP"],
            Self::ExternalIp => ["ClusterIP"; 2],
            Self::Balancer => ["LoadBalancer"; 2],
            Self::NodePortToBalancer => ["NodePort", "LoadBalancer"],
        }
    }

    /// Whether its address is one that a third Service keeps.
    fn is_shared(self) -> bool {
        matches!(self, Self::ExternalIp | Self::Balancer)
    }
}

/// A Service, and the patches of spec and status that give it a frontend and take it away.
struct Owner {
    made: Frontends,
    serves: Vec<Destination>,
    takes: [Value; 2],
    releases: [Value; 2],
}

async fn moves(cx: &Context, kinds: &[Kind]) -> Result<(), Halt> {
    cx.phase("staging: pairs of Services, of which one each has a frontend");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["a", "b"], &[TARGET], &[TARGET]).await?;
    let mut pairs = Vec::new();
    for family in cx.families() {
        for kind in kinds {
            pairs.push(stage(cx, &namespace, family, *kind, &backends).await?);
        }
    }
    let clients: Vec<_> = cx.clients().outside().into_iter().collect();
    for [from, to] in [[0, 1], [1, 0]] {
        let served_by = |owner: usize| -> Vec<Destination> {
            pairs.iter().flat_map(|pair| pair[owner].serves.clone()).collect()
        };
        let (before, after) = (served_by(from), served_by(to));
        let datagrams = |targets: &[Destination]| -> Vec<Destination> {
            targets
                .iter()
                .filter(|target| target.transport == Transport::Udp)
                .cloned()
                .collect()
        };
        cx.phase("control: frontends serve their owners, and sockets begin to send");
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        probing::control(cx, "its owner serves", &clients, &before, within).await?;
        let flows = Flows::open(cx, &clients, &datagrams(&before), SOCKETS, within).await?;

        cx.phase("fault: frontends pass to the other Service of each pair");
        for pair in &pairs {
            write(cx, &pair[from], &pair[from].releases).await?;
            write(cx, &pair[to], &pair[to].takes).await?;
        }
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;

        cx.phase("verdict: new clients reach the new owner, and so do those that never paused");
        probing::judge(cx, &clients, &after, within).await?;
        flows.hold_moved(cx, &clients, &datagrams(&after), within).await?;
    }
    Ok(())
}

/// Writes spec and status, as far as they change.
async fn write(cx: &Context, owner: &Owner, [spec, status]: &[Value; 2]) -> Result<(), Halt> {
    if !spec.is_null() {
        cx.objects()
            .patch(&owner.made.service, json!({ "spec": spec }))
            .await?;
    }
    if !status.is_null() {
        cx.objects()
            .patch_status(&owner.made.service, status.clone())
            .await?;
    }
    Ok(())
}

/// Two Services; the first has the frontend.
async fn stage(
    cx: &Context,
    namespace: &str,
    family: Family,
    kind: Kind,
    backends: &[Backend],
) -> Result<[Owner; 2], Halt> {
    let axis = format!("{family}, {kind:?}");
    let make = async |owner: &str, of: &[Backend], (class, port): (Value, u16)| {
        let service = format!("{owner}-{kind:?}-{family}").to_lowercase();
        let values = json!({
            "namespace": namespace, "service": service, "port": port, "class": class, "type": match owner {
                "holder" => "LoadBalancer",
                "a" => kind.types()[0],
                _ => kind.types()[1],
            },
            "endpoints": endpoints(of, family)?,
        });
        Frontends::create(cx, family, values).await
    };
    let class = |of: &str| {
        if of == "LoadBalancer" {
            json!(BY_HAND)
        } else {
            Value::Null
        }
    };
    let [of_a, of_b] = kind.types().map(|of| (class(of), PORT));
    let a = make("a", &backends[..1], of_a).await?;
    let b = make("b", &backends[1..2], of_b).await?;
    let node_ports = a.node_ports();
    let addresses: Vec<IpAddr> = if kind.is_shared() {
        let holder = make("holder", &[], (Value::Null, PORT + 1)).await?;
        let at = holder
            .at_balancers(cx, &axis, Transport::Tcp, PORT, &BTreeSet::new())
            .await?;
        at.into_iter().map(|target| target.address.ip()).collect()
    } else {
        frontends::node_addresses(cx, family)
            .into_iter()
            .map(|(_, address)| address)
            .collect()
    };
    let ingress: Vec<Value> = addresses.iter().map(|address| json!({ "ip": address })).collect();
    let listed = json!({ "loadBalancer": { "ingress": ingress } });
    let node_port = [
        [
            json!({ "type": "NodePort", "ports": ports([PORT; 2], &node_ports) }),
            Value::Null,
        ],
        [json!({ "type": "ClusterIP" }), Value::Null],
    ];
    let of_b = match (kind, &*node_ports) {
        (Kind::NodePort, _) => node_port.clone(),
        (Kind::NodePortToBalancer, &[tcp, udp]) => [
            [json!({ "ports": ports([tcp, udp], &[]) }), listed],
            [json!({ "ports": ports([PORT; 2], &[]) }), Value::Null],
        ],
        (Kind::ExternalIp, _) => [
            [json!({ "externalIPs": addresses }), Value::Null],
            // Without a frontend, a ClusterIP Service may have no external policy.
            [
                json!({ "externalIPs": null, "externalTrafficPolicy": null }),
                Value::Null,
            ],
        ],
        _ => [
            [Value::Null, listed],
            [Value::Null, json!({ "loadBalancer": { "ingress": null } })],
        ],
    };
    let of_a = if kind.is_shared() { of_b.clone() } else { node_port };
    let owner = |made: Frontends, backend: &Backend, [takes, releases]: [[Value; 2]; 2]| {
        let mut serves = Vec::new();
        for (at, transport) in TRANSPORTS.into_iter().enumerate() {
            let by = identities([backend], transport, TARGET);
            let port = if kind.is_shared() { PORT } else { node_ports[at] };
            // Whichever Service serves it, its backend is one: flows go on with it.
            let to = |address: &IpAddr| {
                Destination::serves(&axis, "frontend", transport, (*address, port).into(), by.clone())
            };
            serves.extend(addresses.iter().map(to));
        }
        Owner {
            made,
            serves,
            takes,
            releases,
        }
    };
    let pair = [owner(a, &backends[0], of_a), owner(b, &backends[1], of_b)];
    write(cx, &pair[0], &pair[0].takes).await?;
    Ok(pair)
}

/// Ports of the Services, TCP and UDP, with these node ports if there are any.
fn ports(numbers: [u16; 2], node_ports: &[u16]) -> Value {
    let each = TRANSPORTS
        .iter()
        .zip(numbers)
        .enumerate()
        .map(|(at, (transport, number))| {
            let protocol = oracle::finding::transport(*transport);
            let mut port = json!({ "name": protocol.to_lowercase(), "port": number, "protocol": protocol });
            if let Some(node_port) = node_ports.get(at) {
                port["nodePort"] = json!(node_port);
            }
            port
        });
    each.collect()
}
