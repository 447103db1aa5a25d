//! Which source address backends see.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{
    breakage::Ending,
    check::{Observed, Stream, shown},
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome},
    observations,
};

/// Answered attempts of a stream whose backend saw another source address than this one; fewer than `at_least` answers
/// decide nothing. Source ports mean nothing, and attempts without an answer are not judged here.
#[must_use]
pub fn sources(observed: &Observed<'_>, stream: &Stream, own: IpAddr, at_least: usize) -> Vec<Finding> {
    let seen = |attempt: &Attempt| source(attempt).map(|source| source == own);
    let all = observed.of(stream).iter().copied();
    let answered: Vec<&Attempt> = all.filter(|one| seen(one).is_some()).collect();
    let other: Vec<&Attempt> = answered
        .iter()
        .copied()
        .filter(|one| seen(one) == Some(false))
        .collect();
    let finding = |weight, found: String, first: &[&Attempt]| Finding {
        weight,
        subject: stream.to_string(),
        expected: format!("backends see {own} as the source"),
        found,
        first: shown(first),
        counted: None,
    };
    let mut findings = Vec::new();
    if !other.is_empty() {
        let found = format!(
            "{} of {}: {}",
            other.len(),
            answered.len(),
            observations::line(&seen_sources(other.iter().copied()))
        );
        let ending = |attempt: &Attempt| {
            source(attempt).map_or_else(|| Ending::of(attempt), |source| Ending::Seen { source })
        };
        findings.push(Finding {
            counted: Counted::attempts(What::Sources { own }, &other, &answered, ending),
            ..finding(Weight::Violation, found, &other)
        });
    }
    if answered.len() < at_least {
        let found = format!("only {} of the {at_least} answers that decide", answered.len());
        findings.push(finding(Weight::Undecided, found, &[]));
    }
    findings
}

/// How often backends saw each source address, over the attempts that were answered.
#[must_use]
pub fn seen_sources<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in attempts.into_iter().filter_map(source) {
        *counts.entry(source.to_string()).or_default() += 1;
    }
    counts
}

/// The source address that the backend of an attempt saw; `None` without an answer.
fn source(attempt: &Attempt) -> Option<IpAddr> {
    match &attempt.outcome {
        Outcome::Answered { answer, .. } => Some(answer.source.ip()),
        _ => None,
    }
}
