//! `own-connection-untouched`: a connection that a node's own process has opened to a machine outside or to another
//! node, from a port whose number is a node port, is answered and goes on: where the Service existed before, and where
//! it gets that node port while the connection lives. The Service's backend gets none of it, and clients outside are
//! served through that node port meanwhile.
//!
//! So are connections of pods to another node, from ports of such numbers: most networks give them the node's address there,
//! and leave them their port, if it is free.
//!
//! Whether processes may bind a node port is an implementation's choice: where they may not, the first part is not
//! enabled.
use std::time::Duration;

use cluster::{Capability, Place};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontends::{self, Frontends},
    host_servers::{self, Servers},
    pods::endpoints,
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "own-connection-untouched",
    area: super::AREA,
    claims: &["own-connection-untouched"],
    sentence: "connections of a node's processes and pods survive whose source port is, or becomes, a node port",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::HostNetwork],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("own_connection_untouched.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// Sockets to each of two servers; each has a port of its own.
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];

/// Sockets of a process on a host or in a pod, and the ports that they are bound to.
type Dialled = (Client, Vec<(Destination, u16)>);

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: servers outside and on nodes, Services with node ports");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let servers = Servers::start(cx, &namespace, cx.host_port()).await?;
    let outside: Vec<Client> = cx.clients().outside().into_iter().collect();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut given_back, mut node_ports) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let whose = [("host", cx.clients().on_hosts()), ("pod", cx.clients().in_pods())];
        for (whose, clients) in whose {
            for (when, dialled) in [("before", &mut before), ("after", &mut after)] {
                let service = format!("{whose}-{when}-{family}").to_lowercase();
                let values = json!({
                    "namespace": namespace, "service": service, "endpoints": endpoints(&backends, family)?,
                    "ports": ports(80, &[]), "targets": ports(TARGET, &[]),
                });
                let made = Frontends::create(cx, family, values).await?;
                let axis = format!("{family}, clients of the node port");
                for transport in [Transport::Tcp, Transport::Udp] {
                    let by = identities(&backends, transport, TARGET);
                    node_ports.extend(made.at_nodes(cx, &axis, transport, &by)?);
                }
                let axis = format!("{family}, the node port comes {when} the connection of a {whose}");
                for client in &clients {
                    // Machines outside know no way to pods that are not masqueraded.
                    let targets = match client.place {
                        Place::Pod { .. } => {
                            servers.of_another_node(cx, client, &axis, family, &TRANSPORTS)?
                        }
                        _ => servers.from(cx, client, &axis, family, &TRANSPORTS).await?,
                    };
                    let bound = targets.into_iter().zip(made.node_ports()).collect();
                    dialled.push((client.clone(), bound));
                }
                given_back.extend((when == "after").then_some(made));
            }
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "the node ports serve", &outside, &node_ports, within).await?;

    cx.phase("some node ports are given back, and processes and pods dial from all of the numbers");
    for made in &given_back {
        let released = json!({ "spec": { "type": "ClusterIP" } });
        cx.objects().patch(&made.service, released).await?;
    }
    fence::pass(cx).await?;
    let flows = dial(cx, &before, &after).await?;

    cx.phase("they become node ports, and serve");
    for made in &given_back {
        let ports = ports(80, &made.node_ports());
        let taken = json!({ "spec": { "type": "NodePort", "ports": ports } });
        cx.objects().patch(&made.service, taken).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::judge_briefly(cx, &outside, &node_ports, within).await?;

    cx.phase("verdict: the connections of processes and pods survive, and reach no backend");
    let attempts = flows.hold(cx, cx.limits().hold).await?;
    for target in &node_ports {
        probing::trap_untouched(cx, &target.axis, &attempts, &backends[0]).await?;
    }
    Ok(())
}

/// Opens the connections that are dialled before the node ports exist, which must be answered, and then those that are
/// dialled after.
async fn dial(cx: &Context, before: &[Dialled], after: &[Dialled]) -> Result<Flows, Halt> {
    let mut flows = Flows::none();
    for (client, dialled) in after {
        flows = flows.and(Flows::open_from(cx, client, dialled).await?);
    }
    flows.answered(Within::from_now(cx.limits().endpoints)).await?;
    for (client, dialled) in before {
        if host_servers::may_bind(cx, client, dialled).await? {
            flows = flows.and(Flows::open_from(cx, client, dialled).await?);
        } else {
            cx.axes()
                .not_enabled(&dialled[0].0.axis, "processes may not bind a node port");
        }
    }
    Ok(flows)
}

/// A port for each transport and each of two servers, with these node ports if there are any.
fn ports(first: u16, node_ports: &[u16]) -> Vec<Value> {
    let of = |(at, transport): (u16, &Transport)| {
        let protocol = if *transport == Transport::Tcp {
            "TCP"
        } else {
            "UDP"
        };
        let number = if first == TARGET { TARGET } else { first + at };
        let mut port = json!({ "name": format!("p{at}"), "port": number, "protocol": protocol });
        if let Some(node_port) = node_ports.get(usize::from(at)) {
            port["nodePort"] = json!(node_port);
        }
        port
    };
    (0..)
        .zip(TRANSPORTS.iter().cycle().take(2 * TRANSPORTS.len()))
        .map(of)
        .collect()
}
