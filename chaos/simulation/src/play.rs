//! A schedule, played from its beginning to its end.

use std::{collections::BTreeMap, time::Duration};

use kube::Client;
use lab_apiserver::faults::FaultGuard;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use reference_agent::{maps::Contents, plan::Perspective};
use scenarios::chaos::{
    faults::{self, CRASHES, FAILING, JUMP},
    schedule::{Does, Fault, FaultKind, Schedule},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    Desired,
    agent::{AUDITS, Agent},
    api::{Api, NODES},
    law, simulated,
};

/// From one audit to the next while the maps are not whole, and otherwise.
const AUDIT: Duration = Duration::from_secs(1);
const AUDIT_RARELY: Duration = Duration::from_secs(15);
/// After a fault the agent has this long until its maps must be the API's: two of the longest pauses between tries of a watch, or of a
/// write to the maps.
pub const SETTLED: Duration = Duration::from_secs(11);
/// After a write of the API: what it made useless is removed from the maps a moment later.
const WRITTEN: Duration = Duration::from_millis(100);
/// After its maps were wiped: each of them is audited twice, and what failed meanwhile is tried again.
const WIPED: Duration = Duration::from_secs(SETTLED.as_secs() + AUDITS as u64);
/// How long all is quiet at the end. A watch that lost events without a word is replaced within 70 s.
pub const QUIET: Duration = Duration::from_secs(90);
/// Writes of which some fail, at most, while they do.
const WRITES: usize = 100_000;

/// What broke the law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// When, after the beginning of the schedule.
    pub at: Duration,
    /// What.
    pub what: String,
}

/// How a schedule went.
#[derive(Debug, Default)]
pub struct Played {
    /// The first breach of the law, which ended it.
    pub broken: Option<Broken>,
    /// Calls of the API.
    pub calls: u64,
    /// Faults that were made.
    pub faults: BTreeMap<FaultKind, u64>,
    /// How often the maps were compared with what the agent was told.
    pub told: u64,
    /// How often they were compared with the API, where no fault had been for a while.
    pub quiet: u64,
}

/// How a fault ends.
enum Heal {
    Answers(FaultGuard),
    Server,
    Start,
    Thaw,
    Writes,
    /// Of a crash loop: one more crash.
    Crash,
}

struct Player<'a> {
    api: Api,
    client: Client,
    desired: &'a dyn Fn(Perspective) -> Desired,
    random: StdRng,
    /// `None`: it is stopped.
    agent: Option<Agent>,
    /// What a stopped agent has left in its maps.
    left: Contents,
    is_frozen: bool,
    began: Instant,
    heals: BTreeMap<(Instant, u64), Heal>,
    /// From then on the maps are the API's.
    settled: Instant,
    /// From then on they are the plan of what the agent was told, and it may rely on what it has written.
    whole: Instant,
    audited: Instant,
    /// So many unlawful writes of this agent came before that.
    excused: usize,
    played: Played,
}

fn perspective() -> Perspective {
    let (node, _) = NODES[0];
    Perspective {
        node: node.to_owned(),
        ..Perspective::default()
    }
}

/// Plays a schedule. In a current-thread runtime whose time is paused. The plans are made by what `desired` returns, for each start of
/// the agent anew.
///
/// # Errors
/// The simulation itself has failed: a write was refused.
pub async fn play(schedule: &Schedule, desired: &dyn Fn(Perspective) -> Desired) -> anyhow::Result<Played> {
    let api = Api::start().await?;
    let now = Instant::now();
    let mut player = Player {
        client: api.agents_client(),
        api,
        desired,
        random: StdRng::seed_from_u64(schedule.seed),
        agent: None,
        left: Contents::default(),
        is_frozen: false,
        began: now,
        heals: BTreeMap::new(),
        settled: now,
        whole: now,
        audited: now,
        excused: 0,
        played: Played::default(),
    };
    player.start();
    match player.run(schedule).await {
        Ok(()) => {}
        Err(Ended::Broken(what)) => {
            let at = player.began.elapsed();
            player.played.broken = Some(Broken { at, what });
        }
        Err(Ended::Failed(error)) => return Err(error),
    }
    Ok(player.played)
}

