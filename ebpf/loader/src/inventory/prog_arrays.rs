//! Arrays of programs: what a program jumps to by a tail call is attached nowhere itself, and kept by such an array.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use super::{
    MapDescription, ProgArray,
    programs::{Programs, describe_map},
};
use crate::{
    Blind, LoaderError,
    sys::{self, READ_ONLY, WRITE_ONLY, map::PROG_ARRAY},
};

/// Most entries of one array that are looked at. Calico's has 240,000 (`felix/bpf/jump/map.go`: 10,000 entry points of
/// 24 programs each), Cilium's one for each local endpoint, 65,536.
const ENTRIES: u32 = 1 << 20;
/// How long all of them may take. The kernel reads such an array one entry at a time, the empty ones too, in about a
/// microsecond each: it has no batch for it (`prog_array_map_ops`), and the next key is the next number.
const TIME: Duration = Duration::from_secs(30);

/// Every array of programs on this machine, by id, whoever uses it. Programs in them become known.
pub(super) fn look(programs: &mut Programs, blind: &mut Vec<Blind>) -> Result<Vec<ProgArray>, LoaderError> {
    let begun = Instant::now();
    let mut readable = Vec::new();
    let mut arrays = Vec::new();
    for id in sys::map::all() {
        let id = id.map_err(LoaderError::kernel("list maps"))?;
        let failed = || LoaderError::kernel(format!("look at map {id}"));
        let Some((map, may_read)) = open(id, blind).map_err(failed())? else {
            continue;
        };
        let description = describe_map(id, map.as_fd()).map_err(failed())?;
        if description.map_type != PROG_ARRAY {
            continue;
        }
        if may_read {
            readable.push(description);
        } else {
            blind.push(unread(&description, "its owner lets nobody read it".to_owned()));
            arrays.push(empty(description));
        }
    }
    // A large one is not in the way of many small ones. Descriptors are few: each is opened again.
    readable.sort_by_key(|description| description.max_entries);
    for description in readable {
        let failed = || LoaderError::kernel(format!("read map {}", description.id));
        let Some((map, _)) = open(description.id, blind).map_err(failed())? else {
            continue;
        };
        let Some(map) = sys::map::ProgArray::of(map.as_fd()).map_err(failed())? else {
            continue;
        };
        let inside = inside(&description, map, begun, blind).map_err(failed())?;
        let mut array = empty(description);
        for program in inside {
            programs.get(program)?;
            // One that has just been replaced is gone.
            array.programs.extend(programs.known(program).map(|_| program));
        }
        arrays.push(array);
    }
    arrays.sort_by_key(|array| array.map.id);
    callers(programs, &mut arrays);
    Ok(arrays)
}

const fn empty(map: MapDescription) -> ProgArray {
    ProgArray {
        map,
        callers: Vec::new(),
        programs: Vec::new(),
    }
}

/// Opens a map of anybody's, and says whether it may be read; `None`: it is gone, or can't be opened at all.
fn open(id: u32, blind: &mut Vec<Blind>) -> io::Result<Option<(OwnedFd, bool)>> {
    let refused = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    let opened = match sys::map::open(id, READ_ONLY) {
        Err(error) if refused(&error) => sys::map::open(id, WRITE_ONLY).map(|map| (map, false)),
        opened => opened.map(|map| (map, true)),
    };
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) if refused(&error) => {
            blind.push(Blind {
                what: format!("map {id}, which may be an array of programs"),
                why: error.to_string(),
                remedy: "ask what confines root here: a security module does".to_owned(),
            });
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Ids of the programs in an array, each once.
fn inside(
    array: &MapDescription,
    map: sys::map::ProgArray<'_>,
    begun: Instant,
    blind: &mut Vec<Blind>,
) -> io::Result<BTreeSet<u32>> {
    /// Entries between two looks at the clock.
    const SOME: u32 = 1 << 12;
    let mut inside = BTreeSet::new();
    for key in 0..array.max_entries {
        let late = key % SOME == 0 && begun.elapsed() > TIME;
        if late || key >= ENTRIES {
            let why = format!(
                "{key} of its {} entries were looked at: no more than {ENTRIES}, and of all arrays together for {} s",
                array.max_entries,
                TIME.as_secs()
            );
            blind.push(unread(array, why));
            break;
        }
        inside.extend(map.get(key)?);
    }
    Ok(inside)
}

fn unread(array: &MapDescription, why: String) -> Blind {
    Blind {
        what: format!(
            "programs that are called through map {} ({})",
            array.id, array.name
        ),
        why,
        remedy: format!("`bpftool map dump id {}`", array.id),
    }
}

/// Says of each array which programs use it.
fn callers(programs: &Programs, arrays: &mut [ProgArray]) {
    let mut callers: HashMap<u32, Vec<u32>> = HashMap::new();
    for known in programs.all() {
        for map in &known.description.maps {
            if map.map_type == PROG_ARRAY {
                callers.entry(map.id).or_default().push(known.description.id);
            }
        }
    }
    for array in arrays {
        array.callers = callers.remove(&array.map.id).unwrap_or_default();
    }
}
