//! A lab's folder `/run/plumbline/<name>`: lock, socket, kubeconfigs, logs.
//!
//! The lab's supervisor holds the lock. A folder with a free lock belongs to a dead lab.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

use super::{LIMITS, LabError, check_name, error::io_error};

/// Parent of the folders of all labs.
const ROOT: &str = "/run/plumbline";
/// Suffix of a folder that is being removed: no lab's name has it.
const GONE: &str = ".gone";

/// The folder of one lab, which need not exist.
#[derive(Clone, Debug)]
pub(super) struct LabDir {
    name: String,
    path: PathBuf,
}

/// The lock of a lab, released when this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    /// Never read: it holds the lock.
    _file: File,
}

impl LabDir {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: Path::new(ROOT).join(name),
        }
    }

    /// All labs that have a folder, by name.
    pub(super) fn all() -> Result<Vec<Self>, LabError> {
        let names = named_in(Path::new(ROOT)).map_err(io_error(format!("read {ROOT}")))?;
        Ok(names.iter().map(|name| Self::new(name)).collect())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The supervisor's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Kubeconfig for processes on this host.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Kubeconfig for the agent of a node, and for processes on the node.
    pub(super) fn node_kubeconfig(&self, node: &str) -> PathBuf {
        self.path.join(format!("kubeconfig-{node}"))
    }

    /// The folder of a node, for processes on it; it need not exist.
    pub(super) fn node_folder(&self, node: &str) -> PathBuf {
        self.path.join(format!("node-{node}"))
    }

    /// Kubeconfig for an agent that a case redirects to another API endpoint.
    pub(super) fn redirected_kubeconfig(&self, node: &str) -> PathBuf {
        self.path.join(format!("kubeconfig-{node}-redirected"))
    }

    /// Kubeconfig for the outside client.
    pub(super) fn outside_kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig-outside")
    }

    /// Kubeconfig for the controllers, in the supervisor.
    pub(super) fn controllers_kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig-controllers")
    }

    /// Data and configuration of Kubernetes' own control plane.
    pub(super) fn control_plane(&self) -> PathBuf {
        self.path.join("control-plane")
    }

    /// The log of one of its programs.
    pub(super) fn program_log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    /// Logs of the supervisor, agents and pods.
    pub(super) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The supervisor's log.
    pub(super) fn supervisor_log(&self) -> PathBuf {
        self.logs().join("supervisor.log")
    }

    /// An agent's log.
    pub(super) fn agent_log(&self, node: &str) -> PathBuf {
        self.logs().join(format!("agent-{node}.log"))
    }

    /// State directory of an agent, kept between its runs.
    pub(super) fn agent_state(&self, node: &str) -> PathBuf {
        self.agent_log(node).with_extension("state")
    }

    /// Stdout of a pod's container. A symlink to the file of the newest pod of this name.
    pub(super) fn pod_log(&self, namespace: &str, pod: &str) -> PathBuf {
        self.logs().join(format!("{namespace}_{pod}.log"))
    }

    /// Takes the lock, creating the folder if necessary; `None` if it is held.
    pub(super) fn lock(&self) -> Result<Option<Lock>, LabError> {
        let failed = |error: io::Error| LabError::Host {
            what: format!("lock {}", self.path.display()),
            why: error.to_string(),
            remedy: "Labs keep their folders in /run/plumbline, which must be writable",
        };
        for _ in 0..LIMITS.lock_attempts {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&self.path);
            let mut options = OpenOptions::new();
            options
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .mode(0o600);
            let path = self.lock_file();
            let file = match made.and_then(|()| options.open(&path)) {
                // The folder was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The holder may have removed the file before it released the lock: then this lock protects nothing.
            let same = fs::metadata(&path)
                .is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
            if same {
                return Ok(Some(Lock { _file: file }));
            }
        }
        Err(failed(io::Error::other(
            "its folder is being removed again and again",
        )))
    }

    /// Removes the folder; the caller holds the lock.
    pub(super) fn remove(&self, lock: Lock) -> Result<(), LabError> {
        let failed = |error| io_error(format!("remove {}", self.path.display()))(error);
        // Renamed first, so that a new lab of this name can create its own.
        let gone = Path::new(ROOT).join(format!("{}{}{GONE}", self.name, process::id()));
        fs::rename(&self.path, &gone).map_err(failed)?;
        drop(lock);
        fs::remove_dir_all(&gone).map_err(failed)?;
        // The last lab removes the root as well; it is not empty while another lab exists.
        drop(fs::remove_dir(ROOT));
        Ok(())
    }

    /// Removes folders whose removal was interrupted. One that is being removed now may be removed by either process.
    pub(super) fn remove_gone() {
        for entry in fs::read_dir(ROOT).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(GONE) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
    }

    /// Removes everything in the folder except the lock, which the caller holds.
    pub(super) fn empty(&self) -> Result<(), LabError> {
        let failed = |error| io_error(format!("empty {}", self.path.display()))(error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path == self.lock_file() {
                continue;
            }
            let result = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            result.map_err(failed)?;
        }
        DirBuilder::new().mode(0o700).create(self.logs()).map_err(failed)
    }

    fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }
}

/// Entries of a folder whose names are valid for labs ([`check_name`]), sorted; none if the folder does not exist.
///
/// # Errors
/// The folder can't be read.
pub fn named_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    Ok(names)
}

/// The end of a log, for an error message; empty if there is none.
pub(super) fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LIMITS.tail)))?;
        let mut bytes = Vec::new();
        file.take(LIMITS.tail).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) if !text.trim().is_empty() => format!("\n--- the end of {} ---\n{text}", path.display()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_are_found_by_names_that_a_lab_may_have_in_order() {
        let root = tempfile::tempdir().expect("a folder");
        for name in ["b", "a-1", "b42.gone", "-c", "UP"] {
            fs::create_dir(root.path().join(name)).expect("a folder");
        }
        assert_eq!(named_in(root.path()).expect("a list"), ["a-1", "b"]);
        let none = named_in(&root.path().join("none")).expect("a list");
        assert!(none.is_empty());
        assert!(named_in(Path::new("/dev/null")).is_err());
    }
}
