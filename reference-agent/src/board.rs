//! What the parts of the agent say about themselves: the truth behind `/healthz` and `/readyz`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{model::Kind, reflect::HEARD_LIMIT};

/// A control loop that has not come round in this time hangs: its rounds are [`SCAN`](crate::hooks::SCAN) apart at most.
pub const BEAT_LIMIT: Duration = Duration::from_secs(20);

/// Who speaks, in the order of `/readyz`. A part that has said nothing has nothing against being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Programs without which nobody is served: at the cgroup, and at the devices by which the network comes.
    Programs,
    /// Programs at other devices, and what is attached beside ours.
    Hooks,
    /// What has not been listed yet, and why.
    Lists,
    /// Of what has been listed: watches that bring nothing any more, and why.
    Watches,
    /// What could not be written.
    Maps,
    /// The source of objects.
    Source,
    /// The agent's own way to the API server.
    OwnWay,
    /// The agent's own probe through the datapath.
    Probe,
    /// The network of pods, where this agent gives it to them.
    PodNetwork,
}

/// A board that every part writes on; clones are the same board.
#[derive(Clone, Debug)]
pub struct Board(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    reasons: BTreeMap<Part, Vec<String>>,
    /// Of lists and watches that fail: what happened to the last try.
    lists: BTreeMap<Kind, String>,
    /// When the API server answered a list or watch last.
    heard: BTreeMap<Kind, Instant>,
    beat: Instant,
    logged: Vec<String>,
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Board {
    /// Nothing is said yet.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            reasons: BTreeMap::new(),
            lists: BTreeMap::new(),
            heard: BTreeMap::new(),
            beat: Instant::now(),
            logged: Vec::new(),
        })))
    }

    /// Why this node can't be relied on as far as `part` knows, one sentence each; empty: it can. Replaces what the
    /// part said before.
    pub fn say(&self, part: Part, reasons: Vec<String>) {
        self.lock().reasons.insert(part, reasons);
    }

    /// A list or watch of this kind has failed, and is tried again. Replaces what was said of the try before.
    pub fn list_fails(&self, kind: Kind, why: String) {
        self.lock().lists.insert(kind, why);
    }

    /// Something has come of a list or watch of this kind.
    pub fn heard(&self, kind: Kind, now: Instant) {
        let mut state = self.lock();
        state.lists.remove(&kind);
        state.heard.insert(kind, now);
    }

    /// That a kind has not been listed yet, and what happened to the last try; for [`Part::Lists`].
    pub fn unlisted(&self, kind: Kind) -> String {
        let kinds = plural(kind);
        match self.lock().lists.get(&kind) {
            Some(why) => format!("{kinds} have not been listed yet: {why}"),
            None => format!("{kinds} have not been listed yet"),
        }
    }

    /// That nothing has come of a kind for more than [`HEARD_LIMIT`], and what happened to the last try; for
    /// [`Part::Watches`]. `None`: something has, or it is not watched.
    pub fn unheard(&self, kind: Kind, now: Instant) -> Option<String> {
        let state = self.lock();
        let silent = now.saturating_duration_since(*state.heard.get(&kind)?);
        if silent <= HEARD_LIMIT {
            return None;
        }
        let kinds = plural(kind);
        // Not a new sentence each second.
        let seconds = silent.as_secs() / 30 * 30;
        let why = state
            .lists
            .get(&kind)
            .map_or("the API server is silent", String::as_str);
        Some(format!(
            "changes of {kinds} have not come since {seconds} s, and are served as last known: {why}"
        ))
    }

    /// The control loop has come round. What is said now differently from the last time is logged.
    pub fn beat(&self, now: Instant) {
        let mut state = self.lock();
        state.beat = now;
        let reasons: Vec<String> = state.reasons.values().flatten().cloned().collect();
        if reasons == state.logged {
            return;
        }
        if reasons.is_empty() {
            tracing::info!("ready");
        } else {
            tracing::info!(?reasons, "not ready");
        }
        state.logged = reasons;
    }

    /// Why this node can't be relied on; empty: it can.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().reasons.values().flatten().cloned().collect()
    }

    /// Whether what comes to this node is served as far as the agent knows: its control loop comes round, the programs
    /// are attached and its probe is answered. What lasts in single objects or devices, or in the API server, does not
    /// count.
    pub fn healthy(&self) -> bool {
        self.silent() < BEAT_LIMIT && self.well(&[Part::Programs, Part::Lists, Part::Probe])
    }

    /// Whether none of these parts has anything against being ready.
    pub fn well(&self, parts: &[Part]) -> bool {
        let state = self.lock();
        let well = |part| state.reasons.get(part).is_none_or(Vec::is_empty);
        parts.iter().all(well)
    }

    /// How long the control loop has not come round.
    pub fn silent(&self) -> Duration {
        self.lock().beat.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the API has it in paths.
fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices",
        Kind::Node => "nodes",
        Kind::ServiceCidr => "servicecidrs",
    }
}
