//! `stale-sock-legacy-multi`: leftover connect4/connect6 programs with their old map sit on the agent's cgroup
//! through `BPF_PROG_ATTACH` with `BPF_F_ALLOW_MULTI`, attached earlier. After the agent is ready the VIP serves
//! current backends; the trap gets 0 of N.
//!
//! Common staging C. Generation 1 serves the VIP from b_old; its programs are held by id, it is killed, its pins
//! are lost, and its programs are attached again, with no link and no pin. b_old leaves the
//! slice and stays alive: it is the trap. The leftover must be seen to win (trap hit) before generation 2 starts.
//! From T_heal after readiness the VIP serves exactly the slice. An implementation that has no program at the hook
//! is not supported. Clients of other nodes are the control: the current backends are reachable all along.

use std::{net::IpAddr, sync::Arc, time::Duration};

use faults::{Attached, LeftoverPrograms, StoppedAgent};
use harness::{
    case::{Case, Families, Family, Needs, Rights, Tier},
    client::Client,
    context::Context,
    objects::Key,
    pods::{Backend, endpoints, serve},
    probing::{Within, identities},
    target::Target,
    verdict::Halt,
};
use lab::cluster::Stop;
use oracle::history::Transport;
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-legacy-multi",
    area: "C leftover programs and maps",
    claims: &["stale-sock-legacy-multi"],
    sentence: "a leftover program attached before the agent's sends nobody to a backend of long ago",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
    },
    disruptive: true,
    manifest: include_str!("stale_sock_legacy_multi.yaml"),
    longest: Duration::from_secs(480),
    run: |cx| Box::pin(run(cx)),
};

/// What the connect hooks see; unconnected datagrams take another hook.
const CONNECTING: [Transport; 2] = [Transport::Tcp, Transport::UdpConnected];
const ALL: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
const PORT: u16 = 80;
const TARGET: u16 = 8080;
/// Longer than the case may take.
const EXPIRES: Duration = Duration::from_secs(600);

async fn run(cx: &Context) -> Result<(), Halt> {
    for family in cx.families() {
        let hook = match family {
            Family::IPv4 => "connect4",
            Family::IPv6 => "connect6",
        };
        leftover(cx, family, hook).await?;
    }
    Ok(())
}

async fn leftover(cx: &Context, family: Family, hook: &str) -> Result<(), Halt> {
    let axis = hook.to_owned();
    let node = &cx.nodes()[0];
    let (here, elsewhere) = clients(cx, node);
    cx.phase("generation 1: the VIP serves b_old");
    let namespace = cx.namespace().await?;
    let (old, new) = backends(cx, &namespace, node).await?;
    let values = json!({
        "namespace": namespace, "family": family.to_string(), "endpoints": endpoints([&old], family)?,
    });
    let vip = Vip {
        axis: axis.clone(),
        address: cx.apply_service("shop", &values).await?,
    };
    let within = Within::from_now(cx.limits().service);
    cx.fence().await?;
    let by_old = vip.serves(std::slice::from_ref(&old), &ALL);
    cx.control("generation 1 serves b_old", cx.clients(), &by_old, within)
        .await?;

    cx.phase("generation 1 is killed, its programs stay");
    let before = cx.cluster().agent(node).await?;
    let mut leftover = LeftoverPrograms::hold(&**cx.cluster(), node, &[hook], EXPIRES).await?;
    if leftover.held().is_empty() {
        return Err(Halt::NotSupported(format!(
            "no program is attached at {hook} of the agent's cgroup: there is nothing to be left over"
        )));
    }
    cx.fault(&format!("held on {node}: {:?}", leftover.held()));
    let agent = StoppedAgent::stop(Arc::clone(cx.cluster()), node, Stop::Kill).await?;
    agent.lose_pins().await?;
    let attached = leftover.attach().await?;
    cx.fault(&format!(
        "agent of {node} killed, its pins lost, {attached:?} attached the legacy way"
    ));
    let slice = Key::slice(&namespace, "shop");
    let replaced = cx
        .objects()
        .patch(&slice, json!({ "endpoints": endpoints(&new, family)? }))
        .await?;

    cx.phase("witness: the leftover wins before generation 2 starts");
    let list = leftover.list().await?;
    cx.fault(&format!("attached before generation 2: {list:?}"));
    runs_first(&leftover, &list)?;
    let trapped = vip.serves(std::slice::from_ref(&old), &CONNECTING);
    let within = Within::from(replaced.at, cx.limits().endpoints);
    cx.witness("the VIP reaches the trap", &here, &trapped, within)
        .await?;
    let current = vip.serves(&new, &ALL);
    if !elsewhere.is_empty() {
        cx.control(
            "the other nodes reach the current backends",
            &elsewhere,
            &current,
            within,
        )
        .await?;
    }

    cx.phase("generation 2 starts");
    let started = Within::from_now(cx.limits().heal);
    agent.start().await?;
    let ready = cx.agent_ready(node, &before, started).await?;
    match ready {
        Some(ready) => cx.record_delay("generation 2 is ready", ready.duration_since(started.since)),
        None => cx.record("generation 2 is ready", format!("not within {:?}", started.limit)),
    }
    // One that never is has had its time.
    let healing = ready.map_or(started, |ready| Within::from(ready, cx.limits().heal));

    cx.phase("verdict: from T_heal the VIP serves exactly the slice, the trap gets nothing");
    let judged = cx.judge(cx.clients(), &current, healing).await?;
    let list = leftover.list().await?;
    cx.fault(&format!("attached after generation 2: {list:?}"));
    if let Err(why) = runs_first_or_gone(&leftover, &list) {
        cx.inconclusive(&axis, why, Vec::new());
    }
    cx.fence().await?;
    let window = cx.background(cx.clients(), &current, cx.limits().hold).await?;
    let held = cx.hold(window).await?;
    cx.trap_untouched(&axis, &[judged, held].concat(), &old).await?;

    cx.phase("heal");
    let detached = leftover.heal().await?;
    cx.fault(&format!("healed: {detached:?} detached"));
    cx.record(
        "leftover programs that were still attached at the end",
        format!("{detached:?}"),
    );
    cx.judge_briefly(cx.clients(), &current, Within::from_now(cx.limits().heal))
        .await?;
    Ok(())
}

