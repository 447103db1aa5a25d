//! Programs that could decide where packets and connections go, and are attached nowhere that can be seen.

use std::collections::{HashMap, HashSet};

use lb_loader::LoaderError;

use super::{
    Found, LooseProgram, ProgArray,
    names::{CGROUP_SOCK, CGROUP_SOCK_ADDR, SCHED_ACT, SCHED_CLS, SK_LOOKUP, SOCK_OPS, XDP},
    programs::{Known, Owner, Programs},
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

/// Those that are not among what was found attached, by id.
pub(super) fn programs(
    programs: &Programs,
    owner: &Owner,
    attached: &[Found],
    arrays: &[ProgArray],
) -> Result<Vec<LooseProgram>, LoaderError> {
    let attached: HashSet<u32> = attached.iter().map(|found| found.program.id).collect();
    let loose = |known: &&Known| {
        let ours = known.load.is_some();
        (ours || TYPES.contains(&known.description.program_type)) && !attached.contains(&known.description.id)
    };
    let mut called: HashMap<u32, Vec<u32>> = HashMap::new();
    for array in arrays {
        for program in &array.programs {
            called.entry(*program).or_default().push(array.map.id);
        }
    }
    programs
        .all()
        .filter(loose)
        .map(|known| {
            Ok(LooseProgram {
                called_from: called.remove(&known.description.id).unwrap_or_default(),
                armed: known.is_armed()?,
                program: known.description.clone(),
                ownership: owner.of(programs, known),
            })
        })
        .collect()
}
