//! Takes everything of this node's datapath away.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use lb_loader::{
    Blind, Cgroup, LoaderError, LockedPins, expect_privileges, namespace_cookie, remove_empty_clsact,
};

use crate::{
    evict::{Evicted, EvictionError, disarm, evict},
    inventory::{
        Found, Manner, Place, ProgramDescription,
        cgroups::Hierarchy,
        programs::{Owner, Programs},
    },
    leftovers::Node,
};

/// How long [`cleanup`] waits for what ends by itself. It takes milliseconds, on a busy machine more.
const GONE_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks meanwhile.
const GONE_POLL: Duration = Duration::from_millis(5);

/// What [`cleanup`] has removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleanup {
    /// Attachments that were ended.
    pub detached: Vec<Found>,
    /// Programs that can't be detached, or that another process holds, and that leave everything alone from now on; see
    /// [`disarm`].
    pub disarmed: Vec<ProgramDescription>,
    /// Pins that were removed.
    pub unpinned: Vec<PathBuf>,
    /// What could not be looked at.
    pub blind: Vec<Blind>,
}

/// Removes everything of ours, of any load, for this node: attachments wherever they are, as
/// [`Leftovers`](crate::Leftovers) finds them, so also where earlier loads had other options; then clsact of devices where
/// it carries nothing any more, and all pins under the bpffs. Programs that are then still loaded, as a cgroup that was
/// removed or another process keeps them, are disarmed.
///
/// Idempotent. Programs of others and of other nodes stay. Returns when the kernel shows nothing of ours any more: a
/// link whose last holder has just gone stays attached until a worker of the kernel comes to it.
///
/// # Errors
/// [`LoaderError::Busy`] while an agent has the datapath open; [`EvictionError::StillAttached`] if something is after
/// ten seconds.
pub fn cleanup(bpffs: &Path, cgroup: &Path) -> Result<Cleanup, EvictionError> {
    expect_privileges()?;
    let hierarchy = Hierarchy::of(Cgroup::open(cgroup)?)?;
    let pins = LockedPins::lock(bpffs)?;
    let owner = Owner {
        namespace: namespace_cookie()?,
        ..Owner::default()
    };
    let node = Node {
        hierarchy: &hierarchy,
        owner: &owner,
        meta: None,
    };
    let mut programs = Programs::default();
    let mut done = Cleanup::default();
    detach(&node, &mut programs, &mut done)?;
    remove_carriers(&done.detached)?;
    done.unpinned = pins.remove_all()?;
    disarm_rest(&node, &mut programs, &mut done)?;
    Ok(done)
}

/// Ends attachments until there are none. What a look shows that began [`GONE_LIMIT`] after the first were ended was attached
/// again, or can't be ended; how long a look itself takes says nothing.
fn detach(node: &Node<'_>, programs: &mut Programs, done: &mut Cleanup) -> Result<(), EvictionError> {
    let mut first = None;
    loop {
        let is_over = first.is_some_and(|first: Instant| first.elapsed() > GONE_LIMIT);
        let attached = node.leftovers(programs)?.attachments;
        if attached.is_empty() {
            return Ok(());
        }
        let (mut ended, mut left) = (false, Vec::new());
        for found in attached {
            let what = format!(
                "program {} at {}, {}",
                found.program.id, found.place, found.manner
            );
            match evict(&found, false) {
                Ok(Evicted::Detached) => {
                    left.push(format!("{what} (detached once more)"));
                    done.detached.push(found);
                    ended = true;
                }
                Ok(Evicted::Gone) => left.push(what),
                Err(error) => left.push(error.to_string()),
            }
        }
        if is_over {
            return Err(EvictionError::StillAttached { attached: left });
        }
        first.get_or_insert_with(Instant::now);
        if !ended {
            thread::sleep(GONE_POLL);
        }
    }
}

/// Removes clsact from the devices whose filters were ended, where it carries nothing any more.
fn remove_carriers(detached: &[Found]) -> Result<(), LoaderError> {
    let filtered: BTreeSet<u32> = detached
        .iter()
        .filter_map(|found| match (&found.place, &found.manner) {
            (Place::Device { index, .. }, Manner::Filter { .. }) => Some(*index),
            _ => None,
        })
        .collect();
    filtered.into_iter().try_for_each(remove_empty_clsact)
}

/// Disarms what is still loaded a while after everything else has gone.
fn disarm_rest(node: &Node<'_>, programs: &mut Programs, done: &mut Cleanup) -> Result<(), EvictionError> {
    /// In which the kernel lets go of programs whose filters and links have ended.
    const LET_GO: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + LET_GO;
    loop {
        let seen = node.leftovers(programs)?;
        if !seen.loose.is_empty() && Instant::now() < deadline {
            thread::sleep(GONE_POLL);
            continue;
        }
        for loose in seen.loose {
            disarm(&loose)?;
            done.disarmed.push(loose.program);
        }
        done.blind = seen.blind;
        return Ok(());
    }
}
