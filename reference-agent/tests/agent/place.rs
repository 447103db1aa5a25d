//! Where the agent's parts are tried over the kernel: a bpffs and a cgroup of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use lb_loader::Options;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use reference_agent::{datapath::KernelDatapath, dump::dump, maps::kernel};

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

/// A place for one datapath: a bpffs that only this thread sees.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    /// Where programs are attached.
    pub(crate) cgroup: PathBuf,
}

impl Place {
    /// `None`: not root, and skipping was asked for.
    pub(crate) fn new(test: &str) -> Option<Self> {
        if !testing::root_or_skip(test) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        // By its network namespace a load knows of which node it is: tests that run at once are different nodes.
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).expect("namespaces");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
        mount(Some("bpf"), folder.path(), Some("bpf"), MsFlags::empty(), none).expect("a bpffs");
        Some(Self {
            folder,
            cgroup: cgroups(),
        })
    }

    pub(crate) fn open(&self) -> KernelDatapath {
        KernelDatapath::open(&self.options()).expect("the datapath opens")
    }

    /// Where its pins go.
    pub(crate) fn bpffs(&self) -> &Path {
        self.folder.path()
    }

    fn options(&self) -> Options {
        Options::new(self.folder.path(), &self.cgroup)
    }

    pub(crate) fn dump(&self) -> String {
        let maps = lb_loader::read_pinned(self.folder.path()).expect("pinned maps");
        dump(&kernel::pinned_contents(&maps).expect("readable maps"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Otherwise the folder could not be removed.
        if let Err(error) = umount2(self.folder.path(), MntFlags::MNT_DETACH) {
            eprintln!("failed to unmount {}: {error}", self.folder.path().display());
        }
    }
}

/// A cgroup that is removed at the end, whatever is attached to it.
pub(crate) struct OwnCgroup(pub(crate) PathBuf);

impl OwnCgroup {
    const PREFIX: &str = "reference-agent-test-";

    pub(crate) fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cgroups = cgroups();
        Self::sweep(&cgroups);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = cgroups.join(format!("{}{}-{number}", Self::PREFIX, process::id()));
        fs::create_dir(&path).expect("a cgroup");
        Self(path)
    }

    /// Removes what killed tests have left.
    fn sweep(cgroups: &Path) {
        for entry in fs::read_dir(cgroups).expect("cgroups").flatten() {
            let name = entry.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_prefix(Self::PREFIX)?.split('-').next());
            if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
                // Another test may be at it too.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("failed to remove {}: {error}", self.0.display());
        }
    }
}
