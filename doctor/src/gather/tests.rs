//! Inventories written by hand.

use super::*;
use crate::{inventory::ProgArray, report::Whose};

fn map(id: u32, name: &str, pins: &[&str]) -> MapDescription {
    MapDescription {
        id,
        name: name.to_owned(),
        map_type: 3,
        type_name: "prog_array",
        key_size: 4,
        value_size: 4,
        max_entries: 8,
        pinned_at: pins.iter().map(Into::into).collect(),
        held_by: Vec::new(),
    }
}

fn program(id: u32, maps: &[MapDescription]) -> ProgramDescription {
    ProgramDescription {
        id,
        name: format!("program_{id}"),
        program_type: 18,
        type_name: "cgroup_sock_addr",
        tag: [0; 8],
        loaded_at: Duration::ZERO,
        uid: 0,
        maps: maps.to_vec(),
        pinned_at: Vec::new(),
        held_by: Vec::new(),
    }
}

fn attached(path: Option<&str>, hook: &'static str, program: ProgramDescription) -> Found {
    Found {
        place: inventory::Place::Cgroup {
            id: 1,
            path: path.map(Into::into),
            state: inventory::CgroupState::Visible,
            attach_type: 10,
            attach_name: hook,
        },
        order: 0,
        program,
        manner: inventory::Manner::Legacy { flags: 2 },
        ownership: Ownership::Foreign,
    }
}

fn loose(id: u32, called_from: &[u32]) -> LooseProgram {
    LooseProgram {
        program: program(id, &[]),
        ownership: Ownership::Foreign,
        called_from: called_from.to_vec(),
        armed: true,
    }
}

fn array(map: MapDescription, callers: &[u32], programs: &[u32]) -> ProgArray {
    ProgArray {
        map,
        callers: callers.to_vec(),
        programs: programs.to_vec(),
    }
}

/// Programs 1 to 3 are attached to a node's cgroup, to another node's and to one that no mount shows; each calls one of 11
/// to 13, the first also the second's. 14 is called by nothing.
fn two_nodes() -> Inventory {
    let arrays = [1, 2, 3].map(|number| map(70 + number, "cilium_calls_00", &[]));
    let places = [Some("/nodes/a"), Some("/nodes/b"), None];
    let attachments = places.into_iter().zip(1..).zip(&arrays);
    Inventory {
        attachments: attachments
            .map(|((path, id), array)| attached(path, "connect4", program(id, std::slice::from_ref(array))))
            .collect(),
        loose: vec![
            loose(11, &[71]),
            loose(12, &[72]),
            loose(13, &[73]),
            loose(14, &[]),
        ],
        prog_arrays: arrays
            .into_iter()
            .zip(1..)
            .map(|(map, id)| array(map, &[id], &[10 + id]))
            .collect(),
        blind: Vec::new(),
    }
}

fn ids(parts: &Parts) -> (Vec<u32>, Vec<u32>) {
    (
        parts.loose.iter().map(|loose| loose.program).collect(),
        parts.prog_arrays.iter().map(|array| array.map).collect(),
    )
}

#[test]
fn what_only_other_nodes_programs_call_is_not_shown_with_one_node() {
    let all = parts(two_nodes(), None, None);
    assert_eq!(ids(&all), (vec![11, 12, 13, 14], vec![71, 72, 73]));
    let one = parts(two_nodes(), None, Some(Path::new("/nodes/a")));
    assert_eq!(ids(&one), (vec![11, 14], vec![71]));
    let from = one.loose[0].in_use().expect("its caller is attached");
    assert_eq!((from.program, from.place.hook().as_str()), (1, "connect4"));
    assert_eq!(one.loose[1].tail_called, None);
}

#[test]
fn what_both_nodes_call_is_shown_with_each() {
    let mut inventory = two_nodes();
    inventory.prog_arrays[0].programs.push(12);
    let one = parts(inventory, None, Some(Path::new("/nodes/a")));
    assert_eq!(ids(&one).0, [11, 12, 14]);
}

#[test]
fn what_is_called_from_a_hook_that_is_only_counted_is_in_use() {
    let mut inventory = two_nodes();
    inventory.attachments[0] = attached(
        Some("/nodes/a"),
        "setsockopt",
        inventory.attachments[0].program.clone(),
    );
    let one = parts(inventory, None, Some(Path::new("/nodes/a")));
    assert!(one.attachments.is_empty() && one.loose[0].in_use().is_some());
}

#[test]
fn arrays_of_nobody_are_shown_if_they_are_pinned() {
    let mut inventory = two_nodes();
    inventory.prog_arrays = vec![
        array(map(80, "old", &["/sys/fs/bpf/old"]), &[], &[99]),
        array(map(81, "held", &[]), &[], &[99]),
        array(map(82, "full", &[]), &[], &[14]),
        array(map(83, "of_others", &["/sys/fs/bpf/x"]), &[98], &[99]),
    ];
    let parts = parts(inventory, None, None);
    assert_eq!(ids(&parts).1, [80, 82]);
    assert_eq!(parts.maps[&80].name, "old");
}

#[test]
fn arrays_tell_whose_a_program_is() {
    let parts = parts(two_nodes(), None, None);
    let owners = [11, 14].map(|id| parts.programs[&id].owner.whose);
    assert_eq!(owners, [Whose::Cilium, Whose::Unknown]);
}
