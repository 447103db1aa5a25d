//! What the kernel says, as the report's parts.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lb_loader::{Ownership, RawMap};

use super::{
    inventory::{self, Found, Inventory, LooseProgram, MapDescription, ProgramDescription},
    layout::Tables,
    map_bytes::{MapBytes, ReadError},
    owner,
    report::{
        Attachment, Blind, CgroupState, Direction, Holder, Layer, Loose, Manner, Map, Place, ProgArray,
        Program, Standing, XdpMode,
    },
    tail_calls::TailCalls,
};

/// Hooks that have nothing to do with where connections and packets go: what is there is counted, not shown.
const OTHER_HOOKS: [&str; 9] = [
    "connect_unix",
    "sendmsg_unix",
    "recvmsg_unix",
    "getpeername_unix",
    "getsockname_unix",
    "getsockopt",
    "setsockopt",
    "device",
    "sysctl",
];

/// Parts of a report, as yet unjudged.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) attachments: Vec<Attachment>,
    /// What each of them was made from, in the same order.
    pub(super) found: Vec<Found>,
    pub(super) loose: Vec<Loose>,
    pub(super) loose_found: Vec<LooseProgram>,
    pub(super) programs: BTreeMap<u32, Program>,
    pub(super) maps: BTreeMap<u32, Map>,
    pub(super) prog_arrays: Vec<ProgArray>,
    pub(super) others: BTreeMap<String, usize>,
    pub(super) blind: Vec<Blind>,
}

/// Sorts an inventory into parts; `now`: since the machine started; `below`: a cgroup, where only its chain counts.
pub(super) fn parts(inventory: Inventory, now: Option<Duration>, below: Option<&Path>) -> Parts {
    let Inventory {
        attachments,
        loose,
        prog_arrays,
        blind,
    } = inventory;
    let mut parts = Parts::default();
    let mut left_out = 0;
    let (mut entries, mut elsewhere) = (Vec::new(), Vec::new());
    for found in attachments {
        let place = place(&found.place);
        match below.map(|below| is_of(&place, below)) {
            None | Some(Some(true)) => entries.push((found.program.id, place.clone())),
            of => {
                left_out += usize::from(of == Some(None));
                elsewhere.push((found.program.id, place));
                continue;
            }
        }
        let hook = place.hook();
        if OTHER_HOOKS.contains(&hook.as_str()) {
            *parts.others.entry(hook).or_default() += 1;
            continue;
        }
        parts.describe(&found.program, found.ownership, &[], now);
        parts.attachments.push(Attachment {
            place,
            order: found.order,
            program: found.program.id,
            manner: manner(&found.manner),
            standing: standing(found.ownership),
            stale: None,
        });
        parts.found.push(found);
    }
    let arrays: Vec<ProgArray> = prog_arrays.iter().map(prog_array).collect();
    let entries = entries.iter().map(|(program, place)| (*program, place));
    let calls = TailCalls::from(entries, &arrays);
    let elsewhere = elsewhere.iter().map(|(program, place)| (*program, place));
    let others = TailCalls::from(elsewhere, &arrays);
    // What is reached from places that were not asked for alone is not asked for either.
    let asked = loose
        .into_iter()
        .filter(|found| calls.runs(found.program.id) || !others.runs(found.program.id));
    for found in asked {
        parts.loose(found, &prog_arrays, &calls, now);
    }
    parts.arrays(&prog_arrays, arrays);
    if left_out > 0 {
        parts.blind.push(Blind {
            what: format!("{left_out} attachments at cgroups that no mount shows, or at network namespaces"),
            why: "only the chain of one cgroup was asked for, and it can't be told whether they are of it"
                .to_owned(),
            remedy: "look without --below".to_owned(),
        });
    }
    parts.blind.extend(blind.into_iter().map(|blind| Blind {
        what: blind.what,
        why: blind.why,
        remedy: blind.remedy,
    }));
    parts
}

