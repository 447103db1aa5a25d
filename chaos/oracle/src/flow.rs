//! Established flows: none is reset, none changes its backend, few replies are lost.
//!
//! The first answer of a flow names its backend. Answers to an unconnected socket may come from any permitted backend:
//! that it has only one is a claim of its own, see [`stickiness`](crate::stickiness).
//!
//! An exchange that its backend read only after the client's limit was late, not lost: it decides nothing. An exchange
//! whose client did not run in time may have been lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    breakage::{Ending, what_broke},
    check::{Observed, Stream, shown},
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, Transport},
    observations,
};

/// What the flows of one client through one target must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// The flows.
    pub stream: Stream,
    /// Their number.
    pub flows: usize,
    /// The fewest exchanges of each that decide.
    pub at_least: usize,
    /// Backends that may answer.
    pub identities: BTreeSet<String>,
    /// Fewer than one exchange of this many may stay without an answer, of fewer exchanges one; or [`NONE_LOST`].
    pub lost_of: usize,
}

/// No exchange may stay without an answer: more than a case makes.
pub const NONE_LOST: usize = 1_000_000;

/// Exchanges that are not as expected.
#[must_use]
pub fn flows(observed: &Observed<'_>, expected: &Flows) -> Vec<Finding> {
    let mut by_flow: BTreeMap<u32, Vec<&Attempt>> = BTreeMap::new();
    let (mut unwatched, mut lost, mut exchanges) = (Vec::new(), Vec::new(), Vec::new());
    for attempt in observed.of(&expected.stream) {
        let Some(exchange) = attempt.exchange else {
            continue;
        };
        let is_timeout = matches!(attempt.outcome, Outcome::Timeout { .. });
        let late = is_timeout && observed.was_taken_up_late(attempt, &expected.identities);
        if late || observed.is_not_the_datapaths(attempt, None) {
            unwatched.push(*attempt);
            continue;
        }
        exchanges.push(*attempt);
        by_flow.entry(exchange.flow).or_default().push(attempt);
        if is_timeout {
            lost.push(*attempt);
        }
    }
    let judged = exchanges.len();
    let mut findings = Vec::new();
    let mut found = |weight, text: String, first: &[&Attempt], counted: Option<Counted>| {
        findings.push(Finding {
            weight,
            subject: format!("{} flows, {}", expected.flows, expected.stream),
            expected: match expected.lost_of {
                NONE_LOST => "no end, no other backend, no exchange lost".to_owned(),
                lost_of => format!("no end, no other backend, fewer than 1 of {lost_of} exchanges lost"),
            },
            found: text,
            first: shown(first),
            counted,
        });
    };
    let ended: Vec<&Attempt> = by_flow
        .values()
        .flatten()
        .copied()
        .filter(|one| matches!(one.outcome, Outcome::Failed { .. } | Outcome::Garbled { .. }))
        .collect();
    if !ended.is_empty() {
        let how = observations::line(&observations::outcomes(ended.iter().copied()));
        found(
            Weight::Violation,
            format!("{}: {how}", what_broke(&ended)),
            &ended,
            flows_of(expected, &ended, &exchanges),
        );
    }
    let changed: Vec<&Attempt> = by_flow
        .values()
        .flat_map(|exchanges| changed(expected, exchanges))
        .collect();
    if !changed.is_empty() {
        let by = observations::line(&observations::outcomes(changed.iter().copied()));
        let counted = flows_of(expected, &changed, &exchanges);
        found(
            Weight::Violation,
            format!("another backend: {by}"),
            &changed,
            counted,
        );
    }
    let too_many = |lost: usize, of: usize| match expected.lost_of {
        NONE_LOST => lost > 0,
        // Of fewer exchanges, one alone is no rate.
        lost_of => lost > 0 && lost * lost_of >= of && (lost > 1 || of >= lost_of),
    };
    if too_many(lost.len(), judged) {
        let text = format!("{} of {judged} exchanges without an answer", lost.len());
        let what = What::Exchanges {
            lost_of: expected.lost_of,
        };
        let counted = Counted::attempts(what, &lost, &exchanges, Ending::of);
        found(Weight::Violation, text, &lost, counted);
    } else if too_many(lost.len() + unwatched.len(), judged + unwatched.len()) {
        let how = observations::line(&observations::outcomes(unwatched.iter().copied()));
        let text = format!(
            "{} exchanges that decide nothing (client or backend did not run in time, or no socket): {how}",
            unwatched.len()
        );
        found(Weight::Undecided, text, &unwatched, None);
    }
    let enough = |exchanges: &&Vec<&Attempt>| exchanges.len() >= expected.at_least;
    let decided = by_flow.values().filter(enough).count();
    if decided < expected.flows {
        let text = format!(
            "only {decided} of them have the {} exchanges that decide",
            expected.at_least
        );
        found(Weight::Undecided, text, &[], None);
    }
    findings
}

