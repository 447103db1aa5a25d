//! `foreign-programs-kept`: programs of another owner, on the agent's cgroup with the same attach types and at the
//! uplink's tc hooks, stay attached and keep counting through the agent's start, its restart, a run without translation
//! at sockets (where its target can switch it off), and its removal.
//!
//! They exist before the agent, count while there is none (the control), and must have counted more after each phase.
//! Each hook is an axis. They change no address: the Service is served all along.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family, Stop, Variant};
use faults::{ForeignPrograms, StoppedAgent, Tally};
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    probing,
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    finding::{Finding, Weight},
    history::Transport,
};

use super::local_service::Served;

pub(crate) const CASE: Case = Case {
    id: "foreign-programs-kept",
    area: super::AREA,
    claims: &["foreign-programs-kept"],
    sentence: "another owner's programs stay attached and go on counting through start, restart and removal of the agent",
    tier: Tier::Hygiene,
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
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Axis of the clients; the axes of the programs are their hooks.
const AXIS: &str = "served beside them";
/// `discard`, a port on which no program of the suite listens.
const CLOSED: u16 = 9;

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    let address = address(cx, node)?;
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

    cx.phase("the agent is removed, programs of another owner are attached");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(node).await?;
    let mut foreign = Foreign {
        programs: attach(cx, node, address).await?,
        clients: cx.clients().on(node),
        directly: served.directly(AXIS, &cx.families())?,
        address,
    };
    let traffic = foreign.traffic(cx).await?;
    cx.fault(&format!("attached on {node}: {:?}", traffic.counted));
    for (place, problem) in traffic.problems() {
        let why = format!("not witnessed (it counts while there is no agent): {problem}");
        cx.axes().inconclusive(&place, why, Vec::new());
    }

    cx.phase("the agent starts");
    agent.start().await?;
    ready(cx, node, &before).await?;
    probing::judge_briefly(
        cx,
        cx.clients(),
        &served.targets,
        Within::from_now(cx.limits().heal),
    )
    .await?;
    foreign.judge(cx, "the agent's start").await?;

    cx.phase("the agent is killed and starts");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.start().await?;
    ready(cx, node, &before).await?;
    probing::judge_briefly(
        cx,
        cx.clients(),
        &served.targets,
        Within::from_now(cx.limits().heal),
    )
    .await?;
    foreign.judge(cx, "the agent's restart").await?;

    if cx.cluster().describe().variants.contains(&Variant::SocketLbOff) {
        cx.phase("translation at sockets is switched off, and on again");
        let before = cx.cluster().agents()?.state(node).await?;
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        let switched = agent.start_as(Variant::SocketLbOff).await?;
        ready(cx, node, &before).await?;
        foreign
            .judge(cx, "translation at sockets was switched off")
            .await?;
        let before = cx.cluster().agents()?.state(node).await?;
        switched.heal().await?;
        ready(cx, node, &before).await?;
    } else {
        let why = "the target names no variant socket-lb-off";
        cx.axes().not_enabled("translation at sockets switched off", why);
    }

    cx.phase("the agent is removed");
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    cx.cluster().agents()?.clean_up(node).await?;
    foreign.judge(cx, "the agent's removal").await?;

    cx.phase("heal");
    agent.start().await?;
    ready(cx, node, &before).await?;
    foreign.programs.heal().await?;
    cx.fault("healed: the programs of another owner are gone");
    probing::judge_briefly(
        cx,
        cx.clients(),
        &served.targets,
        Within::from_now(cx.limits().heal),
    )
    .await
}

async fn attach(cx: &Context, node: &str, address: IpAddr) -> Result<ForeignPrograms, Halt> {
    let hooks: Vec<&str> = cx
        .families()
        .into_iter()
        .flat_map(|family| match family {
            Family::IPv4 => ["connect4", "sendmsg4"],
            Family::IPv6 => ["connect6", "sendmsg6"],
        })
        .collect();
    let expires = cx.limits().longest(CASE.longest);
    Ok(ForeignPrograms::attach(cx.cluster(), node, &hooks, address, expires).await?)
}

/// The programs, and the traffic that they see.
struct Foreign {
    programs: ForeignPrograms,
    /// Clients whose sockets they see.
    clients: Vec<Client>,
    /// What these clients dial: the programs see it with and without translation.
    directly: Vec<Destination>,
    /// Addresses of the uplink.
    address: IpAddr,
}

