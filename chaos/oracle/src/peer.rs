//! Whom sockets show as the one they talk to: `getpeername`, or the source of a reply.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::{
    check::{Observed, Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, Transport},
    record::{self, Peer},
};

/// What the answered attempts of a stream must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A socket that is not connected: the address that it sent to. One that is: the address that it connected to, or the
    /// backend that answered. A third address is nobody's.
    WhomItDialled,
    /// The address that it dialled, and not the backend's, connected or not.
    TheFrontend,
    /// This address, whomever it dialled: what somebody makes of all answers.
    Always(SocketAddr),
}

impl Shows {
    fn permits(self, attempt: &Attempt) -> bool {
        match (self, &attempt.outcome) {
            (Self::Always(address), Outcome::Answered { peer, .. }) => *peer == address,
            (shows, _) => match record::peer(attempt) {
                Some(Peer::Frontend) | None => true,
                Some(Peer::Backend) => shows == Self::WhomItDialled && attempt.transport != Transport::Udp,
                Some(Peer::Other) => false,
            },
        }
    }

    fn expected(self, transport: Transport) -> String {
        match self {
            Self::WhomItDialled if transport == Transport::Udp => {
                "replies from the address dialled".to_owned()
            }
            Self::TheFrontend => "the address dialled as the peer".to_owned(),
            Self::WhomItDialled => "the address dialled or the backend's as the peer".to_owned(),
            Self::Always(address) => format!("{address} as the peer, whomever it dialled"),
        }
    }
}

/// What is not as expected of the peers of a stream; `at_least` so many answers decide. Attempts without an answer show
/// no peer: whether there may be any is another question.
#[must_use]
pub fn peers(observed: &Observed<'_>, stream: &Stream, shows: Shows, at_least: usize) -> Vec<Finding> {
    let answered: Vec<(&Attempt, SocketAddr)> = observed
        .of(stream)
        .iter()
        .filter_map(|attempt| match attempt.outcome {
            Outcome::Answered { peer, .. } => Some((*attempt, peer)),
            _ => None,
        })
        .collect();
    let finding = |weight, found: String, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: shows.expected(stream.transport),
        found,
        first: shown(first),
    };
    let mut findings = Vec::new();
    let outside = answered.iter().filter(|(attempt, _)| !shows.permits(attempt));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut first = Vec::new();
    for (attempt, peer) in outside {
        *counts.entry(peer.to_string()).or_default() += 1;
        first.push(*attempt);
    }
    if !first.is_empty() {
        let found = format!("{} of {}: {}", first.len(), answered.len(), record::line(&counts));
        findings.push(finding(Weight::Violation, found, &first));
    }
    if answered.len() < at_least {
        let found = format!("only {} of the {at_least} answers that decide", answered.len());
        findings.push(finding(Weight::Undecided, found, &[]));
    }
    findings
}
