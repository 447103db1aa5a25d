//! Why this node is not ready: what `/healthz` and `/readyz` answer.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::model::Kind;

/// A control loop whose last round ended longer ago than this hangs. Rounds are [`SCAN`](crate::hooks::SCAN) apart at
/// most.
pub const ROUND_LIMIT: Duration = Duration::from_secs(20);

/// With no event and no regular end of a watch for longer than this, `/readyz` names the kind. One watch
/// ([`WATCH_LIMIT`](crate::reflect::WATCH_LIMIT)), and a pause that an API server may take for a restart.
pub const WATCH_SILENCE_LIMIT: Duration = Duration::from_secs(90);

/// What has reasons, in the order of `/readyz`. One without reasons is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Programs without which no Service is served: at the cgroup, and at the node's own devices.
    Programs,
    /// Programs at other devices, and leftovers that are still attached.
    Hooks,
    /// Kinds that have not been listed yet.
    Lists,
    /// Watches of listed kinds that bring nothing any more.
    Watches,
    /// Failed map writes.
    Maps,
    /// The folder of `--from`.
    Source,
    /// The agent's connections to the API server.
    ApiAccess,
    /// The agent's own probe through the datapath.
    Probe,
    /// The pods' network, with `--pod-network`.
    PodNetwork,
}

/// The reasons of all components. Clones are the same.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    reasons: BTreeMap<Component, Vec<String>>,
    /// The last error of each list or watch that fails.
    watch_errors: BTreeMap<Kind, String>,
    /// When the API server last answered a list or watch.
    answered: BTreeMap<Kind, Instant>,
    /// When the last round of the control loop ended.
    round: Instant,
    logged: Vec<String>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// Without reasons.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            reasons: BTreeMap::new(),
            watch_errors: BTreeMap::new(),
            answered: BTreeMap::new(),
            round: Instant::now(),
            logged: Vec::new(),
        })))
    }

    /// Replaces the reasons of a component, one sentence each; empty: it is ready.
    pub fn set_reasons(&self, component: Component, reasons: Vec<String>) {
        self.lock().reasons.insert(component, reasons);
    }

    /// A list or watch of this kind has failed, and is tried again.
    pub fn watch_failed(&self, kind: Kind, error: String) {
        self.lock().watch_errors.insert(kind, error);
    }

    /// The API server has answered a list or watch of this kind.
    pub fn watch_answered(&self, kind: Kind, now: Instant) {
        let mut state = self.lock();
        state.watch_errors.remove(&kind);
        state.answered.insert(kind, now);
    }

    /// Reason that a kind has not been listed yet, with the last error; for [`Component::Lists`].
    pub fn unlisted_reason(&self, kind: Kind) -> String {
        let kinds = plural(kind);
        match self.lock().watch_errors.get(&kind) {
            Some(error) => format!("{kinds} have not been listed yet: {error}"),
            None => format!("{kinds} have not been listed yet"),
        }
    }

    /// Reason that a watch has been silent for more than [`WATCH_SILENCE_LIMIT`], with the last error; for
    /// [`Component::Watches`]. `None`: it has not, or the kind is not watched.
    pub fn silence_reason(&self, kind: Kind, now: Instant) -> Option<String> {
        let state = self.lock();
        let silent = now.saturating_duration_since(*state.answered.get(&kind)?);
        if silent <= WATCH_SILENCE_LIMIT {
            return None;
        }
        let kinds = plural(kind);
        // Not a new sentence each second.
        let seconds = silent.as_secs() / 30 * 30;
        let error = state
            .watch_errors
            .get(&kind)
            .map_or("the API server is silent", String::as_str);
        Some(format!(
            "changes of {kinds} have not come since {seconds} s, and are served as last known: {error}"
        ))
    }

    /// A round of the control loop has ended. Reasons that differ from those of the last round are logged.
    pub fn round_ended(&self, now: Instant) {
        let mut state = self.lock();
        state.round = now;
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

    /// All reasons; empty: the node is ready.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().reasons.values().flatten().cloned().collect()
    }

    /// Whether the node serves Services as a whole: the control loop runs, the programs are attached, and the agent's
    /// probe is answered. Trouble with single objects or devices, or with the API server, does not count.
    pub fn is_healthy(&self) -> bool {
        let needed = [Component::Programs, Component::Lists, Component::Probe];
        self.since_round() < ROUND_LIMIT && self.are_ready(&needed)
    }

    /// Whether none of these components has a reason.
    pub fn are_ready(&self, components: &[Component]) -> bool {
        let state = self.lock();
        let is_ready = |component| state.reasons.get(component).is_none_or(Vec::is_empty);
        components.iter().all(is_ready)
    }

    /// Time since the last round of the control loop ended.
    pub fn since_round(&self) -> Duration {
        self.lock().round.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As in paths of the API.
fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "services",
        Kind::EndpointSlice => "endpointslices",
        Kind::Node => "nodes",
        Kind::ServiceCidr => "servicecidrs",
    }
}