/// The flows of these exchanges, each counted once by the first of them.
fn flows_of(expected: &Flows, outside: &[&Attempt], all: &[&Attempt]) -> Option<Counted> {
    let mut first: BTreeMap<u32, &Attempt> = BTreeMap::new();
    for attempt in outside {
        if let Some(exchange) = attempt.exchange {
            let known = first.entry(exchange.flow).or_insert(attempt);
            if attempt.start_us < known.start_us {
                *known = attempt;
            }
        }
    }
    let first: Vec<&Attempt> = first.into_values().collect();
    let counted = Counted::attempts(What::Flows, &first, all, Ending::of)?;
    Some(Counted {
        of: expected.flows,
        ..counted
    })
}

/// Answers by another backend than the first one of the same socket, or by one that may not answer at all.
fn changed<'a>(expected: &Flows, exchanges: &[&'a Attempt]) -> Vec<&'a Attempt> {
    let mut first: BTreeMap<u32, &str> = BTreeMap::new();
    let mut changed = Vec::new();
    for attempt in exchanges {
        let (Outcome::Answered { answer, .. }, Some(exchange)) = (&attempt.outcome, attempt.exchange) else {
            continue;
        };
        let by = answer.identity.as_str();
        let has_one = attempt.transport != Transport::Udp;
        let is_first = *first.entry(exchange.socket).or_insert(by) == by;
        if !expected.identities.contains(by) || (has_one && !is_first) {
            changed.push(*attempt);
        }
    }
    changed
}

/// One flow of all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    stream: Stream,
    flow: u32,
}

impl FlowKey {
    /// Whether it is one of a stream.
    #[must_use]
    pub fn is_of(&self, stream: &Stream) -> bool {
        self.stream == *stream
    }
}

/// The flow of an exchange; none of other attempts.
#[must_use]
pub fn key(attempt: &Attempt) -> Option<FlowKey> {
    let stream = Stream {
        client: attempt.client.clone(),
        target: attempt.target.clone(),
        transport: attempt.transport,
    };
    Some(FlowKey {
        stream,
        flow: attempt.exchange?.flow,
    })
}

/// Flows whose first answer is by such an identity.
#[must_use]
pub fn answered_first_by(attempts: &[Attempt], is_it: impl Fn(&str) -> bool) -> BTreeSet<FlowKey> {
    let mut first: BTreeMap<FlowKey, (u32, &str)> = BTreeMap::new();
    for attempt in attempts {
        if let (Outcome::Answered { answer, .. }, Some(exchange), Some(key)) =
            (&attempt.outcome, attempt.exchange, key(attempt))
        {
            let this = (exchange.sequence, answer.identity.as_str());
            let earliest = first.entry(key).or_insert(this);
            *earliest = this.min(*earliest);
        }
    }
    let such = first.into_iter().filter(|(_, (_, identity))| is_it(identity));
    such.map(|(key, _)| key).collect()
}

/// The last so many exchanges of each flow, of these.
#[must_use]
pub fn last(attempts: &[Attempt], count: usize) -> Vec<Attempt> {
    let mut flows: BTreeMap<FlowKey, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        if let Some(key) = key(attempt) {
            flows.entry(key).or_default().push(attempt);
        }
    }
    let last = flows.into_values().flat_map(|mut exchanges| {
        exchanges.sort_by_key(|one| one.exchange.map(|exchange| exchange.sequence));
        let from = exchanges.len().saturating_sub(count);
        exchanges.split_off(from)
    });
    last.cloned().collect()
}

/// Flows that were healthy in a time, in microseconds since the Unix epoch: at least `at_least` exchanges began in it,
/// all on one socket, and all were answered.
#[must_use]
pub fn healthy(attempts: &[Attempt], from_us: u64, until_us: u64, at_least: usize) -> BTreeSet<FlowKey> {
    let mut within: BTreeMap<FlowKey, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        if (from_us..until_us).contains(&attempt.start_us)
            && let Some(key) = key(attempt)
        {
            within.entry(key).or_default().push(attempt);
        }
    }
    let is_healthy = |exchanges: &Vec<&Attempt>| {
        let socket = |one: &Attempt| one.exchange.map(|exchange| exchange.socket);
        exchanges.len() >= at_least
            && exchanges.iter().all(|one| {
                matches!(one.outcome, Outcome::Answered { .. }) && socket(one) == socket(exchanges[0])
            })
    };
    within.retain(|_, exchanges| is_healthy(exchanges));
    within.into_keys().collect()
}

/// How many unconnected flows reached more than one backend: recorded here, and judged only by [`stickiness`](crate::stickiness).
#[must_use]
pub fn wandering(attempts: &[Attempt]) -> usize {
    let mut met: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for attempt in attempts {
        if let (Outcome::Answered { answer, .. }, Some(exchange)) = (&attempt.outcome, attempt.exchange)
            && attempt.transport == Transport::Udp
        {
            let flow = (&attempt.client, &attempt.target, exchange.flow);
            met.entry(flow).or_default().insert(&answer.identity);
        }
    }
    met.values().filter(|identities| identities.len() > 1).count()
}
