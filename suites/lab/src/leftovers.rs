//! Leftovers of dead labs: folders with a free lock, and cgroups without a supervisor.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    LIMITS, LabError,
    cgroup::{self, Cgroup},
    dir::{LabDir, Lock},
    protocol::{Reply, Request},
    request::{call, unexpected},
};

/// Interval between tries while a supervisor is ending.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Result of [`down`](super::down).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downed {
    /// The lab was running.
    Up,
    /// The supervisor was dead; its leftovers are removed.
    Leftovers,
    /// There was no such lab.
    Nothing,
}

/// Removes leftovers of all dead labs but one, and returns their names.
pub(super) fn remove_others(hierarchy: &Path, but: &str) -> Result<Vec<String>, LabError> {
    LabDir::remove_gone();
    let names = all(hierarchy)?;
    let mut removed = Vec::new();
    for name in names.into_iter().filter(|name| name != but) {
        if let Removal::Removed = try_remove(hierarchy, &name)? {
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Names of all labs that are running or have left anything.
pub(super) fn names() -> Result<Vec<String>, LabError> {
    all(&cgroup::hierarchy()?)
}

fn all(hierarchy: &Path) -> Result<Vec<String>, LabError> {
    let mut names: Vec<String> = LabDir::all()?.iter().map(|dir| dir.name().to_owned()).collect();
    names.extend(Cgroup::abandoned(hierarchy));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Removes leftovers of a lab if it is dead; a lab with a supervisor is not changed.
pub(super) fn remove_dead(name: &str) -> Result<Downed, LabError> {
    LabDir::remove_gone();
    Ok(match try_remove(&cgroup::hierarchy()?, name)? {
        Removal::Removed => Downed::Leftovers,
        Removal::Nothing => Downed::Nothing,
        Removal::Supervised => Downed::Up,
    })
}

/// What [`remove_dead`] would find; removes nothing.
pub(super) fn standing(name: &str) -> Result<Downed, LabError> {
    let (dir, tree) = (LabDir::new(name), Cgroup::of_lab(&cgroup::hierarchy()?, name));
    if !dir.exists() && !tree.path().exists() {
        return Ok(Downed::Nothing);
    }
    // Without a folder there is no lock to ask, and asking would make one.
    let is_held = dir.exists() && dir.lock()?.is_none();
    Ok(if is_held || tree.control().populated() {
        Downed::Up
    } else {
        Downed::Leftovers
    })
}

/// Result of a try to remove leftovers.
enum Removal {
    Removed,
    Nothing,
    /// The lab has a supervisor, which lives or is still ending.
    Supervised,
}

fn try_remove(hierarchy: &Path, name: &str) -> Result<Removal, LabError> {
    let (dir, tree) = (LabDir::new(name), Cgroup::of_lab(hierarchy, name));
    if !dir.exists() && !tree.path().exists() {
        return Ok(Removal::Nothing);
    }
    let Some(lock) = dir.lock()? else {
        return Ok(Removal::Supervised);
    };
    if tree.control().populated() {
        dir.remove(lock)?;
        return Ok(Removal::Supervised);
    }
    tree.remove()?;
    dir.remove(lock)?;
    Ok(Removal::Removed)
}

/// Takes the lock of a lab for its new supervisor. A living supervisor answers requests; a dying one, or a process
/// that removes leftovers, holds the lock only for a moment.
pub(super) async fn claim(hierarchy: &Path, dir: &LabDir) -> Result<Lock, LabError> {
    let tree = Cgroup::of_lab(hierarchy, dir.name());
    let deadline = Instant::now() + LIMITS.down;
    loop {
        if let Some(lock) = dir.lock()? {
            if !tree.control().populated() {
                return Ok(lock);
            }
            dir.remove(lock)?;
        } else {
            match call(dir, &Request::About, LIMITS.control).await {
                Ok(Reply::About(about)) => {
                    return Err(LabError::AlreadyUp {
                        name: dir.name().to_owned(),
                        pid: about.pid,
                    });
                }
                Err(starting @ LabError::Starting { .. }) => return Err(starting),
                _ => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(held(dir.name(), &tree));
        }
        sleep(TRY_AGAIN).await;
    }
}

/// Takes a lab down by its name, or removes leftovers of a dead one; a lab that does not exist is no error.
pub(super) async fn take_down(name: &str) -> Result<Downed, LabError> {
    let hierarchy = cgroup::hierarchy()?;
    let dir = LabDir::new(name);
    let deadline = Instant::now() + LIMITS.down;
    loop {
        match call(&dir, &Request::Down, LIMITS.down).await {
            Ok(Reply::Done) => return Ok(Downed::Up),
            // The supervisor does not exist, or died before it answered.
            Err(LabError::NotUp { .. } | LabError::Control { .. }) => {}
            Ok(_) => return Err(unexpected(&dir)),
            Err(other) => return Err(other),
        }
        match try_remove(&hierarchy, name)? {
            Removal::Removed => return Ok(Downed::Leftovers),
            Removal::Nothing => return Ok(Downed::Nothing),
            Removal::Supervised if Instant::now() >= deadline => {
                return Err(held(name, &Cgroup::of_lab(&hierarchy, name)));
            }
            Removal::Supervised => sleep(TRY_AGAIN).await,
        }
    }
}

fn held(name: &str, tree: &Cgroup) -> LabError {
    LabError::Held {
        name: name.to_owned(),
        cgroup: tree.control().path().to_owned(),
        limit: LIMITS.down,
    }
}
