//! A cgroup that programs are attached to.

use std::{
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use crate::{Filesystem, LoaderError, environment};

/// An open folder of a cgroup2 file system.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    folder: File,
    id: u64,
}

impl Cgroup {
    pub(crate) fn open(path: &Path) -> Result<Self, LoaderError> {
        environment::expect_filesystem(path, Filesystem::Cgroup2)?;
        let folder = File::open(path).map_err(LoaderError::path("open", path))?;
        // A cgroup's id, by which links name it, is its inode number where that has 64 bits.
        let id = folder
            .metadata()
            .map_err(LoaderError::path("look at", path))?
            .ino();
        Ok(Self {
            path: path.to_owned(),
            folder,
            id,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// As in the kernel's description of a link.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
