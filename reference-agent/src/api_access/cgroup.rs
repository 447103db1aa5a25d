//! The agent's own cgroup, by which the programs recognise its sockets.
//!
//! By default it is the cgroup of this process (/proc/self/cgroup), if a mount of cgroup v2 shows it and no other process
//! is in it, as in a container or systemd unit. Otherwise it is a child of it, [`CHILD`], into which the process moves.
//! Without a cgroup of its own the agent goes on, and depends on the addresses that it remembers.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    process,
    str::FromStr,
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

/// Name of the cgroup that is made if other processes are in the agent's.
pub const CHILD: &str = "plumbline-agent";

/// The choice of the agent's own cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnCgroup {
    /// The one it runs in, or a child of it.
    #[default]
    Auto,
    /// None: the agent's sockets are treated as all others.
    Off,
    /// This one; the agent must have been started in it.
    At(PathBuf),
}

impl FromStr for OwnCgroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            path if path.starts_with('/') => Ok(Self::At(path.into())),
            other => Err(format!(
                "expected auto, off, or the path of a cgroup folder, found {other:?}"
            )),
        }
    }
}

/// Why there is no cgroup of the agent's own.
#[derive(Debug, thiserror::Error)]
pub enum OwnCgroupError {
    /// Something in /proc or /sys/fs/cgroup can't be read or written.
    #[error("failed to {what} {}: {source}", path.display())]
    Path {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// This process is in no cgroup v2.
    #[error("expected a line 0::/… in /proc/self/cgroup, found none: is cgroup v2 in this kernel?")]
    NotVersion2,
    /// No mount shows its cgroup.
    #[error(
        "no mount of cgroup v2 shows {path}, which this process is in; mount the host's hierarchy into the container"
    )]
    Hidden {
        /// As /proc/self/cgroup has it.
        path: String,
    },
    /// Other processes are in the child.
    #[error("others are in {} already: {others:?}; end them, or name another cgroup with --own-cgroup", path.display())]
    Shared {
        /// The child.
        path: PathBuf,
        /// Ids of their processes; 0: of another pid namespace.
        others: Vec<u32>,
    },
    /// This process is not in the given cgroup.
    #[error("--own-cgroup {}: this process is not in it; start it there", path.display())]
    Elsewhere {
        /// The given cgroup.
        path: PathBuf,
    },
}

impl OwnCgroup {
    /// Finds or makes it, and moves this process into it if needed. `None`: [`Off`](Self::Off).
    ///
    /// # Errors
    /// There is none; the agent can run without.
    pub fn find(&self) -> Result<Option<PathBuf>, OwnCgroupError> {
        match self {
            Self::Off => Ok(None),
            Self::At(path) => {
                if processes(path)?.contains(&process::id()) {
                    Ok(Some(path.clone()))
                } else {
                    Err(OwnCgroupError::Elsewhere { path: path.clone() })
                }
            }
            Self::Auto => exclusive(current()?).map(Some),
        }
    }
}

/// Whether this process is in a cgroup or below it, so that programs there run for its sockets.
///
/// # Errors
/// /proc or the cgroup can't be read.
pub fn covers(cgroup: &Path) -> Result<bool, OwnCgroupError> {
    let inode = |path: &Path| {
        fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .map_err(failed("look at", path))
    };
    let wanted = inode(cgroup)?;
    if is_top(cgroup, wanted.1) || is_above_namespace(cgroup)? {
        return Ok(true);
    }
    for above in current()?.ancestors() {
        let found = inode(above)?;
        if found == wanted {
            return Ok(true);
        }
        if found.0 != wanted.0 {
            break;
        }
    }
    Ok(false)
}

/// Whether a folder is the root of the hierarchy, by its inode number. In a container with its own cgroup namespace, its
/// descendants are not shown below it.
fn is_top(cgroup: &Path, inode: u64) -> bool {
    const ROOT: u64 = 1;
    inode == ROOT && statfs(cgroup).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Whether a folder is a mount of a cgroup in which the root of this process's cgroup namespace is.
fn is_above_namespace(cgroup: &Path) -> Result<bool, OwnCgroupError> {
    let mountinfo = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(mountinfo).map_err(failed("read", mountinfo))?;
    Ok(shows_above(cgroup, &mounts))
}

/// The last mount at a place covers the others. Above the namespace is `/..`, `/../..` and so on.
fn shows_above(cgroup: &Path, mountinfo: &str) -> bool {
    let mut mounts = mountinfo.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (Path::new(&unescape(point)) == cgroup).then_some((root, filesystem))
    });
    mounts.next_back().is_some_and(|(root, filesystem)| {
        let mut parts = Path::new(root).components().skip(1).peekable();
        filesystem.starts_with("cgroup2 ")
            && parts.peek().is_some()
            && parts.all(|part| part == Component::ParentDir)
    })
}