impl Foreign {
    /// Makes sockets and packets pass each of them.
    async fn traffic(&mut self, cx: &Context) -> Result<Traffic, Halt> {
        let before = self.programs.count().await?;
        let within = Within::from_now(cx.limits().service);
        // An axis that has its verdict needs no dials.
        let came = cx.axes().is_open(AXIS);
        probing::judge_briefly(cx, &self.clients, &self.directly, within).await?;
        let came = came && cx.axes().is_open(AXIS);
        if let Some(outside) = cx.clients().outside() {
            let closed = (self.address, CLOSED).into();
            let closed = Destination::none(AXIS, "a closed port of the node", Transport::Tcp, closed);
            probing::judge_briefly(cx, &[outside], &[closed], within).await?;
        }
        Ok(Traffic {
            came,
            before,
            counted: self.programs.count().await?,
        })
    }

    /// Verdict: each is still attached, and has kept counting.
    async fn judge(&mut self, cx: &Context, after: &str) -> Result<(), Halt> {
        let traffic = self.traffic(cx).await?;
        cx.fault(&format!("after {after}: {:?}", traffic.counted));
        for tally in &traffic.counted {
            cx.axes().judged(&tally.place, Vec::new());
        }
        for (place, problem) in traffic.problems() {
            let subject = format!("the program of another owner at {place}, after {after}");
            if let Problem::NotShown { .. } = problem {
                cx.axes()
                    .inconclusive(&place, format!("{subject}: {problem}"), Vec::new());
                continue;
            }
            let finding = Finding {
                weight: Weight::Violation,
                subject,
                expected: "attached, and counting".to_owned(),
                found: problem.to_string(),
                first: Vec::new(),
                counted: None,
            };
            cx.axes().judged(&place, vec![finding]);
        }
        Ok(())
    }
}

/// Traffic that passed the programs, and their counts.
struct Traffic {
    /// Whether sockets and packets passed as they should.
    came: bool,
    before: Vec<Tally>,
    counted: Vec<Tally>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("detached")]
    Detached,
    #[error("attached, and did not run: it has counted {count}")]
    StoodStill { count: u64 },
    #[error(
        "attached, and whether it runs is not shown, as the traffic did not come: it has counted {count}"
    )]
    NotShown { count: u64 },
}

impl Traffic {
    /// Counts by hook.
    fn problems(&self) -> Vec<(String, Problem)> {
        let problem = |tally: &Tally| {
            let earlier = self.before.iter().find(|one| one.program == tally.program)?;
            let count = tally.count;
            let what = match (tally.attached, count > earlier.count) {
                (true, true) => return None,
                (false, _) => Problem::Detached,
                (true, false) if self.came => Problem::StoodStill { count },
                (true, false) => Problem::NotShown { count },
            };
            Some((tally.place.clone(), what))
        };
        self.counted.iter().filter_map(problem).collect()
    }
}

async fn ready(cx: &Context, node: &str, before: &cluster::AgentState) -> Result<(), Halt> {
    let within = Within::from_now(cx.limits().heal);
    match agents::ready(cx, node, before, within).await? {
        Some(_) => Ok(()),
        None => Err(Halt::Inconclusive(format!(
            "the agent of {node} was not ready within {:?}",
            within.limit
        ))),
    }
}

/// An address of the node's uplink.
fn address(cx: &Context, name: &str) -> Result<IpAddr, Halt> {
    let mut nodes = cx.cluster().describe().nodes.iter();
    nodes
        .find(|node| node.name == name)
        .and_then(|node| node.addresses.first().copied())
        .ok_or_else(|| Halt::Harness(format!("node {name} has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(attached: bool, count: u64) -> Vec<Tally> {
        vec![Tally {
            place: "connect4".to_owned(),
            program: 7,
            attached,
            count,
        }]
    }

    fn problems(came: bool, counted: Vec<Tally>) -> Vec<Problem> {
        let traffic = Traffic {
            came,
            before: tally(true, 3),
            counted,
        };
        traffic
            .problems()
            .into_iter()
            .map(|(_, problem)| problem)
            .collect()
    }

    #[test]
    fn a_program_that_is_gone_or_stands_still_is_a_problem() {
        assert_eq!(problems(true, tally(true, 4)), []);
        assert_eq!(problems(true, tally(false, 4)), [Problem::Detached]);
        assert_eq!(problems(true, tally(true, 3)), [Problem::StoodStill { count: 3 }]);
    }

    #[test]
    fn one_that_stands_still_where_nothing_came_is_not_accused() {
        assert_eq!(problems(false, tally(true, 4)), []);
        assert_eq!(problems(false, tally(false, 4)), [Problem::Detached]);
        assert_eq!(problems(false, tally(true, 3)), [Problem::NotShown { count: 3 }]);
    }
}
