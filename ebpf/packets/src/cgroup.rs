//! Cgroups of a program's own, gone with it: the kernel runs socket programs for the sockets of a cgroup.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// Where a process enters a cgroup, all of its threads with it.
const PROCESSES: &str = "cgroup.procs";

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file of the kernel's can't be read or written, or a cgroup not be made.
    #[error("failed to {verb} {path}")]
    Path {
        /// What was tried.
        verb: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no cgroup v2.
    #[error("expected a mount of cgroup2, found none: mount -t cgroup2 none /sys/fs/cgroup")]
    Mount,
    /// The process is in no cgroup of it.
    #[error("this process is in no cgroup (v2)")]
    Outside,
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |source| CgroupError::Path {
        verb,
        path: path.to_owned(),
        source,
    }
}

/// A cgroup, and some below it.
#[derive(Debug)]
pub struct Cgroups {
    /// Where this process was before.
    before: PathBuf,
    own: PathBuf,
    below: &'static [&'static str],
}

impl Cgroups {
    /// Makes them, below the root of cgroup v2; and removes those of processes that were killed. The name of the first begins with
    /// `prefix`; the process's id follows.
    ///
    /// # Errors
    /// [`CgroupError`]
    pub fn create(prefix: &str, below: &'static [&'static str]) -> Result<Self, CgroupError> {
        let mount = mount()?;
        sweep(&mount, prefix, below);
        let memberships = read("/proc/self/cgroup")?;
        let before = memberships
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .ok_or(CgroupError::Outside)?;
        let cgroups = Self {
            before: mount.join(before),
            own: mount.join(format!("{prefix}{}", process::id())),
            below,
        };
        for path in cgroups.all() {
            fs::create_dir(&path).map_err(failed("create", &path))?;
        }
        Ok(cgroups)
    }

    /// The first one.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// One of those below it.
    pub fn below(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }

    /// The first, and those below it.
    fn all(&self) -> Vec<PathBuf> {
        let below = self.below.iter().map(|name| self.own.join(name));
        [self.own.clone()].into_iter().chain(below).collect()
    }

    /// Moves this process back to where it was.
    ///
    /// # Errors
    /// [`CgroupError::Path`]
    pub fn leave(&self) -> Result<(), CgroupError> {
        enter(&self.before)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // One that was not made yet is no loss.
        let mut made = self.all().into_iter().rev().filter(|path| path.exists());
        let removed = self
            .leave()
            .and_then(|()| made.try_for_each(|path| fs::remove_dir(&path).map_err(failed("remove", &path))));
        if let Err(error) = removed {
            let why = std::error::Error::source(&error);
            eprintln!(
                "warning: {error}: {}",
                why.map_or_else(String::new, ToString::to_string)
            );
        }
    }
}

/// Moves this process.
///
/// # Errors
/// [`CgroupError::Path`]
pub fn enter(cgroup: &Path) -> Result<(), CgroupError> {
    let path = cgroup.join(PROCESSES);
    fs::write(&path, "0").map_err(failed("write", &path))
}

fn read(path: &'static str) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(failed("read", Path::new(path)))
}

/// Where cgroup v2 is mounted.
fn mount() -> Result<PathBuf, CgroupError> {
    // `36 35 98:0 / /mount/point options [tags] - type source options` (proc_pid_mountinfo(5)).
    read("/proc/self/mountinfo")?
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, right)| right.starts_with("cgroup2 "))
        .and_then(|(left, _)| left.split(' ').nth(4))
        .map(PathBuf::from)
        .ok_or(CgroupError::Mount)
}

/// Removes the cgroups of processes that were killed.
fn sweep(mount: &Path, prefix: &str, below: &[&str]) {
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(prefix));
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            for below in below.iter().chain(&[""]) {
                // Another one may be at it, too.
                let _ = fs::remove_dir(entry.path().join(below));
            }
        }
    }
}
