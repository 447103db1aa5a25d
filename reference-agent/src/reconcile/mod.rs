//! Plan → maps, incrementally: only the difference between a Service's plan and what was written is written.
//!
//! ```text
//! ServicePlans, in chunks ─▶ mod.rs           addresses, clients of the cluster
//!                            service_port.rs  backends, slots of a new generation, the switch, frontends
//!                            collect.rs       after a barrier: old slots, unused backends and numbers
//!                                │ operations
//!                                ▼
//!                            shadow.rs        what the agent believes to be in each map ─▶ LbMaps
//! ```
//!
//! | file | what |
//! |---|---|
//! | `shadow.rs` | each map as it was written, and the only way to write it; made of `addresses.rs`, `backends.rs` and `service_entries.rs` (the entries of one number) |
//! | `adopt.rs` | pinned maps → shadow |
//! | `ports.rs` | the numbers, frontends and backends of each service port |
//! | `service_port.rs` | writes service ports, in an order that no packet can observe |
//! | `departed.rs`, `moved.rs` | backends that have left, and UDP frontends that have moved, of which something may have to be ended |
//! | `garbage.rs` | deletes after a barrier |
//! | `audit.rs` | maps against their shadow |
//! | `retry.rs` | what failed, and when it is tried again |
//!
//! # Guarantees
//! - A program resolves every frontend, inside and outside, to the old set or to the new one, at every single write.
//! - An address is in the map before its first frontend and until after its last one. Ranges of clients are complete from
//!   before the first frontend that uses them until after the last one.
//! - A backend that serves a service port is in the map under one number, with or without a slot.
//! - An unchanged plan causes no write. The cost of a changed plan does not depend on other Services.
//! - A number is reused only after every entry with it is gone, and every program that may have read one has ended.
//! - A failure leaves the old state working, is in [`Reconciler::troubles`], and is tried again.

mod addresses;
mod adopt;
mod audit;
mod backends;
mod departed;
mod garbage;
mod moved;
mod ports;
mod retry;
mod service_entries;
mod service_port;
mod shadow;

use std::{collections::BTreeSet, time::Instant};

use lb_abi::{Address, SourceKey};

use crate::{
    maps::{LbMaps, Map, MapError},
    names::ObjectId,
    plan::ServicePlan,
};

use self::{
    audit::Audit,
    garbage::Collection,
    ports::{PortRef, SetIds},
    retry::{Failure, Retries},
    service_port::{Prepared, ServicePorts},
    shadow::Shadow,
};

pub use self::{
    audit::{Drift, WRONG_LIMIT},
    departed::{Bounded, DEPARTED_LIMIT, Departed},
    garbage::COLLECT_AFTER,
    moved::MovedFrontend,
    retry::{RETRY_FIRST, RETRY_LIMIT, Trouble},
    service_port::REPLACED_LIMIT,
};

/// How many backends and frontends are written together, about. It bounds the plans in memory, and how long frontends wait
/// for those of other Services.
const CHUNK: usize = 1024;

/// Writes plans into maps.
#[derive(Debug)]
pub struct Reconciler<M> {
    shadow: Shadow<M>,
    ports: ServicePorts,
    retries: Retries,
    /// Services of which something was written.
    touched: BTreeSet<ObjectId>,
    collection: Collection,
    audit: Audit,
}

impl<M: LbMaps> Reconciler<M> {
    /// Adopts the maps with their contents. Writes nothing.
    ///
    /// # Errors
    /// The maps can't be read.
    pub fn adopt(maps: M) -> Result<Self, MapError> {
        let shadow = adopt::adopt(maps)?;
        Ok(Self {
            ports: ServicePorts::new(&shadow),
            shadow,
            retries: Retries::default(),
            touched: BTreeSet::new(),
            collection: Collection::default(),
            audit: Audit::default(),
        })
    }

    /// Writes the plans of these Services.
    ///
    /// The first call must have every Service: entries of the maps that are in none of the plans are removed. Of two
    /// Services that could claim the same adopted number, the first does; so Services with kept backends come first.
    ///
    /// Bound: at most [`REPLACED_LIMIT`] existing frontends get other values, as running programs must end between any
    /// two; Services with more of them are [`postponed`](Self::postponed).
    pub fn reconcile(&mut self, plans: impl IntoIterator<Item = (ObjectId, ServicePlan)>, now: Instant) {
        self.ports.begin_round(now);
        let mut errors = Vec::new();
        let mut chunk = Vec::new();
        let mut weight = 0;
        for (service, plan) in plans {
            weight += weight_of(&plan);
            chunk.push((service, plan));
            if weight >= CHUNK {
                self.update(&chunk, now);
                (chunk, weight) = (Vec::new(), 0);
                if self.shadow.to_delete() >= garbage::BATCH {
                    errors = garbage::collect(&mut self.shadow);
                }
            }
        }
        self.update(&chunk, now);
        self.ports.release_adopted(&mut self.shadow);
        errors.extend(self.ports.delete_frontends(&mut self.shadow));
        errors.extend(self.shadow.remove_excess_addresses());
        let has_failed = self.retries.removal_failed();
        self.collection
            .collect_if_due(&mut self.shadow, now, has_failed, &mut errors);
        self.retries.removed(errors, now);
    }

    /// Compares the next map with its shadow, and repairs it.
    pub(crate) fn audit(&mut self) -> Result<Drift, MapError> {
        self.audit.compare_next(&mut self.shadow)
    }

    /// How many entries each map has, in the order of [`Map::ALL`].
    pub(crate) fn entries(&self) -> [usize; Map::ALL.len()] {
        self.shadow.entries()
    }

    /// Services that need a fresh plan now: failed writes are due, or they were postponed.
    pub fn due(&self, now: Instant) -> Vec<ObjectId> {
        let mut due = self.retries.due(now);
        due.extend(self.ports.next());
        due
    }

