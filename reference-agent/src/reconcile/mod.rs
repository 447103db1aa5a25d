//! Plan → maps, incrementally: what is written for a Service is compared with its plan, and only the difference
//! is written.
//!
//! ```text
//! ServicePlans, in chunks ─▶ ahead.rs    what is new, in batches: addresses, backends, slots
//!                            write.rs    a service port: sets, ranges of clients, frontends, what is left over
//!                              stage.rs    a set: backends, slots of a new generation, the switch
//!                              kept.rs     what the agent's own sockets keep
//!                              serve.rs    to whom established flows keep, and who has departed
//!                              moved.rs    UDP frontends that pass to another service port
//!                            clients.rs  who is of the cluster
//!                            postpone.rs who has to wait for another round
//!                            collect.rs  frontends and addresses that nobody wants, barrier, old slots, numbers
//! audit.rs                   maps against bookkeeping
//! ```
//!
//! Bookkeeping, what is in the maps, by number: `written.rs`, `record.rs`, `addresses.rs`, `backends.rs`; read from
//! pinned maps by `adopt.rs`. `retry.rs`: what failed, and when it is tried again.
//!
//! # Guarantees
//! - A program resolves every frontend, inside and outside, to the old set or to the new one, at every single write.
//! - An address is known before its first frontend is there, and until its last one is gone; ranges of clients are
//!   complete before a frontend asks for them, and for as long.
//! - A backend that serves a service port is in the map under one number, whether a slot carries it or not.
//! - An unchanged plan causes no write, and a changed one no look at others.
//! - A number is handed out again only after every entry that carries it is gone and every program that may
//!   have read one has ended.
//! - Whatever fails leaves the old state working, is named by [`Reconciler::troubles`], and is tried again.

mod addresses;
mod adopt;
mod ahead;
mod audit;
mod backends;
mod clients;
mod collect;
mod kept;
mod moved;
mod postpone;
mod record;
mod retry;
mod serve;
mod stage;
mod write;
mod written;

use std::{collections::BTreeSet, time::Instant};

use lb_abi::Address;

use crate::{
    maps::{LbMaps, MapError},
    names::ObjectId,
    plan::ServicePlan,
};

use self::{
    audit::Audit,
    moved::Owners,
    postpone::Postponed,
    retry::{Failure, Retries},
    write::{Prepared, SETS},
    written::{PortRef, Written},
};

pub use self::{
    audit::{Drift, WRONG_LIMIT},
    collect::COLLECT_AFTER,
    moved::MovedFrontend,
    postpone::REPLACED_LIMIT,
    retry::{RETRY_FIRST, RETRY_LIMIT, Trouble},
    serve::{Bounded, DEPARTED_LIMIT, Departed},
};

/// How many backends and frontends are written together at most, but for the last Service of them: bounds the plans
/// that are there at one time, and for how long its frontends wait for others'.
const CHUNK: usize = 1024;

/// Writes plans into maps.
#[derive(Debug)]
pub struct Reconciler<M> {
    maps: M,
    written: Written,
    retries: Retries,
    postponed: Postponed,
    departed: Bounded<Departed>,
    owners: Owners,
    /// Services of which something was written.
    touched: BTreeSet<ObjectId>,
    /// When to remove what is waiting for that.
    collect_at: Option<Instant>,
    /// How many entries were put or deleted, or were to be.
    writes: u64,
    audit: Audit,
}

impl<M: LbMaps> Reconciler<M> {
    /// Takes over the maps with what is in them. Writes nothing.
    ///
    /// # Errors
    /// The maps can't be read.
    pub fn adopt(maps: M) -> Result<Self, MapError> {
        let written = adopt::adopt(&maps.contents()?);
        Ok(Self {
            maps,
            written,
            retries: Retries::default(),
            postponed: Postponed::default(),
            departed: Bounded::default(),
            owners: Owners::default(),
            touched: BTreeSet::new(),
            collect_at: None,
            writes: 0,
            audit: Audit::default(),
        })
    }

    /// Makes the maps say what the plans of these Services say.
    ///
    /// The first call must name every Service there is: whatever is in the maps and in none of its plans is
    /// removed. Of two that could take over the same numbers, the first does; so those of which something is to be kept
    /// come first.
    ///
    /// Bound: at most [`REPLACED_LIMIT`] frontends that are there are given other values, between any two of which
    /// running programs must end; Services with more to be replaced are [`postponed`](Self::postponed).
    pub fn reconcile(&mut self, plans: impl IntoIterator<Item = (ObjectId, ServicePlan)>, now: Instant) {
        self.postponed.begin(now);
        let mut errors = Vec::new();
        let mut chunk = Vec::new();
        let mut weight = 0;
        for (service, plan) in plans {
            weight += weight_of(&plan);
            chunk.push((service, plan));
            if weight >= CHUNK {
                self.update(&chunk, now);
                (chunk, weight) = (Vec::new(), 0);
                if self.written.leaving() >= collect::BATCH {
                    errors = self.collect();
                }
            }
        }
        self.update(&chunk, now);
        self.written.retire_unclaimed();
        self.disown();
        errors.extend(self.delete_frontends());
        errors.extend(self.delete_addresses());
        self.collect_if_due(now, &mut errors);
        self.retries.removed(errors, now);
    }

