//! Programs by id; the one program that the loader writes by hand; and what the verifier says of others.

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use super::{address, bpf_fd, by_id, ids, info, raw};

const LOAD: i32 = 5;
const GET_NEXT_ID: i32 = 11;
const GET_FD_BY_ID: i32 = 13;
/// `BPF_FUNC_set_retval`.
const SET_RETVAL: i32 = 187;

/// What the kernel tells of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    pub(crate) id: u32,
    /// `enum bpf_prog_type`.
    pub(crate) program_type: u32,
    pub(crate) tag: [u8; 8],
    pub(crate) name: String,
    /// Since the machine started.
    pub(crate) loaded_at: Duration,
    pub(crate) uid: u32,
    pub(crate) map_ids: Vec<u32>,
    /// How many instructions the verifier has walked through; 0 of kernels before 5.16.
    pub(crate) processed: u32,
}

/// Ids of all programs on this machine, rising.
pub(crate) fn all() -> impl Iterator<Item = io::Result<u32>> {
    ids(GET_NEXT_ID)
}

/// Opens a program by id.
pub(crate) fn open(id: u32) -> io::Result<OwnedFd> {
    by_id(GET_FD_BY_ID, id, 0)
}

/// Describes an open program.
pub(crate) fn describe(program: BorrowedFd<'_>) -> io::Result<Description> {
    #[repr(C)]
    #[derive(Default)]
    struct ProgramInfo {
        program_type: u32,
        id: u32,
        tag: [u8; 8],
        jited_length: u32,
        translated_length: u32,
        jited: u64,
        translated: u64,
        load_time: u64,
        created_by: u32,
        map_count: u32,
        map_ids: u64,
        name: [u8; 16],
        /// From `ifindex` to `recursion_misses`.
        unused: [u64; 17],
        processed: u32,
        end: u32,
    }
    const _: () = assert!(std::mem::offset_of!(ProgramInfo, processed) == 216);
    let mut counted = ProgramInfo::default();
    // SAFETY: the beginning of bpf_prog_info; its addresses are null and its counts zero, so that nothing is written
    // through them.
    unsafe { info(program, &mut counted) }?;
    // A loaded program's maps are fixed, so that the count of the first call is that of the second.
    let mut map_ids = vec![0; usize::try_from(counted.map_count).unwrap_or(0)];
    let mut filled = ProgramInfo {
        map_count: counted.map_count,
        map_ids: address(map_ids.as_mut_ptr()),
        ..ProgramInfo::default()
    };
    // SAFETY: as above, and there is room for `map_count` ids.
    unsafe { info(program, &mut filled) }?;
    let name = filled.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Description {
        id: filled.id,
        program_type: filled.program_type,
        tag: filled.tag,
        name: String::from_utf8_lossy(name).into_owned(),
        loaded_at: Duration::from_nanos(filled.load_time),
        uid: filled.created_by,
        map_ids,
        processed: filled.processed,
    })
}

#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    types: u32,
    function_record: u32,
    functions: u64,
    function_count: u32,
    end: u32,
}

impl Load {
    const NONE: Self = Self {
        program_type: 0,
        instruction_count: 0,
        instructions: 0,
        license: 0,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        interface: 0,
        attach_type: 0,
        types: 0,
        function_record: 0,
        functions: 0,
        function_count: 0,
        end: 0,
    };
}

/// As in the object: it grants all helpers.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// What kind a program is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `BPF_PROG_TYPE_SCHED_CLS`.
    Packet,
    /// `BPF_PROG_TYPE_CGROUP_SOCK`.
    Socket,
    /// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`.
    SocketAddress,
}

impl Kind {
    const fn number(self) -> u32 {
        match self {
            Self::Packet => 3,
            Self::Socket => 9,
            Self::SocketAddress => 18,
        }
    }
}

/// What a program's functions are, in the types of its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types<'a> {
    /// The types, loaded.
    pub(crate) types: BorrowedFd<'a>,
    /// A record for each function.
    pub(crate) functions: &'a [u8],
    /// Bytes of a record.
    pub(crate) record: usize,
}

