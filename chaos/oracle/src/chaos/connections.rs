//! Established connections: each goes on with its backend for as long as that is an endpoint, whatever the agents do.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ChaosHistory, Frontend,
    judge::{Broken, Outside, answered_by, is_own_failure},
    window::Window,
};
use crate::history::{Attempt, Exchange};

/// A client, and one of its sockets to a frontend: flow and number.
type Socket<'a> = (&'a str, u32, u32);

/// Exchanges on connections that were there before, each with the first one of its connection; and all other attempts.
pub(super) fn apart<'a>(
    attempts: impl Iterator<Item = &'a Attempt>,
) -> (Vec<(&'a Attempt, &'a Attempt)>, Vec<&'a Attempt>) {
    let (mut later, mut new) = (Vec::new(), Vec::new());
    let mut sockets: BTreeMap<Socket<'_>, Vec<(Exchange, &Attempt)>> = BTreeMap::new();
    for attempt in attempts {
        match attempt.exchange {
            None => new.push(attempt),
            Some(exchange) => {
                let socket = (&*attempt.client, exchange.flow, exchange.socket);
                sockets.entry(socket).or_default().push((exchange, attempt));
            }
        }
    }
    for mut exchanges in sockets.into_values() {
        exchanges.sort_by_key(|(exchange, _)| exchange.sequence);
        if let Some(((_, first), others)) = exchanges.split_first() {
            new.push(first);
            later.extend(others.iter().map(|(_, one)| (*first, *one)));
        }
    }
    new.sort_by_key(|attempt| (attempt.end_us, attempt.start_us));
    (later, new)
}

/// Judges exchanges on connections of TCP to a frontend, each given after the first of its connection.
///
/// What cuts a connection is lost packets, or a datapath that was taken away, on any node that it passes. That an agent is late, or
/// dead, excuses nothing. A connection whose backend was no endpoint meanwhile may end or go on.
pub(super) fn judge_later<'a>(
    history: &'a ChaosHistory,
    frontend: &Frontend,
    later: &[(&Attempt, &'a Attempt)],
    outside: &mut Outside<'a>,
) {
    let window = Window::new(&history.disturbances, &BTreeSet::new(), history.tolerance);
    for (first, attempt) in later {
        let (Some(backend), false) = (answered_by(first), is_own_failure(&attempt.outcome)) else {
            outside.undecided += 1;
            continue;
        };
        let broken = match answered_by(attempt) {
            Some(identity) if identity == backend => None,
            Some(_) => Some(Broken::Moved),
            None if !stays(frontend, backend, first.start_us, attempt.end_us)
                || may_be_cut(frontend, &window, first.start_us, attempt.end_us) =>
            {
                outside.undecided += 1;
                continue;
            }
            None if window.loses(first.start_us, attempt.end_us) => {
                outside.excused += 1;
                continue;
            }
            None => Some(Broken::Cut),
        };
        outside.judged += 1;
        if let Some(broken) = broken {
            let key = (broken, &*attempt.client, &*attempt.target);
            outside.attempts.entry(key).or_default().push(attempt);
        }
    }
}

/// Whether the frontend may have been in a state in which connections may end. The way to it changes late.
fn may_be_cut(frontend: &Frontend, window: &Window<'_>, from_us: u64, until_us: u64) -> bool {
    let next = frontend.states.iter().skip(1);
    let ends = next
        .map(|next| window.lasts_until(next.done_us))
        .chain([u64::MAX]);
    let mut states = frontend.states.iter().zip(ends);
    states.any(|(state, end)| state.terms.may_cut && state.sent_us <= until_us && end >= from_us)
}

/// Whether a backend was an endpoint in every state that the frontend may have had between two times.
fn stays(frontend: &Frontend, backend: &str, from_us: u64, until_us: u64) -> bool {
    let ends = frontend
        .states
        .iter()
        .skip(1)
        .map(|next| next.done_us)
        .chain([u64::MAX]);
    frontend
        .states
        .iter()
        .zip(ends)
        .filter(|(state, end)| state.sent_us <= until_us && *end >= from_us)
        .all(|(state, _)| state.serves.contains(backend))
}