/// Why a schedule ends early.
enum Ended {
    Broken(String),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Ended {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Ended {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}

impl Player<'_> {
    async fn run(&mut self, schedule: &Schedule) -> Result<(), Ended> {
        // The first lists.
        self.until(self.began + SETTLED).await?;
        self.began = Instant::now();
        for action in &schedule.actions {
            self.until(self.began + Duration::from_millis(action.at_ms.into()))
                .await?;
            self.quiet()?;
            match &action.does {
                Does::Fault(fault) => self.fault(fault).await?,
                does => {
                    for call in self.api.world.calls(does) {
                        self.api.call(&call).await?;
                        self.played.calls += 1;
                        self.settled = self.settled.max(Instant::now() + WRITTEN);
                    }
                }
            }
        }
        let end = self.heals.keys().map(|(at, _)| *at).max();
        let end = end.unwrap_or(self.began).max(Instant::now());
        self.until(end + QUIET).await?;
        // Everything has been healed, and a crash loop may have ended it once more.
        self.until(self.settled).await?;
        self.quiet()?;
        if self.played.quiet == 0 {
            return Err(Ended::Broken(format!(
                "the agent has not written all that it was told, {QUIET:?} after the last fault"
            )));
        }
        Ok(())
    }

    /// Lets time pass until then: events, retries, audits and the ends of faults.
    async fn until(&mut self, end: Instant) -> Result<(), Ended> {
        loop {
            let audit = self.audited
                + if Instant::now() < self.whole {
                    AUDIT
                } else {
                    AUDIT_RARELY
                };
            let heal = self.heals.keys().next().map(|(at, _)| *at);
            let deadline = self.agent.as_ref().and_then(Agent::deadline);
            let deadline = deadline.map(Instant::from_std).filter(|_| !self.is_frozen);
            let next = [heal, deadline, Some(audit)]
                .into_iter()
                .flatten()
                .fold(end, Instant::min);
            let is_frozen = self.is_frozen;
            let arrival = async {
                match self.agent.as_mut().filter(|_| !is_frozen) {
                    Some(agent) => agent.arrival().await,
                    None => std::future::pending().await,
                }
            };
            let arrived = tokio::select! {
                biased;
                arrived = arrival => arrived,
                () = sleep_until(next) => None,
            };
            let now = Instant::now();
            if let (Some(event), Some(agent)) = (arrived, &mut self.agent) {
                agent.take_all(event);
                self.round()?;
                continue;
            }
            let is_due = deadline.is_some_and(|deadline| deadline <= now);
            let is_audited = now >= audit;
            if is_audited {
                self.audited = now;
                if let Some(agent) = self.agent.as_mut().filter(|_| !is_frozen) {
                    agent.audit();
                }
            }
            while let Some(entry) = self.heals.first_entry().filter(|entry| entry.key().0 <= now) {
                let heal = entry.remove();
                self.heal(heal);
            }
            if !self.is_frozen && (is_due || is_audited) {
                self.round()?;
            }
            if now >= end {
                return Ok(());
            }
        }
    }

    fn round(&mut self) -> Result<(), Ended> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let now = Instant::now();
        agent.world.round(now.into_std());
        let is_whole = now >= self.whole;
        let mut unlawful = law::unlawful(agent).skip(self.excused);
        if is_whole && let Some(write) = unlawful.next() {
            return Err(Ended::Broken(format!("an unlawful write: {write}")));
        }
        self.excused += unlawful.count();
        if agent.is_done() && is_whole {
            law::planned(agent, &agent.told, "all that the agent was told", &perspective())?;
            self.played.told += 1;
        }
        Ok(())
    }