/// Those on the node, and the others.
fn clients(cx: &Context, node: &str) -> (Vec<Client>, Vec<Client>) {
    cx.clients()
        .iter()
        .cloned()
        .partition(|client| client.node == node)
}

/// The leftover must run first: behind another program of the implementation it proves nothing.
fn runs_first(leftover: &LeftoverPrograms, list: &[Attached]) -> Result<(), Halt> {
    for hook in list {
        let is_held = |id: &u32| {
            leftover
                .held()
                .iter()
                .any(|held| held.hook == hook.hook && held.id == *id)
        };
        if !hook.direct.first().is_some_and(is_held) {
            return Err(Halt::Inconclusive(format!(
                "the leftover is not the first to run at {}: {:?} run, in this order",
                hook.hook, hook.effective
            )));
        }
    }
    Ok(())
}

/// Gone, or still the first: one that the new generation has overtaken was never in its way.
fn runs_first_or_gone(leftover: &LeftoverPrograms, list: &[Attached]) -> Result<(), String> {
    for hook in list {
        let is_held = |id: &u32| {
            leftover
                .held()
                .iter()
                .any(|held| held.hook == hook.hook && held.id == *id)
        };
        let (first, any) = (
            hook.direct.first().is_some_and(is_held),
            hook.direct.iter().any(is_held),
        );
        if any && !first {
            return Err(format!(
                "the agent's program runs before the leftover: {:?}",
                hook.effective
            ));
        }
    }
    Ok(())
}

struct Vip {
    axis: String,
    address: IpAddr,
}

impl Vip {
    fn serves(&self, backends: &[Backend], transports: &[Transport]) -> Vec<Target> {
        let serves = |&transport: &Transport| {
            let expected = identities(backends, transport, TARGET);
            Target::serves(
                &self.axis,
                "shop",
                transport,
                (self.address, PORT).into(),
                expected,
            )
        };
        transports.iter().map(serves).collect()
    }
}

/// b_old on the node, and the current ones on it and on the last node.
async fn backends(cx: &Context, namespace: &str, node: &str) -> Result<(Backend, Vec<Backend>), Halt> {
    let nodes = cx.nodes();
    let last = nodes.last().map_or(node, String::as_str);
    let values: Vec<Value> = [("old", node), ("new1", node), ("new2", last)]
        .into_iter()
        .map(|(name, node)| {
            let args = serve(name, namespace, &[TARGET], &[TARGET]);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    let mut backends = cx.backends(&values).await?;
    let old = backends.remove(0);
    Ok((old, backends))
}
