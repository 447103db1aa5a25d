//! Datagrams in fragments: few are lost, none is damaged, and the fragments of answers come from where those of requests went.
//!
//! A program at a socket may send a request to the backend itself. Then its fragments on the wire are not addressed to the
//! frontend, and those of the answer are not from it; what the socket sees is [`peers`](crate::peer::peers)' matter.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    check::{Observed, Stream, shown},
    finding::{Finding, Weight},
    history::{Attempt, Fragments, Outcome, Stage},
    outcome::is_answered_by,
    record,
};

/// What the exchanges of one client through one target must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Which.
    pub stream: Stream,
    /// The fewest exchanges that decide.
    pub at_least: usize,
    /// Who may answer.
    pub identities: BTreeSet<String>,
    /// No more than one exchange of so many may stay without an answer.
    pub lost_of: usize,
    /// Where fragments can be seen: only exchanges decide whose request was seen to go out in fragments, and its answer, if
    /// there is one, to come in as such.
    pub watched: bool,
    /// Of these, only those whose fragments went out in another order than that of their offsets.
    pub reordered: bool,
}

/// What is not as expected.
#[must_use]
pub fn datagrams(observed: &Observed<'_>, expected: &Datagrams) -> Vec<Finding> {
    let (unclear, judged): (Vec<&Attempt>, Vec<&Attempt>) = observed
        .of(&expected.stream)
        .iter()
        .copied()
        .partition(|attempt| expected.says_nothing(observed, attempt));
    let mut findings = Vec::new();
    let mut found = |weight, text: String, first: &[&Attempt]| {
        findings.push(Finding {
            weight,
            subject: expected.stream.to_string(),
            expected: format!(
                "whole datagrams in fragments both ways, those of answers from where those of requests went, no more than 1 of {} \
                 lost",
                expected.lost_of
            ),
            found: text,
            first: shown(first),
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
        let how = record::line(&record::outcomes(wrong.iter().copied()));
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
        let how = record::line(&record::outcomes(unclear.iter().copied()));
        let text = format!(
            "only {of} of the {} exchanges that decide; not seen in fragments as they should be, or failed for lack of the machine: {how}",
            expected.at_least
        );
        found(Weight::Undecided, text, &unclear);
    }
    findings
}

impl Datagrams {
    /// Trouble that is not the datapath's, and what did not go in fragments or, if it should be, reordered.
    fn says_nothing(&self, observed: &Observed<'_>, attempt: &Attempt) -> bool {
        // A part that is larger than the client's own device takes.
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

/// How many of these went in fragments to another address than that which was dialled.
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
