//! What earlier loads of this agent have left: evicted, or named with what is in the way.

use std::collections::BTreeMap;

use doctor::{Found, Inventory};

use crate::{datapath::Datapath, metrics::Metrics};

/// Most leftovers that `/readyz` names.
const NAMED: usize = 16;
/// Most times that everything is ended in one look.
const PASSES: usize = 3;

/// What the last look has left over.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    reasons: Vec<String>,
}

/// A program, and where it is.
type At = (u32, String);
/// What was in the way.
type Failures = BTreeMap<At, String>;

impl Leftovers {
    /// Evicts what is there, and looks again: the kernel decides what is left, not the answers to the evictions. A program
    /// that was detached and is held by somebody still is disarmed by the next of [`PASSES`]. `kept`: what serves where
    /// nothing of ours does.
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
                return self.tell(&found, &failures, metrics);
            }
            failures = attempt(datapath, &found, metrics);
        }
    }

    /// What is left, and why.
    fn tell(&mut self, left: &Inventory, failures: &Failures, metrics: &Metrics) {
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

    /// Why packets may go wrong, one sentence each.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().cloned()
    }
}

/// Where a program is that is attached where nobody can look.
const NOWHERE: &str = "a place that cannot be looked at";

/// Programs and where they are.
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

/// Ends all of it; what failed is given back.
fn attempt(datapath: &impl Datapath, found: &Inventory, metrics: &Metrics) -> Failures {
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
