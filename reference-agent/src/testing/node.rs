//! A node without a kernel: maps in memory, and a cgroup that is a list.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use doctor::{EvictionError, Found, Inventory, LooseProgram};
use lb_loader::{Attachment, Blind, DeviceKind, Hook, LoaderError, Ownership};

pub use super::node_found::as_found;
use super::{
    connections::{NodeConnections, Records},
    node_found::description,
    node_maps::NodeMaps,
};
use crate::{
    datapath::Datapath,
    endpoint_address::Range,
    maps::{Contents, LbMaps as _, memory::MemoryMaps},
};

/// A node that outlives its agents, like maps and programs in a kernel. Clones are the same node.
#[derive(Clone, Debug, Default)]
pub struct Node(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) maps: MemoryMaps,
    pub(super) records: Records,
    attached: Vec<Attachment>,
    /// Programs of earlier loads at places that can't be read.
    loose: BTreeSet<u32>,
    blind: Vec<Blind>,
    loads: u32,
    opened_before: bool,
    refuse_attach: bool,
    cut_attach_short: bool,
    attached_whole: u32,
    refuse_evict: bool,
    pub(super) addresses: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    pub(super) service_ranges: Vec<Range>,
    pub(super) refuse_ranges: bool,
    /// Device, load and kind of what is attached.
    devices: BTreeMap<u32, (u32, DeviceKind)>,
    refused_devices: BTreeSet<u32>,
    gone_devices: BTreeSet<u32>,
    /// Attachments in their order: `cgroup`, or a device's index.
    order: Vec<String>,
}

impl Node {
    /// Nothing attached, maps empty.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contents of the maps.
    pub fn contents(&self) -> Contents {
        self.lock().maps.contents().unwrap_or_default()
    }

    /// Violations of the law of order.
    pub fn violations(&self) -> Vec<String> {
        self.lock().maps.violations().to_vec()
    }

    /// Opens the datapath as an agent does at its start. The maps are adopted from the second time on.
    pub fn open(&self) -> NodeDatapath {
        let mut state = self.lock();
        state.loads += 1;
        let adopted = std::mem::replace(&mut state.opened_before, true);
        NodeDatapath {
            node: self.clone(),
            load: state.loads,
            adopted,
        }
    }

    /// Attaches a program of another owner or load.
    pub fn leave(&self, hook: Hook, program_id: u32, ownership: Ownership) {
        self.lock()
            .attached
            .push(attachment(hook, program_id, None, ownership));
    }

    /// Adds a program of an earlier load at a place that can't be read.
    pub fn leave_hidden(&self, program_id: u32) {
        self.lock().loose.insert(program_id);
    }

    /// Programs of earlier loads at places that can't be read.
    pub fn hidden(&self) -> BTreeSet<u32> {
        self.lock().loose.clone()
    }

    /// Makes a place unreadable; `None`: all are readable.
    pub fn blind(&self, blind: Option<Blind>) {
        self.lock().blind = blind.into_iter().collect();
    }

    /// Another program detaches everything at a hook.
    pub fn detach(&self, hook: Hook) {
        self.lock().attached.retain(|found| found.hook != hook);
    }

    /// From now on attaching fails, or doesn't.
    pub fn refuse_attach(&self, refuse: bool) {
        self.lock().refuse_attach = refuse;
    }

    /// From now on attaching fails after the programs are attached, or doesn't.
    pub fn cut_attach_short(&self, cut: bool) {
        self.lock().cut_attach_short = cut;
    }

    /// How often attaching was completed.
    pub fn attached_whole(&self) -> u32 {
        self.lock().attached_whole
    }

    /// From now on evicting fails, or doesn't.
    pub fn refuse_evict(&self, refuse: bool) {
        self.lock().refuse_evict = refuse;
    }

    /// From now on attaching to a device fails, or doesn't.
    pub fn refuse_device(&self, device: u32, refuse: bool) {
        let mut state = self.lock();
        match refuse {
            true => _ = state.refused_devices.insert(device),
            false => _ = state.refused_devices.remove(&device),
        }
    }

    /// Removes a device, with its programs.
    pub fn remove_device(&self, device: u32) {
        let mut state = self.lock();
        state.devices.remove(&device);
        state.gone_devices.insert(device);
    }

    /// Another program detaches everything at a device.
    pub fn detach_device(&self, device: u32) {
        self.lock().devices.remove(&device);
    }

    /// Attachments since the last call, in order: `cgroup`, or a device's index.
    pub fn order(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().order)
    }

    /// Devices with programs, and their kinds.
    pub fn devices(&self) -> BTreeMap<u32, DeviceKind> {
        let kind = |(device, (_, kind)): (&u32, &(u32, DeviceKind))| (*device, *kind);
        self.lock().devices.iter().map(kind).collect()
    }

    /// Programs at a hook, in the order of running.
    pub fn programs(&self, hook: Hook) -> Vec<u32> {
        let state = self.lock();
        let there = state.attached.iter().filter(|found| found.hook == hook);
        there.map(|found| found.program_id).collect()
    }
}

fn attachment(hook: Hook, program_id: u32, link_id: Option<u32>, ownership: Ownership) -> Attachment {
    Attachment {
        hook,
        program_id,
        link_id,
        ownership,
        name: "connect4".to_owned(),
        map_ids: Vec::new(),
    }
}

pub(super) fn refused(what: &str) -> LoaderError {
    let source = std::io::Error::from_raw_os_error(1);
    LoaderError::Kernel {
        what: what.to_owned(),
        source,
    }
}

