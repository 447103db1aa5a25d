//! The cgroup in which the agent is alone, so that the programs can tell its sockets from everybody else's.
//!
//! By itself: the cgroup of this process, as /proc/self/cgroup says, if the mount of cgroup v2 shows it and nobody else
//! is in it (a container's, a systemd unit's). Otherwise a child of it, [`CHILD`], which the process moves into. What
//! can't be had is said, and the agent goes on without: it then sees what everybody sees, and has the addresses that it
//! remembers.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    process,
    str::FromStr,
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

/// Name of the cgroup that is made where the process shares its own with others.
pub const CHILD: &str = "plumbline-agent";

/// Which cgroup is the agent's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnCgroup {
    /// The one it runs in, or a child of it.
    #[default]
    Auto,
    /// None: the agent's sockets are treated as everybody's.
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

/// Why the agent has no cgroup of its own.
#[derive(Debug, thiserror::Error)]
pub enum NoOwnCgroup {
    /// Something in /proc or /sys/fs/cgroup can't be read or written.
    #[error("failed to {what} {}: {source}", path.display())]
    Path {
        /// The verb.
        what: &'static str,
        /// Its object.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// This process is in no cgroup of version 2.
    #[error("expected a line 0::/… in /proc/self/cgroup, found none: is cgroup v2 in this kernel?")]
    NotVersion2,
    /// It is in one that no mount shows.
    #[error(
        "no mount of cgroup v2 shows {path}, which this process is in; mount the host's hierarchy into the container"
    )]
    Hidden {
        /// As /proc/self/cgroup has it.
        path: String,
    },
    /// Others are in the child, too.
    #[error("others are in {} already: {others:?}; end them, or name another cgroup with --own-cgroup", path.display())]
    Shared {
        /// The child.
        path: PathBuf,
        /// Ids of their processes; 0: of another pid namespace.
        others: Vec<u32>,
    },
    /// The named one is not where this process is.
    #[error("--own-cgroup {}: this process is not in it; start it there", path.display())]
    Elsewhere {
        /// The named one.
        path: PathBuf,
    },
}

impl OwnCgroup {
    /// Finds or makes it, and moves this process into it if it has to. `None`: [`Off`](Self::Off).
    ///
    /// # Errors
    /// There is none; the agent can go on without.
    pub fn find(&self) -> Result<Option<PathBuf>, NoOwnCgroup> {
        match self {
            Self::Off => Ok(None),
            Self::At(path) => {
                if processes(path)?.contains(&process::id()) {
                    Ok(Some(path.clone()))
                } else {
                    Err(NoOwnCgroup::Elsewhere { path: path.clone() })
                }
            }
            Self::Auto => alone(current()?).map(Some),
        }
    }
}

/// Whether this process is in a cgroup or below it, and so its sockets are seen by the programs there.
///
/// # Errors
/// Neither can be seen.
pub fn covers(cgroup: &Path) -> Result<bool, NoOwnCgroup> {
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

/// Whether a folder is the hierarchy's own root, by its inode's number: what is below is not always shown under it, as
/// in a container with a cgroup namespace of its own.
fn is_top(cgroup: &Path, inode: u64) -> bool {
    const ROOT: u64 = 1;
    inode == ROOT && statfs(cgroup).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Whether a folder is a mount of a cgroup in which the root of this process's cgroup namespace is.
fn is_above_namespace(cgroup: &Path) -> Result<bool, NoOwnCgroup> {
    let mountinfo = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(mountinfo).map_err(failed("read", mountinfo))?;
    Ok(shows_above(cgroup, &mounts))
}

/// Of several mounts at one place the last covers the others. Above the namespace is `/..`, `/../..` and so on.
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
fn current() -> Result<PathBuf, NoOwnCgroup> {
    let read = |path: &'static str| fs::read_to_string(path).map_err(failed("read", path));
    let cgroup = read("/proc/self/cgroup")?;
    let path = cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or(NoOwnCgroup::NotVersion2)?;
    folder(path, &read("/proc/self/mountinfo")?).ok_or_else(|| NoOwnCgroup::Hidden {
        path: path.to_owned(),
    })
}

/// Where a cgroup is, of several mounts the last that shows it: mounts cover earlier ones.
fn folder(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    // proc_pid_mountinfo(5): `id parent major:minor root point options [tags] - type source options`.
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let below = Path::new(cgroup).strip_prefix(root).ok()?;
            // With a cgroup namespace, what is outside of it is `/..`.
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

/// The cgroup itself if nobody else is in it, or its child with this process in it.
fn alone(cgroup: PathBuf) -> Result<PathBuf, NoOwnCgroup> {
    let own = process::id();
    let others = |path: &Path| -> Result<Vec<u32>, NoOwnCgroup> {
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
        return Err(NoOwnCgroup::Shared {
            path: child,
            others: inside,
        });
    }
    fs::write(child.join("cgroup.procs"), own.to_string()).map_err(failed("move into", &child))?;
    Ok(child)
}

/// Ids of the processes that are exactly there.
fn processes(cgroup: &Path) -> Result<Vec<u32>, NoOwnCgroup> {
    let list = cgroup.join("cgroup.procs");
    let text = fs::read_to_string(&list).map_err(failed("read", &list))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn failed(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> NoOwnCgroup {
    let path = path.into();
    move |source| NoOwnCgroup::Path { what, path, source }
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