/// Whether a place is of a cgroup's chain, of a cgroup below it, or of this thread's network namespace. `None`: that
/// can't be told.
fn is_of(place: &Place, below: &Path) -> Option<bool> {
    match place {
        Place::Cgroup { path, .. } => {
            let path = path.as_ref()?;
            Some(path.starts_with(below) || below.starts_with(path))
        }
        Place::Device { name, .. } => Some(name.is_some()),
        Place::Namespace { inode, .. } => {
            let own = fs::metadata("/proc/thread-self/ns/net").ok()?;
            Some(own.ino() == u64::from(*inode))
        }
    }
}

/// How long the machine runs: by the clock that load times are of (CLOCK_BOOTTIME, proc_uptime(5)).
pub(super) fn uptime() -> Option<Duration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

impl Parts {
    /// A program that is attached nowhere.
    fn loose(
        &mut self,
        found: LooseProgram,
        arrays: &[inventory::ProgArray],
        calls: &TailCalls<'_>,
        now: Option<Duration>,
    ) {
        let inside = arrays
            .iter()
            .filter(|array| found.called_from.contains(&array.map.id));
        let names: Vec<&str> = inside.map(|array| array.map.name.as_str()).collect();
        self.describe(&found.program, found.ownership, &names, now);
        self.loose.push(Loose {
            program: found.program.id,
            standing: standing(found.ownership),
            called_from: found.called_from.clone(),
            unexplained: found.is_unexplained(),
            armed: (found.ownership != Ownership::Foreign).then_some(found.armed),
            tail_called: calls.of(found.program.id),
        });
        self.loose_found.push(found);
    }

    /// Arrays of the programs that are described, and pinned ones that no program uses.
    fn arrays(&mut self, found: &[inventory::ProgArray], arrays: Vec<ProgArray>) {
        for (found, array) in found.iter().zip(arrays) {
            let mut all = array.callers.iter().chain(&array.programs);
            let pinned = array.callers.is_empty() && !found.map.pinned_at.is_empty();
            if pinned || all.any(|program| self.programs.contains_key(program)) {
                self.maps.entry(array.map).or_insert_with(|| map(&found.map));
                self.prog_arrays.push(array);
            }
        }
    }

    /// A program and its maps; `inside`: names of the arrays of programs that it is in.
    fn describe(
        &mut self,
        found: &ProgramDescription,
        ownership: Ownership,
        inside: &[&str],
        now: Option<Duration>,
    ) {
        if self.programs.contains_key(&found.id) {
            return;
        }
        let mut program = Program {
            id: found.id,
            name: found.name.clone(),
            kind: found.type_name.to_owned(),
            tag: found.tag.iter().map(|byte| format!("{byte:02x}")).collect(),
            loaded_at: u64::try_from(found.loaded_at.as_nanos()).ok(),
            loaded_seconds_ago: now.map(|now| now.saturating_sub(found.loaded_at).as_secs()),
            uid: found.uid,
            maps: found.maps.iter().map(|map| map.id).collect(),
            pinned_at: found.pinned_at.clone(),
            held_by: holders(&found.held_by),
            owner: owner::ours(),
        };
        let mut maps: Vec<Map> = found.maps.iter().map(map).collect();
        if ownership == Ownership::Foreign {
            program.owner = owner::guess(&program, &maps, inside);
        }
        for map in &mut maps {
            map.layout = Tables::layout_of(&program.owner, map);
        }
        for map in maps {
            self.maps.entry(map.id).or_insert(map);
        }
        self.programs.insert(program.id, program);
    }
}

fn prog_array(found: &inventory::ProgArray) -> ProgArray {
    ProgArray {
        map: found.map.id,
        callers: found.callers.clone(),
        programs: found.programs.clone(),
    }
}

fn map(found: &MapDescription) -> Map {
    Map {
        id: found.id,
        name: found.name.clone(),
        kind: found.type_name.to_owned(),
        key_size: found.key_size,
        value_size: found.value_size,
        max_entries: found.max_entries,
        pinned_at: found.pinned_at.clone(),
        held_by: holders(&found.held_by),
        layout: None,
    }
}

