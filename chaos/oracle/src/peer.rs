//! Which peer address sockets show: `getpeername`, or the source of a reply.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::{
    breakage::Ending,
    check::{Observed, Stream, shown},
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, Transport},
    observations::{self, Peer},
};

/// Which peer the answered attempts of a stream must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// An unconnected socket: the address that it sent to. A connected one: the address that it connected to, or that
    /// of the backend which answered.
    FrontendOrBackend,
    /// The address that it dialled, never the backend's.
    Frontend,
    /// This address, whatever it dialled: a program rewrites all answers.
    Always(SocketAddr),
}

impl Shows {
    fn permits(self, attempt: &Attempt) -> bool {
        match (self, &attempt.outcome) {
            (Self::Always(address), Outcome::Answered { peer, .. }) => *peer == address,
            (shows, _) => match observations::peer(attempt) {
                Some(Peer::Frontend) | None => true,
                Some(Peer::Backend) => {
                    shows == Self::FrontendOrBackend && attempt.transport != Transport::Udp
                }
                Some(Peer::Other) => false,
            },
        }
    }

    fn expected(self, transport: Transport) -> String {
        match self {
            Self::FrontendOrBackend if transport == Transport::Udp => {
                "replies from the address dialled".to_owned()
            }
            Self::Frontend => "the address dialled as the peer".to_owned(),
            Self::FrontendOrBackend => "the address dialled or the backend's as the peer".to_owned(),
            Self::Always(address) => format!("{address} as the peer, whatever was dialled"),
        }
    }
}

/// Peers of a stream that are not as expected; fewer than `at_least` answers decide nothing. Attempts without an answer
/// show no peer and are not judged here.
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
        counted: None,
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
        let found = format!(
            "{} of {}: {}",
            first.len(),
            answered.len(),
            observations::line(&counts)
        );
        let all: Vec<&Attempt> = answered.iter().map(|(attempt, _)| *attempt).collect();
        findings.push(Finding {
            counted: Counted::attempts(What::Peers, &first, &all, shown_peer),
            ..finding(Weight::Violation, found, &first)
        });
    }
    if answered.len() < at_least {
        let found = format!("only {} of the {at_least} answers that decide", answered.len());
        findings.push(finding(Weight::Undecided, found, &[]));
    }
    findings
}

fn shown_peer(attempt: &Attempt) -> Ending {
    match &attempt.outcome {
        Outcome::Answered { peer, .. } => Ending::Shown {
            peer: *peer,
            is_backends: observations::peer(attempt) == Some(Peer::Backend),
        },
        _ => Ending::of(attempt),
    }
}
