//! What broke in a case that failed, in sentences: made from the findings of its axes and from its history. What these
//! do not show is left out.
//!
//! `explanation/events.rs`: the history. `changes.rs`: what came before the breakage. `words.rs`: words.
mod changes;
mod events;
#[cfg(test)]
mod tests;
mod words;

use std::{collections::BTreeSet, io, path::Path};

use cases::claims::{self, Claim};
use harness::{
    compressed::each_line,
    history::{ATTEMPTS, HISTORY},
    report::{AxisReport, CaseReport},
    verdict::Verdict,
};
use oracle::{
    breakage::Ending,
    check::Permitted,
    counted::{Counted, What},
    finding::{Finding, Weight},
    flow::NONE_LOST,
    history::Attempt,
};

use super::format::Explanation;
use crate::plural::counted;
use changes::{Before, before};
use events::{Access, Events, Frontend};
use words::{
    Names, all_of, any_of, attempts, backend, client, ended, flows, in_sentence, listed, may, plain, some_of,
};

/// Threads about the same failure that are named.
const THREADS: usize = 2;
/// A breakage that goes on until so shortly before the last attempt goes on, in microseconds.
const GOES_ON_US: u64 = 1_000_000;
/// Attempts within so short a time are one moment.
const MOMENT_US: u64 = 2_000_000;

/// Explains a case that failed. `folder` is its evidence relative to that of the report.
///
/// # Errors
/// Its history can't be read.
pub(super) fn explanation(report: &CaseReport, folder: Option<&str>) -> io::Result<Option<Explanation>> {
    if !matches!(report.verdict, Verdict::Fail { .. }) {
        return Ok(None);
    }
    let failed: Vec<&AxisReport> = report
        .axes
        .iter()
        .filter(|axis| matches!(axis.verdict, Verdict::Fail { .. }))
        .collect();
    let Some((axis, finding)) = most_telling(&failed) else {
        return Ok(None);
    };
    let events = match &report.evidence {
        Some(evidence) => found(Events::read(evidence))?.unwrap_or_default(),
        None => Events::default(),
    };
    let others = others(&failed, axis, finding);
    let claim = axis
        .breaks
        .as_ref()
        .or(report.claims.first())
        .and_then(|id| claims::find(id));
    let shown_by = match (&report.evidence, &finding.counted) {
        (Some(evidence), Some(counted)) if counted.dialled.is_some() && evidence.join(ATTEMPTS).exists() => {
            Some(ATTEMPTS)
        }
        (Some(evidence), _) if evidence.join(HISTORY).exists() => Some(HISTORY),
        _ => None,
    };
    let next = next(claim, folder.zip(shown_by), &report.replay);
    let Some(counted) = &finding.counted else {
        return Ok(Some(Explanation {
            expected: in_sentence(&format!(
                "of {}: {}",
                plain(&finding.subject),
                plain(&finding.expected)
            )),
            happened: format!(
                "{}{others}",
                in_sentence(&plain(&format!("found: {}", finding.found)))
            ),
            event: None,
            next,
        }));
    };
    let began_us = events.began_us().unwrap_or(report.started_us);
    let frontend = counted
        .dialled
        .as_ref()
        .and_then(|dialled| events.frontend(dialled.destination, counted.first_us));
    let broken = Broken {
        counted,
        finding,
        began_us,
        still: still(report.evidence.as_deref(), counted)?,
        to: to(counted, frontend.as_ref()),
    };
    let before = before(&events, frontend.as_ref(), counted.first_us);
    let of_api = of_api(&events, frontend.as_ref(), counted, before.first());
    let event: Vec<String> = changes::sentence(&before, counted.first_us)
        .filter(|_| counted.dialled.is_some())
        .into_iter()
        .chain(of_api)
        .collect();
    Ok(Some(Explanation {
        expected: broken.expected(),
        happened: format!("{}{others}", broken.happened()),
        event: (!event.is_empty()).then(|| event.join(" ")),
        next,
    }))
}

