//! `stale-sock-reverse-hooks`: leftover recvmsg and getpeername programs have stored the peers of sockets of generation
//! 1, and leftover bind programs its node ports. From the recovery limit after generation 2 is ready, a datagram's
//! reply comes from the address that it was sent to, `getpeername` after `connect` shows the VIP or the backend, and a
//! former node port can be bound.
//!
//! All hooks and families share the two generations. The hooks that translate requests have no leftover.
use std::{slice, time::Duration};

use cluster::{Capability, Place, Stop};
use faults::{As, At, LeftoverPrograms, Reattached, Staging, StoppedAgent};
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    fence,
    lasting_sockets::Sockets,
    pods::{Backend, serve},
    recovery::{Recovering, Started},
    target_needs::OfTarget,
    verdict::Halt,
    waiting::{Looks, Within},
};
use serde_json::json;

use super::{
    generations::{LONGEST, runs_first, runs_first_or_gone},
    reverse::{
        GETPEERNAME, POST_BIND, RECVMSG,
        node_port_binding::Gate,
        of_family,
        two_vips::{TARGET, Twins},
    },
};

pub(crate) const CASE: Case = Case {
    id: "stale-sock-reverse-hooks",
    area: super::AREA,
    claims: &["stale-sock-reverse-hooks"],
    sentence: "leftover programs at recvmsg, getpeername and bind forge no peer and keep no port",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::AgentPins],
        target: &[OfTarget::ProgramsAtOneOf(&[RECVMSG, GETPEERNAME, POST_BIND])],
    },
    disruptive: true,
    manifest: include_str!("stale_sock_reverse_hooks.yaml"),
    longest: Duration::from_secs(480),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// On which cgroup and how the programs are left over.
const STAGING: Staging = Staging {
    at: At::Own,
    manner: As::Multi,
};

/// What is tested, and the clients.
struct Staged {
    twins: Vec<Twins>,
    gates: Vec<Gate>,
    sockets: Sockets,
}

