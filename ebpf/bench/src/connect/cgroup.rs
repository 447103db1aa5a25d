//! Cgroups for the measurement, gone with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;

/// Begin of their names; the process's id follows.
const PREFIX: &str = "lb-bench-";
/// Where a process enters a cgroup, all of its threads with it.
const PROCESSES: &str = "cgroup.procs";

/// A cgroup with three below it.
pub(super) struct Cgroups {
    /// Where this process was before.
    before: PathBuf,
    own: PathBuf,
    bare: PathBuf,
    one: PathBuf,
    many: PathBuf,
}

impl Cgroups {
    /// Makes them, below the root of cgroup v2; and removes those of processes that were killed.
    pub(super) fn create() -> anyhow::Result<Self> {
        let mount = mount()?;
        sweep(&mount);
        let memberships =
            fs::read_to_string("/proc/self/cgroup").context("failed to read /proc/self/cgroup")?;
        let before = memberships
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .context("this process is in no cgroup (v2)")?;
        let own = mount.join(format!("{PREFIX}{}", process::id()));
        let [bare, one, many] = ["bare", "one", "many"].map(|name| own.join(name));
        let cgroups = Self {
            before: mount.join(before),
            own,
            bare,
            one,
            many,
        };
        for path in [&cgroups.own, &cgroups.bare, &cgroups.one, &cgroups.many] {
            fs::create_dir(path).with_context(|| format!("failed to create {}", path.display()))?;
        }
        Ok(cgroups)
    }

    /// The one without programs.
    pub(super) fn bare(&self) -> &Path {
        &self.bare
    }

    /// The one whose programs know one service.
    pub(super) fn one(&self) -> &Path {
        &self.one
    }

    /// The one whose programs know many.
    pub(super) fn many(&self) -> &Path {
        &self.many
    }

    /// Moves this process.
    pub(super) fn enter(&self, cgroup: &Path) -> anyhow::Result<()> {
        let path = cgroup.join(PROCESSES);
        fs::write(&path, "0").with_context(|| format!("failed to write {}", path.display()))
    }

    /// Moves this process back to where it was.
    pub(super) fn leave(&self) -> anyhow::Result<()> {
        self.enter(&self.before)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let removed = self.leave().and_then(|()| {
            for path in [&self.bare, &self.one, &self.many, &self.own] {
                // One that was not made yet is no loss.
                if path.exists() {
                    fs::remove_dir(path).with_context(|| format!("failed to remove {}", path.display()))?;
                }
            }
            Ok(())
        });
        if let Err(error) = removed {
            eprintln!("warning: {error:#}");
        }
    }
}

/// Where cgroup v2 is mounted.
fn mount() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("failed to read /proc/self/mountinfo")?;
    // `36 35 98:0 / /mount/point options [tags] - type source options` (proc_pid_mountinfo(5)).
    mounts
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, right)| right.starts_with("cgroup2 "))
        .and_then(|(left, _)| left.split(' ').nth(4))
        .map(PathBuf::from)
        .context("expected a mount of cgroup2, found none: mount -t cgroup2 none /sys/fs/cgroup")
}

/// Removes the cgroups of processes that were killed.
fn sweep(mount: &Path) {
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            for below in ["bare", "one", "many", ""] {
                // Another one may be at it, too.
                let _ = fs::remove_dir(entry.path().join(below));
            }
        }
    }
}
