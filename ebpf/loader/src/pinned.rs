//! What is pinned below a bpffs, without a [`Datapath`](crate::Datapath): read, or removed under its lock.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use nix::fcntl::Flock;

use crate::{Filesystem, LoaderError, environment, map::pins::Pins, sys};

/// The pins of a node's datapath, while no [`Datapath`](crate::Datapath) is open there.
#[derive(Debug)]
pub struct LockedPins {
    pins: Pins,
    _lock: Flock<File>,
}

impl LockedPins {
    /// Takes the lock that an open datapath holds.
    ///
    /// # Errors
    /// [`LoaderError::Busy`] while an agent has the datapath open; [`LoaderError::WrongFilesystem`].
    pub fn lock(bpffs: &Path) -> Result<Self, LoaderError> {
        environment::expect_filesystem(bpffs, Filesystem::Bpf)?;
        let pins = Pins::new(bpffs);
        let lock = environment::lock(pins.root())?;
        Ok(Self { pins, _lock: lock })
    }

    /// Removes everything that is pinned below `plumbline`, by whichever version, and returns the paths. What the pins
    /// alone have kept ends.
    pub fn remove_all(&self) -> Result<Vec<PathBuf>, LoaderError> {
        self.pins.remove_all()
    }
}

/// The load whose links and maps are pinned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PinnedLoad {
    /// Ids of the programs that pinned links attach.
    pub programs: Vec<u32>,
    /// The id of the pinned META.
    pub meta_id: Option<u32>,
}

/// Reads which load is pinned below a bpffs; nothing pinned is no error.
pub fn pinned_load(bpffs: &Path) -> Result<PinnedLoad, LoaderError> {
    let pins = Pins::new(bpffs);
    Ok(PinnedLoad {
        programs: pins.linked_programs()?,
        meta_id: pins.meta_id()?,
    })
}

/// Opens a pinned program, map or link of any owner; a map whose owner forbids writing is opened for reading.
///
/// # Errors
/// ENOENT; EACCES and EPERM also of files that are no such pins.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    match sys::open_pinned(path, 0) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
            sys::open_pinned(path, sys::READ_ONLY)
        }
        opened => opened,
    }
}
