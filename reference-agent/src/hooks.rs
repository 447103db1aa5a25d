//! Keeps the programs attached, and alone.
//!
//! At start, and again every [`SCAN`]: programs that are not attached where they belong are attached, programs of
//! an earlier load of this agent are evicted. Both are found by id in what the kernel says is attached, never in
//! what the agent remembers: pins may be gone, links may be held by others, names may be anybody's. Programs of
//! others stay. Network devices come before the cgroup, so that no answer to a connection of an earlier start goes out
//! untranslated; those that come later are attached at once.

mod devices;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lb_loader::Attachment;

use self::devices::Devices;
use crate::{datapath::Datapath, host::View};

/// From one look at the cgroup to the next: how long a stale program can go unnoticed.
pub const SCAN: Duration = Duration::from_secs(2);

/// The hooks of one node.
#[derive(Debug)]
pub struct Hooks<D> {
    datapath: D,
    devices: Devices,
    next: Instant,
    seen: Seen,
}

/// What the last look has found.
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
    pub fn new(datapath: D, now: Instant) -> Self {
        Self {
            datapath,
            devices: Devices::default(),
            next: now,
            seen: Seen::Nothing,
        }
    }

    /// When to call [`look`](Self::look) next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Takes what the host has now. Devices that are new are attached at once, if the programs are attached at all.
    pub fn host(&mut self, view: Arc<View>) {
        self.devices.want(view);
        if self.seen != Seen::Nothing {
            self.devices.catch_up(&mut self.datapath);
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
        self.devices.look(&mut self.datapath);
        self.attach(&mut bad);
        // Without our own programs an old one is better than none.
        if bad.is_empty() {
            self.evict(&mut bad);
        }
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
            Seen::Nothing => vec!["the programs are not attached yet".to_owned()],
            Seen::Good => Vec::new(),
            Seen::Bad(reasons) => reasons.clone(),
        };
        reasons.extend(self.devices.reasons());
        reasons
    }

    fn attach(&mut self, bad: &mut Vec<String>) {
        let unattached = match self.datapath.unattached() {
            Ok(unattached) if unattached.is_empty() => return,
            Ok(unattached) => unattached,
            Err(error) => return bad.push(format!("can't see what is attached: {error}")),
        };
        if self.seen == Seen::Good {
            tracing::warn!(hooks = ?unattached, "programs were detached by somebody; attaching them again");
        }
        if let Err(error) = self.datapath.attach() {
            bad.push(format!("not attached: {error}"));
        }
    }

    fn evict(&mut self, bad: &mut Vec<String>) {
        let stale = match self.datapath.stale() {
            Ok(stale) => stale,
            Err(error) => return bad.push(format!("can't see what is attached: {error}")),
        };
        for found in &stale {
            let Attachment {
                hook,
                program_id,
                link_id,
                ..
            } = found;
            match self.datapath.evict(found) {
                Ok(()) => tracing::info!(%hook, program_id, ?link_id, "evicted a program of an earlier load"),
                Err(error) => {
                    tracing::warn!(%hook, program_id, ?link_id, %error, "can't evict a stale program");
                }
            }
        }
        if stale.is_empty() {
            return;
        }
        // The kernel decides what is left, not the answers to the evictions.
        match self.datapath.stale() {
            Ok(left) => bad.extend(left.iter().map(describe)),
            Err(error) => bad.push(format!("can't see what is attached: {error}")),
        }
    }
}

fn describe(stale: &Attachment) -> String {
    let Attachment {
        hook,
        program_id,
        link_id,
        ..
    } = stale;
    let how = link_id.map_or_else(|| "without a link".to_owned(), |id| format!("by link {id}"));
    format!(
        "stale program {program_id} of an earlier load is attached to {hook} {how}, and could not be evicted"
    )
}
