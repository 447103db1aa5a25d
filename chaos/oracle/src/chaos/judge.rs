//! The verdict on each attempt.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::SocketAddr,
};

use serde::{Deserialize, Serialize};

use super::{ChaosHistory, Frontend, connections, window::Window};
use crate::{
    history::{Attempt, Outcome, Stage, Transport},
    outcome::faithful,
};

/// How long conntrack remembers a connection without an answer, after its last SYN: `nf_conntrack_tcp_timeout_syn_sent`
/// (nf_conntrack-sysctl, kernel doc).
const REMEMBERED_US: u64 = 120_000_000;

/// What an attempt shows that may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// Answered by what has never been an endpoint of the frontend: another Service's backend, or another port's.
    Misdelivered,
    /// Answered by a former endpoint, after every tolerance.
    Stale,
    /// Failed, although the frontend had endpoints in each state that its node may have been in.
    Unserved,
    /// An established connection was answered by another backend than before.
    Moved,
    /// An established connection has ended or gets no answer, although its backend was an endpoint all along.
    Cut,
}

impl Broken {
    /// What the API's states ask for instead.
    #[must_use]
    pub fn expected(self) -> &'static str {
        match self {
            Self::Misdelivered => "an answer by an endpoint of this frontend, or none",
            Self::Stale => "an answer by an endpoint of now, or none",
            Self::Unserved => "an answer: there was an endpoint all along",
            Self::Moved => "answers on one connection by one backend",
            Self::Cut => "the connection goes on: its backend was an endpoint all along",
        }
    }

    /// In words, for counts.
    #[must_use]
    pub fn found(self) -> &'static str {
        match self {
            Self::Misdelivered => "answered by what was never an endpoint of this frontend",
            Self::Stale => "answered by a former endpoint",
            Self::Unserved => "not answered",
            Self::Moved => "answered by another backend than before, on one connection",
            Self::Cut => "not answered, on an established connection",
        }
    }
}

/// Attempts outside what is permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside<'a> {
    /// By what is broken, and of which client and target; in the order of their times.
    pub attempts: BTreeMap<(Broken, &'a str, &'a str), Vec<&'a Attempt>>,
    /// Attempts that decided something.
    pub judged: usize,
    /// Attempts that an earlier flow of their source port may have decided, or whose own client failed: they decide nothing.
    pub undecided: usize,
    /// Attempts that failed while a disturbance excused that.
    pub excused: usize,
}

/// Judges all attempts of a history. Attempts to no frontend of it decide nothing.
#[must_use]
pub fn judge(history: &ChaosHistory) -> Outside<'_> {
    let mut attempts: Vec<&Attempt> = history.attempts.iter().collect();
    // By their ends: what an attempt has shown holds for those that begin later.
    attempts.sort_by_key(|attempt| (attempt.end_us, attempt.start_us));
    let repeated = repeated(history, &attempts);
    let mut outside = Outside::default();
    for frontend in &history.frontends {
        let of_this = attempts
            .iter()
            .filter(|one| one.target == frontend.target && one.transport == frontend.transport);
        let (later, new) = connections::apart(of_this.copied());
        connections::judge_later(history, frontend, &later, &mut outside);
        let mut by_nodes: BTreeMap<BTreeSet<&str>, Vec<&Attempt>> = BTreeMap::new();
        for attempt in new {
            let nodes = nodes_of(history, frontend, attempt);
            by_nodes.entry(nodes).or_default().push(attempt);
        }
        for (nodes, attempts) in by_nodes {
            let window = Window::new(&history.disturbances, &nodes, history.tolerance);
            judge_at(
                frontend,
                nodes.len() == 1,
                &window,
                &attempts,
                &repeated,
                &mut outside,
            );
        }
    }
    for attempts in outside.attempts.values_mut() {
        attempts.sort_by_key(|attempt| attempt.start_us);
    }
    outside
}

/// The nodes that may handle an attempt: that of the client, whose sockets may be translated at once, and that of the address.
/// Without either, any.
fn nodes_of<'a>(history: &'a ChaosHistory, frontend: &'a Frontend, attempt: &Attempt) -> BTreeSet<&'a str> {
    let of_client = history.clients.get(&attempt.client);
    let nodes = of_client.into_iter().chain(&frontend.node).map(String::as_str);
    nodes.filter(|node| !node.is_empty()).collect()
}

