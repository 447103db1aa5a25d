//! Two generations of the implementation on one node.
//!
//! Generation 1 serves a VIP from `b_old`. Its programs are held by id, it is killed, and its leftover stays as the
//! case demands, while a new agent cannot find it by its pins. `b_old` leaves the EndpointSlice and stays alive: it is
//! the trap. Before generation 2 starts, the leftover must be seen to win (the trap is reached), and to run first. From
//! the recovery limit after readiness on, the VIP serves exactly the EndpointSlice and the trap gets nothing; a case
//! may permit an agent that does not become ready to stay so. An implementation without a program at the hook is not
//! supported, which is seen before the run. Clients on other nodes are the control: they reach the current backends all
//! along.

pub(super) mod vips;

use std::time::Duration;

use cluster::{Capability, Family, Place, Stop};
use faults::{As, At, Attached, HiddenPins, LeftoverPrograms, Reattached, Staging, StoppedAgent};
use harness::{
    agents, background,
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    pods::{Backend, endpoints},
    probing,
    recovery::{Recovering, Started},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

use self::vips::{ALL, TARGET, Vips, backends};

/// Transports that the connect hooks see; unconnected datagrams use another hook.
pub(super) const CONNECTING: &[Transport] = &[Transport::Tcp, Transport::UdpConnected];
/// Transports that the sendmsg hooks see.
pub(super) const SENDING: &[Transport] = &[Transport::Udp];
/// The connect hooks, by family.
pub(super) const CONNECT: [&str; 2] = ["connect4", "connect6"];
/// The sendmsg hooks, by family.
pub(super) const SENDMSG: [&str; 2] = ["sendmsg4", "sendmsg6"];
/// Longest duration of a case, unscaled: programs are held as long.
pub(super) const LONGEST: Duration = Duration::from_secs(900);

/// What a case varies.
pub(super) struct Row {
    /// The hooks whose programs are left over, of IPv4 and of IPv6.
    pub(super) hooks: [&'static str; 2],
    /// Transports that these hooks see, with which the leftover is seen to win.
    pub(super) seen: &'static [Transport],
    /// How they are left over; each is an axis, named by the hook and this.
    pub(super) ways: &'static [(&'static str, Way)],
    /// Whether an agent may stay unready while the leftover is attached.
    pub(super) may_stay_unready: bool,
}

/// How programs are left over.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Their pins are lost, and they are attached again.
    Attached(Staging),
    /// They stay as the agent attached them, and its pins are hidden.
    PinsHidden,
}

impl Way {
    /// Which clients the leftover affects before generation 2 starts.
    fn reaches(self, node: &str, client: &Client) -> bool {
        let is_here = client.node == node;
        match self {
            Self::Attached(Staging { at: At::Below, .. }) => {
                is_here && matches!(client.place, Place::Host { .. })
            }
            _ => is_here,
        }
    }

    /// What the cluster must have.
    fn needs(self) -> Option<Capability> {
        match self {
            Self::Attached(Staging {
                at: At::Above | At::AboveShown,
                ..
            }) => Some(Capability::CgroupAbove),
            Self::Attached(_) | Self::PinsHidden => None,
        }
    }

    fn runs_last(self) -> bool {
        matches!(
            self,
            Self::Attached(Staging {
                at: At::Above | At::AboveShown,
                manner: As::Multi | As::Link
            })
        )
    }
}

/// Runs a case: each kind of leftover for each family.
pub(super) async fn run(cx: &Context, row: &Row) -> Result<(), Halt> {
    let mut points = Vec::new();
    for family in cx.families() {
        let hook = match family {
            Family::IPv4 => row.hooks[0],
            Family::IPv6 => row.hooks[1],
        };
        for &(name, way) in row.ways {
            let axis = if name.is_empty() {
                hook.to_owned()
            } else {
                format!("{hook}, {name}")
            };
            let capabilities = &cx.cluster().describe().capabilities;
            if way.needs().is_some_and(|needed| !capabilities.contains(&needed)) {
                cx.axes().not_enabled(
                    &axis,
                    "no cgroup above the agent's is the cluster's own: above a real node's is none, above that of a node \
                     that is a container is what all containers of its host share",
                );
                continue;
            }
            points.push((axis, family, hook, way));
        }
    }
    for (axis, family, hook, way) in cx.axes().choose(points, |(axis, ..)| axis.clone()) {
        leftover(cx, row, way, family, hook, &axis).await?;
    }
    Ok(())
}

