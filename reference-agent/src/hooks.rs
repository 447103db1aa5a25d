//! Keeps the programs attached, and evicts leftovers.
//!
//! At start, and again every [`SCAN`], missing programs are attached, and leftovers of earlier loads are evicted. Both are
//! found by id in the kernel, never in the agent's memory: pins may be gone, links may be held by other processes, and
//! names are not unique. Programs of other owners stay, and are logged. New devices are attached at once.
//!
//! Network devices come before the cgroup, so that no answer to a connection of an earlier start goes out untranslated. On a
//! first start there is no such connection, and the cgroup comes first. Otherwise a packet in between would open a flow of a
//! client's port, and the next socket with that port, translated at `connect`, would get its first answer from the
//! Service's address.
//!
//! | file | what |
//! |---|---|
//! | `devices` | programs at network devices |
//! | `leftovers` | programs of earlier loads |

mod devices;
mod leftovers;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use self::{devices::Devices, leftovers::Leftovers};
use crate::{datapath::Datapath, endpoint_address::Range, host::View, metrics::Metrics};

/// Time between two scans: how long a stale program can go unnoticed.
pub const SCAN: Duration = Duration::from_secs(2);

/// The reason before the first scan.
const NOT_YET: &str = "the programs are not attached yet";

/// The hooks of one node.
#[derive(Debug)]
pub struct Hooks<D> {
    datapath: D,
    metrics: Metrics,
    devices: Devices,
    leftovers: Leftovers,
    /// Programs of other owners at the cgroup, at the last scan: hook and id.
    foreign: BTreeSet<(&'static str, u32)>,
    next: Instant,
    state: AtCgroup,
    /// The ranges of cluster IPs, and why they are not configured.
    service_ranges: Option<(Vec<Range>, Option<String>)>,
    /// Why the programs are not at the cgroup, at the last scan.
    unattached: Vec<String>,
    /// Whether attaching is not known to have succeeded. It may fail after the programs are attached, when the new maps
    /// have not taken the place of the old ones yet.
    unfinished: bool,
}

/// The programs at the cgroup, at the last scan.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AtCgroup {
    /// There was no scan yet.
    Unknown,
    /// All are attached, and no leftover is.
    Good,
    /// The reasons why not, one sentence each.
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
            state: AtCgroup::Unknown,
            service_ranges: None,
            unattached: Vec::new(),
            unfinished: true,
        }
    }

    /// The datapath.
    pub fn datapath(&self) -> &D {
        &self.datapath
    }

    /// When to call [`scan`](Self::scan) next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Takes the host's current devices. New ones are attached at once, after the first scan.
    pub fn set_host(&mut self, view: Arc<View>) {
        if self.devices.set_view(view) && self.state != AtCgroup::Unknown {
            self.devices.attach_new(&mut self.datapath);
        }
    }

    /// Takes the ranges of cluster IPs, and configures the programs at once.
    pub fn set_service_ranges(&mut self, ranges: &[Range]) {
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
            self.configure_ranges();
        }
    }

    fn configure_ranges(&mut self) {
        if let Some((ranges, failed)) = &mut self.service_ranges {
            let configured = self.datapath.set_service_ranges(ranges);
            *failed = configured
                .err()
                .map(|error| format!("the programs are not told the Service ranges: {error}"));
        }
    }

    /// Compares the kernel's state with the wanted one and repairs it, if a scan is due. `filled`: the maps hold what the
    /// API has.
    ///
    /// Adopted maps serve as they are, so that programs are replaced at once. New maps are filled first: until then the
    /// programs of an earlier load serve better than programs with empty maps.
    pub fn scan(&mut self, filled: bool, now: Instant) {
        if now < self.next || !(filled || self.datapath.adopted()) {
            return;
        }
        self.next = now + SCAN;
        let mut bad = Vec::new();
        if self.datapath.first() {
            self.attach(&mut bad);
            self.devices.scan(&mut self.datapath);
        } else {
            self.devices.scan(&mut self.datapath);
            self.attach(&mut bad);
        }
        self.unattached.clone_from(&bad);
        // Without the agent's own programs a leftover is better than none.
        if bad.is_empty() {
            let devices = &self.devices;
            self.leftovers.evict(&self.datapath, &self.metrics, |found| {
                devices.keeps_leftover(found)
            });
            bad.extend(self.leftovers.reasons());
        }
        self.log_foreign();
        self.configure_ranges();
        let state = if bad.is_empty() {
            AtCgroup::Good
        } else {
            AtCgroup::Bad(bad)
        };
        if state != self.state
            && let AtCgroup::Bad(reasons) = &state
        {
            tracing::warn!(?reasons, "the programs at the cgroup are not as they should be");
        }
        self.state = state;
    }

    /// Why this node is not ready, one sentence each.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = match &self.state {
            AtCgroup::Unknown => vec![NOT_YET.to_owned()],
            AtCgroup::Good => Vec::new(),
            AtCgroup::Bad(reasons) => reasons.clone(),
        };
        reasons.extend(self.devices.reasons());
        reasons.extend(
            self.service_ranges
                .iter()
                .filter_map(|(_, failed)| failed.clone()),
        );
        reasons
    }

    /// Those of them for which no Service is served, on the node or from outside: the programs are not at the cgroup, or
    /// not at one of the node's own devices.
    pub fn unattached_reasons(&self) -> Vec<String> {
        let mut reasons = match &self.state {
            AtCgroup::Unknown => vec![NOT_YET.to_owned()],
            AtCgroup::Good | AtCgroup::Bad(_) => self.unattached.clone(),
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
        if self.state == AtCgroup::Good {
            tracing::warn!(hooks = ?unattached, "programs were detached, and not by this agent; attaching them again");
        }
        let attached = self.datapath.attach();
        self.unfinished = attached.is_err();
        if let Err(error) = attached {
            bad.push(format!("not attached: {error}"));
        }
    }

    /// Logs programs of other owners that are new at the cgroup. They may run before the agent's; its own probe shows
    /// whether Services are served nevertheless.
    fn log_foreign(&mut self) {
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
