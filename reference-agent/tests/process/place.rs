//! Where a test runs: a process of its own, because a cgroup holds processes, in a network namespace where every port
//! is free and nothing can be reached but what the test has put on loopback.

use std::{
    env, fs,
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal},
    unistd::alarm,
};
use rtnetlink::{LinkUnspec, packet_route::address::AddressHeaderFlags};

/// Tells the inner process its cgroup.
const CGROUP: &str = "PLUMBLINE_TEST_CGROUP";
/// Tells it an empty folder.
const FOLDER: &str = "PLUMBLINE_TEST_FOLDER";
/// Names of the tests' cgroups: this, the test program's process id, a number.
const PREFIX: &str = "reference-agent-process-test-";
/// What the kernel does by and by (empty a cgroup, let an address be used) is done by then.
const KERNEL_LIMIT: Duration = Duration::from_secs(10);

/// A place that goes with the process.
pub(crate) struct Place {
    /// An empty folder that only this process sees the mounts of.
    pub(crate) folder: PathBuf,
    /// The test's own cgroup; this process is in its child `clients`.
    pub(crate) cgroup: PathBuf,
}

/// How a container sees a part of the cgroups alone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// A part of the host's mount.
    Bound,
    /// A mount of its own, in a cgroup namespace whose root is that part (cgroup_namespaces(7)).
    Namespace,
}

/// `None`: this is not the process to go on with; the other one has passed, or was to be left out.
///
/// `limit`: after this the inner process is ended by SIGALRM.
pub(crate) fn place(limit: Duration) -> Option<Place> {
    let name = testing::current();
    let told = |name| env::var_os(name).map(PathBuf::from);
    let (Some(cgroup), Some(folder)) = (told(CGROUP), told(FOLDER)) else {
        if testing::root_or_skip(&name) {
            outside(&name, limit);
        }
        return None;
    };
    // This process is alone with the test.
    prctl::set_pdeathsig(Signal::SIGKILL).expect("a signal");
    alarm::set(u32::try_from(limit.as_secs()).expect("not for ever"));
    let clients = cgroup.join("clients");
    fs::create_dir(&clients).expect("a cgroup");
    fs::write(clients.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    // Nothing of what is in it is left when the mount namespace goes.
    mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
    Some(Place { folder, cgroup })
}

fn outside(name: &str, limit: Duration) {
    let cgroup = OwnCgroup::create();
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env::current_exe().expect("this program's path"))
        .args([
            "--exact",
            name,
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CGROUP, &cgroup.0)
        .env(FOLDER, folder.path())
        .output()
        .expect("this program runs itself");
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        output.status.success() && said.contains("1 passed"),
        "the test's own process ended with {} (SIGALRM: it took more than {limit:?})\n{said}{errors}",
        output.status
    );
    // What it measured.
    print!("{said}");
}

impl Place {
    /// A bpffs in a folder of this name.
    pub(crate) fn bpffs(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).expect("a folder");
        mount(Some("bpf"), &folder, Some("bpf"), MsFlags::empty(), None::<&str>).expect("a bpffs");
        folder
    }

    /// From now on this process is in this cgroup and sees no others than it and those below it; where they are.
    pub(crate) fn show_only(&self, cgroup: &Path, shown: Shown) -> PathBuf {
        let folder = self.folder.join("cgroups");
        fs::create_dir(&folder).expect("a folder");
        let none = None::<&str>;
        let everything = cgroups();
        fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter a cgroup");
        match shown {
            Shown::Bound => mount(Some(cgroup), &folder, none, MsFlags::MS_BIND, none).expect("a bind mount"),
            Shown::Namespace => {
                unshare(CloneFlags::CLONE_NEWCGROUP).expect("a cgroup namespace");
                let kind = Some("cgroup2");
                mount(kind, &folder, kind, MsFlags::empty(), none).expect("the namespace's cgroups");
            }
        }
        umount2(&everything, MntFlags::MNT_DETACH).expect("unmounted, for this process");
        folder
    }

    /// A cgroup of this name in the test's own.
    pub(crate) fn cgroup(&self, name: &str) -> PathBuf {
        let cgroup = self.cgroup.join(name);
        fs::create_dir(&cgroup).expect("a cgroup");
        cgroup
    }
}

/// Brings loopback up, with these addresses beside its own.
pub(crate) async fn loopback(addresses: &[IpAddr]) {
    let (connection, handle, _) = rtnetlink::new_connection().expect("netlink");
    let connection = tokio::spawn(connection);
    let up = LinkUnspec::new_with_index(1).up().build();
    handle.link().set(up).execute().await.expect("loopback comes up");
    for &address in addresses {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let mut add = handle.address().add(1, address, length);
        // Usable at once.
        add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        add.execute().await.expect("an address");
    }
    connection.abort();
    usable(addresses);
}

/// Waits until sockets of this thread's network namespace may have the addresses: one of IPv6 is tentative for a moment,
/// though nobody is asked whether he has it.
pub(crate) fn usable(addresses: &[IpAddr]) {
    let begin = Instant::now();
    for &address in addresses {
        while let Err(error) = UdpSocket::bind((address, 0)) {
            assert!(begin.elapsed() < KERNEL_LIMIT, "{address} is not usable: {error}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Where cgroup v2 is mounted.
fn cgroups() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    // proc_pid_mountinfo(5): `id parent major:minor root point options [tags] - type source options`.
    let mut lines = mounts.lines().filter_map(|line| line.split_once(" - "));
    let (mount, _) = lines
        .find(|(_, filesystem)| filesystem.starts_with("cgroup2 "))
        .expect("cgroup v2");
    mount.split(' ').nth(4).expect("a mount point").into()
}

/// A cgroup that is removed at the end with all that is in it.
struct OwnCgroup(PathBuf);

impl OwnCgroup {
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cgroups = cgroups();
        sweep(&cgroups);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = cgroups.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // Where nothing is left in it, or the kernel is older than 5.14, this does nothing.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let begin = Instant::now();
        while let Err(error) = remove(&self.0) {
            if begin.elapsed() > KERNEL_LIMIT {
                eprintln!("failed to remove {}: {error}", self.0.display());
                return;
            }
            thread::yield_now();
        }
    }
}

/// Removes a cgroup and those below it.
fn remove(cgroup: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}

/// Removes what killed tests have left. Their processes have died with them.
fn sweep(cgroups: &Path) {
    for entry in fs::read_dir(cgroups).expect("cgroups").flatten() {
        let name = entry.file_name();
        let id = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            // Another test may be at it too.
            let _ = remove(&entry.path());
        }
    }
}