    /// How many Services wait for another round because others came first.
    pub fn postponed(&self) -> usize {
        self.ports.postponed()
    }

    /// When to call [`reconcile`](Self::reconcile) next without a change.
    pub fn deadline(&self) -> Option<Instant> {
        let times = [
            self.retries.deadline(),
            self.collection.deadline(),
            self.ports.deadline(),
        ];
        times.into_iter().flatten().min()
    }

    /// Failures that last.
    pub fn troubles(&self) -> impl Iterator<Item = Trouble<'_>> {
        self.retries.troubles()
    }

    /// Lasting failures of one Service.
    pub(crate) fn failures(&self, service: ObjectId) -> impl Iterator<Item = Trouble<'_>> {
        self.retries.troubles_of(service)
    }

    /// Services with lasting failures.
    pub(crate) fn failing(&self) -> impl Iterator<Item = ObjectId> {
        self.retries.services()
    }

    /// Services of which something was written since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.touched)
    }

    /// UDP backends that left since the last call.
    pub(crate) fn take_departed(&mut self) -> Bounded<Departed> {
        self.ports.take_departed()
    }

    /// UDP frontends that have moved since the last call.
    pub(crate) fn take_moved(&mut self) -> Bounded<MovedFrontend> {
        self.ports.take_moved(&self.shadow)
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        self.shadow.maps()
    }

    /// The maps, to be disturbed by a test.
    pub fn maps_mut(&mut self) -> &mut M {
        self.shadow.maps_mut()
    }

    /// Returns the maps.
    pub fn into_maps(self) -> M {
        self.shadow.into_maps()
    }

    /// Writes some Services: first everything that frontends lead to, then the frontends of all.
    fn update(&mut self, chunk: &[(ObjectId, ServicePlan)], now: Instant) {
        let mut failures: Vec<Vec<Failure>> = chunk.iter().map(|_| Vec::new()).collect();
        let mut prepared: Vec<(Prepared, usize)> = Vec::with_capacity(chunk.len());
        for (service, plan) in chunk {
            self.ports.begin_service(&mut self.shadow, *service, &plan.ports);
            let addresses = plan.addresses.iter();
            let addresses = addresses.map(|(&address, &flags)| (Address::from(address), flags));
            self.shadow
                .want_addresses(*service, &addresses.collect::<Vec<_>>());
        }
        self.ports.reserve(&self.shadow, chunk);
        let mut ahead = self.write_ahead(chunk).into_iter();
        for (index, (service, plan)) in chunk.iter().enumerate() {
            let before = self.shadow.writes();
            self.put_addresses(plan, &mut failures[index]);
            if *service == ObjectId::NODE {
                self.put_clients(plan, &mut failures[index]);
            }
            let mut has_frontends = false;
            for (port, plan) in &plan.ports {
                let at = PortRef::new(*service, port);
                let ahead = ahead.next().unwrap_or_default();
                let failures = &mut failures[index];
                let port = self.ports.prepare(&mut self.shadow, &at, plan, ahead, failures);
                has_frontends |= port.has_frontends();
                prepared.push((port, index));
            }
            if self.shadow.writes() != before || has_frontends {
                self.touched.insert(*service);
            }
        }
        self.ports
            .put_frontends(&mut self.shadow, &prepared, &mut failures);
        let ports = chunk.iter().flat_map(|(_, plan)| plan.ports.values());
        for ((prepared, index), plan) in prepared.iter().zip(ports) {
            self.ports
                .finish(&mut self.shadow, prepared, plan, &mut failures[*index]);
        }
        for ((service, _), failures) in chunk.iter().zip(failures) {
            self.retries.attempted(*service, failures, now);
        }
    }

    /// Writes missing entries of several Services, frontends excepted, in few operations on many entries. The result: the
    /// numbers of the written sets, for each service port in order; empty if there are none.
    fn write_ahead(&mut self, chunk: &[(ObjectId, ServicePlan)]) -> Vec<SetIds> {
        if chunk.len() < 2 {
            return Vec::new();
        }
        let mut new = Vec::new();
        for (service, plan) in chunk {
            for address in plan.addresses.keys().copied().map(Address::from) {
                if !self.shadow.has_address(address)
                    && let Some(flags) = self.shadow.missing_flags(address)
                {
                    new.push((address, flags));
                    self.touched.insert(*service);
                }
            }
        }
        new.sort_unstable();
        new.dedup();
        self.shadow.put_addresses(&new);
        self.ports.write_new_sets(&mut self.shadow, chunk)
    }

    fn put_addresses(&mut self, plan: &ServicePlan, failures: &mut Vec<Failure>) {
        for address in plan.addresses.keys().copied().map(Address::from) {
            if let Some(flags) = self.shadow.missing_flags(address)
                && let Err(error) = self.shadow.put_address(address, flags)
            {
                failures.push(Failure::of_no_port(error));
            }
        }
    }

    /// Writes the ranges of the cluster's clients, in any order.
    fn put_clients(&mut self, plan: &ServicePlan, failures: &mut Vec<Failure>) {
        let ranges = plan.clients.iter();
        let wanted = ranges
            .map(|range| SourceKey::range(SourceKey::CLUSTER, range.address().into(), range.length()))
            .collect();
        // One failure is enough, if the map is full.
        if let Err(error) = self.shadow.put_clients(wanted) {
            failures.push(Failure::of_no_port(error));
        }
    }
}

/// How many entries a plan is about, and one.
fn weight_of(plan: &ServicePlan) -> usize {
    let ports = plan.ports.values();
    let entries = ports.map(|port| port.serving.len() + port.frontends.len());
    entries.sum::<usize>() + 1
}
