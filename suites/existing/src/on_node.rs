//! Starts a process on a node, from a privileged pod: `plumbline on-node`.
//!
//! ```text
//!  exec-in-pod ─ pods/exec ─▶ /plumbline on-node -- ARGV     in the run's pod: hostPID, hostNetwork, privileged
//!                                  │ cgroup, mount and cgroup namespace of process 1
//!                                  ▼
//!                               ARGV, in its place             outside any pod; ends with its stdin, as in pods
//! ```
//!
//! The image contains one program; `plumbline` and `probe` stand for it, at any path, and all other programs are the
//! node's own.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use cluster::{
    NODE_FOLDER,
    cgroup::mount_point,
    spawn::{Placement, become_program, program},
};
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

/// The node's first process: with `hostPID`, it has this number in the pod, too.
const FIRST: &str = "/proc/1";
/// This program, even if another file system is mounted over its file.
const OWN: &str = "/proc/self/exe";
/// Programs of nodes. An image without a shell need not set the variable.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a process can't be started on the node.
#[derive(Debug, thiserror::Error)]
pub enum OnNodeError {
    /// Process 1 is not the node's.
    #[error(
        "process 1 has another {namespace} namespace than this one; expected a pod with hostPID and hostNetwork, whose \
         process 1 is the node's first"
    )]
    NotItsNode {
        /// pid or net.
        namespace: &'static str,
    },
    /// The pod lacks a privilege.
    #[error("failed to {what}: {error}; expected a privileged pod that runs as root")]
    Enter {
        /// The operation.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The node has no cgroup v2.
    #[error(
        "the node has no cgroup v2 hierarchy that its first process is in: {why}; boot it with \
         systemd.unified_cgroup_hierarchy=1, or mount one beside those of version 1"
    )]
    NoCgroup {
        /// The cause.
        why: String,
    },
    /// The program does not exist on the node.
    #[error("failed to start {program} on the node: {error}")]
    Start {
        /// Its name.
        program: String,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Facts of a node that cases need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Root of its cgroup v2 hierarchy.
    pub cgroup: PathBuf,
}

/// Replaces this process by a program on the node: outside of the pod, in the mounts, the network and the cgroup of
/// the node's first process. `argv` is as in [`Cluster::exec`](cluster::Cluster::exec). Returns only if that fails.
///
/// # Errors
/// [`OnNodeError`]; nothing was started.
pub fn on_node(argv: &[String]) -> Result<ExitCode, OnNodeError> {
    let name = argv.first().cloned().unwrap_or_default();
    let start = |error| OnNodeError::Start {
        program: name.clone(),
        error,
    };
    let mut command = program(Path::new(OWN), argv).map_err(start)?;
    // The lab's kubelet has started this on its node already: process 1 is the real host's.
    if env::var_os(NODE_FOLDER).is_some() {
        return become_program(command, Placement::default()).map_err(start);
    }
    let placement = placement()?;
    command.env_clear().env("PATH", PATH);
    become_program(command, placement).map_err(start)
}

/// Reads [`Host`] on the node itself.
///
/// # Errors
/// [`OnNodeError::NoCgroup`].
pub fn host() -> Result<Host, OnNodeError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(entering("read /proc/self/mountinfo"))?;
    let cgroup = mount_point(&mounts).ok_or_else(|| OnNodeError::NoCgroup {
        why: "no cgroup2 file system is mounted".to_owned(),
    })?;
    Ok(Host { cgroup })
}

fn placement() -> Result<Placement, OnNodeError> {
    // If these differ, process 1 is the pod's, or another node's.
    for namespace in ["pid", "net"] {
        if inode("/proc/self", namespace)? != inode(FIRST, namespace)? {
            return Err(OnNodeError::NotItsNode { namespace });
        }
    }
    let open = |kind: &str| {
        let path = format!("{FIRST}/ns/{kind}");
        File::open(&path).map_err(entering(format!("open {path}")))
    };
    // Both files name cgroups relative to the reader's namespace.
    setns(open("cgroup")?.as_fd(), CloneFlags::CLONE_NEWCGROUP)
        .map_err(|errno| entering("enter the node's cgroup namespace")(errno.into()))?;
    let read = |name: &str| {
        let path = format!("{FIRST}/{name}");
        fs::read_to_string(&path).map_err(entering(format!("read {path}")))
    };
    let folder = cgroup_of(&read("cgroup")?, &read("mountinfo")?)?;
    let inside = folder.strip_prefix("/").unwrap_or(&folder);
    let procs = Path::new(FIRST).join("root").join(inside).join("cgroup.procs");
    let cgroup = OpenOptions::new().write(true).open(&procs);
    Ok(Placement {
        mnt: Some(open("mnt")?),
        cgroup: Some(cgroup.map_err(entering(format!("open {}", procs.display())))?),
        ..Placement::default()
    })
}

/// Device and inode, which identify a namespace (namespaces(7)).
fn inode(process: &str, namespace: &str) -> Result<(u64, u64), OnNodeError> {
    let path = format!("{process}/ns/{namespace}");
    let file = fs::metadata(&path).map_err(entering(format!("look at {path}")))?;
    Ok((file.dev(), file.ino()))
}

/// Folder of a process's cgroup, from its `cgroup` (cgroups(7)) and `mountinfo` (proc_pid_mountinfo(5)).
fn cgroup_of(cgroup: &str, mountinfo: &str) -> Result<PathBuf, OnNodeError> {
    let lacks = |why: String| OnNodeError::NoCgroup { why };
    let own = cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or_else(|| {
            lacks("expected a line that begins with 0:: in /proc/1/cgroup, found none".to_owned())
        })?;
    let mount =
        mount_point(mountinfo).ok_or_else(|| lacks("no cgroup2 file system is mounted".to_owned()))?;
    // The mounted part of the hierarchy: all of it, except for a node in a container.
    let root = mountinfo.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| place.split(' ').nth(3))?
    });
    let root = root.unwrap_or("/");
    let below = Path::new(own)
        .strip_prefix(root)
        .map_err(|_| lacks(format!("it is in {own}, and what is mounted begins at {root}")))?;
    Ok(mount.join(below))
}

fn entering(what: impl Into<String>) -> impl FnOnce(io::Error) -> OnNodeError {
    let what = what.into();
    move |error| OnNodeError::Enter { what, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_the_first_process_is_found_in_what_is_mounted() {
        let whole = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let found = cgroup_of("0::/init.scope\n", whole).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/init.scope"));
        let part =
            "59 89 0:38 /docker/cd22 /sys/fs/cgroup/unified rw,nosuid shared:31 - cgroup2 cgroup2 rw\n";
        let text = "4:memory:/docker/cd22/init.scope\n0::/docker/cd22/init.scope\n";
        let found = cgroup_of(text, part).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/init.scope"));
        let found = cgroup_of("0::/docker/cd22\n", part).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_node_without_cgroup_v2_is_told_what_to_do() {
        let only = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        for (cgroup, mounts) in [
            ("4:memory:/a\n", only),
            ("0::/a\n", only),
            ("0::/a\n", "59 89 0:38 /b /c rw - cgroup2 cgroup2 rw\n"),
        ] {
            let error = cgroup_of(cgroup, mounts).unwrap_err().to_string();
            assert!(error.contains("systemd.unified_cgroup_hierarchy=1"), "{error}");
        }
    }
}
