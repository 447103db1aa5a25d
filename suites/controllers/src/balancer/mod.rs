//! The load balancer controller: a cloud's part of services of type LoadBalancer.
//!
//! `pool` assigns addresses; this file watches and writes; `orphans` is for clusters whose controller is gone. Like a cloud's
//! controller, it puts a finalizer on each service, writes the addresses into its status, and removes both when the service
//! is deleted or changes its type.
//!
//! After a gap (it could not reach the API server, or had to list again) it reconciles every service and patches a timestamp
//! annotation ([`ANNOTATION`]) onto each, changed or not. Such a write once turned a latent fault into an outage, because
//! every agent handled these services again.

mod orphans;
mod pool;

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

pub use self::orphans::{others, take_back};
use self::pool::Pool;
use crate::{
    RETRY,
    cache::{Cache, Key, events, key},
};

/// Annotation on every service with the time of the last reconcile after a gap (RFC 3339).
pub const ANNOTATION: &str = "plumbline.lab/reconciled-at";

/// Finalizer of this controller, as `service.kubernetes.io/load-balancer-cleanup` is a cloud's. It has a name of its own, so
/// that [`take_back`] can remove it when the controller is gone.
pub const FINALIZER: &str = "plumbline.lab/load-balancer-cleanup";

/// A load balancer controller with its addresses.
pub struct Balancer {
    client: Client,
    pool: Pool,
    services: Cache<Service>,
    dirty: BTreeSet<Key>,
    /// Services to annotate after a gap.
    annotate: BTreeSet<Key>,
    /// There was a gap since the last list or event.
    gap: bool,
}

impl Balancer {
    /// A controller that assigns addresses of these ranges, one for each family of a service.
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

    /// Handles every service of type LoadBalancer without a class until `stop`, through all failures of the API server.
    /// Services wait while no address is free.
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
                self.apply(change);
                next = changes.next().now_or_never().flatten();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.work() => {}
            }
        }
    }

    fn apply(&mut self, change: watcher::Result<Event<Service>>) {
        match change {
            Err(error) => {
                tracing::debug!(%error, "a watch failed and is tried again");
                self.gap = true;
                self.annotate
                    .extend(self.services.all().filter(|service| is_wanted(service)).map(key));
            }
            Ok(event) => {
                let again = matches!(event, Event::InitDone) && self.services.is_complete();
                self.dirty.extend(self.services.apply(event).iter().map(key));
                if !self.services.is_complete() {
                    return;
                }
                if again || std::mem::take(&mut self.gap) {
                    self.annotate
                        .extend(self.services.all().filter(|service| is_wanted(service)).map(key));
                }
                // Services keep the addresses in their status, so these are reserved before any is assigned.
                for service in self.services.all() {
                    self.pool.reserve(&key(service), &shown(service));
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
                // Others would fail too.
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
                self.patch(name, &without_finalizer(&service), false).await?;
            }
            self.pool.release(name);
            return Ok(true);
        }
        let spec = service.spec.clone().unwrap_or_default();
        let requested = spec.load_balancer_ip.filter(|text| !text.is_empty());
        let Some(addresses) =
            self.pool
                .assign(name, &spec.ip_families.unwrap_or_default(), requested.as_deref())
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
            // What others have written meanwhile comes with the answer, and its events are late then.
            self.dirty.extend(self.services.put(service).iter().map(key));
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
        // It was deleted; the event is on the way.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// The patch that removes the addresses from a status.
fn no_address() -> Value {
    json!({"status": {"loadBalancer": {"ingress": null}}})
}

/// The patch that removes this controller's finalizer.
fn without_finalizer(service: &Service) -> Value {
    let mut finalizers = service.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    json!({"metadata": {"finalizers": finalizers}})
}

/// Whether a service is this controller's, and not being deleted.
pub(crate) fn is_wanted(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    }) && service.metadata.deletion_timestamp.is_none()
}

/// Whether a service has this controller's finalizer.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    fn service(version: u32, more: &Value) -> Value {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "a", "namespace": "n", "uid": "1", "resourceVersion": version.to_string() },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }], "ipFamilies": ["IPv4"] },
        });
        for field in ["metadata", "status"] {
            for (name, value) in more[field].as_object().into_iter().flatten() {
                service[field][name] = value.clone();
            }
        }
        service
    }

    /// It is deleted after the controller's first write: the answer to the second one tells that first, and the events are of
    /// versions that it knows by then.
    #[tokio::test]
    async fn a_deletion_is_learned_from_the_answer_to_a_write() {
        let served = json!({ "metadata": { "finalizers": [FINALIZER] } });
        let ended = json!({
            "metadata": { "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" },
        });
        let mut shown = ended.clone();
        shown["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.9.1" }] } });
        let answers = [
            service(2, &served),
            service(4, &shown),
            service(5, &ended),
            service(
                6,
                &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
            ),
        ];
        let left = Arc::new(Mutex::new(answers.to_vec()));
        let to_give = Arc::clone(&left);
        let api = service_fn(move |_: Request<Body>| {
            let answer = to_give.lock().unwrap().remove(0);
            async move { Ok::<_, std::io::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let mut balancer = Balancer::new(Client::new(api, "n"), vec!["10.0.9.0/30".parse().unwrap()]);
        let object = |value: &Value| serde_json::from_value::<Service>(value.clone()).unwrap();
        for event in [
            Event::Init,
            Event::InitApply(object(&service(1, &json!({})))),
            Event::InitDone,
        ] {
            balancer.apply(Ok(event));
        }
        balancer.work().await;
        for event in [service(3, &ended), service(4, &shown)] {
            balancer.apply(Ok(Event::Apply(object(&event))));
        }
        balancer.work().await;
        assert_eq!(left.lock().unwrap().len(), 0, "the finalizer is removed");
    }
}