/// Loads types (BTF).
pub(crate) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    const BTF_LOAD: i32 = 18;
    #[repr(C)]
    struct LoadTypes {
        types: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        end: u32,
    }
    let mut attributes = LoadTypes {
        types: address(types.as_ptr()),
        log: 0,
        size: u32::try_from(types.len()).map_err(io::Error::other)?,
        log_size: 0,
        log_level: 0,
        end: 0,
    };
    // SAFETY: the types outlive the call; returns a new descriptor.
    unsafe { bpf_fd(BTF_LOAD, &mut attributes) }
}

/// Loads a program for what the verifier says of it at the end, and lets it go.
pub(crate) fn log(
    kind: Kind,
    attach_type: u32,
    instructions: &[[u8; 8]],
    types: Option<Types<'_>>,
) -> io::Result<String> {
    /// `BPF_LOG_STATS`.
    const STATISTICS: u32 = 4;
    /// A few lines, and one for each function.
    const SIZE: usize = 64 * 1024;
    let size = |length: usize| u32::try_from(length).map_err(io::Error::other);
    let mut said = vec![0_u8; SIZE];
    let mut attributes = Load {
        program_type: kind.number(),
        instruction_count: size(instructions.len())?,
        instructions: address(instructions.as_ptr()),
        license: address(LICENSE.as_ptr()),
        log_level: STATISTICS,
        log_size: size(SIZE)?,
        log: address(said.as_mut_ptr()),
        attach_type,
        ..Load::NONE
    };
    if let Some(Types {
        types,
        functions,
        record,
    }) = types
    {
        attributes.types = raw(types);
        attributes.function_record = size(record)?;
        attributes.functions = address(functions.as_ptr());
        attributes.function_count = size(functions.len() / record.max(1))?;
    }
    // SAFETY: instructions, license and functions outlive the call, and there is room for `log_size` bytes; returns a
    // new descriptor.
    drop(unsafe { bpf_fd(LOAD, &mut attributes) }?);
    let said = said.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(said).into_owned())
}

/// One instruction: `struct bpf_insn`.
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: Self = Self::new(0x95, 0, 0);

    const fn new(code: u8, registers: u8, immediate: i32) -> Self {
        Self {
            code,
            registers,
            offset: 0,
            immediate,
        }
    }
}

/// Whether the kernel offers `bpf_set_retval` to programs at `connect`, found out by loading one.
///
/// The helper is of 5.18, but was given to these hooks only later, and distributions carry it back; no version
/// number tells.
pub(crate) fn set_retval_is_offered(attach_type: u32) -> io::Result<bool> {
    const R1: u8 = 1;
    let program = [
        Instruction::new(Instruction::MOVE, R1, -libc::ECONNREFUSED),
        Instruction::new(Instruction::CALL, 0, SET_RETVAL),
        Instruction::new(Instruction::MOVE, 0, 0),
        Instruction::EXIT,
    ];
    match load(Kind::SocketAddress, attach_type, &program) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the kernel offers a helper with arguments to programs of a kind: one that calls it with none is refused for
/// these (EACCES), or for the helper.
pub(crate) fn helper_is_offered(kind: Kind, attach_type: u32, helper: i32) -> io::Result<bool> {
    let program = [Instruction::new(Instruction::CALL, 0, helper), Instruction::EXIT];
    match load(kind, attach_type, &program) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EACCES) => Ok(true),
            Some(libc::EINVAL) => Ok(false),
            _ => Err(error),
        },
    }
}

/// A program that lets everything through as it is.
pub(crate) fn passing(kind: Kind, attach_type: u32) -> io::Result<OwnedFd> {
    /// `TC_ACT_UNSPEC`, also `TCX_NEXT`.
    const UNSPEC: i32 = -1;
    /// What hooks of sockets take for yes.
    const YES: i32 = 1;
    let verdict = if kind == Kind::Packet { UNSPEC } else { YES };
    let program = [Instruction::new(Instruction::MOVE, 0, verdict), Instruction::EXIT];
    load(kind, attach_type, &program)
}

/// Loads a program that needs nothing else.
fn load(kind: Kind, attach_type: u32, program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = Load {
        program_type: kind.number(),
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: address(program.as_ptr()),
        license: address(LICENSE.as_ptr()),
        attach_type,
        ..Load::NONE
    };
    // SAFETY: instructions and license outlive the call; there is no log; returns a new descriptor.
    unsafe { bpf_fd(LOAD, &mut attributes) }
}
