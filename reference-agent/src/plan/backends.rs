//! The backends of a service port: its endpoints in all slices, merged, and the sets made of them.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::Perspective;
use crate::{
    endpoint_address::{Backend, Family, Protocol, TransportAddress},
    model::{Endpoint, Model, ServicePort},
    names::ObjectId,
};

/// Most backends of a set: a fourth of BACKENDS, and a sixteenth of SLOTS, so that no Service fills a map.
pub const BACKENDS: usize = 16_384;

/// The sets of one service port in one family, and what was left out of them.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) cluster: BTreeSet<Backend>,
    pub(super) local: BTreeSet<Backend>,
    pub(super) serving: BTreeSet<Backend>,
    /// Ready, and on this node.
    pub(super) ready_here: BTreeSet<IpAddr>,
    /// Cluster IPs.
    pub(super) refused: BTreeSet<IpAddr>,
    /// How many endpoints serve, if not all of them fit into the sets.
    pub(super) clipped: Option<usize>,
}

/// The service port whose backends are wanted.
#[derive(Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) service: ObjectId,
    pub(super) port: &'a ServicePort,
    pub(super) family: Family,
}

/// The sets of a service port.
pub(super) fn sets(model: &Model, perspective: &Perspective, port: Port<'_>) -> Sets {
    let node = perspective.node.as_str();
    let zone = model.node(node).and_then(|node| node.zone.as_deref());
    let mut sets = Sets::default();
    let entries = merged(collect(model, node, zone, port, &mut sets.refused));
    let ready = |entry: &&Entry| entry.has(READY);
    let here = |entry: &&Entry| entry.has(HERE);
    let serves = |entry: &&Entry| entry.has(READY | TERMINATING);
    let protocol = port.port.protocol;
    let take = |entries: &mut dyn Iterator<Item = &Entry>| -> BTreeSet<Backend> {
        let taken = entries.take(BACKENDS);
        taken.map(|entry| entry.backend(port.family, protocol)).collect()
    };

    let wanted = topology(entries.iter().filter(ready));
    sets.cluster = take(&mut entries.iter().filter(ready).filter(|entry| entry.has_all(wanted)));
    if sets.cluster.is_empty() {
        sets.cluster = take(&mut entries.iter().filter(serves));
    }
    sets.local = take(&mut entries.iter().filter(ready).filter(here));
    sets.ready_here = sets.local.iter().map(|backend| backend.address.address).collect();
    if sets.local.is_empty() {
        sets.local = take(&mut entries.iter().filter(serves).filter(here));
    }
    let serving = entries.iter().filter(serves).count();
    if serving == sets.cluster.len() {
        sets.serving.clone_from(&sets.cluster);
    } else {
        sets.serving = take(&mut entries.iter().filter(serves));
    }
    if serving > BACKENDS {
        sets.serving.extend(sets.cluster.iter().chain(&sets.local));
        sets.clipped = Some(serving);
    }
    sets
}

/// Takes traffic.
const READY: u8 = 1;
/// Terminating, and still serving.
const TERMINATING: u8 = 1 << 1;
/// On this node.
const HERE: u8 = 1 << 2;
/// At an address of this machine. Such an endpoint is local without naming its node, as those of `default/kubernetes`
/// are.
const OWN: u8 = 1 << 7;
/// Hints for nodes, and for this one.
const FOR_NODES: u8 = 1 << 3;
const FOR_THIS_NODE: u8 = 1 << 4;
/// Hints for zones, and for this node's.
const FOR_ZONES: u8 = 1 << 5;
const FOR_THIS_ZONE: u8 = 1 << 6;

/// An address and port with their flags. Small, because there may be a hundred thousand.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// As a number; its family is known.
    address: u128,
    port: u16,
    flags: u8,
}

impl Entry {
    const fn has(&self, any: u8) -> bool {
        self.flags & any != 0
    }

    const fn has_all(&self, all: u8) -> bool {
        self.flags & all == all
    }

    fn backend(&self, family: Family, protocol: Protocol) -> Backend {
        let address = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(
                u32::try_from(self.address).unwrap_or_default(),
            )),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.address)),
        };
        Backend {
            address: TransportAddress {
                protocol,
                address,
                port: self.port,
            },
            local: self.has(HERE | OWN),
        }
    }
}

/// An entry for each endpoint of each slice that has the port.
fn collect(
    model: &Model,
    node: &str,
    zone: Option<&str>,
    Port {
        service,
        port,
        family,
    }: Port<'_>,
    refused: &mut BTreeSet<IpAddr>,
) -> Vec<Entry> {
    let slices = model.slices_of(service);
    let mut entries = Vec::with_capacity(slices.iter().map(|slice| slice.endpoints.len()).sum());
    for slice in slices {
        let ports = slice.ports.iter();
        for target in ports.filter(|target| target.protocol == port.protocol && target.name == port.name) {
            for endpoint in &slice.endpoints {
                let address = match (endpoint.address, family) {
                    (IpAddr::V4(v4), Family::V4) => v4.to_bits().into(),
                    (IpAddr::V6(v6), Family::V6) => v6.to_bits(),
                    _ => continue,
                };
                if model.refused().contains(&endpoint.address) {
                    refused.insert(endpoint.address);
                    continue;
                }
                let own = model
                    .host()
                    .is_some_and(|host| host.addresses.contains(&endpoint.address));
                entries.push(Entry {
                    address,
                    port: target.port,
                    flags: flags(endpoint, node, zone) | if own { OWN } else { 0 },
                });
            }
        }
    }
    entries
}

fn flags(endpoint: &Endpoint, node: &str, zone: Option<&str>) -> u8 {
    let mut flags = 0;
    if endpoint.node.as_deref() == Some(node) {
        flags |= HERE;
    }
    if !endpoint.ready {
        let fallback = endpoint.serving && endpoint.terminating;
        return flags | if fallback { TERMINATING } else { 0 };
    }
    flags |= READY;
    if !endpoint.for_nodes.is_empty() {
        flags |= FOR_NODES;
        if endpoint.for_nodes.contains(node) {
            flags |= FOR_THIS_NODE;
        }
    }
    if !endpoint.for_zones.is_empty() {
        flags |= FOR_ZONES;
        if zone.is_some_and(|zone| endpoint.for_zones.contains(zone)) {
            flags |= FOR_THIS_ZONE;
        }
    }
    flags
}

/// One entry for each address and port, in order. Only ready entries have flags of hints; one that is ready in one slice
/// and terminating in another is ready.
fn merged(mut entries: Vec<Entry>) -> Vec<Entry> {
    // The stable sort merges runs that are in order, as slices often are.
    entries.sort_by_key(|entry| (entry.address, entry.port));
    entries.dedup_by(|next, first| {
        let same = (next.address, next.port) == (first.address, first.port);
        if same {
            first.flags |= next.flags;
        }
        same
    });
    entries
}

/// The flag that a ready entry must have to be in the cluster set. Hints count only if every ready entry has one, and one
/// of them is for this node or zone (KEP-2433, "safeguards"). Hints for nodes come before those for zones.
fn topology<'a>(ready: impl Iterator<Item = &'a Entry>) -> u8 {
    let (mut all, mut any) = (u8::MAX, 0);
    for entry in ready {
        all &= entry.flags;
        any |= entry.flags;
    }
    if all & FOR_NODES != 0 && any & FOR_THIS_NODE != 0 {
        FOR_THIS_NODE
    } else if all & FOR_ZONES != 0 && any & FOR_THIS_ZONE != 0 {
        FOR_THIS_ZONE
    } else {
        0
    }
}