async fn leftover(
    cx: &Context,
    row: &Row,
    way: Way,
    family: Family,
    hook: &str,
    axis: &str,
) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    let (reached, _): (Vec<Client>, Vec<Client>) = cx
        .clients()
        .iter()
        .cloned()
        .partition(|client| way.reaches(node, client));
    if reached.is_empty() {
        cx.axes().inconclusive(
            axis,
            "no client runs where the leftover does".to_owned(),
            Vec::new(),
        );
        return Ok(());
    }
    let elsewhere: Vec<Client> = cx
        .clients()
        .iter()
        .filter(|client| client.node != *node)
        .cloned()
        .collect();

    cx.phase(&format!("{axis}: generation 1, the VIP serves the old backend"));
    let namespace = cx.namespace().await?;
    let (old, new) = backends(cx, &namespace, node).await?;
    let values = json!({
        "namespace": namespace, "family": family.to_string(),
        "endpoints": endpoints([&old], family)?, "target": TARGET,
    });
    let mut vips = Vips {
        axis: axis.to_owned(),
        shop: cx.apply_service("shop", &values).await?,
        gone: None,
    };
    if way.runs_last() {
        vips.gone = Some(cx.apply_service("gone", &values).await?);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let by_old = vips.serve(std::slice::from_ref(&old), ALL);
    probing::control(
        cx,
        "generation 1 serves the old backend",
        cx.clients(),
        &by_old,
        within,
    )
    .await?;

    cx.phase(&format!("{axis}: generation 1 is killed, its programs stay"));
    let mut recovery = Recovering::begin(cx, node).await?;
    let mut leftover =
        LeftoverPrograms::hold(cx.cluster(), node, &[hook], cx.limits().longest(LONGEST)).await?;
    if leftover.held().is_empty() {
        return Err(Halt::Inconclusive(format!(
            "no program is attached any more at {hook} of the agent's cgroup"
        )));
    }
    cx.fault(&format!("held on {node}: {:?}", leftover.held()));
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    let mut refused = None;
    let hidden = match way {
        Way::Attached(staging) => {
            agent.lose_pins().await?;
            match leftover.attach(staging).await? {
                Reattached::Done(attached) => cx.fault(&format!(
                    "agent of {node} killed, its pins lost, {attached:?} attached {staging}"
                )),
                Reattached::Refused(why) => {
                    cx.fault(&format!("agent of {node} killed, its pins lost; {why}"));
                    refused = Some(why);
                }
            }
            None
        }
        Way::PinsHidden => {
            let hidden = HiddenPins::hide(cx.faults(), node).await?;
            cx.fault(&format!("agent of {node} killed, its pins hidden by a new bpffs"));
            Some(hidden)
        }
    };
    let slice = Key::slice(&namespace, "shop");
    let replaced = cx
        .objects()
        .patch(&slice, json!({ "endpoints": endpoints(&new, family)? }))
        .await?;
    if vips.gone.is_some() {
        for key in [Key::slice(&namespace, "gone"), Key::service(&namespace, "gone")] {
            cx.objects().delete(&key).await?;
        }
    }

    let within = Within::from(replaced.at, cx.limits().endpoints);
    if let Some(why) = refused {
        // A leftover that the kernel refuses to attach affects nothing, and its error is the witness.
        cx.record(&format!("the kernel refuses such a leftover ({axis})"), why);
    } else {
        cx.phase(&format!(
            "{axis}: witness, the leftover wins before generation 2 starts"
        ));
        let list = leftover.list().await?;
        cx.fault(&format!("attached before generation 2: {list:?}"));
        runs_first(&leftover, &list)?;
        let trapped = vips.serve(std::slice::from_ref(&old), row.seen);
        probing::witness(cx, "the VIP reaches the trap", &reached, &trapped, within).await?;
    }
    let current = vips.after(&new);
    if !elsewhere.is_empty() {
        let shop = vips.serve_shop(&new, ALL);
        probing::control(
            cx,
            "the other nodes reach the current backends",
            &elsewhere,
            &shop,
            within,
        )
        .await?;
    }

    cx.phase(&format!("{axis}: generation 2 starts"));
    let ((), Started { ready, healing }) = recovery.start(cx, agent.start()).await?;
    if ready.is_none() && row.may_stay_unready {
        unready_while_it_is_there(cx, node, axis).await?;
        let why = "the agent stays unready until the suite has detached the leftover";
        recovery.end_by_hand(cx, axis, why).await?;
    } else {
        serves_what_is_current(cx, way, &mut leftover, &vips.axis, &current, &old, healing).await?;
        recovery.end(cx, &[axis]).await?;
    }

    cx.phase(&format!("{axis}: heal"));
    let detached = leftover.heal().await?;
    cx.fault(&format!("healed: {detached:?} detached"));
    cx.record(
        &format!("leftover programs that were still attached at the end ({axis})"),
        format!("{detached:?}"),
    );
    if let Some(hidden) = hidden {
        hidden.heal().await?;
        cx.fault("healed: the first bpffs is back, the agent started again");
    }
    probing::judge_briefly(cx, cx.clients(), &current, Within::from_now(cx.limits().heal)).await?;
    Ok(())
}