/// One agent's hold on a [`Node`].
#[derive(Debug)]
pub struct NodeDatapath {
    node: Node,
    load: u32,
    adopted: bool,
}

impl NodeDatapath {
    /// Id of the program of a hook in this load.
    fn program(&self, hook: Hook) -> u32 {
        let index = Hook::ALL.iter().position(|one| *one == hook).unwrap_or_default();
        self.load * 1000 + u32::try_from(index).unwrap_or_default()
    }

    fn is_current(&self, found: &Attachment) -> bool {
        found.program_id == self.program(found.hook)
    }
}

impl Datapath for NodeDatapath {
    type Maps = NodeMaps;
    type Connections = NodeConnections;

    fn maps(&self) -> NodeMaps {
        NodeMaps(self.node.clone())
    }

    fn connections(&self) -> Result<NodeConnections, LoaderError> {
        Ok(NodeConnections(self.node.clone()))
    }

    fn adopted(&self) -> bool {
        self.adopted
    }

    fn first(&self) -> bool {
        // Programs whose pins are lost have connections too.
        let left = self.leftovers().unwrap_or_default();
        !self.adopted && left.attachments.is_empty()
    }

    fn attach(&mut self) -> Result<(), EvictionError> {
        let mut state = self.node.lock();
        if state.refuse_attach {
            return Err(refused("attach connect4").into());
        }
        for hook in Hook::ALL {
            let program_id = self.program(hook);
            // The link of an earlier start is switched; without one there is a new link.
            match state
                .attached
                .iter_mut()
                .find(|found| found.hook == hook && found.link_id.is_some())
            {
                Some(link) => link.program_id = program_id,
                None => {
                    let link_id = Some(program_id + 500);
                    state
                        .attached
                        .push(attachment(hook, program_id, link_id, Ownership::Current));
                }
            }
        }
        if state.cut_attach_short {
            return Err(refused("take over from the set of maps that is replaced").into());
        }
        state.attached_whole += 1;
        state.order.push("cgroup".to_owned());
        Ok(())
    }

    fn unattached(&self) -> Result<Vec<Hook>, LoaderError> {
        let state = self.node.lock();
        let there = |hook: &Hook| {
            let mut attached = state.attached.iter();
            attached.any(|found| found.hook == *hook && self.is_current(found))
        };
        Ok(Hook::ALL.into_iter().filter(|hook| !there(hook)).collect())
    }

    fn addresses(&self) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), LoaderError> {
        Ok(self.node.addresses())
    }

    fn set_addresses(&mut self, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Result<(), LoaderError> {
        self.node.lock().addresses = (v4, v6);
        Ok(())
    }

    fn set_service_ranges(&mut self, ranges: &[Range]) -> Result<(), LoaderError> {
        let mut state = self.node.lock();
        if state.refuse_ranges {
            return Err(refused("put CONFIG"));
        }
        state.service_ranges = ranges.to_vec();
        Ok(())
    }

    fn attach_device(&mut self, device: u32, kind: DeviceKind) -> Result<(), LoaderError> {
        let mut state = self.node.lock();
        if state.gone_devices.contains(&device) {
            return Err(LoaderError::NoDevice {
                device: format!("with index {device}"),
                found: Vec::new(),
            });
        }
        if state.refused_devices.contains(&device) {
            return Err(refused("attach node_egress"));
        }
        state.devices.insert(device, (self.load, kind));
        state.order.push(device.to_string());
        Ok(())
    }

    fn detach_device(&mut self, device: u32) -> Result<(), LoaderError> {
        self.node.lock().devices.remove(&device);
        Ok(())
    }

    fn devices(&self) -> Result<BTreeMap<u32, Option<DeviceKind>>, LoaderError> {
        let state = self.node.lock();
        let kind = |(load, kind): &(u32, DeviceKind)| (*load == self.load).then_some(*kind);
        Ok(state
            .devices
            .iter()
            .map(|(device, there)| (*device, kind(there)))
            .collect())
    }

    fn foreign(&self) -> Result<Vec<Attachment>, LoaderError> {
        let state = self.node.lock();
        let foreign = |found: &&Attachment| found.ownership == Ownership::Foreign;
        Ok(state.attached.iter().filter(foreign).cloned().collect())
    }

    fn leftovers(&self) -> Result<Inventory, LoaderError> {
        let state = self.node.lock();
        let stale = |found: &&Attachment| found.ownership != Ownership::Foreign && !self.is_current(found);
        let attachments = state.attached.iter().filter(stale).map(as_found);
        let loose = state.loose.iter().map(|id| LooseProgram {
            program: description(*id),
            ownership: Ownership::Earlier,
            called_from: Vec::new(),
            armed: true,
        });
        Ok(Inventory {
            attachments: attachments.collect(),
            loose: loose.collect(),
            prog_arrays: Vec::new(),
            blind: state.blind.clone(),
        })
    }

    fn evict(&self, leftover: &Found) -> Result<(), EvictionError> {
        let mut state = self.node.lock();
        if state.refuse_evict {
            return Err(refused("detach program").into());
        }
        state.attached.retain(|found| as_found(found) != *leftover);
        Ok(())
    }

    fn disarm(&self, leftover: &LooseProgram) -> Result<(), EvictionError> {
        let mut state = self.node.lock();
        if state.refuse_evict {
            return Err(refused("take the maps out of use").into());
        }
        state.loose.remove(&leftover.program.id);
        Ok(())
    }
}
