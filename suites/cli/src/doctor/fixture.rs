//! A made-up Cilium node with any number of pods, and with any number of programs for each that only tail calls reach.

use std::collections::BTreeMap;

use doctor::report::{
    Attachment, CgroupState, Check, Direction, Entry, Layer, Loose, Manner, Map, Outcome, Owner, Place,
    ProgArray, Program, Report, SCHEMA, Standing, TailCalled, Verdict, Whose,
};

/// Cilium's programs at socket hooks.
const SOCKETS: [(&str, &str); 9] = [
    ("post_bind4", "cil_sock4_post_"),
    ("connect4", "cil_sock4_conne"),
    ("connect6", "cil_sock6_conne"),
    ("sendmsg4", "cil_sock4_sendm"),
    ("sendmsg6", "cil_sock6_sendm"),
    ("recvmsg4", "cil_sock4_recvm"),
    ("recvmsg6", "cil_sock6_recvm"),
    ("getpeername4", "cil_sock4_getpe"),
    ("getpeername6", "cil_sock6_getpe"),
];

/// First ids of programs at sockets, of programs at pods' devices, of programs in arrays, and of arrays.
const FIRST: (u32, u32, u32, u32) = (100, 1000, 10_000, 2000);
/// Distance between the first program ids of two arrays.
const STEP: u32 = 100;

/// Each pod's program at its device has an array of `calls` programs, and the first of these calls the second. One more
/// program is called by a program that is attached nowhere.
pub(super) fn cilium(pods: u32, calls: u32) -> Report {
    let mut report = empty();
    for ((hook, name), id) in SOCKETS.into_iter().zip(FIRST.0..) {
        program(&mut report, id, name, "cgroup_sock_addr", &[]);
        let place = Place::Cgroup {
            id: 1,
            path: Some("/run/cilium/cgroupv2".into()),
            state: CgroupState::Visible,
            hook: hook.to_owned(),
        };
        attach(&mut report, place, 0, id);
    }
    for (layer, direction, name, id) in [
        (Layer::Xdp, Direction::Ingress, "cil_xdp_entry", 50),
        (Layer::Tcx, Direction::Ingress, "cil_from_netdev", 51),
        (Layer::Tcx, Direction::Egress, "cil_to_netdev", 52),
    ] {
        program(&mut report, id, name, "sched_cls", &[]);
        attach(&mut report, device("eth0", 2, layer, direction), 0, id);
    }
    for pod in 0..pods {
        let (entry, array) = (FIRST.1 + pod, FIRST.3 + pod);
        map(&mut report, array, "cilium_calls_00");
        program(&mut report, entry, "cil_from_contai", "sched_cls", &[array]);
        let name = format!("lxc{pod}");
        let place = device(&name, 10 + pod, Layer::Tcx, Direction::Ingress);
        attach(&mut report, place.clone(), 0, entry);
        let mut inside = Vec::new();
        for call in 0..calls {
            let id = FIRST.2 + pod * STEP + call;
            program(
                &mut report,
                id,
                &format!("tail_call_{call}"),
                "sched_cls",
                &[array],
            );
            let caller = if call == 1 { id - 1 } else { entry };
            let from = Entry {
                program: entry,
                place: place.clone(),
            };
            loose(&mut report, id, caller, array, Some(from));
            inside.push(id);
        }
        report.prog_arrays.push(ProgArray {
            map: array,
            callers: vec![entry],
            programs: inside,
        });
    }
    program(&mut report, 9001, "tail_old", "sched_cls", &[]);
    loose(&mut report, 9001, 9001, FIRST.3, None);
    report
}

fn empty() -> Report {
    Report {
        schema: SCHEMA,
        verdict: Verdict::Healthy,
        problems: Vec::new(),
        attachments: Vec::new(),
        loose: Vec::new(),
        programs: BTreeMap::new(),
        maps: BTreeMap::new(),
        prog_arrays: Vec::new(),
        services: None,
        others: BTreeMap::from([("device".to_owned(), 21), ("sysctl".to_owned(), 2)]),
        checks: vec![
            Check {
                name: "cgroup2".to_owned(),
                outcome: Outcome::Good,
                text: "cgroup v2 is mounted".to_owned(),
            },
            Check {
                name: "maps".to_owned(),
                outcome: Outcome::Note,
                text: "several maps have the same name and layout".to_owned(),
            },
        ],
        blind: Vec::new(),
    }
}

pub(super) fn device(name: &str, index: u32, layer: Layer, direction: Direction) -> Place {
    Place::Device {
        index,
        name: Some(name.to_owned()),
        layer,
        direction,
    }
}

pub(super) fn program(report: &mut Report, id: u32, name: &str, kind: &str, maps: &[u32]) {
    let program = Program {
        id,
        name: name.to_owned(),
        kind: kind.to_owned(),
        tag: "0011223344556677".to_owned(),
        loaded_at: Some(1),
        loaded_seconds_ago: Some(7200),
        uid: 0,
        maps: maps.to_vec(),
        pinned_at: Vec::new(),
        held_by: Vec::new(),
        owner: Owner {
            whose: Whose::Cilium,
            guess: true,
            because: vec![format!("its name is {name}")],
        },
    };
    report.programs.insert(id, program);
}

pub(super) fn attach(report: &mut Report, place: Place, order: u32, program: u32) {
    report.attachments.push(Attachment {
        place,
        order,
        program,
        manner: Manner::Legacy { flags: 2 },
        standing: Standing::Foreign,
        stale: None,
    });
}

fn loose(report: &mut Report, program: u32, caller: u32, map: u32, from: Option<Entry>) {
    report.loose.push(Loose {
        program,
        standing: Standing::Foreign,
        called_from: vec![map],
        unexplained: false,
        armed: None,
        tail_called: Some(TailCalled { caller, map, from }),
    });
}

fn map(report: &mut Report, id: u32, name: &str) {
    let map = Map {
        id,
        name: name.to_owned(),
        kind: "prog_array".to_owned(),
        key_size: 4,
        value_size: 4,
        max_entries: 50,
        pinned_at: Vec::new(),
        held_by: Vec::new(),
        layout: None,
    };
    report.maps.insert(id, map);
}
