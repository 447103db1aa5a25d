//! A cluster's folder `/var/lib/plumbline/kind/<name>`: lock, kubeconfig, description. Like the containers,
//! it survives a restart of the host.
//!
//! The run that made the cluster holds the lock. A folder with a free lock that is not kept belongs to a dead run.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use lab::{check_name, named_in};
use serde::{Serialize, de::DeserializeOwned};

use super::{KindError, error::io_error};

/// Parent of the folders of all clusters.
const ROOT: &str = "/var/lib/plumbline/kind";
/// The former parent, for clusters that were kept there.
const FORMER: &str = "/run/plumbline-kind";

/// The folder of one cluster, which need not exist.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    name: String,
    path: PathBuf,
}

/// The lock of a cluster, released when this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    /// Never read: it holds the lock.
    _file: File,
}

impl Folder {
    /// # Errors
    /// The name is invalid for [`check_name`].
    pub(super) fn new(name: &str) -> Result<Self, KindError> {
        check_name(name).map_err(|_| KindError::Name {
            found: name.to_owned(),
        })?;
        Ok(Self {
            name: name.to_owned(),
            path: folder_path(Path::new(ROOT), Path::new(FORMER), name),
        })
    }

    /// The folder at this path.
    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self {
            name: "test".to_owned(),
            path: path.to_owned(),
        }
    }

    /// All folders.
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

    /// kind's configuration file.
    pub(super) fn config(&self) -> PathBuf {
        self.path.join("kind.yaml")
    }

    /// The administrator's kubeconfig, for processes on this host.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Creates the folder, and takes its lock; `None` if a run holds it.
    pub(super) fn lock(&self) -> Result<Option<Lock>, KindError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&self.path)
            .map_err(io_error(format!("make {}", self.path.display())))?;
        self.try_lock()
    }

    /// Whether a run holds it; creates nothing.
    pub(super) fn is_held(&self) -> Result<bool, KindError> {
        Ok(self.path.join("lock").exists() && self.try_lock()?.is_none())
    }

    fn try_lock(&self) -> Result<Option<Lock>, KindError> {
        self.hold("lock")
    }

    /// Takes one of its locks by name; `None` if it is held.
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

    /// Whether a dead run has left it.
    pub(super) fn is_left(&self) -> Result<bool, KindError> {
        Ok(!self.is_kept() && self.try_lock()?.is_some())
    }

    /// Whether the cluster was kept.
    pub(super) fn is_kept(&self) -> bool {
        self.path.join("kept").exists()
    }

    /// Marks the cluster as kept.
    pub(super) fn keep(&self) -> Result<(), KindError> {
        self.write("kept", b"")
    }

    /// Removes the folder; a missing one is no error.
    pub(super) fn remove(&self) -> Result<(), KindError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error(format!("remove {}", self.path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a file in it that only root can read.
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

    /// Reads a value from a file; `None` if the file does not exist.
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

    /// Writes a value into a file.
    pub(super) fn put(&self, name: &str, value: &impl Serialize) -> Result<(), KindError> {
        let text = serde_json::to_vec(value).map_err(|error| KindError::Unexpected {
            what: format!("write {}", self.path.join(name).display()),
            why: error.to_string(),
        })?;
        self.write(name, &text)
    }
}

/// Path of the folder of a cluster.
fn folder_path(root: &Path, former: &Path, name: &str) -> PathBuf {
    let (path, before) = (root.join(name), former.join(name));
    if before.exists() && !path.exists() {
        before
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_was_kept_at_the_former_place_stays_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, former) = (folder.path().join("root"), folder.path().join("former"));
        fs::create_dir_all(former.join("a")).expect("a folder");
        assert_eq!(folder_path(&root, &former, "a"), former.join("a"));
        assert_eq!(folder_path(&root, &former, "b"), root.join("b"));
        fs::create_dir_all(root.join("a")).expect("a folder");
        assert_eq!(folder_path(&root, &former, "a"), root.join("a"));
    }
}
