//! Rows about a Service with one backend on the first node, which differ in the client, the backend's network, and what
//! is dialled:
//!
//! | row | backend | client | dials |
//! |---|---|---|---|
//! | `clusterip-from-host` | pod | process of each node, pod with its network | ClusterIP |
//! | `clusterip-hostnetwork-backend` | pod with its node's network | pods and hosts | ClusterIP |
//! | `clusterip-hairpin` | pod | the backend itself | ClusterIP |
//! | `nodeport-any-node` | pod | pods, hosts, outside | node port of each node |
//! | `v4-mapped-socket` | pod | pods and hosts | ClusterIP as `::ffff:a.b.c.d`, from IPv6 sockets |
//!
//! The other nodes have no backend, so that replies take another path there. The port of the Service is not that of the
//! backend.
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use cluster::{Capability, Family};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontends::{Frontends, Vantage},
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    history::{Attempt, Transport},
    observations,
};
use serde_json::json;

pub(crate) const HAIRPIN: Case = Case {
    id: "clusterip-hairpin",
    area: super::AREA,
    claims: &["clusterip-hairpin"],
    sentence: "a pod that is a Service's only endpoint reaches itself through the ClusterIP",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("one_backend.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(reached(cx, Row::Hairpin)),
};
pub(crate) const MAPPED: Case = Case {
    id: "v4-mapped-socket",
    claims: &["v4-mapped-socket"],
    sentence: "an IPv6 socket that dials the IPv4-mapped ClusterIP is served",
    needs: Needs {
        families: Families::Ipv4,
        ..HAIRPIN.needs
    },
    run: |cx| Box::pin(reached(cx, Row::Mapped)),
    ..HAIRPIN
};
pub(crate) const NODE_PORTS: Case = Case {
    id: "nodeport-any-node",
    claims: &["nodeport-any-node"],
    sentence: "a node port is served on every node's InternalIP, from outside, pods and hosts",
    needs: Needs {
        nodes: 2,
        also: &[Capability::Outside],
        ..HAIRPIN.needs
    },
    run: |cx| Box::pin(reached(cx, Row::NodePorts)),
    ..HAIRPIN
};
pub(crate) const HOST_BACKEND: Case = Case {
    id: "clusterip-hostnetwork-backend",
    claims: &["clusterip-hostnetwork-backend"],
    sentence: "a backend with its node's network is served through the ClusterIP, from its own node and from others",
    needs: Needs {
        nodes: 2,
        ..HAIRPIN.needs
    },
    run: |cx| Box::pin(reached(cx, Row::HostBackend)),
    ..HAIRPIN
};
pub(crate) const FROM_HOST: Case = Case {
    id: "clusterip-from-host",
    claims: &["clusterip-from-host"],
    sentence: "processes of nodes, and pods with their network, are served through the ClusterIP, without a backend on their node too",
    needs: Needs {
        nodes: 2,
        rights: Rights::Node,
        also: &[Capability::HostNetwork],
        ..HAIRPIN.needs
    },
    disruptive: true,
    run: |cx| Box::pin(reached(cx, Row::FromHost)),
    ..HAIRPIN
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    FromHost,
    HostBackend,
    Hairpin,
    NodePorts,
    Mapped,
}

async fn reached(cx: &Context, row: Row) -> Result<(), Halt> {
    cx.phase("staging: a Service with one backend");
    let namespace = cx.namespace().await?;
    let (backend, target, clients) = pods(cx, &namespace, row).await?;
    let (mut direct, mut targets) = (Vec::new(), Vec::new());
    let families = match row {
        // Whichever family a quick run has.
        Row::Mapped => vec![Family::IPv4],
        _ => cx.families(),
    };
    for family in families {
        let axis = family.to_string();
        let values = json!({
            "namespace": namespace, "service": format!("s-{axis}").to_lowercase(), "target": target,
            "type": if row == Row::NodePorts { "NodePort" } else { "ClusterIP" },
            "endpoints": endpoints([&backend], family)?,
        });
        let made = Frontends::create(cx, family, values).await?;
        for transport in TRANSPORTS {
            let by = identities([&backend], transport, target);
            let address = (backend.address(family)?, target).into();
            direct.push(made.at(&axis, "backend itself", transport, address, &by));
            if row == Row::NodePorts {
                targets.extend(made.at_nodes(cx, &axis, transport, &by)?);
                continue;
            }
            let mut cluster_ip = made.at_cluster_ip(&axis, transport, PORT, &by);
            if row == Row::Mapped {
                cluster_ip.address.set_ip(mapped(cluster_ip.address.ip()));
            }
            targets.push(cluster_ip);
        }
    }
    let within = Within::from_now(cx.limits().service);

    cx.phase("control: the backend answers at its own address");
    fence::pass(cx).await?;
    probing::control(cx, "the backend answers", &clients, &direct, within).await?;

    cx.phase("verdict: the backend is served through the Service");
    let outside = match row {
        Row::NodePorts => targets.clone(),
        _ => Vec::new(),
    };
    let vantages: Vec<Vantage> = [(clients, targets)]
        .into_iter()
        .chain(cx.clients().outside().map(|client| (vec![client], outside)))
        .filter(|(_, targets)| !targets.is_empty())
        .collect();
    for (clients, targets) in &vantages {
        let attempts = probing::judge(cx, clients, targets, within).await?;
        if row == Row::Hairpin {
            record_sources(cx, targets, &attempts);
        }
    }
    Ok(())
}

/// The backend, its port, and the clients inside that dial.
async fn pods(cx: &Context, namespace: &str, row: Row) -> Result<(Backend, u16, Vec<Client>), Halt> {
    let pod = |name: &str, node: &str, on_host: bool, port: u16| {
        let args = serve(name, namespace, &[port], &[port]);
        json!({ "name": name, "namespace": namespace, "node": node, "on_host": on_host, "args": args })
    };
    let nodes = cx.nodes();
    let on_host = row == Row::HostBackend;
    let target = if on_host { cx.host_port() } else { TARGET };
    let mut wanted = vec![pod("b", &nodes[0], on_host, target)];
    if row == Row::FromHost {
        let on = |node: &String| pod(&format!("on-{node}"), node, true, cx.host_port());
        wanted.extend(nodes.iter().map(on));
    }
    let mut made = cx.backends(&wanted).await?;
    let backend = made.remove(0);
    let clients = match row {
        Row::FromHost => {
            let pods = made.iter().map(Client::in_pod);
            cx.clients().on_hosts().into_iter().chain(pods).collect()
        }
        Row::Hairpin => vec![Client::in_pod(&backend)],
        Row::HostBackend | Row::NodePorts | Row::Mapped => cx.clients().to_vec(),
    };
    Ok((backend, target, clients))
}

/// The address as an IPv6 socket dials it.
fn mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::to_ipv6_mapped(&v4).into(),
        IpAddr::V6(_) => address,
    }
}

/// By which address a backend sees itself as the client is an implementation's choice.
fn record_sources(cx: &Context, targets: &[Destination], attempts: &[Attempt]) {
    for target in targets {
        let of_target = attempts
            .iter()
            .filter(|attempt| attempt.destination == target.address && attempt.transport == target.transport);
        let seen = observations::line(&observations::sources(of_target));
        let name = format!("source of {} {:?}", target.axis, target.transport);
        cx.record(&name, seen);
    }
}