/// `None`, if a file is missing because the process of the case ended early.
fn found<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The earliest breakage; of several in one second, that of most attempts. Backends that got no probe, and findings
/// without a time, come last.
fn most_telling<'a>(failed: &[&'a AxisReport]) -> Option<(&'a AxisReport, &'a Finding)> {
    let all = failed.iter().flat_map(|axis| {
        let violations = axis.findings.iter().filter(|one| one.weight == Weight::Violation);
        violations.map(|finding| (*axis, finding))
    });
    all.min_by_key(|(_, finding)| match &finding.counted {
        None => (2, 0, 0),
        Some(counted) => {
            let is_unreached = matches!(counted.what, What::Unreached { .. });
            let second = counted.first_us / 1_000_000;
            (u8::from(is_unreached), second, usize::MAX - counted.outside)
        }
    })
}

/// ` 4 other clients and 11 other axes failed too.`
fn others(failed: &[&AxisReport], axis: &AxisReport, finding: &Finding) -> String {
    let client = |finding: &Finding| {
        let dialled = finding.counted.as_ref()?.dialled.as_ref()?;
        Some(dialled.client.clone())
    };
    let violations = axis.findings.iter().filter(|one| one.weight == Weight::Violation);
    let mut clients: BTreeSet<String> = violations.filter_map(client).collect();
    if let Some(own) = client(finding) {
        clients.remove(&own);
    }
    let some = |count: usize, one, more| (count > 0).then(|| counted(count, one, more));
    let others = [
        some(clients.len(), "other client", "other clients"),
        some(failed.len() - 1, "other axis", "other axes"),
    ];
    let others: Vec<String> = others.into_iter().flatten().collect();
    match others.as_slice() {
        [] => String::new(),
        others => format!(" {} failed too.", others.join(" and ")),
    }
}

/// What to do next: a command that is to be copied comes last.
///
/// `shown_by` is the folder of the evidence, relative to the report's, and the file in it that shows most.
fn next(claim: Option<&Claim>, shown_by: Option<(&str, &str)>, replay: &str) -> String {
    let threads = claim.map_or(&[][..], |claim| claim.outages.as_slice());
    let threads: Vec<String> = threads.iter().take(THREADS).map(ToString::to_string).collect();
    let mut parts = Vec::new();
    if !threads.is_empty() {
        parts.push(format!("The same as {}?", threads.join(" or ")));
    }
    if let Some((folder, file)) = shown_by {
        let what = if file == ATTEMPTS {
            "Each attempt"
        } else {
            "What the case did"
        };
        parts.push(format!("{what}: {file} in {folder}."));
    }
    parts.push(format!("To run it again: {replay}"));
    parts.join(" ")
}

/// Whether the last attempt of the same client to the same destination before those that were judged had ended in the
/// same way.
fn still(evidence: Option<&Path>, counted: &Counted) -> io::Result<bool> {
    let (Some(evidence), Some(dialled), What::Probes { .. }) = (evidence, &counted.dialled, &counted.what)
    else {
        return Ok(false);
    };
    let mut last: Option<Attempt> = None;
    let read = each_line(&evidence.join(ATTEMPTS), |line| {
        // Most lines are of other destinations.
        if !line.contains(&dialled.target) {
            return;
        }
        let Ok(attempt) = serde_json::from_str::<Attempt>(line) else {
            return;
        };
        let is_same = (attempt.client == dialled.client)
            && (attempt.target == dialled.target)
            && (attempt.transport == dialled.transport);
        let is_later = last.as_ref().is_none_or(|last| last.start_us <= attempt.start_us);
        if is_same && is_later && attempt.start_us < counted.first_us {
            last = Some(attempt);
        }
    });
    found(read)?;
    let ending = last.as_ref().map(Ending::of);
    Ok(ending.is_some_and(|ending| counted.endings.iter().any(|(known, _)| *known == ending)))
}

