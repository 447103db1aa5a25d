//! Arrays of programs: what a program jumps to by a tail call is attached nowhere itself, and kept by such an array.
//!
//! Looking at them may leave something behind, by a fault of the kernel. When the last descriptor of an array closes, a
//! worker empties it; for that worker the kernel takes a reference each time, but queues it once (`prog_array_map_clear`,
//! `kernel/bpf/arraymap.c`, Linux 6.18). An array that nothing pins or holds, and whose last descriptor closes twice
//! before the worker runs, is never freed. So an array is opened once to be described, and once in a look to be read.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use lb_loader::{Blind, LoaderError, RawMap, describe_map, map_ids};

use super::{
    MapDescription, ProgArray,
    programs::{Programs, description},
};

/// `BPF_MAP_TYPE_PROG_ARRAY`.
const PROG_ARRAY: u32 = 3;
/// Most entries of one array that are looked at. Calico's has 240,000 (`felix/bpf/jump/map.go`: 10,000 entry points of
/// 24 programs each), Cilium's one for each local endpoint, 65,536.
const ENTRIES: u32 = 1 << 20;
/// Arrays of more entries are read last. They are few, so that all of them are open meanwhile.
const SMALL: u32 = 1 << 12;
/// How long all of them may take. The kernel reads such an array one entry at a time, the empty ones too, in about a
/// microsecond each: it has no batch for it (`prog_array_map_ops`), and the next key is the next number.
const TIME: Duration = Duration::from_secs(30);

/// Every array of programs on this machine, by id, of any owner. Programs in them become known.
pub(super) fn look(programs: &mut Programs, blind: &mut Vec<Blind>) -> Result<Vec<ProgArray>, LoaderError> {
    let begun = Instant::now();
    let (mut arrays, mut large) = (Vec::new(), Vec::new());
    for id in map_ids() {
        match find(id?, programs, blind)? {
            None => {}
            Some((array, None)) => arrays.push(empty(array)),
            Some((array, Some(map))) if array.max_entries > SMALL => large.push((array, map)),
            Some((array, Some(map))) => arrays.push(read(array, &map, begun, programs, blind)?),
        }
    }
    // A large one is not in the way of many small ones.
    large.sort_by_key(|(array, _)| array.max_entries);
    for (array, map) in large {
        arrays.push(read(array, &map, begun, programs, blind)?);
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

/// An array of programs, open if it may be read. `None`: the map is of another type, is gone, or can't be opened at all.
fn find(
    id: u32,
    programs: &Programs,
    blind: &mut Vec<Blind>,
) -> Result<Option<(MapDescription, Option<RawMap>)>, LoaderError> {
    let is_refused = |error: &LoaderError| matches!(error.errno(), Some(libc::EPERM | libc::EACCES));
    let is_array = |map: &MapDescription| map.map_type == PROG_ARRAY;
    if programs.map(id).is_some_and(|known| !is_array(known)) {
        return Ok(None);
    }
    match RawMap::open(id) {
        Err(error) if is_refused(&error) => {}
        map => {
            let map = map?.map(|map| (description(map.info().clone()), Some(map)));
            return Ok(map.filter(|(map, _)| is_array(map)));
        }
    }
    match describe_map(id) {
        Err(error) if is_refused(&error) => {
            blind.push(Blind {
                what: format!("map {id}, which may be an array of programs"),
                why: error.to_string(),
                remedy: "ask what confines root here: a security module does".to_owned(),
            });
            Ok(None)
        }
        described => {
            let array = described?.map(description).filter(is_array);
            if let Some(array) = &array {
                blind.push(unread(array, "its owner forbids reading it".to_owned()));
            }
            Ok(array.map(|array| (array, None)))
        }
    }
}

/// An array with the programs in it, which become known.
fn read(
    array: MapDescription,
    map: &RawMap,
    begun: Instant,
    programs: &mut Programs,
    blind: &mut Vec<Blind>,
) -> Result<ProgArray, LoaderError> {
    let inside = inside(&array, map, begun, blind)?;
    let mut array = empty(array);
    for program in inside {
        programs.get(program)?;
        // One that has just been replaced is gone.
        array.programs.extend(programs.known(program).map(|_| program));
    }
    Ok(array)
}

/// Ids of the programs in an array, each once.
fn inside(
    array: &MapDescription,
    map: &RawMap,
    begun: Instant,
    blind: &mut Vec<Blind>,
) -> Result<BTreeSet<u32>, LoaderError> {
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
        // Read, an entry is the program's id.
        let program = map.get(&key.to_ne_bytes())?.and_then(|id| id.try_into().ok());
        inside.extend(program.map(u32::from_ne_bytes));
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

/// Notes of each array which programs use it.
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
