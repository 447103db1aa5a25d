//! Keeps the programs attached, and alone.
//!
//! At start, and again every [`SCAN`]: programs that are not attached where they belong are attached, what earlier loads
//! of this agent have left anywhere is evicted. Both are found by id in what the kernel says, never in what the agent
//! remembers: pins may be gone, links may be held by others, names may be anybody's. Programs of others stay, and are
//! named in the log. Devices that come later are attached at once.
//!
//! Network devices come before the cgroup, so that no answer to a connection of an earlier start goes out untranslated. On a
//! first start there is none, and the cgroup comes first: what a client's packets opened in between would be a flow of its
//! port, and the next socket there, which is led to the backend itself, would get its first answer in the Service's name.
//!
//! | file | what |
//! |---|---|
//! | `devices` | which devices have programs |
//! | `leftovers` | what earlier loads have left |

mod devices;
mod leftovers;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{devices::Devices, leftovers::Leftovers};
use crate::{datapath::Datapath, host::View, metrics::Metrics, transport::Range};

/// From one look at what is attached to the next: how long a stale program can go unnoticed.
pub const SCAN: Duration = Duration::from_secs(2);

/// What is said before the first look.
const NOT_YET: &str = "the programs are not attached yet";

/// The hooks of one node.
#[derive(Debug)]
pub struct Hooks<D> {
    datapath: D,
    metrics: Metrics,
    devices: Devices,
    leftovers: Leftovers,
    /// Programs of others at the cgroup, as the last look saw them: hook and id.
    foreign: BTreeSet<(&'static str, u32)>,
    next: Instant,
    seen: Seen,
    /// Where cluster IPs are from, and why the programs are not told.
    service_ranges: Option<(Vec<Range>, Option<String>)>,
    /// Why ours are not at the cgroup, as the last look found.
    unattached: Vec<String>,
    /// Attaching was not tried yet, failed, or was cut short after the programs were there: the set of maps may not have
    /// taken its place.
    unfinished: bool,
}

/// What the last look has found at the cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// Nothing is attached yet.
    Nothing,
    /// All is as it should be.
    Good,
    /// One sentence for each thing that is not.
    Bad(Vec<String>),
}

impl<D: Datapath> Hooks<D> {
    /// Attaches nothing yet.
    pub fn new(datapath: D, metrics: Metrics, now: Instant) -> Self {
        Self {
            datapath,
            metrics,
            devices: Devices::default(),
            leftovers: Leftovers::default(),
            foreign: BTreeSet::new(),
            next: now,
            seen: Seen::Nothing,
            service_ranges: None,
            unattached: Vec::new(),
            unfinished: true,
        }
    }

    /// The datapath.
    pub fn datapath(&self) -> &D {
        &self.datapath
    }

    /// When to call [`look`](Self::look) next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Takes what the host has now. Devices that are new are attached at once, if the programs are attached at all.
    pub fn host(&mut self, view: Arc<View>) {
        if self.devices.want(view) && self.seen != Seen::Nothing {
            self.devices.catch_up(&mut self.datapath);
        }
    }

    /// Takes where cluster IPs are from, which the programs are told at once.
    pub fn service_ranges(&mut self, ranges: &[Range]) {
        if self
            .service_ranges
            .as_ref()
            .is_none_or(|(before, _)| before != ranges)
        {
            tracing::info!(
                ?ranges,
                "cluster IPs are from these ranges; what no Service has there is refused"
            );
            self.service_ranges = Some((ranges.to_vec(), None));
            self.tell_ranges();
        }
    }

    fn tell_ranges(&mut self) {
        if let Some((ranges, failed)) = &mut self.service_ranges {
            let told = self.datapath.set_service_ranges(ranges);
            *failed = told
                .err()
                .map(|error| format!("the programs are not told the Service ranges: {error}"));
        }
    }

    /// Puts everything in order, if it is time. `filled`: the maps say what the API says.
    ///
    /// Maps of an earlier start serve as they are, so their programs are switched at once. New maps are filled
    /// first: until then whatever is attached serves better than programs that know no service.
    pub fn look(&mut self, filled: bool, now: Instant) {
        if now < self.next || !(filled || self.datapath.adopted()) {
            return;
        }
        self.next = now + SCAN;
        let mut bad = Vec::new();
        if self.datapath.first() {
            self.attach(&mut bad);
            self.devices.look(&mut self.datapath);
        } else {
            self.devices.look(&mut self.datapath);
            self.attach(&mut bad);
        }
        self.unattached.clone_from(&bad);
        // Without our own programs an old one is better than none.
        if bad.is_empty() {
            let devices = &self.devices;
            self.leftovers
                .evict(&self.datapath, &self.metrics, |found| devices.keep(found));
            bad.extend(self.leftovers.reasons());
        }
        self.look_at_others();
        self.tell_ranges();
        let seen = if bad.is_empty() {
            Seen::Good
        } else {
            Seen::Bad(bad)
        };
        if seen != self.seen
            && let Seen::Bad(reasons) = &seen
        {
            tracing::warn!(?reasons, "the programs at the cgroup are not as they should be");
        }
        self.seen = seen;
    }

    /// Why this node can't be relied on, one sentence each; empty: it can.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = match &self.seen {
            Seen::Nothing => vec![NOT_YET.to_owned()],
            Seen::Good => Vec::new(),
            Seen::Bad(reasons) => reasons.clone(),
        };
        reasons.extend(self.devices.reasons());
        reasons.extend(
            self.service_ranges
                .iter()
                .filter_map(|(_, failed)| failed.clone()),
        );
        reasons
    }

    /// Those of them for which nobody is served here, or nobody outside: the programs are not at the cgroup, or not at
    /// a device of the node's.
    pub fn serving_nobody(&self) -> Vec<String> {
        let mut reasons = match &self.seen {
            Seen::Nothing => vec![NOT_YET.to_owned()],
            Seen::Good | Seen::Bad(_) => self.unattached.clone(),
        };
        reasons.extend(self.devices.reasons_of_node());
        reasons
    }

    fn attach(&mut self, bad: &mut Vec<String>) {
        let unattached = match self.datapath.unattached() {
            Ok(unattached) if unattached.is_empty() && !self.unfinished => return,
            Ok(unattached) => unattached,
            Err(error) => return bad.push(format!("can't see what is attached: {error}")),
        };
        if self.seen == Seen::Good {
            tracing::warn!(hooks = ?unattached, "programs were detached, and not by this agent; attaching them again");
        }
        let attached = self.datapath.attach();
        self.unfinished = attached.is_err();
        if let Err(error) = attached {
            bad.push(format!("not attached: {error}"));
        }
    }

    /// Names programs of others that are new at the cgroup. They may decide before ours, and that is their owner's
    /// business; the agent's own probe sees whether Services are served nevertheless.
    fn look_at_others(&mut self) {
        let found = match self.datapath.foreign() {
            Ok(found) => found,
            Err(error) => return tracing::debug!(%error, "can't see programs of others"),
        };
        for program in &found {
            if !self.foreign.contains(&(program.hook.name(), program.program_id)) {
                tracing::info!(
                    hook = %program.hook, program_id = program.program_id, name = program.name,
                    "a program of another owner is attached, too, and stays"
                );
            }
        }
        self.foreign = found
            .iter()
            .map(|found| (found.hook.name(), found.program_id))
            .collect();
        self.metrics
            .foreign_programs
            .at([])
            .set(i64::try_from(self.foreign.len()).unwrap_or(i64::MAX));
    }
}
