//! The verdict on each attempt.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use super::{ChaosHistory, Frontend, Listed, UsedFlow, affinity, connections, window::Window};
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
    /// Answered by another backend than the one that session affinity had bound the client to, which was an endpoint all along.
    Unbound,
    /// The backend saw another source address than the client's own.
    Translated,
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
            Self::Unbound => "the backend of before: the client is bound to it by its address",
            Self::Translated => "the backend sees the client's own address",
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
            Self::Unbound => "answered by another backend than before, in spite of session affinity",
            Self::Translated => "seen with another source address",
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
    let own = own_addresses(&attempts);
    let mut outside = Outside::default();
    for frontend in &history.frontends {
        let of_this = attempts.iter().filter(|one| frontend.takes(one));
        let (later, new) = connections::apart(of_this.copied());
        connections::judge_later(history, frontend, &later, &mut outside);
        let mut by_nodes: BTreeMap<BTreeSet<&str>, Vec<&Attempt>> = BTreeMap::new();
        for attempt in new {
            let nodes = nodes_of(history, frontend, attempt);
            by_nodes.entry(nodes).or_default().push(attempt);
        }
        for (nodes, attempts) in by_nodes {
            let window = Window::new(&history.disturbances, &nodes, history.tolerance);
            let at = At {
                frontend,
                endpoints: &history.endpoints,
                window: &window,
                reached: &history.reached,
                repeated: &repeated,
                own: &own,
                is_one_node: nodes.len() == 1,
            };
            at.judge(&attempts, &mut outside);
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

/// A frontend at the nodes that may handle attempts to it.
pub(super) struct At<'a, 'h> {
    pub(super) frontend: &'h Frontend,
    endpoints: &'h BTreeMap<String, BTreeMap<String, Vec<Listed>>>,
    pub(super) window: &'a Window<'h>,
    /// [`ChaosHistory::reached`].
    reached: &'h BTreeMap<String, String>,
    repeated: &'a HashSet<&'h str>,
    /// The own addresses of each client.
    own: &'a BTreeMap<&'h str, BTreeSet<IpAddr>>,
    is_one_node: bool,
}

impl<'h> At<'_, 'h> {
    /// Judges attempts, in the order of their ends.
    fn judge(&self, attempts: &[&'h Attempt], outside: &mut Outside<'h>) {
        let ends = self.ends();
        // What attempts have shown: from this time on, no state before this one, unless the node is disturbed: it then reads the API
        // anew, and may begin with an old state. Where one of several nodes may answer, it shows nothing of another.
        let mut shown: Vec<(u64, usize)> = Vec::new();
        let mut bound = affinity::Bound::default();
        for &attempt in attempts {
            if self.repeated.contains(&*attempt.nonce) || is_own_failure(&attempt.outcome) {
                outside.undecided += 1;
                continue;
            }
            let since = shown
                .iter()
                .filter(|(end, _)| *end < attempt.start_us && !self.window.is_disturbed(*end, attempt.end_us))
                .map(|(_, state)| *state)
                .max()
                .unwrap_or_default();
            let all: Vec<usize> = self.between(&ends, attempt.start_us, attempt.end_us).collect();
            let possible: Vec<usize> = all.iter().copied().filter(|state| *state >= since).collect();
            let (mut broken, consistent) = self.verdict(&possible, attempt);
            let is_of_states = matches!(
                broken,
                Some(Broken::Misdelivered | Broken::Stale | Broken::Unserved)
            );
            if is_of_states && self.passes_on(&all) {
                match answered_by(attempt) {
                    None => {
                        outside.undecided += 1;
                        continue;
                    }
                    Some(identity) if self.may_be_listed(&all, identity, attempt) => broken = None,
                    Some(_) => {}
                }
            }
            if let Some(first) = consistent
                && self.is_one_node
                && first > since
            {
                shown.push((attempt.end_us, first));
            }
            let broken = broken.or_else(|| bound.judge(self, &ends, attempt));
            match broken {
                // Without programs, packets go other ways.
                Some(Broken::Unserved | Broken::Translated)
                    if self.window.loses(attempt.start_us, attempt.end_us) =>
                {
                    outside.excused += 1;
                }
                None => outside.judged += 1,
                Some(broken) => {
                    outside.judged += 1;
                    let key = (broken, &*attempt.client, &*attempt.target);
                    outside.attempts.entry(key).or_default().push(attempt);
                }
            }
        }
    }

    /// Until when each state may last.
    fn ends(&self) -> Vec<u64> {
        let next = self.frontend.states.iter().skip(1);
        next.map(|next| self.window.lasts_until(next.done_us))
            .chain([u64::MAX])
            .collect()
    }

    /// The states that a node may have been in at some time from the first to the last, with these ends.
    pub(super) fn between(&self, ends: &[u64], from_us: u64, until_us: u64) -> impl Iterator<Item = usize> {
        let states = self.frontend.states.iter().zip(ends).enumerate();
        states
            .filter(move |(_, (state, end))| state.sent_us <= until_us && **end >= from_us)
            .map(|(number, _)| number)
    }

    /// Whether a frontend passes from one Service to another, or to none, within these states.
    fn passes_on(&self, states: &[usize]) -> bool {
        let mut owners = states.iter().map(|state| &self.frontend.states[*state].owner);
        let first = owners.next();
        owners.any(|owner| Some(owner) != first)
    }

    /// Whether a node may know an endpoint of one of the Services that a frontend has in these states.
    fn may_be_listed(&self, states: &[usize], identity: &str, attempt: &Attempt) -> bool {
        let owners = states.iter().map(|state| &self.frontend.states[*state].owner);
        let listed = owners.filter_map(|owner| self.endpoints.get(owner)?.get(identity));
        listed.flatten().any(|listed| {
            listed.from_us <= attempt.end_us && self.window.lasts_until(listed.until_us) >= attempt.start_us
        })
    }

    /// What is broken, and the first of the possible states that the attempt is consistent with.
    fn verdict(&self, possible: &[usize], attempt: &Attempt) -> (Option<Broken>, Option<usize>) {
        let state = |number: &usize| &self.frontend.states[*number];
        let Some(identity) = answered_by(attempt) else {
            let fails = |number: &&usize| state(number).serves.is_empty() || state(number).terms.may_fail;
            let first = possible.iter().find(fails);
            if first.is_none() && self.may_have_ended(possible, attempt) {
                return (None, None);
            }
            let broken = (first.is_none() && !possible.is_empty()).then_some(Broken::Unserved);
            return (broken, first.copied());
        };
        let mut serving = possible
            .iter()
            .filter(|number| state(number).serves.contains(identity));
        let Some(first) = serving.clone().next() else {
            let states = &self.frontend.states;
            let ever = states.iter().any(|state| state.serves.contains(identity));
            let broken = if ever { Broken::Stale } else { Broken::Misdelivered };
            return (Some(broken), None);
        };
        let keeps_source = serving.all(|number| state(number).terms.keeps_source);
        let broken = (keeps_source && self.is_translated(attempt)).then_some(Broken::Translated);
        (broken, Some(*first))
    }

    /// Whether a datagram without an answer has reached a backend that may have left meanwhile: the answer goes with the flow.
    fn may_have_ended(&self, possible: &[usize], attempt: &Attempt) -> bool {
        let Some(identity) = self.reached.get(&attempt.nonce) else {
            return false;
        };
        let mut serves = possible.iter().map(|state| &self.frontend.states[*state].serves);
        serves.clone().any(|serves| serves.contains(identity))
            && serves.any(|serves| !serves.contains(identity))
    }

    /// Whether the backend saw another address than one of the client's own.
    fn is_translated(&self, attempt: &Attempt) -> bool {
        match (&attempt.outcome, self.own.get(&*attempt.client)) {
            (Outcome::Answered { answer, .. }, Some(own)) => !own.contains(&answer.source.ip()),
            _ => false,
        }
    }
}

/// The addresses from which each client has dialled. A socket that is not connected may not know its own.
fn own_addresses<'a>(attempts: &[&'a Attempt]) -> BTreeMap<&'a str, BTreeSet<IpAddr>> {
    let mut all: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for attempt in attempts {
        if let Some(local) = attempt.local
            && !local.ip().is_unspecified()
        {
            all.entry(&attempt.client).or_default().insert(local.ip());
        }
    }
    all
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
        let is_used = || {
            let used = UsedFlow {
                node: attempt.client.rsplit('@').next().unwrap_or_default().to_owned(),
                port: local.port(),
                destination: attempt.destination,
            };
            let is_soon = attempt.start_us <= history.began_us.saturating_add(REMEMBERED_US);
            !is_connection && is_soon && history.flows.contains(&used)
        };
        if earlier.iter().any(decides) || is_used() {
            repeated.insert(&*attempt.nonce);
        }
        earlier.push(attempt);
    }
    repeated
}
