//! A node with two datapaths, in namespaces of the calling thread's own.

use std::{fs, path::Path};

use anyhow::Context as _;
use lb_abi::capacity;
use lb_loader::{Datapath, Options};
use lb_packets::test_node::TestNode;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use tempfile::TempDir;

/// Network and mount namespace.
pub(super) struct Node {
    /// Of mount points.
    folder: TempDir,
    _node: TestNode,
}

impl Node {
    /// Makes the namespaces and enters them.
    pub(super) fn enter() -> anyhow::Result<Self> {
        let node = TestNode::enter()?;
        unshare(CloneFlags::CLONE_NEWNS).context("failed to enter a mount namespace of its own")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("failed to make mounts private")?;
        let folder = tempfile::tempdir().context("failed to make a folder for temporary files")?;
        Ok(Self { folder, _node: node })
    }

    /// Opens and attaches a datapath to a cgroup.
    pub(super) fn datapath(&self, name: &str, cgroup: &Path) -> anyhow::Result<Datapath> {
        let bpffs = self.folder.path().join(name);
        fs::create_dir(&bpffs).with_context(|| format!("failed to create {}", bpffs.display()))?;
        mount(Some("bpf"), &bpffs, Some("bpf"), MsFlags::empty(), None::<&str>)
            .context("failed to mount a bpffs")?;
        let options = Options {
            flows: Some(capacity::CONNTRACK_LEAST),
            ..Options::new(bpffs, cgroup)
        };
        let mut datapath = Datapath::open(&options)?;
        datapath.attach()?;
        Ok(datapath)
    }
}

impl Drop for Node {
    /// Mounts go with the namespace; but before that the folder is to be removed, which it is not with mounts in it.
    fn drop(&mut self) {
        for entry in fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            if let Err(error) = umount2(&entry.path(), MntFlags::MNT_DETACH) {
                eprintln!("warning: failed to unmount {}: {error}", entry.path().display());
            }
        }
    }
}
