//! A node's mount namespace: its own /sys, a fresh bpffs, its cgroup as the root of the cgroup v2 hierarchy.
#![expect(unsafe_code, reason = "open_tree(2) and move_mount(2) have no safe wrapper")]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    thread,
};

use nix::{
    errno::Errno,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use super::{LabError, cgroup::Cgroup, error::io_error, netns::NetNs};

/// Mount point of the node's bpffs.
pub(super) const BPFFS: &str = "/sys/fs/bpf";
/// Mount point of the node's cgroup v2 hierarchy.
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// Creates a node's mount namespace, which lives as long as the returned descriptor or a process in it.
///
/// The host's own mount namespace does not change.
pub(super) fn create(net: &NetNs, cgroup: &Cgroup) -> Result<File, LabError> {
    thread::scope(|scope| {
        let made = scope.spawn(|| make(net, cgroup));
        made.join()
            .unwrap_or_else(|_| Err(host("make a mount namespace")("the thread panicked".to_owned())))
    })
}

fn make(net: &NetNs, cgroup: &Cgroup) -> Result<File, LabError> {
    // sysfs shows the network namespace of the mounting process.
    setns(net.file().as_fd(), CloneFlags::CLONE_NEWNET).map_err(host("enter a node's network namespace"))?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(host("make a mount namespace"))?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(host("make its mounts private"))?;

    // Detaches the host's /sys with all mounts below it, so that mountinfo lists the node's cgroup2 mount alone.
    let hierarchy = clone_tree(cgroup.path()).map_err(host("clone the mount of a node's cgroup"))?;
    umount2("/sys", MntFlags::MNT_DETACH).map_err(host("unmount the host's /sys in a node"))?;
    let fresh = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("sysfs"), "/sys", Some("sysfs"), fresh, None::<&str>).map_err(host("mount a node's /sys"))?;
    mount(Some("bpf"), BPFFS, Some("bpf"), fresh, Some("mode=0700")).map_err(|errno| LabError::Host {
        what: format!("mount a bpf file system at {BPFFS}"),
        why: errno.to_string(),
        remedy: "The lab needs CONFIG_BPF_SYSCALL",
    })?;
    attach_tree(&hierarchy, CGROUPS).map_err(host("attach a node's cgroup at /sys/fs/cgroup"))?;
    File::open("/proc/thread-self/ns/mnt").map_err(io_error("open a mount namespace"))
}

/// Clones the mount of a folder, not attached yet.
fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the path is a NUL-terminated string that lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = Errno::result(fd)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn attach_tree(tree: &OwnedFd, target: &str) -> io::Result<()> {
    let target = std::ffi::CString::new(target)?;
    // SAFETY: both paths are NUL-terminated strings that live through the call; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

fn host<E: ToString>(what: &'static str) -> impl FnOnce(E) -> LabError {
    move |why| LabError::Host {
        what: what.to_owned(),
        why: why.to_string(),
        remedy: "Run as root; in a container: privileged",
    }
}
