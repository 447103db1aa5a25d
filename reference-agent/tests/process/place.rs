//! Where a test runs: a process of its own, because a cgroup holds processes, in a network namespace where every port
//! is free and nothing can be reached but what the test has put on loopback.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use test_network::{IpNet, Links};
use testing::isolation::Own;

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
pub(crate) fn place() -> Option<Place> {
    Own::of(&testing::current()).map(Place::new)
}

impl Place {
    /// In what a process has for itself.
    pub(crate) fn new(own: Own) -> Self {
        let Own { cgroup, folder } = own;
        let clients = cgroup.join("clients");
        fs::create_dir(&clients).expect("a cgroup");
        fs::write(clients.join("cgroup.procs"), "0").expect("to enter the test's cgroup");
        // Nothing of what is in it is left when the mount namespace goes.
        mount(
            Some("tmpfs"),
            &folder,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .expect("a tmpfs");
        Self { folder, cgroup }
    }

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
        let everything = testing::cgroup::mount();
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
pub(crate) fn loopback(addresses: &[IpAddr]) {
    let links = Links::here().expect("netlink");
    links.up("lo").expect("loopback comes up");
    let addresses: Vec<IpNet> = addresses.iter().map(|&address| address.into()).collect();
    links.addresses("lo", &addresses).expect("addresses");
}
