//! A cgroup v2 hierarchy for the labs of a container alone.

use std::thread;

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};

use super::{LabError, mounts::CGROUPS};

/// Mounts a cgroup v2 hierarchy at /sys/fs/cgroup whose root is the cgroup of this process, in place of what is mounted there.
///
/// Runtimes give privileged containers the hierarchy of the whole node. Labs of two of them would make cgroups of one name there, as
/// labs are named by processes, and each container counts its own from 1: each would take the other's for the remains of a dead lab, and
/// kill it. In its own cgroup a lab also counts as what its container uses, and goes with it.
///
/// # Errors
/// The container is not privileged, or the kernel has no cgroup v2.
pub fn own_hierarchy() -> Result<(), LabError> {
    // Only the thread that mounts needs the namespace, which decides what the root is.
    thread::scope(|scope| {
        let made = scope.spawn(make);
        made.join()
            .unwrap_or_else(|_| Err(host("mount its own cgroup")("the thread panicked".to_owned())))
    })
}

fn make() -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWCGROUP).map_err(host("make a cgroup namespace"))?;
    match umount2(CGROUPS, MntFlags::MNT_DETACH) {
        // Nothing is mounted there.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(host("unmount the node's cgroups")(errno)),
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("cgroup2"), CGROUPS, Some("cgroup2"), flags, None::<&str>)
        .map_err(host("mount its own cgroup"))
}

fn host<E: ToString>(what: &'static str) -> impl FnOnce(E) -> LabError {
    move |why| LabError::Host {
        what: what.to_owned(),
        why: why.to_string(),
        remedy: "Run the container privileged, as root, on a node with cgroup v2",
    }
}
