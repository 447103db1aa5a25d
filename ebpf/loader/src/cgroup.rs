//! A cgroup that programs are attached to.

use std::{
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use crate::{
    Filesystem, HeldProgram, LoaderError, environment,
    sys::{
        cgroup::{self as bpf, Attached},
        cgroup_handle,
    },
};

/// An open folder of a cgroup2 file system.
#[derive(Debug)]
pub struct Cgroup {
    path: Option<PathBuf>,
    folder: OwnedFd,
    id: u64,
}

impl Cgroup {
    /// Opens the folder at a path.
    ///
    /// # Errors
    /// [`LoaderError::WrongFilesystem`] of what is no cgroup (v2).
    pub fn open(path: &Path) -> Result<Self, LoaderError> {
        environment::expect_filesystem(path, Filesystem::Cgroup2)?;
        let folder = File::open(path).map_err(LoaderError::path("open", path))?;
        // A cgroup's id, by which links name it, is its inode number where that has 64 bits.
        let id = folder
            .metadata()
            .map_err(LoaderError::path("look at", path))?
            .ino();
        Ok(Self {
            path: Some(path.to_owned()),
            folder: folder.into(),
            id,
        })
    }

    /// Opens a cgroup of the same hierarchy by its id, also one that no mount shows. That of the hierarchy's root is 1.
    ///
    /// # Errors
    /// ESTALE or ENOENT: there is no such cgroup any more. EPERM without CAP_DAC_READ_SEARCH.
    pub fn by_id(&self, id: u64) -> io::Result<Self> {
        let folder = cgroup_handle::open_cgroup(self.folder.as_fd(), id)?;
        Ok(Self {
            path: None,
            folder,
            id,
        })
    }

    /// The same cgroup by a descriptor of its own.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            folder: self.folder.try_clone()?,
            id: self.id,
        })
    }

    /// Where it was opened; `None`: by its id.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its id, as in the kernel's description of a link, and the number of its folder.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// What is attached to the cgroup itself; `attach_type`: `enum bpf_attach_type` of `linux/bpf.h`. `None`: the kernel
    /// has no such hook, or the cgroup is being removed.
    pub fn attached(&self, attach_type: u32) -> io::Result<Option<Attached>> {
        match bpf::query(self.as_fd(), attach_type, false) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINVAL | libc::ENOENT | libc::ENODEV)
                ) =>
            {
                Ok(None)
            }
            attached => attached.map(Some),
        }
    }

    /// Detaches a program that is attached without a link, by any process; `false`: it is not attached that
    /// way. At a hook that lets only one program in, the kernel detaches whichever is there.
    pub fn detach(&self, attach_type: u32, program: &HeldProgram) -> io::Result<bool> {
        bpf::detach(self.as_fd(), program.as_fd(), attach_type)
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "cgroup {}", self.id),
        }
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