impl Staged {
    /// Leaves out what has its verdict: a control or a witness that failed.
    fn keep_open(&mut self, cx: &Context) -> Result<(), Halt> {
        self.twins.retain(|twins| cx.axes().is_open(twins.axis));
        self.gates.retain(|gate| cx.axes().is_open(gate.axis));
        if self.twins.is_empty() && self.gates.is_empty() {
            return Err(Halt::Inconclusive(
                "no axis is left that could be decided".to_owned(),
            ));
        }
        Ok(())
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("generation 1: two VIPs serve one backend, node ports are kept");
    // A newly started agent attaches nothing before it has read the API.
    fence::pass(cx).await?;
    let hooks = [RECVMSG, GETPEERNAME, POST_BIND];
    let hooks: Vec<&str> = cx
        .families()
        .into_iter()
        .flat_map(|family| hooks.map(|hooks| of_family(hooks, family)))
        .collect();
    let mut leftover =
        LeftoverPrograms::hold(cx.cluster(), node, &hooks, cx.limits().longest(LONGEST)).await?;
    if leftover.held().is_empty() {
        return Err(Halt::Inconclusive(format!(
            "no program is attached any more at {} of the agent's cgroup",
            hooks.join(", ")
        )));
    }
    let mut staged = stage(cx, node, |hook| is_held(&leftover, hook)).await?;

    cx.phase("generation 1 is killed, its programs of the reply direction stay");
    let mut recovery = Recovering::begin(cx, node).await?;
    cx.fault(&format!("held on {node}: {:?}", leftover.held()));
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.lose_pins().await?;
    match leftover.attach(STAGING).await? {
        Reattached::Done(attached) => cx.fault(&format!(
            "agent of {node} killed, its pins lost, {attached:?} attached {STAGING}"
        )),
        Reattached::Refused(why) => {
            return Err(Halt::Inconclusive(format!(
                "the leftover can't be attached: {why}"
            )));
        }
    }
    for gate in &staged.gates {
        gate.delete(cx).await?;
    }

    cx.phase("witness: what is left over decides before generation 2 starts");
    let list = leftover.list().await?;
    cx.fault(&format!("attached before generation 2: {list:?}"));
    for hook in list.iter().filter(|hook| is_held(&leftover, &hook.hook)) {
        runs_first(&leftover, slice::from_ref(hook))?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    for twins in &staged.twins {
        twins.is_forged(cx, &mut staged.sockets, within).await?;
    }
    for gate in &staged.gates {
        gate.stays_kept(cx, within).await?;
    }
    staged.keep_open(cx)?;

    cx.phase("generation 2 starts");
    let ((), Started { healing, .. }) = recovery.start(cx, agent.start()).await?;
    judge(cx, &mut staged, healing).await?;
    let list = leftover.list().await?;
    cx.fault(&format!("attached after generation 2: {list:?}"));
    // Any program can keep a port; of those that set addresses, the first decides.
    for hook in list
        .iter()
        .filter(|hook| staged.twins.iter().any(|twins| twins.axis == hook.hook))
    {
        if let Err(why) = runs_first_or_gone(&leftover, slice::from_ref(hook)) {
            cx.axes().inconclusive(&hook.hook, why, Vec::new());
        }
    }

    let axes: Vec<&str> = hooks
        .into_iter()
        .filter(|hook| is_held(&leftover, hook))
        .collect();
    recovery.end(cx, &axes).await?;

    cx.phase("heal");
    let detached = leftover.heal().await?;
    cx.fault(&format!("healed: {detached:?} detached"));
    cx.record(
        "leftover programs that were still attached at the end",
        format!("{detached:?}"),
    );
    Ok(())
}

fn is_held(leftover: &LeftoverPrograms, hook: &str) -> bool {
    leftover.held().iter().any(|held| held.hook == hook)
}

/// Services and sockets of every family, and the controls. Hooks at which generation 1 has no program are left out.
async fn stage(cx: &Context, node: &str, is_held: impl Fn(&str) -> bool) -> Result<Staged, Halt> {
    let clients = cx.clients().on(node);
    let is_host = |client: &&Client| matches!(client.place, Place::Host { .. });
    let hosts: Vec<Client> = clients.iter().filter(is_host).cloned().collect();
    let (mut twins, mut gates) = (Vec::new(), Vec::new());
    for family in cx.families() {
        let namespace = cx.namespace().await?;
        let backend = backend(cx, &namespace, node).await?;
        for one in Twins::stage(cx, &namespace, family, &backend, clients.len()).await? {
            if is_held(one.axis) {
                twins.push(one);
            } else {
                cx.axes().not_enabled(
                    one.axis,
                    "no program is attached there: there is nothing to be left over",
                );
            }
        }
        let axis = of_family(POST_BIND, family);
        if !is_held(axis) {
            cx.axes().not_enabled(
                axis,
                "no program is attached there: there is nothing to be left over",
            );
        } else if hosts.is_empty() {
            cx.axes().not_enabled(
                axis,
                "no process runs on the host of the node, so that none could bind a node port",
            );
        } else {
            gates.push(Gate::stage(cx, &namespace, family, &backend, hosts.clone()).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let mut sockets = Sockets::keep(cx, &clients).await?;
    for one in &twins {
        one.begin(cx, &mut sockets, within).await?;
    }
    let mut kept = Vec::new();
    for gate in gates {
        if gate.is_kept(cx, within).await? {
            kept.push(gate);
        } else {
            cx.axes().not_enabled(
                gate.axis,
                "generation 1 lets processes of the host bind its node ports",
            );
        }
    }
    let mut staged = Staged {
        twins,
        gates: kept,
        sockets,
    };
    staged.keep_open(cx)?;
    Ok(staged)
}

async fn backend(cx: &Context, namespace: &str, node: &str) -> Result<Backend, Halt> {
    let args = serve("backend", namespace, &[TARGET], &[TARGET]);
    let values = json!({ "name": "backend", "namespace": namespace, "node": node, "args": args });
    Ok(cx.backends(&[values]).await?.remove(0))
}

/// Verdict: from the recovery limit on, for the hold time, sockets show what they dial and ports are free; then new
/// sockets on the ports of generation 1 do, too.
async fn judge(cx: &Context, staged: &mut Staged, healing: Within) -> Result<(), Halt> {
    cx.phase("verdict: sockets of generation 1 show the address they dial, former node ports are free");
    for twins in &staged.twins {
        twins.judge(cx, &mut staged.sockets, healing).await?;
    }
    for gate in &staged.gates {
        gate.judge(cx, healing).await?;
    }
    fence::pass(cx).await?;
    let Staged {
        twins,
        gates,
        sockets,
    } = staged;
    let axes = twins.iter().map(|one| one.axis);
    let axes: Vec<&str> = axes.chain(gates.iter().map(|gate| gate.axis)).collect();
    let mut looks = Looks::throughout(cx.limits().hold);
    while axes.iter().any(|axis| cx.axes().is_open(axis)) && looks.again().await {
        for one in &*twins {
            one.judge_again(cx, sockets).await?;
        }
        for gate in &*gates {
            gate.judge_again(cx).await?;
        }
    }
    cx.phase("verdict: sockets at the ports of those of generation 1 show the address they dial");
    for one in &*twins {
        one.judge_anew(cx, sockets).await?;
    }
    Ok(())
}
