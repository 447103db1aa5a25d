//! Incident 2 by hand: two generations of Cilium's programs at the root cgroup, in memory.

use std::collections::BTreeMap;

use super::{
    map_bytes::memory::MemoryBytes,
    owner,
    report::{Attachment, CgroupState, Manner, Map, Place, Program, Report, SCHEMA, Standing, Verdict},
};

/// Days in seconds.
pub(super) const DAY: u64 = 86_400;

/// What there is to judge, and the bytes of its maps.
pub(super) struct Fixture {
    pub(super) attachments: Vec<Attachment>,
    pub(super) programs: BTreeMap<u32, Program>,
    pub(super) maps: BTreeMap<u32, Map>,
    pub(super) bytes: MemoryBytes,
}

/// A hook of a visible cgroup.
pub(super) fn at(path: &str, hook: &str) -> Place {
    Place::Cgroup {
        id: path
            .bytes()
            .fold(1, |id, byte| id * 31 % 1_000_003 + u64::from(byte)),
        path: Some(path.into()),
        state: CgroupState::Visible,
        hook: hook.to_owned(),
    }
}

pub(super) fn map(id: u32, name: &str, key_size: u32, value_size: u32, pinned_at: &[&str]) -> Map {
    Map {
        id,
        name: name.to_owned(),
        kind: "hash".to_owned(),
        key_size,
        value_size,
        max_entries: 65_536,
        pinned_at: pinned_at.iter().map(Into::into).collect(),
        held_by: Vec::new(),
        layout: None,
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            attachments: Vec::new(),
            programs: BTreeMap::new(),
            maps: BTreeMap::new(),
            bytes: MemoryBytes::default(),
        }
    }

    /// Program 113 of six days ago runs first, by maps 27 and 28; program 205 of two hours ago by maps 144 and 145,
    /// which are pinned. Service 172.17.93.4:8080 has moved; 10.96.0.1:443 has not.
    pub(super) fn incident() -> Self {
        let mut fixture = Self::new();
        for (services, backends, pins, pod) in [
            (27, 28, [[].as_slice(), &[]], [172, 16, 149, 220]),
            (
                144,
                145,
                [
                    ["/sys/fs/bpf/tc/globals/cilium_lb4_services_v2"].as_slice(),
                    &["/sys/fs/bpf/tc/globals/cilium_lb4_backends_v3"],
                ],
                [172, 16, 109, 127],
            ),
        ] {
            fixture.map(map(services, "cilium_lb4_serv", 12, 12, pins[0]));
            fixture.map(map(backends, "cilium_lb4_back", 4, 12, pins[1]));
            fixture.cilium(services, backends, [172, 17, 93, 4], 8080, &[pod]);
            fixture.cilium(services, backends, [10, 96, 0, 1], 443, &[[192, 0, 2, 1]]);
        }
        fixture.program(113, "cil_sock4_conne", Some(6 * DAY), &[27, 28]);
        fixture.program(205, "cil_sock4_conne", Some(7200), &[144, 145]);
        fixture.legacy(at("/sys/fs/cgroup", "connect4"), 0, 113);
        fixture.legacy(at("/sys/fs/cgroup", "connect4"), 1, 205);
        fixture
    }

    pub(super) fn map(&mut self, map: Map) {
        self.bytes.empty(map.id);
        self.maps.insert(map.id, map);
    }

    /// A service in Cilium's maps; backends are numbered by the last byte of their addresses.
    pub(super) fn cilium(
        &mut self,
        services: u32,
        backends: u32,
        address: [u8; 4],
        port: u16,
        pods: &[[u8; 4]],
    ) {
        let key = |slot: u16| {
            let mut key = address.to_vec();
            key.extend(port.to_be_bytes());
            key.extend(slot.to_ne_bytes());
            key.extend([6, 0, 0, 0]);
            key
        };
        let value = |backend: u32, count: u16| {
            let mut value = backend.to_ne_bytes().to_vec();
            value.extend(count.to_ne_bytes());
            value.extend([0; 6]);
            value
        };
        let count = u16::try_from(pods.len()).expect("a few");
        self.bytes.put(services, &key(0), &value(0, count));
        for (slot, pod) in (1..).zip(pods) {
            let id = u32::from(pod[3]);
            self.bytes.put(services, &key(slot), &value(id, 0));
            let mut backend = pod.to_vec();
            backend.extend(port.to_be_bytes());
            backend.extend([6, 0, 0, 0, 0, 0]);
            self.bytes.put(backends, &id.to_ne_bytes(), &backend);
        }
    }

    /// A program, whose owner is guessed.
    pub(super) fn program(&mut self, id: u32, name: &str, loaded_seconds_ago: Option<u64>, maps: &[u32]) {
        let mut program = Program {
            id,
            name: name.to_owned(),
            kind: "cgroup_sock_addr".to_owned(),
            tag: "0011223344556677".to_owned(),
            loaded_at: loaded_seconds_ago.map(|seconds| (10 * DAY - seconds) * 1_000_000_000),
            loaded_seconds_ago,
            uid: 0,
            maps: maps.to_vec(),
            pinned_at: Vec::new(),
            held_by: Vec::new(),
            owner: owner::ours(),
        };
        program.owner = owner::guess(&program, maps.iter().filter_map(|id| self.maps.get(id)), &[]);
        self.programs.insert(id, program);
    }

    /// Makes a program ours.
    pub(super) fn ours(&mut self, id: u32) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.owner = owner::ours();
        }
    }

    pub(super) fn attach(
        &mut self,
        place: Place,
        order: u32,
        program: u32,
        manner: Manner,
        standing: Standing,
    ) {
        self.attachments.push(Attachment {
            place,
            order,
            program,
            manner,
            standing,
            stale: None,
        });
    }

    pub(super) fn legacy(&mut self, place: Place, order: u32, program: u32) {
        self.attach(
            place,
            order,
            program,
            Manner::Legacy { flags: 2 },
            Standing::Foreign,
        );
    }

    /// As a report, judged.
    pub(super) fn report(&mut self) -> Report {
        let problems = self.judge();
        Report {
            schema: SCHEMA,
            verdict: Verdict::Problems,
            problems,
            attachments: self.attachments.clone(),
            loose: Vec::new(),
            programs: self.programs.clone(),
            maps: self.maps.clone(),
            prog_arrays: Vec::new(),
            services: None,
            others: BTreeMap::new(),
            checks: Vec::new(),
            blind: Vec::new(),
        }
    }

    pub(super) fn judge(&mut self) -> Vec<super::report::Problem> {
        let facts = super::judge::Facts {
            attachments: &mut self.attachments,
            programs: &self.programs,
            maps: &self.maps,
        };
        super::judge::judge(facts, &self.bytes)
    }
}
