//! The load balancer controller: a cloud's part of services of type LoadBalancer.
//!
//! `pool` gives addresses out; this file watches and writes; `remains` is for clusters whose controller is gone. As a cloud's
//! controller, it puts a finalizer on each service that it serves, shows the addresses in its status, and takes both back when
//! the service goes or changes its type.
//!
//! After a gap (it could not reach the API server, or had to list again) it reconciles every service once more and
//! patches a timestamp annotation ([`ANNOTATION`]) onto each, changed or not: the write that turned a latent fault into
//! an outage once, because it made every agent look at these services again.

mod pool;
mod remains;

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::pool::Pool;
pub use self::remains::{others, take_back};
use crate::{
    RETRY,
    cache::{Cache, Key, events, key},
};

/// What is patched onto every service at a reconcile after a gap: when that was (RFC 3339).
pub const ANNOTATION: &str = "plumbline.lab/reconciled-at";

/// What says that this controller still has to clean up, as `service.kubernetes.io/load-balancer-cleanup` does for a cloud's.
/// It is a name of our own: where the controller is gone, everybody knows whose it was ([`take_back`]).
pub const FINALIZER: &str = "plumbline.lab/load-balancer-cleanup";

/// A load balancer controller with its addresses.
pub struct Balancer {
    client: Client,
    pool: Pool,
    services: Cache<Service>,
    dirty: BTreeSet<Key>,
    /// Services that are yet to be annotated after a gap.
    annotate: BTreeSet<Key>,
    /// There was a gap since the last list or event.
    gap: bool,
}

impl Balancer {
    /// A controller that gives out the addresses of these ranges, one of each family that a service has.
    #[must_use]
    pub fn new(client: Client, ranges: Vec<IpNet>) -> Self {
        Self {
            client,
            pool: Pool::new(ranges),
            services: Cache::new(),
            dirty: BTreeSet::new(),
            annotate: BTreeSet::new(),
            gap: false,
        }
    }

    /// Serves every service of type LoadBalancer without a class until `stop`; it lives through every failure of the API
    /// server. What no address is left for waits for one.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = events(Api::<Service>::all(self.client.clone()));
        loop {
            let waits = !self.dirty.is_empty() || !self.annotate.is_empty();
            let mut next = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
                () = tokio::time::sleep(RETRY), if waits => None,
            };
            while let Some(change) = next {
                self.take(change);
                next = changes.next().now_or_never().flatten();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.work() => {}
            }
        }
    }

    fn take(&mut self, change: watcher::Result<Event<Service>>) {
        match change {
            Err(error) => {
                tracing::debug!(%error, "a watch failed and is tried again");
                self.gap = true;
                self.annotate
                    .extend(self.services.all().filter(|service| is_wanted(service)).map(key));
            }
            Ok(event) => {
                let again = matches!(event, Event::InitDone) && self.services.is_complete();
                self.dirty.extend(self.services.take(event).iter().map(key));
                if !self.services.is_complete() {
                    return;
                }
                if again || std::mem::take(&mut self.gap) {
                    self.annotate
                        .extend(self.services.all().filter(|service| is_wanted(service)).map(key));
                }
                // Addresses that services show are theirs before any is given out.
                for service in self.services.all() {
                    self.pool.hold(&key(service), &shown(service));
                }
            }
        }
    }

    async fn work(&mut self) {
        if !self.services.is_complete() {
            return;
        }
        let mut failed = BTreeSet::new();
        while let Some(name) = self.dirty.pop_first() {
            match self.sync(&name).await {
                Ok(true) => {}
                Ok(false) => drop(failed.insert(name)),
                Err(error) => {
                    tracing::debug!(%error, service = %format!("{}/{}", name.0, name.1), "failed to serve");
                    failed.insert(name);
                }
            }
        }
        self.dirty = failed;
        for name in self.annotate.clone() {
            let now = jiff::Timestamp::now().to_string();
            let patch = json!({"metadata": {"annotations": {ANNOTATION: now}}});
            match self.patch(&name, &patch, false).await {
                Ok(()) => drop(self.annotate.remove(&name)),
                // The others would fail too.
                Err(error) => return tracing::debug!(%error, "failed to annotate"),
            }
        }
    }

    /// `false`: no address is free.
    async fn sync(&mut self, name: &Key) -> kube::Result<bool> {
        let Some(service) = self.services.get(name).cloned() else {
            self.pool.release(name);
            return Ok(true);
        };
        let served = is_served(&service);
        if !is_wanted(&service) {
            if served {
                if !shown(&service).is_empty() {
                    self.patch(name, &no_address(), true).await?;
                }
                self.patch(name, &let_go(&service), false).await?;
            }
            self.pool.release(name);
            return Ok(true);
        }
        let spec = service.spec.clone().unwrap_or_default();
        let asked = spec.load_balancer_ip.filter(|text| !text.is_empty());
        let Some(addresses) = self
            .pool
            .give(name, &spec.ip_families.unwrap_or_default(), asked.as_deref())
        else {
            return Ok(false);
        };
        if !served {
            let mut finalizers = service.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            let patch = json!({"metadata": {"finalizers": finalizers}});
            self.patch(name, &patch, false).await?;
        }
        if shown(&service) != addresses {
            let ingress: Vec<Value> = addresses
                .iter()
                .map(|address| json!({"ip": address, "ipMode": "VIP"}))
                .collect();
            let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
            self.patch(name, &patch, true).await?;
        }
        Ok(true)
    }

    async fn patch(&mut self, name: &Key, patch: &Value, status: bool) -> kube::Result<()> {
        let api: Api<Service> = Api::namespaced(self.client.clone(), &name.0);
        if let Some(service) = write(&api, &name.1, patch, status).await? {
            self.services.put(service);
        }
        Ok(())
    }
}

/// Patches a service, or its status; `None`: it is gone.
async fn write(api: &Api<Service>, name: &str, patch: &Value, status: bool) -> kube::Result<Option<Service>> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let written = if status {
        api.patch_status(name, &params, &patch).await
    } else {
        api.patch(name, &params, &patch).await
    };
    match written {
        Ok(service) => Ok(Some(service)),
        // Its event is on the way.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The patch of a status that shows no address.
fn no_address() -> Value {
    json!({"status": {"loadBalancer": {"ingress": null}}})
}

/// The patch without our finalizer.
fn let_go(service: &Service) -> Value {
    let mut finalizers = service.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    json!({"metadata": {"finalizers": finalizers}})
}

/// Whether a service is for this controller, and stays.
pub(crate) fn is_wanted(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    }) && service.metadata.deletion_timestamp.is_none()
}

/// Whether this controller has it in its care.
fn is_served(service: &Service) -> bool {
    service
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == FINALIZER)
}

/// The addresses in a service's status.
pub(crate) fn shown(service: &Service) -> Vec<String> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = status
        .into_iter()
        .flat_map(|status| status.ingress.iter().flatten());
    ingress.filter_map(|ingress| ingress.ip.clone()).collect()
}
