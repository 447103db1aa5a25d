//! Each test in a process, namespaces and a cgroup of its own.

use std::{
    env, fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal},
    unistd::alarm,
};

use super::Node;

/// Names of the tests' cgroups: this, the test program's process id, a number. Not `plumbline-lab-`, by which the lab
/// knows its own.
const PREFIX: &str = "lb-loader-test-";
/// Tells the inner process its cgroup.
const CGROUP: &str = "PLUMBLINE_TEST_CGROUP";
/// Tells it an empty folder of its own.
const FOLDER: &str = "PLUMBLINE_TEST_FOLDER";
/// Tells a process that a test starts to kill that it is this one.
const VICTIM: &str = "PLUMBLINE_TEST_VICTIM";
/// After this the inner process is ended by SIGALRM; the longest test takes some ten seconds on an idle machine.
const LIMIT_SECONDS: u32 = 300;
/// How long an ended test's cgroup may take to be empty.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);

/// Runs a test's body on a [`Node`] of its own.
///
/// The body must be a closure written in the test function itself: the test's name is taken from its type, and the
/// inner process is this same program, asked for that test alone.
#[track_caller]
pub(crate) fn isolated<F: FnOnce(&Node)>(body: F) {
    let name = test_name::<F>();
    if !testing::root_or_skip(name) {
        return;
    }
    match (env::var_os(CGROUP), env::var_os(FOLDER)) {
        (Some(cgroup), Some(folder)) => {
            let victim = env::var_os(VICTIM).is_some();
            if !victim {
                enter(Path::new(&cgroup), Path::new(&folder));
            }
            body(&Node::new(folder.into(), cgroup.into(), name, victim));
        }
        _ => outside(name),
    }
}

/// This program again, for one test; it dies with the thread that starts it.
fn again(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program's path"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    // SAFETY: between fork and exec only prctl is called.
    unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
    command
}

/// Starts the test's body once more, on the same node, as the process that is to be killed ([`Node::is_victim`]).
pub(super) fn start_victim(name: &str) -> Child {
    again(name)
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs itself")
}

/// `kernel::traffic::some_test::{{closure}}` → `traffic::some_test`.
fn test_name<F>() -> &'static str {
    let full = std::any::type_name::<F>();
    full.strip_suffix("::{{closure}}")
        .and_then(|path| path.split_once("::"))
        .map_or_else(
            || panic!("the body of a test is a closure in it, not {full}"),
            |(_, name)| name,
        )
}

#[track_caller]
fn outside(name: &str) {
    let cgroup = OwnCgroup::create();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let mut command = again(name);
    command.env(CGROUP, &cgroup.0).env(FOLDER, folder.path());
    let output = command.output().expect("this program runs itself");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = said(&output.stdout).contains("1 passed");
    assert!(
        output.status.success() && ran,
        "the test's own process ended with {} (SIGALRM: it took more than {LIMIT_SECONDS} s)\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
}

/// Moves this process into the cgroup and this thread into new namespaces; threads it starts follow.
fn enter(cgroup: &Path, folder: &Path) {
    alarm::set(LIMIT_SECONDS);
    fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("new namespaces");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    mount(Some("bpf"), folder, Some("bpf"), MsFlags::empty(), none).expect("a bpffs");
    loopback_up().expect("the loopback device up");
}

/// Brings the loopback device of this thread's network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: SIOCSIFFLAGS reads an ifreq.
    let result = unsafe {
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A cgroup that is removed, with all processes in it, when the test ends in whatever way.
struct OwnCgroup(PathBuf);

impl OwnCgroup {
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mount = cgroup2_mount();
        sweep(&mount);
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

/// Where cgroup v2 is mounted: /sys/fs/cgroup, or elsewhere on a hybrid system.
fn cgroup2_mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // `36 35 98:0 / /mount/point options [tags] - type source options` (proc_pid_mountinfo(5)).
    mounts
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .find(|(_, right)| right.starts_with("cgroup2 "))
        .and_then(|(left, _)| left.split(' ').nth(4))
        .map(|point| Path::new(point).to_owned())
        .expect("a cgroup2 mount; these tests need one")
}
