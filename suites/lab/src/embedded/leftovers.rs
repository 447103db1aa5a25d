//! What dead labs left: folders whose lock is free, cgroups that nobody supervises.

use std::path::Path;

use super::{
    LabError,
    cgroup::{self, Cgroup},
    dir::LabDir,
};

/// What [`down`] found.
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
        if remove(hierarchy, &name)? {
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

/// Removes what a dead lab left; false if there is nothing, or somebody holds its lock.
pub(super) fn remove(hierarchy: &Path, name: &str) -> Result<bool, LabError> {
    let (dir, tree) = (LabDir::new(name), Cgroup::of_lab(hierarchy, name));
    let there = dir.exists() || tree.path().exists();
    if !there {
        return Ok(false);
    }
    let Some(lock) = dir.lock()? else { return Ok(false) };
    if tree.control().populated() {
        // Up, with its folder elsewhere: in another container.
        dir.remove(lock)?;
        return Ok(false);
    }
    tree.remove()?;
    dir.remove(lock)?;
    Ok(true)
}

/// The cgroup v2 hierarchy, and what a dead lab of this name left removed from it.
pub(super) fn remove_here(name: &str) -> Result<bool, LabError> {
    remove(&cgroup::hierarchy()?, name)
}