/// The folder of the cgroup that this process is in.
fn current() -> Result<PathBuf, OwnCgroupError> {
    let read = |path: &'static str| fs::read_to_string(path).map_err(failed("read", path));
    let cgroup = read("/proc/self/cgroup")?;
    let path = cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or(OwnCgroupError::NotVersion2)?;
    folder(path, &read("/proc/self/mountinfo")?).ok_or_else(|| OwnCgroupError::Hidden {
        path: path.to_owned(),
    })
}

/// The folder of a cgroup, in the last mount that shows it.
fn folder(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    // proc_pid_mountinfo(5): `id parent major:minor root point options [tags] - type source options`.
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let below = Path::new(cgroup).strip_prefix(root).ok()?;
            // Cgroups outside of the namespace begin with `/..`.
            let inside = below
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
            let shown = filesystem.starts_with("cgroup2 ") && inside;
            shown.then(|| Path::new(&unescape(point)).join(below))
        })
        .next_back()
}

/// Spaces, tabs, newlines and backslashes are octal there.
fn unescape(point: &str) -> String {
    point
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The cgroup itself if no other process is in it; otherwise its child, with this process in it.
fn exclusive(cgroup: PathBuf) -> Result<PathBuf, OwnCgroupError> {
    let own = process::id();
    let others = |path: &Path| -> Result<Vec<u32>, OwnCgroupError> {
        Ok(processes(path)?.into_iter().filter(|id| *id != own).collect())
    };
    if others(&cgroup)?.is_empty() {
        return Ok(cgroup);
    }
    let child = cgroup.join(CHILD);
    match fs::create_dir(&child) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make the cgroup", &child)(error));
        }
        _ => {}
    }
    let inside = others(&child)?;
    if !inside.is_empty() {
        return Err(OwnCgroupError::Shared {
            path: child,
            others: inside,
        });
    }
    fs::write(child.join("cgroup.procs"), own.to_string()).map_err(failed("move into", &child))?;
    Ok(child)
}

/// Ids of the processes in a cgroup, not below it.
fn processes(cgroup: &Path) -> Result<Vec<u32>, OwnCgroupError> {
    let list = cgroup.join("cgroup.procs");
    let text = fs::read_to_string(&list).map_err(failed("read", &list))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn failed(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OwnCgroupError {
    let path = path.into();
    move |source| OwnCgroupError::Path { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw";

    #[track_caller]
    fn check(cgroup: &str, mountinfo: &str, expected: Option<&str>) {
        assert_eq!(folder(cgroup, mountinfo), expected.map(PathBuf::from));
    }

    #[test]
    fn a_cgroup_is_found_under_whatever_mount_shows_it() {
        check("/", HYBRID, Some("/sys/fs/cgroup/unified/"));
        check("/a/b", HYBRID, Some("/sys/fs/cgroup/unified/a/b"));
        let node = "41 31 0:38 /lab/node1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        check("/lab/node1/agent", node, Some("/sys/fs/cgroup/agent"));
        check("/lab/node2/agent", node, None);
        check("/lab/node10/agent", node, None);
        check("/../other", HYBRID, None);
        check(
            "/a",
            "32 31 0:29 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu",
            None,
        );
        let spaced = "41 31 0:38 / /my\\040cgroups rw - cgroup2 cgroup2 rw";
        check("/a", spaced, Some("/my cgroups/a"));
        let twice = format!("{HYBRID}\n50 31 0:38 / /host/cgroup rw - cgroup2 cgroup2 rw");
        check("/a", &twice, Some("/host/cgroup/a"));
    }

    #[test]
    fn a_mount_from_above_the_namespace_covers_this_process() {
        let container = "\
50 49 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw
61 49 0:27 /../../.. /host/cgroup rw master:9 - cgroup2 cgroup2 rw
62 49 0:27 /../beside /beside rw - cgroup2 cgroup2 rw
63 49 0:30 /.. /other rw - tmpfs tmpfs rw";
        for (cgroup, covers) in [
            ("/host/cgroup", true),
            ("/host/cgroup/kubepods", false),
            ("/sys/fs/cgroup", false),
            ("/beside", false),
            ("/other", false),
            ("/nowhere", false),
        ] {
            assert_eq!(shows_above(Path::new(cgroup), container), covers, "{cgroup}");
        }
        let covered = format!("{container}\n70 49 0:27 / /host/cgroup rw - cgroup2 cgroup2 rw");
        assert!(!shows_above(Path::new("/host/cgroup"), &covered));
    }

    #[test]
    fn an_own_cgroup_is_auto_off_or_a_path() {
        assert_eq!("auto".parse(), Ok(OwnCgroup::Auto));
        assert_eq!("off".parse(), Ok(OwnCgroup::Off));
        assert_eq!(
            "/sys/fs/cgroup/a".parse(),
            Ok(OwnCgroup::At("/sys/fs/cgroup/a".into()))
        );
        let error = "agent".parse::<OwnCgroup>().expect_err("no path");
        assert!(error.contains("expected auto, off"), "{error}");
    }
}
