//! Plan → maps, incrementally: what is written for a Service is compared with its plan, and only the difference
//! is written.
//!
//! ```text
//! ServicePlan ─▶ write.rs ─▶ addresses, backends, slots of a new generation, the switch, frontends
//!                collect.rs ─▶ frontends and addresses that nobody wants, barrier, old slots, services, backends
//! written.rs, addresses.rs, backends.rs: what is in the maps, by number        adopt.rs: the same, read from pinned maps
//! retry.rs: what failed, and when it is tried again
//! ```
//!
//! # Guarantees
//! - A program resolves every frontend to the old set or to the new one, at every single write.
//! - An address is known as a service's before its first frontend is there, and until its last one is gone.
//! - An unchanged set of backends causes no write.
//! - A number is handed out again only after every entry that carries it is gone and every program that may
//!   have read one has ended.
//! - Whatever fails leaves the old state working, is named by [`Reconciler::troubles`], and is tried again.

mod addresses;
mod adopt;
mod backends;
mod collect;
mod retry;
mod write;
mod written;

use std::{collections::BTreeMap, time::Instant};

use lb_abi::Address;

use crate::{
    maps::{LbMaps, MapError},
    names::ObjectId,
    plan::ServicePlan,
};

use self::{
    retry::Retries,
    written::{PortRef, Written},
};

pub use self::retry::{RETRY_FIRST, RETRY_LIMIT, Trouble};

/// Writes plans into maps.
#[derive(Debug)]
pub struct Reconciler<M> {
    maps: M,
    written: Written,
    retries: Retries,
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
        })
    }

    /// Makes the maps say what the plans of these Services say.
    ///
    /// The first call must name every Service there is: whatever is in the maps and in none of its plans is
    /// removed.
    pub fn reconcile(&mut self, plans: impl IntoIterator<Item = (ObjectId, ServicePlan)>, now: Instant) {
        let mut removals = Vec::new();
        for (service, plan) in plans {
            let errors = self.update(service, &plan);
            self.retries.attempted(service, errors, now);
            if self.written.leaving() >= collect::BATCH {
                removals = self.collect();
            }
        }
        self.written.retire_unclaimed();
        removals.extend(self.delete_frontends());
        removals.extend(self.delete_addresses());
        removals.extend(self.collect());
        self.retries.removed(removals, now);
    }

    /// Services whose failed writes are to be tried again now, with a fresh plan.
    pub fn due(&self, now: Instant) -> Vec<ObjectId> {
        self.retries.due(now)
    }

    /// When to call [`reconcile`](Self::reconcile) next, though no Service has changed.
    pub fn deadline(&self) -> Option<Instant> {
        self.retries.deadline()
    }

    /// What failed and has not succeeded since.
    pub fn troubles(&self) -> impl Iterator<Item = Trouble<'_>> {
        self.retries.troubles()
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

    fn update(&mut self, service: ObjectId, plan: &ServicePlan) -> Vec<retry::Failure> {
        self.written.drop_ports(service, &plan.ports);
        let addresses = plan.addresses.iter();
        let addresses = addresses
            .map(|(&address, &flags)| (Address::from(address), flags))
            .collect::<BTreeMap<_, _>>();
        self.written.addresses.want(service, &addresses);
        let mut failures = Vec::new();
        for address in addresses.into_keys() {
            if !self.written.addresses.is_enough(address)
                && let Err(error) = self.put_address(address, self.written.addresses.wanted(address))
            {
                failures.push(retry::Failure { port: None, error });
            }
        }
        for (&port, wanted) in &plan.ports {
            if let Err(error) = self.write(PortRef { service, port }, wanted) {
                failures.push(retry::Failure {
                    port: Some(port),
                    error,
                });
            }
        }
        failures
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        if self.written.addresses.freed {
            self.barrier()?;
        }
        self.maps.put_address(address, flags)?;
        self.written.addresses.put(address, flags);
        Ok(())
    }

    /// Waits for running programs: what was freed before may be used again.
    fn barrier(&mut self) -> Result<(), MapError> {
        self.maps.barrier()?;
        self.written.frontend_freed = false;
        self.written.addresses.freed = false;
        Ok(())
    }
}