/// What was dialled.
fn to(counted: &Counted, frontend: Option<&Frontend>) -> String {
    let Some(dialled) = &counted.dialled else {
        return "the Service".to_owned();
    };
    let Some(Frontend { service, access }) = frontend else {
        let name = plain(&dialled.target);
        return if name.is_empty() {
            dialled.destination.to_string()
        } else {
            name
        };
    };
    let name = service.plain();
    match access {
        Access::ClusterIp => name.to_owned(),
        Access::NodePort => format!("the node port of {name} at {}", dialled.destination),
        Access::LoadBalancer => format!("the load balancer address of {name}"),
        Access::ExternalIp => format!("the external IP of {name}"),
    }
}

/// What the API lists for the broken Service when it broke.
fn of_api(
    events: &Events,
    frontend: Option<&Frontend>,
    counted: &Counted,
    earliest: Option<&Before>,
) -> Option<String> {
    let service = &frontend?.service;
    let name = service.plain();
    if events.object(service, counted.first_us).is_none() {
        return Some(format!("The API has no Service {name} any more."));
    }
    let (slices, lists) = match events.slices(service, counted.first_us).len() {
        ..2 => ("EndpointSlice", "lists"),
        _ => ("EndpointSlices", "list"),
    };
    let at = |at_us| {
        let endpoints = events.endpoints(service, at_us);
        let addresses: BTreeSet<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
        words::servers(events, addresses)
    };
    let now = at(counted.first_us);
    let wrong = match &counted.what {
        What::Trap { server } => Names::of([server]),
        // If most ended so.
        What::Probes { .. } => Names::of(counted.endings.iter().map_while(|(ending, _)| match ending {
            Ending::Answered { by } => Some(by),
            _ => None,
        })),
        _ => Names::of([]),
    };
    if !wrong.is_empty() {
        return if now.is_empty() {
            Some(format!("The API lists no ready endpoint of {name}."))
        } else if now.are_known() && !now.has_any(&wrong) {
            Some(format!(
                "The {slices} of {name} {lists} {}, not {}.",
                listed(&now),
                listed(&wrong)
            ))
        } else {
            None
        };
    }
    let is_unchanged = earliest.is_some_and(|earliest| at(earliest.at_us) == now);
    let is_telling = match &counted.what {
        What::Probes {
            permitted: Permitted::Refuse | Permitted::None,
        } if now.is_empty() => return Some(format!("The API lists no ready endpoint of {name}.")),
        What::Probes { permitted } | What::Unreached { permitted, .. } => {
            now.has_all(&Names::of(permitted.identities()?))
        }
        What::Flows | What::Exchanges { .. } => is_unchanged && !now.is_empty(),
        _ => false,
    };
    if !is_telling || !now.are_known() {
        return None;
    }
    let still = if is_unchanged { "still " } else { "" };
    Some(format!("The {slices} of {name} {still}{lists} {}.", all_of(&now)))
}

/// A finding with counts, and its words.
struct Broken<'a> {
    counted: &'a Counted,
    finding: &'a Finding,
    began_us: u64,
    still: bool,
    to: String,
}

