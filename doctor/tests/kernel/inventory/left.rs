//! An earlier load that knows a backend that is gone: the trap.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddrV4,
    path::{Path, PathBuf},
    process::{self, Child},
    thread,
};

use doctor::{Evicted, Found, Inventory, Leftovers, evict};
use lb_abi::Config;
use lb_loader::{Datapath, HeldProgram, Hook, Options, Ownership};

use crate::support::{Node, Protocol, TcpServer, dial};

/// Programs of an earlier load, with maps of their own; attached nowhere, pinned nowhere.
pub(super) struct Earlier {
    pub(super) programs: Vec<(Hook, HeldProgram)>,
    /// Of both loads.
    pub(super) vip: SocketAddrV4,
    /// Only the earlier one knows it.
    pub(super) forgotten: SocketAddrV4,
    /// Where the earlier load sends clients of both.
    pub(super) trap: SocketAddrV4,
}

impl Earlier {
    /// Loads it and takes its pins away.
    pub(super) fn load(options: &Options, node: &Node) -> Self {
        Self::load_and(options, node, |_| ())
    }

    /// The same with a CONFIG that does not say of which network namespace it is.
    pub(super) fn load_unsaid(options: &Options, node: &Node) -> Self {
        Self::load_and(options, node, |datapath| {
            let config = &datapath.maps().config;
            let said = config.get().expect("CONFIG");
            let unsaid = Config {
                node_netns: 0,
                ..said
            };
            config.put(&unsaid).expect("written");
        })
    }

    fn load_and(options: &Options, node: &Node, then: impl FnOnce(&mut Datapath)) -> Self {
        let mut datapath = Datapath::open(options).expect("opened");
        let trap = TcpServer::start(66).address;
        let this = Self {
            programs: datapath
                .programs()
                .map(|(hook, program)| (hook, HeldProgram::by_id(program.id()).expect("it is loaded")))
                .collect(),
            vip: node.service(&datapath, Protocol::Tcp, 80, &[trap]),
            forgotten: node.service(&datapath, Protocol::Tcp, 81, &[trap]),
            trap,
        };
        then(&mut datapath);
        drop(datapath);
        fs::remove_dir_all(options.bpffs.join("plumbline")).expect("unpinned");
        this
    }

    /// Whether a client of this cgroup is misled by it.
    #[track_caller]
    pub(super) fn misleads(&self, frontend: SocketAddrV4) {
        assert_eq!(
            dial(frontend).expect("a connection").0,
            self.trap,
            "the leftover runs"
        );
    }
}

/// The current load, attached, with the service at a backend of its own.
pub(super) fn start(options: &Options, node: &Node) -> (Datapath, SocketAddrV4) {
    let mut datapath = Datapath::open(options).expect("opened");
    assert!(!datapath.adopted());
    let server = TcpServer::start(2).address;
    node.service(&datapath, Protocol::Tcp, 80, &[server]);
    let leftovers = Leftovers::of(&datapath).expect("its cgroup");
    leftovers.attach(&mut datapath).expect("attached");
    (datapath, server)
}

/// What is left, which must be attachments that can be evicted.
#[track_caller]
pub(super) fn leftovers(datapath: &Datapath) -> Vec<Found> {
    let Inventory {
        attachments, blind, ..
    } = crate::leftovers(datapath);
    assert_eq!(blind, []);
    for found in &attachments {
        assert_eq!(found.ownership, Ownership::Earlier, "{found:?}");
    }
    attachments
}

/// Evicts all of it, and sees that it is gone.
#[track_caller]
pub(super) fn evict_all(datapath: &Datapath) -> Vec<Found> {
    let found = leftovers(datapath);
    for found in &found {
        assert_eq!(
            evict(found, false).expect("evicted"),
            Evicted::Detached,
            "{found:?}"
        );
    }
    for found in &found {
        assert_eq!(
            evict(found, false).expect("gone already"),
            Evicted::Gone,
            "{found:?}"
        );
    }
    assert_eq!(leftovers(datapath), []);
    found
}

/// Moves this process, and so all its clients and servers, to a cgroup.
pub(super) fn enter(cgroup: &Path) {
    fs::write(cgroup.join("cgroup.procs"), process::id().to_string()).expect("to enter a cgroup");
}

/// A cgroup below another.
pub(super) fn below(cgroup: &Path, name: &str) -> PathBuf {
    let below = cgroup.join(name);
    fs::create_dir(&below).expect("a cgroup");
    below
}

/// Another process of this test, which has done its part and holds what it has; it ends with the value.
pub(super) struct Other(Child);

impl Other {
    /// Starts it and waits until it says that it is done.
    pub(super) fn start(node: &Node) -> Self {
        let mut child = node.start_victim();
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = said.lines();
        assert!(
            lines.any(|line| line.is_ok_and(|line| line.contains(DONE))),
            "the other process ended before it was done"
        );
        Self(child)
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended by itself only if something failed, which the test says.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DONE: &str = "the other process is done";

/// Says that this, the other process, is done, and keeps what it holds until it is ended.
pub(super) fn hold<T>(held: &T) -> ! {
    println!("{DONE}");
    std::io::stdout().flush().expect("said");
    loop {
        thread::park();
        std::hint::black_box(held);
    }
}

/// The number of a file: of a cgroup's folder, its id.
pub(super) fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    File::open(path)
        .and_then(|file| file.metadata())
        .expect("a folder")
        .ino()
}

/// Makes the thread's cgroup the root of all that it can see of cgroups: a cgroup namespace, and a mount in it in the
/// place of all others. Returns where it is mounted: on the bpffs, which is the test's alone.
pub(super) fn hide_what_is_above(node: &Node) -> PathBuf {
    use nix::{
        mount::{MntFlags, MsFlags, mount, umount2},
        sched::{CloneFlags, unshare},
    };
    unshare(CloneFlags::CLONE_NEWCGROUP).expect("a cgroup namespace");
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("the mounts");
    let shown = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    for point in shown.filter_map(|line| line.split(' ').nth(4)) {
        umount2(point, MntFlags::MNT_DETACH).expect("unmounted");
    }
    let point = node.options.bpffs.join("cgroup");
    fs::create_dir(&point).expect("a folder");
    let kind = CString::new("cgroup2").expect("no zero byte");
    let none = None::<&str>;
    mount(
        Some(kind.as_c_str()),
        &point,
        Some(kind.as_c_str()),
        MsFlags::empty(),
        none,
    )
    .expect("cgroups");
    point
}
