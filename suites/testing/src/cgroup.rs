//! Cgroups of tests' own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Prefix of the tests' cgroups, followed by the test program's PID and a number. It differs from `plumbline-lab-`, the
/// prefix of the lab's own.
const PREFIX: &str = "plumbline-test-";
/// Limit until an ended test's cgroup is empty.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);

/// Mount point of cgroup v2: `/sys/fs/cgroup`, or elsewhere on a hybrid system.
///
/// # Panics
/// It is not mounted: the calling tests need it.
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

/// A cgroup that is removed with its descendants and all their processes when the test ends in any way.
#[derive(Debug)]
pub struct OwnCgroup(PathBuf);

impl OwnCgroup {
    /// Makes a cgroup, and removes those of killed test programs.
    ///
    /// # Panics
    /// The kernel refuses it.
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

    /// Path of the cgroup.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // Without processes, or on kernels before 5.14, this does nothing.
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

/// Removes the cgroups of killed test programs, whose processes have ended with them.
fn sweep(mount: &Path) {
    let killed = |name: &str| {
        let id = name.strip_prefix(PREFIX)?.split('-').next()?;
        Some(!Path::new("/proc").join(id).exists())
    };
    for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(killed).unwrap_or(false) {
            // Another test may remove it at the same time.
            let _ = remove(&entry.path());
        }
    }
}
