//! Services that change while no agent runs: the two backends of one are replaced by two others, and another is
//! deleted.
//!
//! The former backends stay alive: they are the traps.

use std::net::IpAddr;

use cluster::{Family, Stop};
use faults::StoppedAgent;
use harness::{
    background,
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    recovery::{Recovering, Started},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::{Attempt, Transport};
use serde_json::{Value, json};

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// The Services of one family and axis.
pub(super) struct Replaced {
    axis: String,
    family: Family,
    namespace: String,
    shop: IpAddr,
    gone: IpAddr,
    old: Replicas,
    new: Replicas,
}

/// Backends with one port.
struct Replicas {
    backends: Vec<Backend>,
    port: u16,
}

impl Replicas {
    /// On these nodes, several on one where each pod has a network of its own: on hosts each port has one pod only.
    async fn stage(cx: &Context, namespace: &str, name: &str, nodes: &[&str]) -> Result<Self, Halt> {
        let port = cx.port(TARGET);
        let mut nodes = nodes.to_vec();
        if cx.is_on_hosts() {
            nodes.dedup();
        }
        let values: Vec<Value> = (1..)
            .zip(nodes)
            .map(|(number, node)| {
                let name = format!("{name}{number}");
                let args = serve(&name, namespace, &[port], &[port]);
                json!({ "name": name, "namespace": namespace, "node": node, "args": args })
            })
            .collect();
        Ok(Self {
            backends: cx.backends(&values).await?,
            port,
        })
    }
}

impl Replaced {
    /// An axis for each family, served by the old backends on return.
    pub(super) async fn stage(cx: &Context, axis: &str, node: &str) -> Result<Vec<Self>, Halt> {
        let mut all = Vec::new();
        for family in cx.families() {
            all.push(Self::one(cx, format!("{family}, {axis}"), family, node).await?);
        }
        fence::pass(cx).await?;
        let within = Within::from_now(cx.limits().service);
        let targets = before(&all);
        probing::control(cx, "the old backends serve", cx.clients(), &targets, within).await?;
        Ok(all)
    }

    async fn one(cx: &Context, axis: String, family: Family, node: &str) -> Result<Self, Halt> {
        let namespace = cx.namespace().await?;
        let nodes = cx.nodes();
        let last = nodes.last().map_or(node, String::as_str);
        let old = Replicas::stage(cx, &namespace, "old", &[node, node]).await?;
        let new = Replicas::stage(cx, &namespace, "new", &[node, last]).await?;
        let values = json!({
            "namespace": namespace, "family": family.to_string(),
            "endpoints": endpoints(&old.backends, family)?, "target": old.port,
        });
        Ok(Self {
            shop: cx.apply_service("shop", &values).await?,
            gone: cx.apply_service("gone", &values).await?,
            axis,
            family,
            namespace,
            old,
            new,
        })
    }

    fn served(&self, name: &str, address: IpAddr, by: &Replicas) -> Vec<Destination> {
        let served = |&transport: &Transport| {
            let expected = identities(&by.backends, transport, by.port);
            Destination::serves(&self.axis, name, transport, (address, PORT).into(), expected)
        };
        TRANSPORTS.iter().map(served).collect()
    }
}

/// What is permitted before the change.
pub(super) fn before(all: &[Replaced]) -> Vec<Destination> {
    let of = |one: &Replaced| {
        [
            one.served("shop", one.shop, &one.old),
            one.served("gone", one.gone, &one.old),
        ]
        .concat()
    };
    all.iter().flat_map(of).collect()
}

/// What is permitted after the change.
pub(super) fn after(all: &[Replaced]) -> Vec<Destination> {
    let of = |one: &Replaced| {
        let none =
            |&transport: &Transport| Destination::none(&one.axis, "gone", transport, (one.gone, PORT).into());
        let mut targets = one.served("shop", one.shop, &one.new);
        targets.extend(TRANSPORTS.iter().map(none));
        targets
    };
    all.iter().flat_map(of).collect()
}

/// The change.
pub(super) async fn change(cx: &Context, all: &[Replaced]) -> Result<(), Halt> {
    for one in all {
        let slice = Key::slice(&one.namespace, "shop");
        let new = json!({
            "endpoints": endpoints(&one.new.backends, one.family)?,
            "ports": [
                { "name": "tcp", "port": one.new.port, "protocol": "TCP" },
                { "name": "udp", "port": one.new.port, "protocol": "UDP" },
            ],
        });
        cx.objects().patch(&slice, new).await?;
        for key in [
            Key::slice(&one.namespace, "gone"),
            Key::service(&one.namespace, "gone"),
        ] {
            cx.objects().delete(&key).await?;
        }
    }
    Ok(())
}

/// Verdict: none of these attempts reached a trap.
pub(super) async fn traps_untouched(
    cx: &Context,
    all: &[Replaced],
    attempts: &[Attempt],
) -> Result<(), Halt> {
    for one in all {
        for trap in &one.old.backends {
            probing::trap_untouched(cx, &one.axis, attempts, trap).await?;
        }
    }
    Ok(())
}

/// A stopped agent, and the recovery from what is changed meanwhile.
pub(super) struct Down {
    agent: StoppedAgent,
    recovery: Recovering,
}

/// Stops the agent of a node.
pub(super) async fn stop(cx: &Context, node: &str, how: Stop) -> Result<Down, Halt> {
    let recovery = Recovering::begin(cx, node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, how).await?;
    cx.fault(&format!("agent of {node} stopped by {how:?}"));
    Ok(Down { agent, recovery })
}

/// An agent that was started after a change.
pub(super) struct Up {
    recovery: Recovering,
    /// The recovery limit after it was ready.
    pub(super) healing: Within,
}

/// Starts it, and waits for it to be ready.
pub(super) async fn start(cx: &Context, down: Down) -> Result<Up, Halt> {
    let Down { agent, mut recovery } = down;
    let ((), Started { healing, .. }) = recovery.start(cx, agent.start()).await?;
    Ok(Up { recovery, healing })
}

/// Verdict: from the recovery limit on, for the hold time, everything is as after the change, and the traps get
/// nothing.
pub(super) async fn judge(cx: &Context, all: &[Replaced], up: Up) -> Result<(), Halt> {
    let targets = after(all);
    let judged = probing::judge(cx, cx.clients(), &targets, up.healing).await?;
    fence::pass(cx).await?;
    let hold = cx.limits().hold;
    let held = background::hold_steadily(cx, cx.clients(), &targets, hold).await?;
    traps_untouched(cx, all, &[judged, held].concat()).await?;
    let axes: Vec<&str> = all.iter().map(|one| one.axis.as_str()).collect();
    up.recovery.end(cx, &axes).await
}
