//! Where the agent's parts are tried over the kernel: a bpffs and a cgroup of their own.

use std::path::{Path, PathBuf};

use lb_loader::Options;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use reference_agent::{datapath::KernelDatapath, dump::dump, maps::kernel};

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
            cgroup: testing::cgroup::mount(),
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