fn judge_at<'a>(
    frontend: &'a Frontend,
    is_one_node: bool,
    window: &Window<'_>,
    attempts: &[&'a Attempt],
    repeated: &HashSet<&str>,
    outside: &mut Outside<'a>,
) {
    let states = &frontend.states;
    let ends: Vec<u64> = states
        .iter()
        .skip(1)
        .map(|next| window.lasts_until(next.done_us))
        .chain([u64::MAX])
        .collect();
    // What attempts have shown: from this time on, no state before this one, unless the node is disturbed: it then reads the API
    // anew, and may begin with an old state. Where one of several nodes may answer, it shows nothing of another.
    let mut shown: Vec<(u64, usize)> = Vec::new();
    for attempt in attempts {
        if repeated.contains(&*attempt.nonce) || is_own_failure(&attempt.outcome) {
            outside.undecided += 1;
            continue;
        }
        let since = shown
            .iter()
            .filter(|(end, _)| *end < attempt.start_us && !window.is_disturbed(*end, attempt.end_us))
            .map(|(_, state)| *state)
            .max()
            .unwrap_or_default();
        let possible: Vec<usize> = (0..states.len())
            .filter(|state| {
                *state >= since
                    && states[*state].sent_us <= attempt.end_us
                    && ends[*state] >= attempt.start_us
            })
            .collect();
        let (broken, consistent) = verdict(frontend, &possible, attempt);
        if let Some(first) = consistent
            && is_one_node
            && first > since
        {
            shown.push((attempt.end_us, first));
        }
        match broken {
            Some(Broken::Unserved) if window.loses(attempt.start_us, attempt.end_us) => outside.excused += 1,
            None => outside.judged += 1,
            Some(broken) => {
                outside.judged += 1;
                let key = (broken, &*attempt.client, &*attempt.target);
                outside.attempts.entry(key).or_default().push(attempt);
            }
        }
    }
}

/// What is broken, and the first of the possible states that the attempt is consistent with.
fn verdict(frontend: &Frontend, possible: &[usize], attempt: &Attempt) -> (Option<Broken>, Option<usize>) {
    let serves = |state: &usize| &frontend.states[*state].serves;
    match answered_by(attempt) {
        Some(identity) => {
            let first = possible.iter().find(|state| serves(state).contains(identity));
            if first.is_some() {
                return (None, first.copied());
            }
            let ever = frontend
                .states
                .iter()
                .any(|state| state.serves.contains(identity));
            let broken = if ever { Broken::Stale } else { Broken::Misdelivered };
            (Some(broken), None)
        }
        None => {
            let first = possible.iter().find(|state| serves(state).is_empty());
            let broken = (first.is_none() && !possible.is_empty()).then_some(Broken::Unserved);
            (broken, first.copied())
        }
    }
}

/// The identity of the backend that answered. An answer that is no backend's, such as a gateway's, is none (rule 8 of the catalogue).
pub(super) fn answered_by(attempt: &Attempt) -> Option<&str> {
    match &attempt.outcome {
        Outcome::Answered { answer, .. } if faithful(answer, attempt) => Some(&answer.identity),
        _ => None,
    }
}

/// The client could not even try.
pub(super) fn is_own_failure(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed {
            stage: Stage::Socket,
            ..
        } | Outcome::Timeout { stage: Stage::Socket }
    )
}

/// Nonces of attempts that go on with a flow of before, by conntrack: a connection from a port that failed a moment ago (its entry
/// leaves it untranslated, <https://github.com/kubernetes/kubernetes/issues/48719>), a datagram from a port that was used before.
fn repeated<'a>(history: &ChaosHistory, attempts: &[&'a Attempt]) -> HashSet<&'a str> {
    // A node's clients may share a network, and pods have their own: a client is enough to tell flows apart, except on hosts.
    type Flow<'a> = (&'a str, SocketAddr, SocketAddr, bool);
    let mut before: HashMap<Flow<'_>, Vec<&Attempt>> = HashMap::new();
    let mut repeated = HashSet::new();
    let known: BTreeSet<(&str, Transport)> = history
        .frontends
        .iter()
        .map(|frontend| (&*frontend.target, frontend.transport))
        .collect();
    let mut in_turn = attempts.to_vec();
    in_turn.sort_by_key(|attempt| attempt.start_us);
    for attempt in in_turn {
        let Some(local) = attempt.local else { continue };
        if attempt.exchange.is_some() || !known.contains(&(&*attempt.target, attempt.transport)) {
            continue;
        }
        let is_connection = !matches!(attempt.transport, Transport::Udp | Transport::UdpConnected);
        let earlier = before
            .entry((&*attempt.client, local, attempt.destination, is_connection))
            .or_default();
        let decides = |one: &&Attempt| {
            let is_recent = one.end_us.saturating_add(REMEMBERED_US) >= attempt.start_us;
            is_recent && (!is_connection || !matches!(one.outcome, Outcome::Answered { .. }))
        };
        if earlier.iter().any(decides) {
            repeated.insert(&*attempt.nonce);
        }
        earlier.push(attempt);
    }
    repeated
}