    /// Services whose failed writes are to be tried again now, or whose turn it is, with a fresh plan.
    pub fn due(&self, now: Instant) -> Vec<ObjectId> {
        let mut due = self.retries.due(now);
        due.extend(self.postponed.next());
        due
    }

    /// How many Services are not written in full because others come first.
    pub fn postponed(&self) -> usize {
        self.postponed.len()
    }

    /// When to call [`reconcile`](Self::reconcile) next, though no Service has changed.
    pub fn deadline(&self) -> Option<Instant> {
        let times = [
            self.retries.deadline(),
            self.collect_at,
            self.postponed.deadline(),
        ];
        times.into_iter().flatten().min()
    }

    /// What failed and has not succeeded since.
    pub fn troubles(&self) -> impl Iterator<Item = Trouble<'_>> {
        self.retries.troubles()
    }

    /// What failed of one Service and has not succeeded since.
    pub(crate) fn failures(&self, service: ObjectId) -> impl Iterator<Item = Trouble<'_>> {
        self.retries.troubles_of(service)
    }

    /// Services of which something failed and has not succeeded since.
    pub(crate) fn failing(&self) -> impl Iterator<Item = ObjectId> {
        self.retries.services()
    }

    /// Services of which something was written since this was asked last.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.touched)
    }

    /// UDP backends that left since this was asked last.
    pub(crate) fn take_departed(&mut self) -> Bounded<Departed> {
        std::mem::take(&mut self.departed)
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// The maps, to be disturbed by a test.
    pub fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// Gives the maps back: what a process that ends leaves.
    pub fn into_maps(self) -> M {
        self.maps
    }

    /// Writes some Services: first everything that frontends lead to, then the frontends of all.
    fn update(&mut self, chunk: &[(ObjectId, ServicePlan)], now: Instant) {
        let mut failures: Vec<Vec<Failure>> = chunk.iter().map(|_| Vec::new()).collect();
        let mut prepared: Vec<(Prepared, usize)> = Vec::with_capacity(chunk.len());
        for (service, plan) in chunk {
            self.postponed.remove(*service);
            for port in self.written.drop_ports(*service, &plan.ports) {
                self.release(&port);
            }
            let addresses = plan.addresses.iter();
            let addresses = addresses.map(|(&address, &flags)| (Address::from(address), flags));
            self.written
                .addresses
                .want(*service, &addresses.collect::<Vec<_>>());
        }
        self.reserve(chunk);
        let mut ahead = self.write_ahead(chunk).into_iter();
        for (owner, (service, plan)) in chunk.iter().enumerate() {
            let before = self.writes;
            self.update_addresses(plan, &mut failures[owner]);
            self.update_clients(*service, plan, &mut failures[owner]);
            let mut frontends = false;
            for (port, wanted) in &plan.ports {
                let at = PortRef {
                    service: *service,
                    port: port.clone(),
                };
                let ahead = ahead.next().unwrap_or_default();
                let port = self.prepare(&at, wanted, ahead, &mut failures[owner]);
                frontends |= !port.frontends.is_empty();
                prepared.push((port, owner));
            }
            if self.writes != before || frontends {
                self.touched.insert(*service);
            }
        }
        self.place(&prepared, &mut failures);
        let ports = chunk.iter().flat_map(|(_, plan)| plan.ports.values());
        for ((prepared, owner), plan) in prepared.iter().zip(ports) {
            self.finish(prepared, plan, &mut failures[*owner]);
        }
        for ((service, _), failures) in chunk.iter().zip(failures) {
            self.retries.attempted(*service, failures, now);
        }
    }

    /// Says whose adopted numbers are, where that is known, before anybody takes one.
    fn reserve(&mut self, chunk: &[(ObjectId, ServicePlan)]) {
        if self.written.unclaimed.is_empty() {
            return;
        }
        for (service, plan) in chunk {
            for (port, plan) in &plan.ports {
                let at = PortRef {
                    service: *service,
                    port: port.clone(),
                };
                for set in SETS.into_iter().filter(|&set| plan.uses(set)) {
                    self.written.reserve(&at, set, plan);
                }
            }
        }
    }

    fn update_addresses(&mut self, plan: &ServicePlan, failures: &mut Vec<Failure>) {
        for address in plan.addresses.keys().copied().map(Address::from) {
            if let Some(flags) = self.written.addresses.missing(address)
                && let Err(error) = self.put_address(address, flags)
            {
                failures.push(Failure { port: None, error });
            }
        }
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        if self.written.addresses.freed {
            self.barrier()?;
        }
        self.writes += 1;
        self.maps.put_address(address, flags)?;
        self.written.addresses.put(address, flags);
        Ok(())
    }

    /// Waits for running programs: what was freed before may be used again.
    fn barrier(&mut self) -> Result<(), MapError> {
        self.maps.barrier()?;
        self.written.frontend_freed = false;
        self.written.kept_freed = false;
        self.written.addresses.freed = false;
        self.written.backends.freed = false;
        Ok(())
    }
}

/// How many entries a plan is about, and one.
fn weight_of(plan: &ServicePlan) -> usize {
    let ports = plan.ports.values();
    let entries = ports.map(|port| port.serving.len() + port.frontends.len());
    entries.sum::<usize>() + 1
}