/// Verdict: from the recovery limit on, for the hold time, the VIP serves exactly the EndpointSlice; the trap gets
/// nothing.
async fn serves_what_is_current(
    cx: &Context,
    way: Way,
    leftover: &mut LeftoverPrograms,
    axis: &str,
    current: &[Destination],
    old: &Backend,
    healing: Within,
) -> Result<(), Halt> {
    cx.phase(&format!(
        "{axis}: verdict, after the recovery limit the VIP serves exactly the EndpointSlice, the old backend gets nothing"
    ));
    let judged = probing::judge(cx, cx.clients(), current, healing).await?;
    let list = leftover.list().await?;
    cx.fault(&format!("attached after generation 2: {list:?}"));
    if !way.runs_last()
        && let Err(why) = runs_first_or_gone(leftover, &list)
    {
        cx.axes().inconclusive(axis, why, Vec::new());
    }
    fence::pass(cx).await?;
    let hold = cx.limits().hold;
    let held = background::hold_steadily(cx, cx.clients(), current, hold).await?;
    probing::trap_untouched(cx, axis, &[judged, held].concat(), old).await
}

/// Verdict: the agent is not ready, and stays so for the hold time.
async fn unready_while_it_is_there(cx: &Context, node: &str, axis: &str) -> Result<(), Halt> {
    cx.phase(&format!("{axis}: verdict, the agent stays unready"));
    if agents::stays_unready(cx, node, Within::from_now(cx.limits().hold)).await? {
        cx.record(&format!("outcome ({axis})"), "the agent stays unready");
        cx.axes().judged(axis, Vec::new());
    } else {
        let why =
            "the agent became ready after the recovery limit: neither of the two outcomes could be judged";
        cx.axes().inconclusive(axis, why.to_owned(), Vec::new());
    }
    Ok(())
}

fn is_held<'a>(leftover: &'a LeftoverPrograms, hook: &'a Attached) -> impl Fn(&u32) -> bool + 'a {
    |id| {
        leftover
            .held()
            .iter()
            .any(|held| held.hook == hook.hook && held.id == *id)
    }
}

/// The leftover must run first: behind another program of the implementation it proves nothing.
pub(super) fn runs_first(leftover: &LeftoverPrograms, list: &[Attached]) -> Result<(), Halt> {
    for hook in list {
        if !hook.direct.first().is_some_and(is_held(leftover, hook)) {
            return Err(Halt::Inconclusive(format!(
                "the leftover is not the first to run at {}: {:?} run, in this order",
                hook.hook, hook.effective
            )));
        }
    }
    Ok(())
}

/// Gone, or still the first: one behind the new generation's programs affects nothing.
pub(super) fn runs_first_or_gone(leftover: &LeftoverPrograms, list: &[Attached]) -> Result<(), String> {
    for hook in list {
        let is_held = is_held(leftover, hook);
        if hook.direct.iter().any(&is_held) && !hook.direct.first().is_some_and(&is_held) {
            return Err(format!(
                "the agent's program runs before the leftover: {:?}",
                hook.effective
            ));
        }
    }
    Ok(())
}
