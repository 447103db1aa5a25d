//! Socket options for which libraries have no safe wrapper.
#![expect(unsafe_code, reason = "setsockopt(2)")]

use std::{
    ffi::c_int,
    io, mem,
    os::fd::{AsFd, AsRawFd as _},
    ptr,
};

use nix::libc;

/// Sets an option to a value of the type that the kernel reads for it.
///
/// # Errors
/// Of setsockopt(2).
pub(crate) fn set<T: Copy>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(mem::size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes of the value, which are there.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
