//! The EndpointSlice controller: the slices of every service with a selector.
//!
//! `endpoints` finds the endpoints of a service, `pack` puts them into slices, `topology` gives hints by the CPU of `zones`,
//! `trigger` finds the time of a change; all are pure. This file watches and writes. It writes no Endpoints objects.

mod endpoints;
mod pack;
mod topology;
mod trigger;
mod zones;

use std::collections::BTreeSet;

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::watcher::{self, Event},
};
use tokio_util::sync::CancellationToken;

use self::{endpoints::Group, pack::Writes, trigger::Triggers};
use crate::{
    RETRY,
    cache::{Cache, Key, events, key},
};

/// Upstream's `--max-endpoints-per-slice`.
pub const MOST_ENDPOINTS: usize = 100;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Settings of the EndpointSlice controller.
#[derive(Clone, Copy, Debug)]
pub struct SliceSettings {
    /// Endpoints in one slice, at least 1; upstream allows up to 1000.
    pub most_endpoints: usize,
}

impl Default for SliceSettings {
    fn default() -> Self {
        Self {
            most_endpoints: MOST_ENDPOINTS,
        }
    }
}

/// Keeps the EndpointSlices of every service with a selector until `stop`, through all failures of the API server.
pub async fn keep_slices(client: Client, settings: SliceSettings, stop: CancellationToken) {
    let mut changes = stream::select_all([
        events(Api::<Service>::all(client.clone()))
            .map(Change::Service)
            .boxed(),
        events(Api::<Pod>::all(client.clone())).map(Change::Pod).boxed(),
        events(Api::<Node>::all(client.clone())).map(Change::Node).boxed(),
        events(Api::<EndpointSlice>::all(client.clone()))
            .map(Change::Slice)
            .boxed(),
    ]);
    let mut controller = Controller {
        client,
        most: settings.most_endpoints.max(1),
        services: Cache::new(),
        pods: Cache::new(),
        nodes: Cache::new(),
        slices: Cache::new(),
        triggers: Triggers::default(),
        dirty: BTreeSet::new(),
    };
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
            () = tokio::time::sleep(RETRY), if !controller.dirty.is_empty() => None,
        };
        // All changes that have arrived are applied before anything is written.
        let mut next = change;
        while let Some(change) = next {
            controller.apply(change);
            next = changes.next().now_or_never().flatten();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = controller.work() => {}
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Change {
    Service(watcher::Result<Event<Service>>),
    Pod(watcher::Result<Event<Pod>>),
    Node(watcher::Result<Event<Node>>),
    Slice(watcher::Result<Event<EndpointSlice>>),
}

struct Controller {
    client: Client,
    most: usize,
    services: Cache<Service>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
    triggers: Triggers,
    /// Services to reconcile.
    dirty: BTreeSet<Key>,
}

impl Controller {
    fn apply(&mut self, change: Change) {
        let failed = |error: &watcher::Error| tracing::debug!(%error, "a watch failed and is tried again");
        match change {
            Change::Service(Ok(event)) => self.dirty.extend(self.services.apply(event).iter().map(key)),
            Change::Pod(Ok(event)) => {
                for pod in self.pods.apply(event) {
                    let namespace = pod.namespace().unwrap_or_default();
                    let touched = self.services.of(&namespace);
                    let touched = touched.filter(|service| endpoints::selects(service, &pod));
                    self.dirty.extend(touched.map(key));
                }
            }
            Change::Node(Ok(event)) => {
                // Heartbeats change nothing here. A node that is new, gone, or has another zone or CPU changes all services.
                let place = |node: &Node| {
                    let capacity = zones::capacity(node).map(|(_, cpu)| cpu);
                    (
                        node.name_any(),
                        node.labels().get(endpoints::ZONE).cloned(),
                        capacity,
                    )
                };
                let touched: Vec<_> = self.nodes.apply(event).iter().map(place).collect();
                if !matches!(touched.as_slice(), [] | [_, _] if touched.windows(2).all(|pair| pair[0] == pair[1]))
                {
                    self.dirty.extend(self.services.all().map(key));
                }
            }
            Change::Slice(Ok(event)) => {
                for slice in self.slices.apply(event).iter().filter(|slice| is_ours(slice)) {
                    let name = slice.labels().get(SERVICE_NAME).cloned().unwrap_or_default();
                    self.dirty.insert((slice.namespace().unwrap_or_default(), name));
                }
            }
            Change::Service(Err(error))
            | Change::Pod(Err(error))
            | Change::Node(Err(error))
            | Change::Slice(Err(error)) => failed(&error),
        }
    }

    /// Reconciles the services in `dirty`. Those that fail stay there.
    async fn work(&mut self) {
        let complete = self.services.is_complete()
            && self.pods.is_complete()
            && self.nodes.is_complete()
            && self.slices.is_complete();
        if !complete {
            return;
        }
        let mut failed = BTreeSet::new();
        while let Some(name) = self.dirty.pop_first() {
            if let Err(error) = self.sync(&name).await {
                tracing::debug!(%error, service = %format!("{}/{}", name.0, name.1), "failed to write slices");
                failed.insert(name);
            }
        }
        self.dirty = failed;
    }

    async fn sync(&mut self, name: &Key) -> kube::Result<()> {
        // The slices of a deleted service are deleted with it.
        let Some(service) = self.services.get(name).cloned() else {
            self.triggers.forget(name);
            return Ok(());
        };
        let spec = service.spec.clone().unwrap_or_default();
        let has_selector = spec.selector.is_some_and(|selector| !selector.is_empty());
        if spec.type_.as_deref() == Some("ExternalName") || !has_selector {
            return Ok(());
        }
        let selected = self
            .pods
            .of(&name.0)
            .filter(|pod| endpoints::selects(&service, pod));
        let trigger = self.triggers.changed(&service, selected);
        let families = spec.ip_families.unwrap_or_default();
        let mine = self
            .slices
            .of(&name.0)
            .filter(|slice| is_ours(slice) && slice.labels().get(SERVICE_NAME) == Some(&name.1));
        let (known, foreign): (Vec<EndpointSlice>, Vec<EndpointSlice>) = mine
            .cloned()
            .partition(|slice| families.contains(&slice.address_type));
        let shares = topology::is_auto(&service).then(|| zones::shares(self.nodes.all()));
        for family in families {
            let existing: Vec<_> = known
                .iter()
                .filter(|slice| slice.address_type == family)
                .cloned()
                .collect();
            let node = |node: &str| self.nodes.get(&(String::new(), node.to_owned()));
            let groups = endpoints::groups(&service, &family, self.pods.of(&name.0), node);
            let wanted = metadata(&service);
            let stale = |slice: &EndpointSlice| {
                slice.metadata.labels != wanted.labels
                    || slice.metadata.owner_references != wanted.owner_references
            };
            let writes = match &shares {
                None => pack::pack(&existing, groups, self.most, stale),
                Some(shares) => by_topology(&existing, groups, self.most, stale, shares.as_ref()),
            };
            self.write(&service, &family, writes, trigger).await?;
        }
        self.delete(foreign).await
    }

    async fn write(
        &mut self,
        service: &Service,
        family: &str,
        writes: Writes,
        trigger: Option<Timestamp>,
    ) -> kube::Result<()> {
        let api = self.api(&service.namespace().unwrap_or_default());
        for Group { ports, endpoints } in writes.create {
            let mut slice = EndpointSlice {
                address_type: family.to_owned(),
                endpoints: Some(endpoints),
                ports: Some(ports),
                metadata: ObjectMeta {
                    generate_name: Some(format!("{}-", service.name_any())),
                    ..metadata(service)
                },
            };
            trigger::annotate(&mut slice, trigger);
            let created = api.create(&PostParams::default(), &slice).await?;
            self.slices.put(created);
        }
        for (mut slice, Group { ports, endpoints }) in writes.update {
            slice.endpoints = Some(endpoints);
            slice.ports = Some(ports);
            let wanted = metadata(service);
            slice.metadata.labels = wanted.labels;
            slice.metadata.owner_references = wanted.owner_references;
            trigger::annotate(&mut slice, trigger);
            let updated = api
                .replace(&slice.name_any(), &PostParams::default(), &slice)
                .await?;
            self.slices.put(updated);
        }
        self.delete(writes.delete).await
    }

    async fn delete(&mut self, slices: Vec<EndpointSlice>) -> kube::Result<()> {
        for slice in slices {
            let api = self.api(&slice.namespace().unwrap_or_default());
            match api.delete(&slice.name_any(), &DeleteParams::default()).await {
                Ok(_) => {}
                // It is deleted already.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
            self.slices.forget(&key(&slice));
        }
        Ok(())
    }

    fn api(&self, namespace: &str) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The writes of a service with hints, which depend on all of its endpoints.
fn by_topology(
    existing: &[EndpointSlice],
    groups: Vec<Group>,
    most: usize,
    stale: impl Fn(&EndpointSlice) -> bool,
    shares: Option<&zones::Shares>,
) -> Writes {
    let without = |slice: &EndpointSlice| {
        let mut slice = slice.clone();
        for endpoint in slice.endpoints.iter_mut().flatten() {
            endpoint.hints = None;
        }
        slice
    };
    let compared: Vec<EndpointSlice> = existing.iter().map(without).collect();
    let mut writes = pack::pack(&compared, groups, most, stale);
    let updated = writes.update.iter().map(|(slice, _)| slice);
    let touched: BTreeSet<String> = updated.chain(&writes.delete).map(ResourceExt::name_any).collect();
    let untouched = existing
        .iter()
        .filter(|slice| !touched.contains(&slice.name_any()));
    let untouched = untouched.cloned().collect();
    topology::hint(&mut writes, untouched, shares);
    writes
}

fn is_ours(slice: &EndpointSlice) -> bool {
    slice
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|manager| manager == CONTROLLER)
}

/// Namespace, labels and owner of a service's slices.
fn metadata(service: &Service) -> ObjectMeta {
    ObjectMeta {
        namespace: service.namespace(),
        labels: Some(endpoints::labels(service)),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            name: service.name_any(),
            uid: service.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}