fn holders(found: &[inventory::Holder]) -> Vec<Holder> {
    let holder = |holder: &inventory::Holder| Holder {
        pid: holder.pid,
        command: holder.command.clone(),
    };
    found.iter().map(holder).collect()
}

const fn standing(ownership: Ownership) -> Standing {
    match ownership {
        Ownership::Current => Standing::Current,
        Ownership::Earlier => Standing::Earlier,
        Ownership::OtherNode => Standing::OtherNode,
        Ownership::Foreign => Standing::Foreign,
    }
}

fn place(found: &inventory::Place) -> Place {
    match found {
        inventory::Place::Cgroup {
            id,
            path,
            state,
            attach_name,
            ..
        } => Place::Cgroup {
            id: *id,
            path: path.clone(),
            state: match state {
                inventory::CgroupState::Visible => CgroupState::Visible,
                inventory::CgroupState::Hidden => CgroupState::Hidden,
                inventory::CgroupState::Dying => CgroupState::Dying,
            },
            hook: (*attach_name).to_owned(),
        },
        inventory::Place::Device {
            index,
            name,
            layer,
            direction,
        } => Place::Device {
            index: *index,
            name: name.clone(),
            layer: match layer {
                lb_loader::Layer::Xdp => Layer::Xdp,
                lb_loader::Layer::Netkit => Layer::Netkit,
                lb_loader::Layer::Tcx => Layer::Tcx,
                lb_loader::Layer::Clsact => Layer::Clsact,
            },
            direction: match direction {
                lb_loader::Direction::Ingress => Direction::Ingress,
                lb_loader::Direction::Egress => Direction::Egress,
            },
        },
        inventory::Place::Namespace {
            inode, attach_name, ..
        } => Place::Namespace {
            inode: *inode,
            hook: (*attach_name).to_owned(),
        },
    }
}

fn manner(found: &inventory::Manner) -> Manner {
    match found {
        inventory::Manner::Legacy { flags } => Manner::Legacy { flags: *flags },
        inventory::Manner::Link {
            id,
            pinned_at,
            held_by,
        } => Manner::Link {
            id: *id,
            pinned_at: pinned_at.clone(),
            held_by: holders(held_by),
        },
        inventory::Manner::Filter {
            priority,
            handle,
            chain,
        } => Manner::Filter {
            priority: *priority,
            handle: *handle,
            chain: *chain,
        },
        inventory::Manner::XdpNetlink { mode } => Manner::Xdp {
            mode: match mode {
                lb_loader::XdpMode::Native => XdpMode::Native,
                lb_loader::XdpMode::Generic => XdpMode::Generic,
                lb_loader::XdpMode::Hardware => XdpMode::Hardware,
            },
        },
    }
}

/// The kernel's maps, each opened once.
#[derive(Debug, Default)]
pub(super) struct KernelBytes(Mutex<BTreeMap<u32, Arc<RawMap>>>);

impl KernelBytes {
    fn open(&self, map: u32) -> Result<Arc<RawMap>, ReadError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = known.get(&map) {
            return Ok(open.clone());
        }
        let opened = RawMap::open(map).map_err(|error| because(map, error))?;
        let opened = opened.ok_or_else(|| ReadError {
            map,
            why: "it is gone".to_owned(),
        })?;
        let opened = Arc::new(opened);
        known.insert(map, opened.clone());
        Ok(opened)
    }
}

fn because(map: u32, error: impl std::fmt::Display) -> ReadError {
    ReadError {
        map,
        why: error.to_string(),
    }
}

impl MapBytes for KernelBytes {
    fn lookup(&self, map: u32, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.open(map)?.get(key).map_err(|error| because(map, error))
    }

    fn each(&self, map: u32, most: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, ReadError> {
        let entries = self
            .open(map)?
            .entries(most.saturating_add(1))
            .map_err(|error| because(map, error))?;
        for entry in entries.iter().take(most) {
            visit(&entry.key, &entry.value);
        }
        Ok(entries.len() <= most)
    }
}
