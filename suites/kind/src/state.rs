//! A cluster's folder `/var/lib/plumbline/kind/<name>`: lock, kubeconfig, what is known of its agents. It lasts as its
//! containers do, beyond the next start of the host.
//!
//! Who holds the lock is the run that made the cluster. A folder whose lock is free, and that is not kept, is what a dead run
//! has left.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use cluster::{ApiEndpoint, Variant};
use lab::{check_name, named_in};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{KindError, error::io_error};

/// Where the folders of all clusters are.
const ROOT: &str = "/var/lib/plumbline/kind";
/// Where they were before: clusters that were kept then have theirs there.
const FORMER: &str = "/run/plumbline-kind";

/// The folder of one cluster, which need not be there.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    name: String,
    path: PathBuf,
}

/// The lock of a cluster; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    /// Held, never used.
    _file: File,
}

/// What is known of the agent of a node beyond what its pod says: pods come and go with each stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentRecord {
    /// Starts in pods that are gone.
    pub(super) starts: u32,
    /// How the last of them ended.
    pub(super) last_exit: Option<String>,
    /// In which configuration it was started last, if in another than its target's own.
    pub(super) variant: Option<Variant>,
    /// How a case leads it to the API, if one does.
    pub(super) way: Option<ApiEndpoint>,
}

impl Folder {
    /// # Errors
    /// The name is none, as [`check_name`] has it.
    pub(super) fn new(name: &str) -> Result<Self, KindError> {
        check_name(name).map_err(|_| KindError::Name {
            found: name.to_owned(),
        })?;
        Ok(Self {
            name: name.to_owned(),
            path: place(Path::new(ROOT), Path::new(FORMER), name),
        })
    }

    /// One that is there, wherever it is.
    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self {
            name: "test".to_owned(),
            path: path.to_owned(),
        }
    }

    /// Those of all clusters.
    pub(super) fn all() -> Result<Vec<Self>, KindError> {
        let mut all = BTreeSet::new();
        for root in [ROOT, FORMER] {
            all.extend(named_in(Path::new(root)).map_err(io_error(format!("read {root}")))?);
        }
        all.iter().map(|name| Self::new(name)).collect()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Kind's configuration, as it was made.
    pub(super) fn config(&self) -> PathBuf {
        self.path.join("kind.yaml")
    }

    /// The administrator's kubeconfig, for processes on this host.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Makes the folder, and holds it; `None` if a run holds it already.
    pub(super) fn lock(&self) -> Result<Option<Lock>, KindError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&self.path)
            .map_err(io_error(format!("make {}", self.path.display())))?;
        self.try_lock()
    }

    /// Whether a run holds it; makes nothing.
    pub(super) fn is_held(&self) -> Result<bool, KindError> {
        Ok(self.path.join("lock").exists() && self.try_lock()?.is_none())
    }

    fn try_lock(&self) -> Result<Option<Lock>, KindError> {
        self.hold("lock")
    }

    /// Holds a lock of it by its name; `None` if somebody does.
    pub(super) fn hold(&self, name: &str) -> Result<Option<Lock>, KindError> {
        let path = self.path.join(name);
        let failed = || io_error(format!("lock {}", path.display()));
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed()(error)),
        }
    }

    /// Whether a run that is dead has left it.
    pub(super) fn is_left(&self) -> Result<bool, KindError> {
        Ok(!self.is_kept() && self.try_lock()?.is_some())
    }

    /// Whether it belongs to nobody's run.
    pub(super) fn is_kept(&self) -> bool {
        self.path.join("kept").exists()
    }

    /// From now on it belongs to nobody's run.
    pub(super) fn keep(&self) -> Result<(), KindError> {
        self.write("kept", b"")
    }

    /// Removes it; that it is gone is no error.
    pub(super) fn remove(&self) -> Result<(), KindError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error(format!("remove {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file of it, for root alone.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), KindError> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        let opened = options
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path);
        opened
            .and_then(|mut file| file.write_all(bytes))
            .map_err(io_error(format!("write {}", path.display())))
    }

    /// What is known of a node's agent.
    pub(super) fn agent(&self, node: &str) -> Result<AgentRecord, KindError> {
        Ok(self.read(&agent_file(node))?.unwrap_or_default())
    }

    /// Notes it.
    pub(super) fn set_agent(&self, node: &str, record: &AgentRecord) -> Result<(), KindError> {
        self.put(&agent_file(node), record)
    }

    /// Reads a value from a file of it; `None` if there is no such file.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, KindError> {
        let path = self.path.join(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(io_error(format!("read {}", path.display())))?,
        };
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|error| KindError::Unexpected {
            what: format!("read {}", path.display()),
            why: error.to_string(),
        })
    }

    /// Writes a value into a file of it.
    pub(super) fn put(&self, name: &str, value: &impl Serialize) -> Result<(), KindError> {
        let text = serde_json::to_vec(value).map_err(|error| KindError::Unexpected {
            what: format!("write {}", self.path.join(name).display()),
            why: error.to_string(),
        })?;
        self.write(name, &text)
    }
}

/// Where the folder of a cluster is, or is to be.
fn place(root: &Path, former: &Path, name: &str) -> PathBuf {
    let (path, before) = (root.join(name), former.join(name));
    if before.exists() && !path.exists() {
        before
    } else {
        path
    }
}

fn agent_file(node: &str) -> String {
    format!("agent-{node}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_was_kept_at_the_former_place_stays_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, former) = (folder.path().join("root"), folder.path().join("former"));
        fs::create_dir_all(former.join("a")).expect("a folder");
        assert_eq!(place(&root, &former, "a"), former.join("a"));
        assert_eq!(place(&root, &former, "b"), root.join("b"));
        fs::create_dir_all(root.join("a")).expect("a folder");
        assert_eq!(place(&root, &former, "a"), root.join("a"));
    }
}
