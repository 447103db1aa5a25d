//! Cgroups of tests' own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Names of the tests' cgroups: this, the test program's process id, a number. Not `plumbline-lab-`, by which the lab
/// knows its own.
const PREFIX: &str = "plumbline-test-";
/// How long an ended test's cgroup may take to be empty.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or elsewhere on a hybrid system.
///
/// # Panics
/// Nowhere: tests that ask need one.
#[must_use]
pub fn mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // proc_pid_mountinfo(5): `id parent major:minor root point options [tags] - type source options`.
    mounts
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, right)| right.starts_with("cgroup2 "))
        .and_then(|(left, _)| left.split(' ').nth(4))
        .map(|point| Path::new(point).to_owned())
        .expect("a cgroup2 mount; these tests need one")
}

/// A cgroup that is removed, with those below it and all processes in them, when the test ends in whatever way.
#[derive(Debug)]
pub struct OwnCgroup(PathBuf);

impl OwnCgroup {
    /// Makes one, and removes what killed test programs have left.
    ///
    /// # Panics
    /// The kernel refuses.
    #[must_use]
    pub fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mount = mount();
        sweep(&mount);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("failed to create {}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // Where nothing is left in it, or the kernel is older than 5.14, this does nothing.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let begun = Instant::now();
        while let Err(error) = remove(&self.0) {
            if begun.elapsed() > EMPTY_LIMIT {
                eprintln!("failed to remove {}: {error}", self.0.display());
                return;
            }
            thread::yield_now();
        }
    }
}

/// Removes a cgroup and those below it.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Removes the cgroups of test programs that were killed. Their processes have died with them.
fn sweep(mount: &Path) {
    let killed = |name: &str| {
        let id = name.strip_prefix(PREFIX)?.split('-').next()?;
        Some(!Path::new("/proc").join(id).exists())
    };
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(killed).unwrap_or(false) {
            // Another test may be at it too.
            let _ = remove(&entry.path());
        }
    }
}
