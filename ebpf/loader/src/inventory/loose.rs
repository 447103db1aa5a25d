//! Programs that could decide where packets and connections go, and are attached nowhere that can be seen.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd as _,
};

use super::{
    Found, LooseProgram,
    names::{CGROUP_SOCK, CGROUP_SOCK_ADDR, SCHED_ACT, SCHED_CLS, SK_LOOKUP, SOCK_OPS, XDP},
    programs::{Known, Owner, Programs},
};
use crate::{
    LoaderError,
    program::{RETIRED, meta},
    sys::{self, READ_ONLY},
};

/// Types of programs that do load balancing.
const TYPES: [u32; 7] = [
    SCHED_CLS,
    SCHED_ACT,
    XDP,
    CGROUP_SOCK,
    SOCK_OPS,
    CGROUP_SOCK_ADDR,
    SK_LOOKUP,
];
/// `BPF_MAP_TYPE_PROG_ARRAY`.
const PROG_ARRAY: u32 = 3;
/// Most entries of one array that are looked at: as many as the largest that implementations make, one for each local
/// endpoint.
const ENTRIES: u32 = 65_536;

/// Those that are not among what was found attached, by id.
pub(super) fn programs(
    programs: &Programs,
    owner: &Owner,
    attached: &[Found],
) -> Result<Vec<LooseProgram>, LoaderError> {
    let attached: HashSet<u32> = attached.iter().map(|found| found.program.id).collect();
    let loose = |known: &&Known| {
        let ours = known.meta.is_some();
        (ours || TYPES.contains(&known.description.program_type)) && !attached.contains(&known.description.id)
    };
    let mut called = called(programs)?;
    programs
        .all()
        .filter(loose)
        .map(|known| {
            Ok(LooseProgram {
                called_from: called.remove(&known.description.id).unwrap_or_default(),
                armed: is_armed(known)?,
                program: known.description.clone(),
                ownership: owner.of(programs, known),
            })
        })
        .collect()
}

/// Whether a program does anything when it runs: one of ours does not if its META was taken out of use.
pub(crate) fn is_armed(known: &Known) -> Result<bool, LoaderError> {
    let Some(marked) = known.meta else {
        return Ok(true);
    };
    match meta(marked.map_id) {
        // It went with its program.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Ok(meta) => Ok(meta.is_some_and(|meta| meta.abi != RETIRED)),
        Err(error) => Err(LoaderError::kernel(format!("read META {}", marked.map_id))(error)),
    }
}

/// Which programs are in which arrays of programs.
fn called(programs: &Programs) -> Result<HashMap<u32, Vec<u32>>, LoaderError> {
    let arrays: HashMap<u32, u32> = programs
        .all()
        .flat_map(|known| &known.description.maps)
        .filter(|map| map.map_type == PROG_ARRAY)
        .map(|map| (map.id, map.max_entries))
        .collect();
    let mut called: HashMap<u32, Vec<u32>> = HashMap::new();
    for (id, entries) in arrays {
        let inside = inside(id, entries).map_err(LoaderError::kernel(format!("read map {id}")))?;
        for program in inside {
            called.entry(program).or_default().push(id);
        }
    }
    called.values_mut().for_each(|arrays| arrays.sort_unstable());
    Ok(called)
}

/// Ids of the programs in an array, each once.
fn inside(id: u32, entries: u32) -> io::Result<HashSet<u32>> {
    let map = match sys::map::open(id, READ_ONLY) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM)) => {
            return Ok(HashSet::new());
        }
        map => map?,
    };
    let mut inside = HashSet::new();
    for key in 0..entries.min(ENTRIES) {
        let mut program = 0_u32;
        // SAFETY: key and value of an array of programs are 4 bytes, for reading the value is the program's id.
        if unsafe { sys::map::lookup(map.as_fd(), &raw const key, &raw mut program) }? {
            inside.insert(program);
        }
    }
    Ok(inside)
}
