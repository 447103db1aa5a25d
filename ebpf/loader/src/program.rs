//! Programs by id.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use lb_abi::{MAGIC, Meta};

use crate::{
    LoaderError,
    sys::{self, READ_ONLY, map::ARRAY, program::Description},
};

/// A program of anybody's, kept loaded for as long as this value lives.
#[derive(Debug)]
pub struct HeldProgram {
    fd: OwnedFd,
    description: Description,
}

impl HeldProgram {
    /// Takes hold of a program by its id.
    ///
    /// # Errors
    /// [`LoaderError::Kernel`] with ENOENT if there is none.
    pub fn by_id(id: u32) -> Result<Self, LoaderError> {
        Self::open(id).map_err(LoaderError::kernel(format!("open program {id}")))
    }

    /// As [`by_id`](Self::by_id); `None`: there is none.
    pub(crate) fn find(id: u32) -> Result<Option<Self>, LoaderError> {
        match Self::open(id) {
            Ok(program) => Ok(Some(program)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(LoaderError::kernel(format!("open program {id}"))(error)),
        }
    }

    fn open(id: u32) -> io::Result<Self> {
        let fd = sys::program::open(id)?;
        let description = sys::program::describe(fd.as_fd())?;
        Ok(Self { fd, description })
    }

    /// Of a descriptor.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, LoaderError> {
        let description =
            sys::program::describe(fd.as_fd()).map_err(LoaderError::kernel("describe a program"))?;
        Ok(Self { fd, description })
    }

    /// Its id; not used again while the program lives.
    pub const fn id(&self) -> u32 {
        self.description.id
    }

    /// Its name as the kernel keeps it: at most 15 bytes, chosen by its loader, not unique.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Hash of its instructions: equal for two loads of the same program.
    pub const fn tag(&self) -> [u8; 8] {
        self.description.tag
    }

    /// How many instructions the verifier has walked through to accept it; `None` on kernels before 5.16.
    pub(crate) fn processed(&self) -> Option<u32> {
        Some(self.description.processed).filter(|processed| *processed != 0)
    }

    /// Ids of the maps it uses.
    pub fn map_ids(&self) -> &[u32] {
        &self.description.map_ids
    }

    /// Whether it is of a Plumbline datapath, of any load and version: one of its maps is a META with our magic.
    pub fn is_ours(&self) -> Result<bool, LoaderError> {
        for id in self.map_ids() {
            if is_meta(*id).map_err(LoaderError::kernel(format!(
                "read map {id} of program {}",
                self.id()
            )))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl AsFd for HeldProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a map is a META of any version: an array whose first element begins with the magic.
fn is_meta(id: u32) -> io::Result<bool> {
    /// Versions to come may be longer; a page is more than any will need, and an array of larger values is not one.
    const LONGEST: usize = 4096;
    let map = match sys::map::open(id, READ_ONLY) {
        Ok(map) => map,
        // Its owner lets nobody read it, which ours never do.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(false),
        Err(error) => return Err(error),
    };
    let (layout, _) = sys::map::describe(map.as_fd())?;
    let size = usize::try_from(layout.value_size).unwrap_or(usize::MAX);
    if layout.map_type != ARRAY || !(size_of::<Meta>()..=LONGEST).contains(&size) {
        return Ok(false);
    }
    let key = 0_u32;
    let mut value = vec![0_u8; size];
    // SAFETY: an array's key is 4 bytes, and the value has the map's size.
    let found = unsafe { sys::map::lookup(map.as_fd(), &raw const key, value.as_mut_ptr()) }?;
    Ok(found && value.starts_with(&MAGIC))
}
