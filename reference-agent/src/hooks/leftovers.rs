//! Evicts programs of earlier loads, and reports those that can't be evicted.

use std::collections::BTreeMap;

use doctor::{Found, Inventory};

use crate::{datapath::Datapath, metrics::Metrics};

/// Most leftovers that `/readyz` names.
const NAMED: usize = 16;
/// Most passes over all leftovers in one scan.
const PASSES: usize = 3;

/// The leftovers that the last scan could not evict.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    reasons: Vec<String>,
}

/// A program's id and place.
type At = (u32, String);
/// Errors of evictions.
type Failures = BTreeMap<At, String>;

impl Leftovers {
    /// Evicts all leftovers, then lists them again: the kernel's list counts, not the results of the evictions. A program
    /// that was detached, but is still held by a process, is disarmed in the next of [`PASSES`]. `kept`: leftovers that
    /// serve where the agent's own programs do not.
    pub(super) fn evict(
        &mut self,
        datapath: &impl Datapath,
        metrics: &Metrics,
        kept: impl Fn(&Found) -> bool,
    ) {
        self.reasons.clear();
        let mut failures = BTreeMap::new();
        for pass in 0..=PASSES {
            let mut found = match datapath.leftovers() {
                Ok(found) => found,
                Err(error) => {
                    let blind = format!("can't see what earlier loads have left: {error}");
                    return self.reasons.push(blind);
                }
            };
            found.attachments.retain(|found| !kept(found));
            let nothing = found.attachments.is_empty() && found.loose.is_empty();
            if nothing || pass == PASSES {
                return self.report(&found, &failures, metrics);
            }
            failures = evict_all(datapath, &found, metrics);
        }
    }

    /// Reports what is left, and why.
    fn report(&mut self, left: &Inventory, failures: &Failures, metrics: &Metrics) {
        let places: Vec<_> = places(left).collect();
        metrics
            .stale_programs
            .at([])
            .set(i64::try_from(places.len()).unwrap_or(i64::MAX));
        for at in places.iter().take(NAMED) {
            let why = failures.get(at).map_or(
                "it was ended and is there again; is another agent attaching it?",
                String::as_str,
            );
            let (program, place) = at;
            self.reasons.push(format!(
                "stale program {program} of an earlier load at {place} could not be evicted: {why}"
            ));
        }
        if places.len() > NAMED {
            let more = places.len() - NAMED;
            self.reasons
                .push(format!("and {more} more stale programs could not be evicted"));
        }
        self.reasons
            .extend(left.blind.iter().take(NAMED).map(ToString::to_string));
    }

    /// The leftovers that still run, one sentence each.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().cloned()
    }
}

/// The place of a program that is attached where the agent can't look.
const NOWHERE: &str = "a place that cannot be looked at";

/// All leftovers with their places.
fn places(left: &Inventory) -> impl Iterator<Item = At> {
    let attached = left.attachments.iter().map(at);
    attached.chain(
        left.loose
            .iter()
            .map(|loose| (loose.program.id, NOWHERE.to_owned())),
    )
}

fn at(found: &Found) -> At {
    (found.program.id, format!("{}, {}", found.place, found.manner))
}

/// Evicts all leftovers once. The result: the errors.
fn evict_all(datapath: &impl Datapath, found: &Inventory, metrics: &Metrics) -> Failures {
    let attached = found
        .attachments
        .iter()
        .map(|found| (at(found), datapath.evict(found)));
    let loose = found
        .loose
        .iter()
        .map(|loose| ((loose.program.id, NOWHERE.to_owned()), datapath.disarm(loose)));
    let mut failures = Failures::new();
    for ((program_id, place), ended) in attached.chain(loose) {
        match ended {
            Ok(()) => {
                metrics.evictions.at([]).inc();
                tracing::info!(program_id, place, "ended a program of an earlier load");
            }
            Err(error) => {
                tracing::warn!(program_id, place, %error, "can't end a stale program");
                failures.insert((program_id, place), error.to_string());
            }
        }
    }
    failures
}
