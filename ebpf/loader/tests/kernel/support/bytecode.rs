//! Programs written by hand, instruction by instruction: `code | registers << 8 | offset << 16 | immediate << 32`.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
};

/// The immediate of an instruction, in its place.
pub(crate) fn immediate(value: i32) -> u64 {
    u64::from(value.cast_unsigned()) << 32
}

/// The offset of a jump or store, in its place.
pub(crate) fn offset(value: i16) -> u64 {
    u64::from(value.cast_unsigned()) << 16
}

/// Loads a program.
pub(crate) fn load(
    name: &str,
    program_type: u32,
    attach_type: u32,
    instructions: &[u64],
) -> io::Result<OwnedFd> {
    const PROG_LOAD: i32 = 5;
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: *const u64,
        license: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let mut padded = [0; 16];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let attributes = Load {
        program_type,
        count: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        instructions: instructions.as_ptr(),
        license: c"GPL".as_ptr(),
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: padded,
        interface: 0,
        attach_type,
    };
    // SAFETY: all addresses are of values that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size_of::<Load>()) };
    let fd = RawFd::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a program of a packet hook once, on this thread, on an empty Ethernet frame.
pub(crate) fn run(program: BorrowedFd<'_>) -> io::Result<()> {
    const PROG_TEST_RUN: i32 = 10;
    #[repr(C)]
    struct TestRun {
        program: RawFd,
        returned: u32,
        size_in: u32,
        size_out: u32,
        data_in: *const u8,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    let frame = [0_u8; 64];
    let mut attributes = TestRun {
        program: program.as_raw_fd(),
        returned: 0,
        size_in: u32::try_from(frame.len()).map_err(io::Error::other)?,
        size_out: 0,
        data_in: frame.as_ptr(),
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: the frame outlives the call, and nothing is written out.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_TEST_RUN,
            &raw mut attributes,
            size_of::<TestRun>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
