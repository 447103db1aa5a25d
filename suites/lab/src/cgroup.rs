//! The lab's cgroup v2 subtree.
//!
//! ```text
//!  <cgroup2 mount>/plumbline-lab-<name>/control              the supervisor
//!                                      /control-plane        Kubernetes' own API servers, if they are the lab's
//!                                      /<node>/agent         the agent
//!                                      /<node>/system        processes on the node
//!                                      /<node>/pods/<uid>    a pod
//!                                      /outside              processes of the outside client
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Instant,
};

use cluster::cgroup::mount_point;
use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{AccessFlags, access},
};

use super::{LIMITS, LabError, check_name, error::io_error};

/// Prefix of a lab's folder.
const PREFIX: &str = "plumbline-lab-";
/// The supervisor's own cgroup.
const CONTROL: &str = "control";

/// A cgroup by its path on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    path: PathBuf,
}

/// Mount point of the cgroup v2 hierarchy on this host.
///
/// # Errors
/// [`LabError::NoCgroup2`]; the file system is read-only; mountinfo can't be read.
pub(super) fn hierarchy() -> Result<PathBuf, LabError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(io_error("read /proc/self/mountinfo"))?;
    let mount = mount_point(&mounts).ok_or(LabError::NoCgroup2)?;
    access(&mount, AccessFlags::W_OK).map_err(|errno| LabError::Host {
        what: format!("write to the cgroup2 file system at {}", mount.display()),
        why: errno.to_string(),
        remedy: "Mount it writable; in a container: run it privileged",
    })?;
    Ok(mount)
}

impl Cgroup {
    /// The subtree of a lab, which need not exist.
    pub(super) fn of_lab(hierarchy: &Path, lab: &str) -> Self {
        Self {
            path: hierarchy.join(format!("{PREFIX}{lab}")),
        }
    }

    /// The cgroup of this process, to return to.
    pub(super) fn own(hierarchy: &Path) -> Result<Self, LabError> {
        let text = fs::read_to_string("/proc/self/cgroup").map_err(io_error("read /proc/self/cgroup"))?;
        let own = text
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or("");
        let path = hierarchy.join(own);
        // From another cgroup namespace, or through a bind mount, the path may not exist.
        Ok(Self {
            path: if path.join("cgroup.procs").exists() {
                path
            } else {
                hierarchy.to_owned()
            },
        })
    }

    /// A cgroup below this one, which need not exist.
    pub(super) fn child(&self, name: &str) -> Self {
        Self {
            path: self.path.join(name),
        }
    }

    /// The supervisor's cgroup in a lab's subtree.
    pub(super) fn control(&self) -> Self {
        self.child(CONTROL)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the cgroup and its parents.
    pub(super) fn create(&self) -> Result<(), LabError> {
        fs::create_dir_all(&self.path).map_err(|error| LabError::Host {
            what: format!("make the cgroup {}", self.path.display()),
            why: error.to_string(),
            remedy: "In a container: run it privileged, with the cgroup2 file system mounted writable",
        })
    }

    /// Its `cgroup.procs`, open for a process to move itself.
    pub(super) fn procs(&self) -> Result<File, LabError> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(io_error(format!("open {}", path.display())))
    }

    /// Moves the calling process into it.
    pub(super) fn enter(&self) -> Result<(), LabError> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, "0").map_err(io_error(format!("enter the cgroup {}", self.path.display())))
    }

    /// Whether it or a descendant contains a process.
    pub(super) fn populated(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events")).is_ok_and(|events| is_populated(&events))
    }

    /// Kills every process in the subtree, then removes it; a removed cgroup is no error. Blocks until the processes
    /// have ended.
    ///
    /// The caller must not be in it.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        let mut result = Ok(());
        // Once is enough, unless a process enters between the kill and the removal.
        for _ in 0..LIMITS.cgroup_removals {
            self.kill()?;
            self.wait_empty()?;
            result = remove_below(&self.path);
            if !matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                break;
            }
        }
        result.map_err(io_error(format!("remove the cgroup {}", self.path.display())))
    }

    /// Waits until the subtree contains no process: `cgroup.events` reports it (cgroups(7)).
    fn wait_empty(&self) -> Result<(), LabError> {
        let failed = || {
            io_error(format!(
                "wait for the end of the processes of {}",
                self.path.display()
            ))
        };
        let path = self.path.join("cgroup.events");
        let mut events = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed())?,
        };
        let deadline = Instant::now() + LIMITS.cgroup_empty;
        loop {
            let mut text = String::new();
            let read = events
                .rewind()
                .and_then(|()| events.read_to_string(&mut text).map(drop));
            absent_is_fine(read).map_err(failed())?;
            if !is_populated(&text) {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LabError::Limit {
                    what: format!("the end of the processes of {}", self.path.display()),
                    limit: LIMITS.cgroup_empty,
                    hint: String::new(),
                });
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)], timeout) {
                // EINTR: a signal, such as SIGCHLD for one of these processes.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed()(errno.into())),
            }
        }
    }

    /// Kills every process in the subtree; a removed cgroup is no error.
    pub(super) fn kill(&self) -> Result<(), LabError> {
        let kill = self.path.join("cgroup.kill");
        absent_is_fine(fs::write(&kill, "1")).map_err(|error| LabError::Host {
            what: format!("kill the processes of the cgroup {}", self.path.display()),
            why: error.to_string(),
            remedy: "cgroup.kill needs Linux 5.14 or newer",
        })
    }

    /// Stops every process in the subtree where it is, or lets all go on. They end all the same when they are killed.
    pub(super) fn freeze(&self, is_frozen: bool) -> Result<(), LabError> {
        let value = if is_frozen { "1" } else { "0" };
        let failed = io_error(format!("freeze or thaw the cgroup {}", self.path.display()));
        fs::write(self.path.join("cgroup.freeze"), value).map_err(failed)
    }

    /// Whether it was frozen.
    pub(super) fn is_frozen(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.freeze")).is_ok_and(|value| value.trim() == "1")
    }

    /// Names of labs whose subtree has no supervisor. A lab whose supervisor's cgroup is populated is running,
    /// perhaps in another container.
    pub(super) fn abandoned(hierarchy: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(hierarchy) else {
            return Vec::new();
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_prefix(PREFIX)?.to_owned()))
            .filter(|lab| check_name(lab).is_ok())
            // Only a lab's subtree has this child.
            .filter(|lab| Self::of_lab(hierarchy, lab).control().path().is_dir())
            .filter(|lab| !Self::of_lab(hierarchy, lab).control().populated())
            .collect()
    }
}

fn is_populated(events: &str) -> bool {
    events.lines().any(|line| line == "populated 1")
}

fn remove_below(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    absent_is_fine(fs::remove_dir(folder))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        // ENODEV: the cgroup was removed between the opening of its file and the write.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(())
        }
        other => other,
    }
}
