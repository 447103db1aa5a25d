//! The loopback device of a network namespace of a test's own, where no device is up at first.
#![expect(unsafe_code, reason = "ioctl(2) has no safe wrapper for it")]

use std::{io, net::UdpSocket, os::fd::AsRawFd as _};

/// Brings the loopback device of this thread's network namespace up.
///
/// # Errors
/// The kernel's.
pub fn up() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).map_err(io::Error::other)?;
    // SAFETY: SIOCSIFFLAGS reads an ifreq.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