    /// If no fault has been there for a while: the maps are the API's.
    fn quiet(&mut self) -> Result<(), Ended> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let is_quiet = self.heals.is_empty() && Instant::now() >= self.settled && !agent.has_arrivals();
        if !is_quiet {
            return Ok(());
        }
        if !agent.is_done() {
            return Err(Ended::Broken(format!(
                "expected the agent to be done {SETTLED:?} after the last fault; {:?}",
                agent.world.control.troubles()
            )));
        }
        law::planned(
            agent,
            &law::objects(&self.api),
            "the API's objects",
            &perspective(),
        )?;
        law::served(agent, &self.api)?;
        self.played.quiet += 1;
        Ok(())
    }

    fn start(&mut self) {
        let desired = (self.desired)(perspective());
        self.agent = Some(Agent::start(desired, &self.left, &self.client, &mut self.random));
        self.is_frozen = false;
        self.excused = 0;
    }

    /// It ends, and its maps stay.
    fn stop(&mut self) {
        if let Some(agent) = self.agent.take() {
            self.left = agent.world.contents();
        }
    }

    async fn fault(&mut self, fault: &Fault) -> Result<(), Ended> {
        let is_here = fault.node.is_none_or(|node| node <= 1);
        if !is_here || !simulated(fault.kind) {
            return Ok(());
        }
        *self.played.faults.entry(fault.kind).or_default() += 1;
        let now = Instant::now();
        let end = now + Duration::from_millis(fault.lasts_ms.into());
        let heal = match fault.kind {
            FaultKind::VersionsJump => {
                self.api.jump_versions(JUMP);
                None
            }
            FaultKind::ApiServerDown => {
                self.api.kill();
                Some(Heal::Server)
            }
            FaultKind::AgentKilled => {
                self.stop();
                self.start();
                None
            }
            FaultKind::AgentDown => {
                self.stop();
                Some(Heal::Start)
            }
            FaultKind::AgentFrozen => {
                self.is_frozen = true;
                Some(Heal::Thaw)
            }
            FaultKind::AgentCrashLoop => {
                let mut at = now;
                while at < end {
                    self.heals.insert((at, self.random.random()), Heal::Crash);
                    at += CRASHES;
                }
                None
            }
            FaultKind::AgentAfresh | FaultKind::PinsLost => {
                self.stop();
                self.left = Contents::default();
                self.start();
                None
            }
            FaultKind::WritesFail => {
                if let Some(agent) = &mut self.agent {
                    let script: Vec<bool> = (0..WRITES)
                        .map(|_| self.random.random_ratio(1, FAILING.get()))
                        .collect();
                    agent.world.faults().script(script);
                }
                Some(Heal::Writes)
            }
            FaultKind::EntriesWiped => {
                if let Some(agent) = &mut self.agent {
                    agent.wipe();
                } else {
                    self.left = Contents::default();
                }
                self.whole = self.whole.max(now + WIPED);
                None
            }
            kind => match faults::answers(kind) {
                Some(answers) => Some(Heal::Answers(self.api.begin(answers)?)),
                None => None,
            },
        };
        let end = if heal.is_some() { end } else { now };
        if let Some(heal) = heal {
            self.heals.insert((end, self.random.random()), heal);
        }
        let over = self.heals.keys().map(|(at, _)| *at).max().unwrap_or(now).max(end);
        // What disturbs the repair of wiped maps makes it begin again.
        let settled = if now < self.whole { WIPED } else { SETTLED };
        if now < self.whole {
            self.whole = self.whole.max(over + settled);
        }
        self.settled = self.settled.max(over + settled);
        Ok(())
    }

    fn heal(&mut self, heal: Heal) {
        match heal {
            Heal::Answers(guard) => drop(guard),
            Heal::Server => self.api.restart(),
            Heal::Start => {
                if self.agent.is_none() {
                    self.start();
                }
            }
            Heal::Thaw => self.is_frozen = false,
            Heal::Crash => {
                self.stop();
                self.start();
            }
            Heal::Writes => {
                if let Some(agent) = &mut self.agent {
                    agent.world.faults().script([]);
                }
            }
        }
    }
}
