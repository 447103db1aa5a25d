//! `sock-preexisting-clients`: a host process and pods that run before the agent's first start, one of them in a
//! private cgroup namespace, reach a VIP with new connections within the recovery limit after readiness.
//!
//! The agent has not been started on this node before: it was removed by its documented steps, and no program
//! translates the VIP. Where the former contents of the node are known (nothing in a lab, what runtime and network have
//! created on others), nothing is there beyond them. The clients dial from then on and are never started again; what
//! they dial after the node serves is judged.
//!
//! Pods with the host's network are clients everywhere: they have a cgroup of their own, without a network of their
//! own. Where the agents are the pods' network, no other pods start before the agent does.
//!
//! Each connection of the clients is new for conntrack, too: its port was not used while nothing translated.
use std::time::Duration;

use cluster::{Capability, Place, Stop};
use faults::{Remains, StoppedAgent};
use harness::{
    agents,
    background::{Background, shares},
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    pods::{Backend, serve},
    probing,
    verdict::Halt,
    waiting::{Within, eventually},
};
use serde_json::{Value, json};

use super::local_service::Served;
use crate::source_ports;

pub(crate) const CASE: Case = Case {
    id: "sock-preexisting-clients",
    area: super::AREA,
    claims: &["sock-preexisting-clients"],
    sentence: "processes and pods that ran before the agent's first start are served once it is ready",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentCleanup],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(480),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const AXIS: &str = "first start";
/// How long removed objects may take to disappear.
const LATE: Duration = Duration::from_secs(60);

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("a Service is served");
    let served = Served::stage(cx, AXIS, node).await?;
    let control = Within::from_now(cx.limits().service);
    probing::control(
        cx,
        "the Service is served",
        cx.clients(),
        &served.targets,
        control,
    )
    .await?;

    cx.phase("the agent is removed: the node is as before its first start");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(node).await?;
    cx.fault(&format!("agent of {node} stopped and removed"));
    if cx
        .cluster()
        .describe()
        .capabilities
        .contains(&Capability::Baseline)
    {
        let had = Remains::before(cx.cluster(), node).await?;
        // Links end one after the other. Rules that stay are for `uninstall-leaves-nothing` to judge: what counts here is that
        // nothing is translated.
        let left = eventually(
            "no program of the agent is attached on the node",
            Within::from_now(LATE),
            || async {
                let left = Remains::of(cx.cluster(), node).await.map_err(Halt::from)?;
                let left = left.beyond(&had);
                Ok((!left.has_programs()).then_some(left))
            },
        )
        .await?;
        cx.record("what is left of the agent", left.to_string());
    } else {
        cx.record(
            "what is left of the agent",
            "not counted: what the node had before is not known".to_owned(),
        );
    }
    let clients = clients(cx, node).await?;
    let all: Vec<Client> = clients.iter().map(|(client, _)| client.clone()).collect();
    probing::witness(
        cx,
        "the VIP is not translated",
        &all,
        &served.reaching_no_backend(),
        Within::from_now(cx.limits().service),
    )
    .await?;

    cx.phase("the clients dial, and the agent starts for the first time");
    let dialling =
        Background::start_from(cx, &from_own_ports(&clients), &served.targets, cx.limits().hold).await?;
    agent.start().await?;
    let started = Within::from_now(cx.limits().heal);
    let ready = agents::ready(cx, node, &before, started).await?;
    match ready {
        Some(ready) => cx.record_delay(
            "the agent is ready",
            ready.duration_since(started.since),
            started.limit,
        ),
        None => cx.record("the agent is ready", format!("not within {:?}", started.limit)),
    }

    cx.phase("verdict: they are served within the recovery limit, and stay so");
    let healing = ready.map_or(started, |ready| Within::from(ready, cx.limits().heal));
    // Other clients dial until the node serves, at most until the recovery limit: from then on the attempts of these
    // count.
    let settled = probing::settle(cx, &cx.clients().on(node), &served.targets, healing).await?;
    probing::record_settled(cx, &settled);
    dialling.counting_from_now().hold(cx).await?;
    Ok(())
}

/// Clients with the host's network share the ports, as they share one network. With six targets each port of a client is used
/// again after two minutes and more.
fn from_own_ports(clients: &[(Client, bool)]) -> Vec<(Client, [u16; 2])> {
    let of_host = clients.iter().filter(|(_, of_host)| *of_host).count();
    let mut parts = shares(source_ports::ALL, of_host).into_iter();
    let ports = |of_host: bool| {
        let part = of_host.then(|| parts.next()).flatten();
        part.unwrap_or(source_ports::ALL)
    };
    let (clients, networks): (Vec<_>, Vec<_>) = clients.iter().cloned().unzip();
    clients.into_iter().zip(networks.into_iter().map(ports)).collect()
}

/// Starts the clients on the host, in pods with the host's network, and in pods with their own, where those start: each
/// in a cgroup namespace of its own where possible. Also returns for each whether its network is the host's.
async fn clients(cx: &Context, node: &str) -> Result<Vec<(Client, bool)>, Halt> {
    let namespace = cx.namespace().await?;
    let can = &cx.cluster().describe().capabilities;
    let networks: &[bool] = if cx.is_on_hosts() { &[true] } else { &[true, false] };
    let cgroups: &[bool] = if can.contains(&Capability::CgroupNamespaces) {
        &[false, true]
    } else {
        cx.axes().not_enabled(
            "clients in a cgroup namespace of their own",
            "processes in pods may not make one here; where nodes have cgroup v2 alone, pods get one of their runtime",
        );
        &[false]
    };
    let mut wanted = Vec::new();
    for &of_host in networks {
        for &private in cgroups {
            let kind = if private { "private" } else { "early" };
            let name = if of_host {
                format!("{kind}-host")
            } else {
                kind.to_owned()
            };
            wanted.push((name, of_host, private));
        }
    }
    let values: Vec<_> = wanted
        .iter()
        .map(|(name, of_host, _)| {
            // It is not dialled: a free port, at an address that no other pod has, as the host's addresses are shared.
            let mut args = serve(name, &namespace, &[], &[0]);
            if let Some(args) = args.as_array_mut() {
                args.extend(["--address", "127.0.0.1"].map(Value::from));
            }
            json!({ "name": name, "namespace": namespace, "node": node, "args": args, "host-network": of_host })
        })
        .collect();
    let pods = cx.backends(&values).await?;
    let in_pod = |(pod, (name, of_host, private)): (&Backend, &(String, bool, bool))| {
        let client = Client {
            name: format!("{name}@{node}"),
            node: node.to_owned(),
            place: Place::Pod {
                namespace: pod.namespace.clone(),
                name: pod.in_api.clone(),
            },
            private_cgroups: *private,
        };
        (client, *of_host)
    };
    let of_node = cx.clients().on(node).into_iter();
    let hosts = of_node.filter(|client| matches!(client.place, Place::Host { .. }));
    Ok(hosts
        .map(|client| (client, true))
        .chain(pods.iter().zip(&wanted).map(in_pod))
        .collect())
}
