//! Which replicas live, and `default/kubernetes` as upstream's lease reconciler keeps it.
//!
//! Source: `pkg/controlplane/reconcilers/lease.go`. A lease is kept per advertised *address*: replicas that share
//! one share the lease, and one that stops takes it away from all until the next of them renews it.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::Value;
use tokio::time::Instant;

use super::{Key, Store, WriteOptions, bootstrap};
use crate::kinds::{Decoded, Kind, Part, decode};

/// When the lease of each address ends. Bound: an address per replica; ended ones go at the next reconcile.
#[derive(Debug, Default)]
pub(super) struct Leases {
    ends: BTreeMap<IpAddr, Instant>,
}

impl Leases {
    fn living(&mut self) -> Vec<IpAddr> {
        let now = Instant::now();
        self.ends.retain(|_, end| *end > now);
        self.ends.keys().copied().collect()
    }
}

impl Store {
    /// Renews a replica's lease and writes what is true into `default/kubernetes`.
    pub(crate) fn renew_lease(&self, address: IpAddr) {
        let end = Instant::now() + self.config().lease;
        self.lock().leases.ends.insert(address, end);
        self.reconcile_kubernetes();
    }

    /// Takes an address out, as a replica that stops does, and reconciles at once: to nothing, if it was the last.
    pub(crate) fn end_lease(&self, address: IpAddr) {
        self.lock().leases.ends.remove(&address);
        self.reconcile_kubernetes();
    }

    fn reconcile_kubernetes(&self) {
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