impl Broken<'_> {
    /// What the claim permits.
    fn expected(&self) -> String {
        let to = &self.to;
        let dialled = self.counted.dialled.as_ref();
        let (one, _) = dialled.map_or(("attempt", "attempts"), |dialled| attempts(dialled.transport));
        let (_, open) = dialled.map_or(("flow", "flows"), |dialled| flows(dialled.transport));
        match &self.counted.what {
            What::Probes {
                permitted: Permitted::None,
            } => format!("No {one} to {to} reaches a backend."),
            What::Probes { permitted } | What::Unreached { permitted, .. } => {
                format!("Every {one} to {to} {}.", may(permitted))
            }
            What::Flows => format!("The {open} to {to} go on, each with the backend that it has."),
            What::Exchanges { lost_of: NONE_LOST } => {
                format!("On {open} to {to}, every request gets an answer.")
            }
            What::Exchanges { lost_of } => {
                format!("On {open} to {to}, fewer than 1 of {lost_of} requests get no answer.")
            }
            What::Peers => format!("Clients of {to} see {}.", self.finding.expected),
            What::Sources { own } => format!("Backends see every {one} to {to} come from {own}."),
            What::Trap { server } => format!("Nothing reaches {}, a former backend.", backend(server)),
            What::Ready { node } => {
                format!(
                    "While the agent of {node} reports that it is ready, the control Service answers there."
                )
            }
            What::Change { node, limit_ms, .. } => format!(
                "A changed port of a Service is in force on {node} within {} s.",
                limit_ms / 1000
            ),
        }
    }

    /// What happened, and when.
    fn happened(&self) -> String {
        let (counted, to) = (self.counted, &self.to);
        let Some(dialled) = &counted.dialled else {
            return self.late();
        };
        let (when, from) = (self.when(), client(&dialled.client));
        let endings = &counted.endings;
        let some = |things| some_of(counted.outside, counted.of, things);
        match &counted.what {
            What::Probes { permitted } => format!(
                "{when}, {} from {from} to {to} {}.",
                some(attempts(dialled.transport)),
                ended(endings, Some(permitted), self.still)
            ),
            What::Unreached { missing, .. } => {
                let (_, attempts) = attempts(dialled.transport);
                format!(
                    "{when}, none of {} {attempts} from {from} to {to} was answered by {}.",
                    counted.of,
                    any_of(&Names::of(missing))
                )
            }
            What::Flows => {
                let goes_on = endings
                    .iter()
                    .all(|(ending, _)| matches!(ending, Ending::Answered { .. }));
                let how = if goes_on {
                    "went on with another backend".to_owned()
                } else {
                    ended(endings, None, false)
                };
                format!(
                    "{when}, {} from {from} to {to} {how}.",
                    some(flows(dialled.transport))
                )
            }
            What::Exchanges { .. } => {
                let (_, open) = flows(dialled.transport);
                let requests = some(("request", "requests"));
                format!(
                    "{when}, {requests} from {from} on {open} to {to} {}.",
                    ended(endings, None, false)
                )
            }
            What::Peers => format!(
                "{when}, {} to {from} from {to} {}.",
                some(("answer", "answers")),
                ended(endings, None, false)
            ),
            What::Sources { .. } => format!(
                "{when}, {} from {from} to {to} {}.",
                some(attempts(dialled.transport)),
                ended(endings, None, false)
            ),
            What::Trap { server } => format!(
                "{when}, {} reached {}, a former backend.",
                some(("attempt", "attempts")),
                backend(server)
            ),
            What::Ready { node } => format!(
                "{when}, {} from {from} to the control Service {}, while the agent of {node} reported that it was ready.",
                some(attempts(dialled.transport)),
                ended(endings, None, false)
            ),
            What::Change { .. } => self.late(),
        }
    }

    fn late(&self) -> String {
        let counted = self.counted;
        let (at, took) = (
            self.seconds(counted.first_us),
            counted.until_us.saturating_sub(counted.first_us) as f64 / 1e6,
        );
        match &counted.what {
            What::Change { node, came: true, .. } => {
                format!("A port that was changed at {at:.1} s was in force on {node} only {took:.1} s later.")
            }
            What::Change { node, .. } => {
                format!("A port that was changed at {at:.1} s was not in force on {node} {took:.1} s later.")
            }
            _ => in_sentence(&plain(&format!("found: {}", self.finding.found))),
        }
    }

    /// When it broke, and until when, as far as attempts show it.
    fn when(&self) -> String {
        let Counted {
            first_us,
            last_us,
            until_us,
            ..
        } = *self.counted;
        let (first, last) = (self.seconds(first_us), self.seconds(last_us));
        let is_moment = last_us.saturating_sub(first_us) < MOMENT_US;
        if is_moment && until_us.saturating_sub(first_us) < MOMENT_US {
            format!("At {first:.1} s")
        } else if matches!(self.counted.what, What::Unreached { .. }) {
            format!("Between {first:.1} and {last:.1} s")
        } else if until_us.saturating_sub(last_us) < GOES_ON_US {
            format!("From {first:.1} s on")
        } else if is_moment {
            format!("At {first:.1} s")
        } else {
            format!("Between {first:.1} and {last:.1} s")
        }
    }

    /// Seconds since the case began.
    fn seconds(&self, at_us: u64) -> f64 {
        at_us.saturating_sub(self.began_us) as f64 / 1e6
    }
}
