//! How many slots Maglev's tables of all Services take at most. It follows from the numbers of ports and endpoints
//! alone, so that all nodes agree.

use std::net::IpAddr;

use super::objects::{Policy, Service};
use crate::{
    endpoint_address::Family,
    hash::HashMap,
    maglev::{SCALES, Scale},
    model::FRONTENDS,
    names::ObjectId,
};

/// The size of the tables of all Services.
#[derive(Debug, Default)]
pub struct Tables {
    of: HashMap<ObjectId, Share>,
    count: usize,
    /// By scale.
    slots: [usize; SCALES.len()],
}

/// One Service's share, by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    tables: [usize; 2],
    endpoints: [usize; 2],
    /// Whether each backend takes one more entry in each table, for session affinity.
    members: bool,
}

impl Share {
    fn count(&self) -> usize {
        self.tables.iter().sum()
    }

    /// An upper limit: no node has more backends than there are endpoints.
    fn slots(&self, scale: Scale) -> usize {
        let of_family = |(&tables, &endpoints): (&usize, &usize)| {
            let members = if self.members { endpoints } else { 0 };
            tables * (scale.most(endpoints) + members)
        };
        self.tables.iter().zip(&self.endpoints).map(of_family).sum()
    }
}

impl Tables {
    /// Whether there are no tables and no endpoints.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.count == 0 && self.slots.iter().all(|slots| *slots == 0)
    }

    /// How many tables there are at most: one for each service port and family, and one more where a traffic policy is
    /// `Local`.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// How many slots the tables take at most, with the largest scale.
    pub const fn wanted(&self) -> usize {
        self.slots[0]
    }

    /// The largest scale with which all tables fit into half of these slots, or the smallest one.
    pub fn scale(&self, slots: u32) -> Scale {
        let half = usize::try_from(slots / 2).unwrap_or(usize::MAX);
        let mut scales = SCALES.into_iter().zip(self.slots);
        let [.., last] = SCALES;
        scales
            .find(|(_, slots)| *slots <= half)
            .map_or(last, |(scale, _)| scale)
    }

    /// Puts or deletes a Service.
    pub(super) fn service(&mut self, id: ObjectId, service: Option<&Service>) {
        let tables = |family| service.map_or(0, |service| tables(service, family));
        let members = service.is_some_and(|service| service.affinity_seconds != 0);
        self.change(id, |share| {
            share.tables = [Family::V4, Family::V6].map(tables);
            share.members = members;
        });
    }

    /// Replaces some of a Service's endpoints.
    pub(super) fn endpoints(&mut self, id: ObjectId, old: &[IpAddr], new: &[IpAddr]) {
        let count = |addresses: &[IpAddr], family| {
            let addresses = addresses.iter();
            addresses
                .filter(|&&address| Family::of(address) == family)
                .count()
        };
        self.change(id, |share| {
            for (endpoints, family) in share.endpoints.iter_mut().zip([Family::V4, Family::V6]) {
                *endpoints = *endpoints + count(new, family) - count(old, family);
            }
        });
    }

    fn change(&mut self, id: ObjectId, change: impl FnOnce(&mut Share)) {
        let before = self.of.get(&id).copied().unwrap_or_default();
        let mut after = before;
        change(&mut after);
        if after == before {
            return;
        }
        if after == Share::default() {
            self.of.remove(&id);
        } else {
            self.of.insert(id, after);
        }
        self.count = self.count + after.count() - before.count();
        for (slots, scale) in self.slots.iter_mut().zip(SCALES) {
            *slots = *slots + after.slots(scale) - before.slots(scale);
        }
    }
}

/// How many sets of backends a Service has at most in a family.
fn tables(service: &Service, family: Family) -> usize {
    if !service.cluster_ips.iter().any(|&ip| Family::of(ip) == family) {
        return 0;
    }
    let local = [service.internal_policy, service.external_policy].contains(&Policy::Local);
    let sets = if local { 2 } else { 1 };
    service.ports.len().min(FRONTENDS) * sets
}
