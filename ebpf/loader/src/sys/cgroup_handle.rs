//! Cgroups by id: folders that no path leads to.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

/// Opens the folder of a cgroup by its id, wherever in the hierarchy it is; `beside`: any file of the hierarchy.
///
/// # Errors
/// ESTALE: there is no such cgroup any more. EPERM without CAP_DAC_READ_SEARCH.
pub(crate) fn open_cgroup(beside: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    /// `FILEID_KERNFS` of `linux/exportfs.h`.
    const KERNFS: i32 = 0xfe;
    /// `struct file_handle` with room for the id.
    #[repr(C)]
    struct Handle {
        size: u32,
        kind: i32,
        id: [u8; 8],
    }
    let handle = Handle {
        size: 8,
        kind: KERNFS,
        id: id.to_ne_bytes(),
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the handle is valid for its own size, and outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            beside.as_raw_fd(),
            &raw const handle,
            flags,
        )
    };
    let fd = RawFd::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: new, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
