//! What dead labs left: folders whose lock is free, cgroups that nobody supervises.

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

/// Between two tries while a supervisor is dying.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// What [`down`](super::down) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downed {
    /// It was up.
    Up,
    /// Its supervisor was dead; what was left is removed.
    Leftovers,
    /// Nothing.
    Nothing,
}

/// Removes what dead labs other than one left, and returns their names.
pub(super) fn remove_others(hierarchy: &Path, but: &str) -> Result<Vec<String>, LabError> {
    LabDir::remove_gone();
    let names = all(hierarchy)?;
    let mut removed = Vec::new();
    for name in names.into_iter().filter(|name| name != but) {
        if let Tried::Removed = try_remove(hierarchy, &name)? {
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Names of all labs that are up, or have left something.
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

/// Removes what a lab left if it is dead; one that lives, or is dying, is left alone.
pub(super) fn remove_dead(name: &str) -> Result<Downed, LabError> {
    LabDir::remove_gone();
    Ok(match try_remove(&cgroup::hierarchy()?, name)? {
        Tried::Removed => Downed::Leftovers,
        Tried::Nothing => Downed::Nothing,
        Tried::Held => Downed::Up,
    })
}

/// What came of a try to remove what a lab left.
enum Tried {
    Removed,
    Nothing,
    /// It has a supervisor: one that lives, or one that is dying and has not let go yet.
    Held,
}

fn try_remove(hierarchy: &Path, name: &str) -> Result<Tried, LabError> {
    let (dir, tree) = (LabDir::new(name), Cgroup::of_lab(hierarchy, name));
    if !dir.exists() && !tree.path().exists() {
        return Ok(Tried::Nothing);
    }
    let Some(lock) = dir.lock()? else {
        return Ok(Tried::Held);
    };
    if tree.control().populated() {
        dir.remove(lock)?;
        return Ok(Tried::Held);
    }
    tree.remove()?;
    dir.remove(lock)?;
    Ok(Tried::Removed)
}

/// Takes the lock of a lab for its new supervisor, when the last one has let go of it.
///
/// A supervisor that lives answers; one that is dying, and whoever removes what it left, hold the lock for a moment.
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

/// Takes a lab down by its name, or removes what a dead one left; nothing to do is no error.
pub(super) async fn take_down(name: &str) -> Result<Downed, LabError> {
    let hierarchy = cgroup::hierarchy()?;
    let dir = LabDir::new(name);
    let deadline = Instant::now() + LIMITS.down;
    loop {
        match call(&dir, &Request::Down, LIMITS.down).await {
            Ok(Reply::Done) => return Ok(Downed::Up),
            // No supervisor, or one that died before it answered.
            Err(LabError::NotUp { .. } | LabError::Control { .. }) => {}
            Ok(_) => return Err(unexpected(&dir)),
            Err(other) => return Err(other),
        }
        match try_remove(&hierarchy, name)? {
            Tried::Removed => return Ok(Downed::Leftovers),
            Tried::Nothing => return Ok(Downed::Nothing),
            Tried::Held if Instant::now() >= deadline => {
                return Err(held(name, &Cgroup::of_lab(&hierarchy, name)));
            }
            Tried::Held => sleep(TRY_AGAIN).await,
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
