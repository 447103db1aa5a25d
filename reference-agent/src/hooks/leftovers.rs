//! What earlier loads of this agent have left: evicted, or named with what is in the way.

use lb_loader::{Found, LooseProgram};

use crate::{datapath::Datapath, metrics::Metrics};

/// Most leftovers that `/readyz` names.
const NAMED: usize = 16;

/// What the last look has left over.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    reasons: Vec<String>,
}

/// What one attempt came to; `None`: it is said to have ended.
type Attempt = (u32, String, Option<String>);

impl Leftovers {
    /// Evicts what is there, and looks again: the kernel decides what is left, not the answers to the evictions.
    pub(super) fn evict(&mut self, datapath: &impl Datapath, metrics: &Metrics) {
        self.reasons.clear();
        let found = match datapath.leftovers() {
            Ok(found) => found,
            Err(error) => return self.blind(&error),
        };
        if found.attachments.is_empty() && found.loose.is_empty() && found.blind.is_empty() {
            metrics.stale_programs.at([]).set(0);
            return;
        }
        let attached = found.attachments.iter().map(|found| attempt(datapath, found));
        let loose = found.loose.iter().map(|loose| attempt_loose(datapath, loose));
        let attempts: Vec<Attempt> = attached.chain(loose).collect();
        let evicted = attempts.iter().filter(|(_, _, failed)| failed.is_none()).count();
        metrics.evictions.at([]).inc_by(evicted as u64);
        match datapath.leftovers() {
            Ok(left) => {
                let attached = left
                    .attachments
                    .iter()
                    .map(|found| (found.program.id, place(found)));
                let loose = left
                    .loose
                    .iter()
                    .map(|loose| (loose.program.id, NOWHERE.to_owned()));
                let left_over: Vec<_> = attached.chain(loose).collect();
                let count = i64::try_from(left_over.len()).unwrap_or(i64::MAX);
                metrics.stale_programs.at([]).set(count);
                for (program, place) in left_over.iter().take(NAMED) {
                    let failed = attempts
                        .iter()
                        .find(|(tried, at, _)| tried == program && at == place)
                        .and_then(|(_, _, failed)| failed.clone());
                    let why = failed.unwrap_or_else(|| {
                        "it was detached and is there again; is another agent attaching it?".to_owned()
                    });
                    self.reasons.push(format!(
                        "stale program {program} of an earlier load at {place} could not be evicted: {why}"
                    ));
                }
                if left_over.len() > NAMED {
                    let more = left_over.len() - NAMED;
                    self.reasons
                        .push(format!("and {more} more stale programs could not be evicted"));
                }
                self.reasons
                    .extend(left.blind.iter().take(NAMED).map(ToString::to_string));
            }
            Err(error) => self.blind(&error),
        }
    }

    /// Why packets may go wrong, one sentence each.
    pub(super) fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().cloned()
    }

    fn blind(&mut self, error: &lb_loader::LoaderError) {
        self.reasons
            .push(format!("can't see what earlier loads have left: {error}"));
    }
}

/// Where a program is that is attached where nobody can look.
const NOWHERE: &str = "a place that nobody can look at";

fn place(found: &Found) -> String {
    format!("{}, {}", found.place, found.manner)
}

fn attempt(datapath: &impl Datapath, found: &Found) -> Attempt {
    let place = place(found);
    let program_id = found.program.id;
    let failed = match datapath.evict(found) {
        Ok(()) => {
            tracing::info!(program_id, place, "evicted a program of an earlier load");
            None
        }
        Err(error) => {
            tracing::warn!(program_id, place, %error, "can't evict a stale program");
            Some(error.to_string())
        }
    };
    (program_id, place, failed)
}

fn attempt_loose(datapath: &impl Datapath, loose: &LooseProgram) -> Attempt {
    let program_id = loose.program.id;
    let failed = match datapath.disarm(loose) {
        Ok(()) => {
            tracing::info!(
                program_id,
                "a program of an earlier load that nobody can detach leaves everything alone from now on"
            );
            None
        }
        Err(error) => {
            tracing::warn!(program_id, %error, "can't disarm a stale program");
            Some(error.to_string())
        }
    };
    (program_id, NOWHERE.to_owned(), failed)
}
