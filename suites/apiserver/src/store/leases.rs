//! Leases of replicas, and `default/kubernetes` as upstream's lease reconciler keeps it.
//!
//! Source: `pkg/controlplane/reconcilers/lease.go`. A lease is kept per advertised *address*: replicas that share
//! one share the lease. One that stops removes it for all, until the next of them renews it.
//!
//! It can be paused ([`Store::rest_reconciler`]), as with `--endpoint-reconciler-type=none`, so that only others write the slice.

use std::{collections::BTreeMap, net::IpAddr, sync::MutexGuard};

use serde_json::Value;
use tokio::time::Instant;

use super::{Key, Store, WriteOptions, bootstrap};
use crate::kinds::{Decoded, Kind, Part, decode};

/// When the lease of each address ends. Bound: an address per replica; ended ones go at the next reconcile.
#[derive(Debug, Default)]
pub(super) struct Leases {
    ends: BTreeMap<IpAddr, Instant>,
    /// Guards that pause the reconciler.
    resting: usize,
}

impl Leases {
    fn living(&mut self) -> Vec<IpAddr> {
        let now = Instant::now();
        self.ends.retain(|_, end| *end > now);
        self.ends.keys().copied().collect()
    }
}

/// While it lives, no replica writes `default/kubernetes`; leases continue. Dropping it writes the current replicas, whatever
/// others have written meanwhile.
#[must_use = "the reconciler goes on when this is dropped"]
pub struct RestingReconciler(Store);

impl Drop for RestingReconciler {
    fn drop(&mut self) {
        self.0.lock().leases.resting -= 1;
        self.0.reconcile_kubernetes();
    }
}

impl Store {
    /// Pauses all writes of `default/kubernetes` by replicas until the guard is dropped. No round is running when this returns.
    pub fn rest_reconciler(&self) -> RestingReconciler {
        let _round = self.round();
        self.lock().leases.resting += 1;
        RestingReconciler(self.clone())
    }

    /// Renews a replica's lease and reconciles `default/kubernetes`.
    pub(crate) fn renew_lease(&self, address: IpAddr) {
        let end = Instant::now() + self.config().lease;
        self.lock().leases.ends.insert(address, end);
        self.reconcile_kubernetes();
    }

    /// Removes an address, as a replica that stops does, and reconciles at once: to an empty slice if it was the last.
    pub(crate) fn end_lease(&self, address: IpAddr) {
        self.lock().leases.ends.remove(&address);
        self.reconcile_kubernetes();
    }

    /// Held during a round and while a pause begins. Lock order: before the state's lock.
    fn round(&self) -> MutexGuard<'_, ()> {
        self.shared
            .reconciling
            .lock()
            .expect("no holder of this lock panics")
    }

    fn reconcile_kubernetes(&self) {
        let _round = self.round();
        if self.lock().leases.resting > 0 {
            return;
        }
        let config = self.config();
        let service = Key::new(Kind::Service, "default", "kubernetes");
        if self.get(&service).is_err() {
            let created = bootstrap::create(self, Kind::Service, "default", bootstrap::service(config));
            if let Err(error) = created {
                tracing::warn!(%error, "failed to restore the service default/kubernetes");
            }
        }
        let living = self.lock().leases.living();
        let wanted = bootstrap::slice(config, &living);
        let slice = Key::new(Kind::EndpointSlice, "default", "kubernetes");
        if self.get(&slice).is_err() {
            if let Err(error) = bootstrap::create(self, Kind::EndpointSlice, "default", wanted) {
                tracing::warn!(%error, "failed to write the slice default/kubernetes");
            }
            return;
        }
        let written = self.update(&slice, Part::Main, &WriteOptions::default(), |current| {
            let mut new = current.clone();
            for field in ["endpoints", "ports"] {
                new[field] = wanted[field].clone();
            }
            let label = "kubernetes.io/service-name";
            if !new["metadata"]["labels"].is_object() {
                new["metadata"]["labels"] = Value::Object(serde_json::Map::new());
            }
            new["metadata"]["labels"][label] = "kubernetes".into();
            decode(Kind::EndpointSlice, new).map(|Decoded { object, .. }| object)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "failed to write the slice default/kubernetes");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::config::Config;

    const RESTS: usize = 200;
    /// Checks in each pause whether a round has written.
    const LOOKS: usize = 50;

    #[test]
    fn no_round_that_is_under_way_writes_when_a_rest_has_begun() {
        let range = "10.96.0.0/16".parse().expect("a range");
        // No lease ends by itself, however long the rests take.
        let config = Config {
            lease: Duration::from_secs(3600),
            ..Config::new(vec![range], Vec::new(), 6443)
        };
        let store = Store::new(config).expect("a store");
        let (stays, comes) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        store.renew_lease(stays.into());
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Each round has something to write.
                while !over.load(Ordering::Relaxed) {
                    store.renew_lease(comes.into());
                    store.end_lease(comes.into());
                }
            });
            let mut written = 0;
            for _ in 0..RESTS {
                let rest = store.rest_reconciler();
                let version = store.version();
                for _ in 0..LOOKS {
                    thread::yield_now();
                    written += usize::from(store.version() != version);
                }
                drop(rest);
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(written, 0, "nothing is written in any rest");
        });
        store.end_lease(comes.into());
        let slice = Key::new(Kind::EndpointSlice, "default", "kubernetes");
        let slice = store.get(&slice).expect("the slice");
        assert_eq!(slice.value["endpoints"].as_array().map(Vec::len), Some(1));
    }
}
