//! bpf(2), where aya has no wrapper: maps by descriptor, programs and links by id, attachments to cgroups and devices;
//! and netlink, for filters of clsact and for sockets.
//!
//! aya 0.14 lists programs, maps and links, but opens none by an id without an error for what has just gone; its links
//! don't say what they are attached to, `query_tcx` takes a device by its name and leaves out the links, and a program's
//! time of loading is moved to the wall clock. Ids and indices are what programs are told apart by here.
//!
//! `program`, `link`, `map` and `batch` (of entries), `cgroup` (attachments) and `cgroup_handle` (by id), `tcx` and `clsact`
//! (devices), `netlink` and `sock_diag` (sockets), `test_run` and `test_objects` (for tests).
//!
//! Each structure here is one arm of `union bpf_attr` of `linux/bpf.h`, as far as it is used: the kernel takes
//! what it is given the size of and reads the rest as zero. Everything is `repr(C)` without padding.

pub(crate) mod batch;
pub(crate) mod cgroup;
pub(crate) mod cgroup_handle;
pub(crate) mod clsact;
pub(crate) mod link;
pub(crate) mod map;
pub(crate) mod netlink;
pub(crate) mod program;
pub(crate) mod sock_diag;
pub(crate) mod tcx;
#[cfg(feature = "testing")]
pub(crate) mod test_objects;
pub(crate) mod test_run;

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

/// `BPF_F_RDONLY`: a map's descriptor that reads only.
pub(crate) const READ_ONLY: u32 = 1 << 3;

/// `BPF_F_WRONLY`: one that writes only.
pub(crate) const WRITE_ONLY: u32 = 1 << 4;

const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const OBJ_GET_INFO_BY_FD: i32 = 15;

/// Calls bpf(2).
///
/// # Safety
/// `attributes` is the structure that `command` takes, and every address in it is valid for what the command does
/// with it.
unsafe fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the structure is valid for its own size, which is passed along; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    // The kernel returns an int.
    i32::try_from(result)
        .ok()
        .filter(|result| *result >= 0)
        .ok_or_else(io::Error::last_os_error)
}

/// As [`bpf`], for commands that return a descriptor.
///
/// # Safety
/// As [`bpf`]; and the command returns a new descriptor.
unsafe fn bpf_fd<T>(command: i32, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: new, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor as the kernel's structures hold it.
fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The address of a value that the kernel reads or writes.
fn address<T: ?Sized>(pointer: *const T) -> u64 {
    pointer.cast::<()>().addr() as u64
}

#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// Pins a map, program or link on a bpffs. File names there hold no dot.
pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attributes = Object {
        path: address(path.as_ptr()),
        fd: raw(fd),
        flags: 0,
    };
    // SAFETY: the path ends with a zero byte and outlives the call.
    unsafe { bpf(OBJ_PIN, &mut attributes) }.map(drop)
}

/// Opens what is pinned; `flags`: 0 or [`READ_ONLY`].
pub(crate) fn open_pinned(path: &Path, flags: u32) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    let mut attributes = Object {
        path: address(path.as_ptr()),
        fd: 0,
        flags,
    };
    // SAFETY: the path ends with a zero byte and outlives the call; OBJ_GET returns a new descriptor.
    unsafe { bpf_fd(OBJ_GET, &mut attributes) }
}

/// Fills the beginning of a `struct bpf_*_info`.
///
/// # Safety
/// `T` is a beginning of the structure that belongs to what the descriptor is of, valid for any bytes, and the
/// addresses in it are valid to be written to.
unsafe fn info<T>(fd: BorrowedFd<'_>, value: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Info {
        fd: u32,
        length: u32,
        info: u64,
    }
    let length = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let mut attributes = Info {
        fd: raw(fd),
        length,
        info: address(std::ptr::from_mut(value)),
    };
    // SAFETY: the kernel writes at most `length` bytes; the rest is the caller's promise.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }.map(drop)
}

/// Every id after which the kernel knows a next one.
fn ids(command: i32) -> impl Iterator<Item = io::Result<u32>> {
    #[repr(C)]
    struct NextId {
        start: u32,
        next: u32,
        flags: u32,
    }
    let mut last = 0;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let mut attributes = NextId {
            start: last,
            next: 0,
            flags: 0,
        };
        // SAFETY: no addresses.
        match unsafe { bpf(command, &mut attributes) } {
            Ok(_) => {
                last = attributes.next;
                Some(Ok(last))
            }
            Err(error) => {
                done = true;
                (error.raw_os_error() != Some(libc::ENOENT)).then_some(Err(error))
            }
        }
    })
}

/// Opens by id.
fn by_id(command: i32, id: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Id {
        id: u32,
        next: u32,
        flags: u32,
    }
    // SAFETY: no addresses; these commands return a new descriptor.
    unsafe { bpf_fd(command, &mut Id { id, next: 0, flags }) }
}

/// `SO_NETNS_COOKIE` of a new socket: of the calling thread's network namespace.
pub(crate) fn namespace_cookie() -> io::Result<u64> {
    /// Of `asm-generic/socket.h`; libc does not have it for every target.
    const SO_NETNS_COOKIE: libc::c_int = 71;
    cookie(
        std::os::unix::net::UnixDatagram::unbound()?.as_fd(),
        SO_NETNS_COOKIE,
    )
}

/// `SO_COOKIE`: the socket's own number, on this machine.
pub(crate) fn socket_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    cookie(socket, libc::SO_COOKIE)
}

/// An option of a socket that is a number of 64 bits.
fn cookie(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of_val(&cookie)).map_err(io::Error::other)?;
    // SAFETY: a descriptor, and room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}
