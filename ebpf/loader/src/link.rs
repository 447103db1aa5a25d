//! Links by id, and links pinned.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use crate::{
    LoaderError,
    sys::{
        self,
        link::{self, Link},
    },
};

/// Every link on this machine, by id; those that end meanwhile are left out.
pub fn links() -> Result<Vec<Link>, LoaderError> {
    link::all().map_err(LoaderError::kernel("list links"))
}

/// A link of any owner, which stays while this value lives; whether it is attached or not.
#[derive(Debug)]
pub struct HeldLink(OwnedFd);

impl HeldLink {
    /// Takes hold of a link by its id; `None`: there is none.
    pub fn find(id: u32) -> io::Result<Option<Self>> {
        match link::open(id) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            link => link.map(|link| Some(Self(link))),
        }
    }

    /// Its program and its target, as of now.
    pub fn describe(&self) -> io::Result<Link> {
        link::describe(self.0.as_fd())
    }

    /// Detaches it, also if other processes hold it or have pinned it.
    ///
    /// # Errors
    /// EOPNOTSUPP of a type of link that this kernel can't detach.
    pub fn detach(&self) -> io::Result<()> {
        link::detach(self.0.as_fd())
    }
}

/// Pins a link, so that it stays when no process holds it. The path is on a bpffs, and nothing is there.
pub fn pin_link(link: &OwnedFd, path: &Path) -> Result<(), LoaderError> {
    sys::pin(link.as_fd(), path).map_err(LoaderError::path("pin", path))
}
