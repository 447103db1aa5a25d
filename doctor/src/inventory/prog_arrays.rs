//! Arrays of programs: what a program jumps to by a tail call is attached nowhere itself, and kept by such an array.

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
/// How long all of them may take. The kernel reads such an array one entry at a time, the empty ones too, in about a
/// microsecond each: it has no batch for it (`prog_array_map_ops`), and the next key is the next number.
const TIME: Duration = Duration::from_secs(30);

/// Every array of programs on this machine, by id, whoever uses it. Programs in them become known.
pub(super) fn look(programs: &mut Programs, blind: &mut Vec<Blind>) -> Result<Vec<ProgArray>, LoaderError> {
    let begun = Instant::now();
    let mut readable = Vec::new();
    let mut arrays = Vec::new();
    for id in map_ids() {
        let id = id?;
        let described = match describe_map(id) {
            Err(error) if is_refused(&error) => {
                blind.push(Blind {
                    what: format!("map {id}, which may be an array of programs"),
                    why: error.to_string(),
                    remedy: "ask what confines root here: a security module does".to_owned(),
                });
                continue;
            }
            described => described?,
        };
        let Some(array) = described.filter(|map| map.layout.map_type == PROG_ARRAY) else {
            continue;
        };
        let array = description(array);
        match RawMap::open(id) {
            Err(error) if is_refused(&error) => {
                blind.push(unread(&array, "its owner lets nobody read it".to_owned()));
                arrays.push(empty(array));
            }
            map => readable.extend(map?.map(|_| array)),
        }
    }
    // A large one is not in the way of many small ones. Descriptors are few: each is opened again.
    readable.sort_by_key(|array| array.max_entries);
    for array in readable {
        let Some(map) = RawMap::open(array.id)? else {
            continue;
        };
        let inside = inside(&array, &map, begun, blind)?;
        let mut array = empty(array);
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

fn is_refused(error: &LoaderError) -> bool {
    matches!(error.errno(), Some(libc::EPERM | libc::EACCES))
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
