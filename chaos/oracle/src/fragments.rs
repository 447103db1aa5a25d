//! Fragmented datagrams: few are lost, none is damaged, and the fragments of an answer come from the address that those
//! of its request went to.
//!
//! A socket program may send a request to the backend itself. Then its fragments on the wire are not addressed to the
//! frontend, and those of the answer do not come from it; [`peers`](crate::peer::peers) judges what the socket sees.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    check::{Observed, Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Fragments, Outcome, Stage},
    observations,
    outcome::is_answered_by,
};

/// What the exchanges of one client through one target must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// The exchanges.
    pub stream: Stream,
    /// The fewest exchanges that decide.
    pub at_least: usize,
    /// Backends that may answer.
    pub identities: BTreeSet<String>,
    /// At most one exchange of this many may stay without an answer.
    pub lost_of: usize,
    /// Fragments can be seen: only exchanges decide whose request was sent in fragments and whose answer, if any,
    /// arrived in fragments.
    pub watched: bool,
    /// Of these, only exchanges decide whose fragments were sent out of order.
    pub reordered: bool,
}

/// Exchanges that are not as expected.
#[must_use]
pub fn datagrams(observed: &Observed<'_>, expected: &Datagrams) -> Vec<Finding> {
    let (unclear, judged): (Vec<&Attempt>, Vec<&Attempt>) = observed
        .of(&expected.stream)
        .iter()
        .copied()
        .partition(|attempt| expected.decides_nothing(observed, attempt));
    let mut findings = Vec::new();
    let mut found = |weight, text: String, first: &[&Attempt]| {
        findings.push(Finding {
            weight,
            subject: expected.stream.to_string(),
            expected: format!(
                "whole datagrams in fragments both ways, answers from the address that requests went to, at most 1 of {} lost",
                expected.lost_of
            ),
            found: text,
            first: shown(first),
        counted: None,
        });
    };
    let of = judged.len();
    let (lost, answered): (Vec<&Attempt>, Vec<&Attempt>) = judged
        .into_iter()
        .partition(|attempt| matches!(attempt.outcome, Outcome::Timeout { .. }));
    let wrong: Vec<&Attempt> = answered
        .iter()
        .copied()
        .filter(|attempt| !is_answered_by(attempt, &expected.identities))
        .collect();
    if !wrong.is_empty() {
        let how = observations::line(&observations::outcomes(wrong.iter().copied()));
        found(Weight::Violation, format!("of {of} exchanges {how}"), &wrong);
    }
    let strange: Vec<&Attempt> = answered
        .into_iter()
        .filter(|one| is_from_elsewhere(one))
        .collect();
    if let Some(Fragments { to, from, .. }) = strange.first().and_then(|one| one.fragments.as_ref()) {
        let text = format!(
            "{} of {of} exchanges with fragments from elsewhere, the first of them to {}, from {}",
            strange.len(),
            list(to),
            list(from)
        );
        found(Weight::Violation, text, &strange);
    }
    if lost.len() * expected.lost_of > of {
        let text = format!("{} of {of} exchanges without an answer", lost.len());
        found(Weight::Violation, text, &lost);
    }
    if of < expected.at_least {
        let how = observations::line(&observations::outcomes(unclear.iter().copied()));
        let text = format!(
            "only {of} of the {} exchanges that decide; the others were not seen in fragments, or failed on the machine: {how}",
            expected.at_least
        );
        found(Weight::Undecided, text, &unclear);
    }
    findings
}

impl Datagrams {
    /// It failed for another reason than the datapath, or was not sent in fragments, or not in the wanted order.
    fn decides_nothing(&self, observed: &Observed<'_>, attempt: &Attempt) -> bool {
        // A fragment that is larger than the MTU of the client's device.
        let too_large =
            matches!(&attempt.outcome, Outcome::Failed { stage: Stage::Send, errno } if errno == "EMSGSIZE");
        let unseen = || match &attempt.fragments {
            Some(fragments) => {
                let answered = matches!(attempt.outcome, Outcome::Answered { .. });
                fragments.sent.len() < 2
                    || (self.reordered && fragments.sent.is_sorted())
                    || (answered && fragments.received < 2)
            }
            None => true,
        };
        too_large
            || (self.watched && unseen())
            || observed.is_not_the_datapaths(attempt, Some(&self.identities))
    }
}

fn is_from_elsewhere(attempt: &Attempt) -> bool {
    let strange = |seen: &Fragments| seen.received > 0 && seen.from != seen.to;
    attempt.fragments.as_ref().is_some_and(strange)
}

/// How many attempts sent their fragments to another address than the dialled one.
#[must_use]
pub fn translated_at_sockets(attempts: &[Attempt]) -> usize {
    let elsewhere = |attempt: &&Attempt| {
        let dialled = attempt.destination.ip();
        let seen = attempt.fragments.as_ref();
        seen.is_some_and(|seen| seen.to.iter().any(|to| *to != dialled))
    };
    attempts.iter().filter(elsewhere).count()
}

fn list(addresses: &BTreeSet<IpAddr>) -> String {
    let named: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    named.join(" and ")
}
