//! Each test in a process of its own, which enters a cgroup and namespaces of its own.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::alarm,
};

use super::Node;

/// Names of the tests' cgroups: this, the test program's process id, a number.
const PREFIX: &str = "plumbline-doctor-test-";
/// Tells the inner process its cgroup.
const CGROUP: &str = "PLUMBLINE_TEST_CGROUP";
/// Tells it an empty folder of its own.
const FOLDER: &str = "PLUMBLINE_TEST_FOLDER";
/// After this the inner process is ended by SIGALRM; the longest test takes a few seconds on an idle machine.
const LIMIT_SECONDS: u32 = 300;
/// How long an ended test's cgroup may take to be empty.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);

/// Runs a test's body on a [`Node`] of its own. The body must be a closure written in the test function itself: the
/// test's name is taken from its type, and the inner process is this same program, asked for that test alone.
#[track_caller]
pub(crate) fn isolated<F: FnOnce(&Node)>(body: F) {
    let full = std::any::type_name::<F>();
    let name = full
        .strip_suffix("::{{closure}}")
        .and_then(|path| path.split_once("::"))
        .map_or_else(
            || panic!("the body of a test is a closure in it, not {full}"),
            |(_, name)| name,
        );
    if !testing::root_or_skip(name) {
        return;
    }
    match (env::var_os(CGROUP), env::var_os(FOLDER)) {
        (Some(cgroup), Some(folder)) => {
            let (cgroup, folder) = (PathBuf::from(cgroup), PathBuf::from(folder));
            enter(&cgroup, &folder);
            body(&Node::new(cgroup, folder));
        }
        _ => outside(name),
    }
}

#[track_caller]
fn outside(name: &str) {
    let cgroup = OwnCgroup::create();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CGROUP, &cgroup.0)
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success() && said(&output.stdout).contains("1 passed"),
        "the test's own process ended with {} (SIGALRM: it took more than {LIMIT_SECONDS} s)\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
}

/// Moves this process into the cgroup and this thread, with what it starts, into new namespaces.
fn enter(cgroup: &Path, folder: &Path) {
    alarm::set(LIMIT_SECONDS);
    fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("new namespaces");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    mount(Some("bpf"), folder, Some("bpf"), MsFlags::empty(), none).expect("a bpffs");
}

/// A cgroup that is removed, with all processes in it, when the test ends in whatever way.
struct OwnCgroup(PathBuf);

impl OwnCgroup {
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = lb_loader::mount_points("cgroup2").unwrap();
        let mount = mounts.first().expect("a cgroup2 mount; these tests need one");
        sweep(mount);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("failed to create {}: {error}", path.display()));
        Self(path)
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

/// Removes a cgroup and those that a test has made below it.
fn remove(cgroup: &Path) -> io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Removes the cgroups of test programs that were killed.
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
