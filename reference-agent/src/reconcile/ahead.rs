//! What many Services need that is new, in few operations on many entries: addresses, then backends, then sets.
//!
//! Whatever fails here is left to whom it is for: he tries again, alone, and the failure is his.

use std::{collections::BTreeSet, ops::Range};

use lb_abi::{Address, BackendId, ServiceId};

use super::{
    Reconciler,
    stage::Staged,
    write::SETS,
    written::{PortRef, place},
};
use crate::{
    maps::LbMaps,
    names::ObjectId,
    plan::{PortPlan, ServicePlan},
    transport::Backend,
};

/// How many slots are put together at most, but for the last set of them.
const SLOTS: usize = 16_384;

/// The numbers of the sets of a service port that are written.
type Ids = [Option<ServiceId>; 2];

/// A new set whose slots are about to be put.
struct New {
    at: usize,
    port: PortRef,
    set: crate::plan::Set,
    id: ServiceId,
    staged: Staged,
    backends: Vec<BackendId>,
    /// Its slots, of all that are put.
    slots: Range<usize>,
}

impl<M: LbMaps> Reconciler<M> {
    /// Writes what some Services need that is not there, frontends excepted. The result is of each of their service
    /// ports, in order; nothing where that is all the same.
    pub(super) fn write_ahead(&mut self, chunk: &[(ObjectId, ServicePlan)]) -> Vec<Ids> {
        if chunk.len() < 2 {
            return Vec::new();
        }
        self.addresses_ahead(chunk);
        self.backends_ahead(chunk);
        self.sets_ahead(chunk)
    }

    fn addresses_ahead(&mut self, chunk: &[(ObjectId, ServicePlan)]) {
        let addresses = &self.written.addresses;
        let mut new = Vec::new();
        for (service, plan) in chunk {
            for address in plan.addresses.keys().copied().map(Address::from) {
                if addresses.there().contains_key(&address) {
                    continue;
                }
                if let Some(flags) = addresses.missing(address) {
                    new.push((address, flags));
                    self.touched.insert(*service);
                }
            }
        }
        new.sort_unstable();
        new.dedup();
        if new.is_empty() || (addresses.freed && self.barrier().is_err()) {
            return;
        }
        self.writes += new.len() as u64;
        let result = self.maps.put_addresses(&new);
        let done = result.map_or_else(|partial| partial.done, |()| new.len());
        for &(address, flags) in &new[..done] {
            self.written.addresses.put(address, flags);
        }
    }

    fn backends_ahead(&mut self, chunk: &[(ObjectId, ServicePlan)]) {
        let known = &self.written.backends;
        let ports = chunk.iter().flat_map(|(_, plan)| plan.ports.values());
        let new = ports.flat_map(|port| &port.serving);
        let new: BTreeSet<Backend> = new.copied().filter(|one| known.id(one).is_none()).collect();
        // Who lacks one finds out.
        drop(self.put_new_backends(&new));
    }

    fn sets_ahead(&mut self, chunk: &[(ObjectId, ServicePlan)]) -> Vec<Ids> {
        let mut ids = Vec::new();
        let mut new: Vec<New> = Vec::new();
        let mut slots = Vec::new();
        // What an earlier start has left may be theirs.
        let may_be_adopted = !self.written.unclaimed.is_empty();
        for (service, plan) in chunk {
            for (port, plan) in &plan.ports {
                let at = ids.len();
                ids.push(Ids::default());
                let port = PortRef {
                    service: *service,
                    port: port.clone(),
                };
                if may_be_adopted || slots.len() >= SLOTS || !self.has_place(plan) {
                    continue;
                }
                for set in SETS.into_iter().filter(|&set| plan.uses(set)) {
                    if self.written.id(&port, set).is_some() {
                        continue;
                    }
                    let backends = plan.slots(set);
                    let known = backends.iter().map(|one| self.written.backends.id(one));
                    let Some(backends) = known.collect::<Option<Vec<BackendId>>>() else {
                        continue;
                    };
                    let Ok(id) = self.allocate() else { continue };
                    let first = slots.len();
                    let staged = self.next_slots(id, &backends, plan.affinity_seconds != 0, &mut slots);
                    new.push(New {
                        at,
                        port: port.clone(),
                        set,
                        id,
                        staged,
                        backends,
                        slots: first..slots.len(),
                    });
                }
            }
        }
        if self.put_slots(&slots).is_err() {
            self.written.retired.extend(new.iter().map(|set| set.id));
            return ids;
        }
        for set in new {
            let own = &slots[set.slots];
            match self.switch_to(set.id, set.staged, set.backends.into(), own) {
                Ok(()) => {
                    self.written.assign(&set.port, set.set, set.id);
                    ids[set.at][place(set.set)] = Some(set.id);
                }
                Err(_) => _ = self.written.retired.insert(set.id),
            }
        }
        ids
    }

    /// Whether any frontend of a service port can be put.
    fn has_place(&self, plan: &PortPlan) -> bool {
        let mut addresses = plan.frontends.keys().map(|frontend| frontend.address);
        addresses.any(|address| self.written.addresses.is_place(address.into()))
    }
}
