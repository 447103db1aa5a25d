//! What implementations may choose: counted and reported, never judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    finding,
    history::{Attempt, Outcome},
};

/// The peer that the client saw: `getpeername`, or the source of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// The address it dialled.
    Frontend,
    /// The address at which the backend was reached.
    Backend,
    /// Neither.
    Other,
}

/// How often each peer was seen, over the attempts that were answered.
#[must_use]
pub fn peers<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> BTreeMap<Peer, usize> {
    let mut counts = BTreeMap::new();
    for attempt in attempts {
        if let Some(peer) = peer(attempt) {
            *counts.entry(peer).or_default() += 1;
        }
    }
    counts
}

/// The peer that the client of an attempt saw; `None` without an answer.
#[must_use]
pub fn peer(attempt: &Attempt) -> Option<Peer> {
    let Outcome::Answered { answer, peer } = &attempt.outcome else {
        return None;
    };
    Some(if *peer == attempt.destination {
        Peer::Frontend
    } else if *peer == answer.destination {
        Peer::Backend
    } else {
        Peer::Other
    })
}

/// How often each outcome was seen, in words that name errno and call.
#[must_use]
pub fn outcomes<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for attempt in attempts {
        *counts.entry(finding::outcome(&attempt.outcome)).or_default() += 1;
    }
    counts
}

/// How often backends saw each source address, over the attempts that were answered.
#[must_use]
pub fn sources<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for attempt in attempts {
        if let Outcome::Answered { answer, .. } = &attempt.outcome {
            *counts.entry(answer.source.ip().to_string()).or_default() += 1;
        }
    }
    counts
}

/// Counts as one line, most frequent first.
#[must_use]
pub fn line(counts: &BTreeMap<String, usize>) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), (*what).clone()));
    let parts: Vec<_> = sorted
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    if parts.is_empty() {
        "no attempt".to_owned()
    } else {
        parts.join(", ")
    }
}
