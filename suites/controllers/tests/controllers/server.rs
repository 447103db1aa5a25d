//! A server with controllers, for tests.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, watcher},
};
use lab_apiserver::{Auth, Config, Faults, Pki, Replica, ReplicaConfig, Store, kubeconfig};
use serde_json::{Value, json};

pub(crate) use testing::patience::LIMIT;

/// Path of a real server's kubeconfig.
pub(crate) const REAL: &str = "PLUMBLINE_APISERVER_KUBECONFIG";

/// A server with a namespace of the test's own.
pub(crate) struct TestServer {
    /// Of the test.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// `None`: a real server.
    pub(crate) own: Option<Own>,
}

/// A server in this process.
pub(crate) struct Own {
    pub(crate) faults: Faults,
    /// Of the controllers.
    pub(crate) controller: Client,
    replicas: Vec<Replica>,
    store: Store,
    pki: Pki,
}

impl Own {
    /// One more replica.
    pub(crate) fn replica(&self, listener: std::net::TcpListener) -> Replica {
        start(&self.store, &self.pki, &self.faults, listener)
    }

    /// A client of a replica, as a controller.
    pub(crate) async fn controller_at(&self, replica: &Replica) -> Client {
        client(&kubeconfig_of(&self.pki, replica, "controller")).await
    }
}

fn start(store: &Store, pki: &Pki, faults: &Faults, listener: std::net::TcpListener) -> Replica {
    let auth = Auth::new()
        .with_user("test", "test")
        .with_user("controller", "controller");
    let config = ReplicaConfig {
        listener,
        tls: pki.server_tls(&["127.0.0.1".into()]).expect("a certificate"),
        auth: Arc::new(auth),
        advertise: [10, 77, 0, 1].into(),
        faults: faults.clone(),
    };
    Replica::start(store, config).expect("a replica")
}

fn kubeconfig_of(pki: &Pki, replica: &Replica, token: &str) -> String {
    kubeconfig(&format!("https://{}", replica.address()), pki.ca_pem(), token)
}

async fn client(text: &str) -> Client {
    // Two TLS providers are in the tests' dependencies; the choice is made once, and later calls find it made.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let config = Kubeconfig::from_yaml(text).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a config")).expect("a client")
}

impl TestServer {
    /// The real server if the environment names it, with its controllers.
    pub(crate) async fn any() -> Self {
        match std::env::var(REAL) {
            Ok(path) => {
                let text = std::fs::read_to_string(&path).expect("the kubeconfig of a real server");
                Self::over(client(&text).await, None).await
            }
            Err(_) => Self::own().await,
        }
    }

    /// Our server, for what only our controllers promise.
    pub(crate) async fn own() -> Self {
        let services = ["10.96.0.0/16", "fd00:96::/112"].map(|text| text.parse().expect("a range"));
        let store = Store::new(Config::new(services.to_vec(), Vec::new(), 6443)).expect("a store");
        let (pki, faults) = (Pki::new().expect("an authority"), Faults::new());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let replica = start(&store, &pki, &faults, listener);
        let mut own = Own {
            controller: client(&kubeconfig_of(&pki, &replica, "controller")).await,
            faults,
            store,
            pki,
            replicas: Vec::new(),
        };
        let test = client(&kubeconfig_of(&own.pki, &replica, "test")).await;
        own.replicas.push(replica);
        Self::over(test, Some(own)).await
    }

    async fn over(client: Client, own: Option<Own>) -> Self {
        let namespace = object(json!({"metadata": {"generateName": "controllers-"}}));
        let api: Api<Namespace> = Api::all(client.clone());
        let created = api
            .create(&PostParams::default(), &namespace)
            .await
            .expect("a namespace");
        Self {
            client,
            namespace: created.name_any(),
            own,
        }
    }

    /// Nodes in zones; a real cluster keeps what is there of an earlier test.
    pub(crate) async fn nodes(&self, nodes: &[(&str, &str)]) {
        let api: Api<Node> = Api::all(self.client.clone());
        for (name, zone) in nodes {
            let node =
                object(json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}}));
            match api.create(&PostParams::default(), &node).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn service(&self, name: &str, spec: Value) -> Service {
        let service = object(json!({"metadata": {"name": name}, "spec": spec}));
        self.api()
            .create(&PostParams::default(), &service)
            .await
            .expect("a service")
    }

    pub(crate) async fn patch_service(&self, name: &str, patch: Value) {
        let api: Api<Service> = self.api();
        let patch = Patch::Merge(patch);
        api.patch(name, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    }

    /// A pod on a node, with an address, ready or not.
    pub(crate) async fn pod(&self, name: &str, node: &str, address: &str, ready: bool, ports: Value) {
        let pod = object(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 600,
                     "containers": [{"name": "c", "image": "i", "ports": ports}]},
        }));
        let api: Api<Pod> = self.api();
        api.create(&PostParams::default(), &pod).await.expect("a pod");
        let ips = json!({"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"});
        self.status(name, ips).await;
        self.ready(name, ready).await;
    }

    pub(crate) async fn ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.status(name, json!({"conditions": [{"type": "Ready", "status": status}]}))
            .await;
    }

    async fn status(&self, name: &str, status: Value) {
        let api: Api<Pod> = self.api();
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch)
            .await
            .expect("a status");
    }

    /// Deletes a pod: with grace (it stays, terminating), or at once.
    pub(crate) async fn delete_pod(&self, name: &str, at_once: bool) {
        let mut params = DeleteParams::default();
        if at_once {
            params = params.grace_period(0);
        }
        let api: Api<Pod> = self.api();
        api.delete(name, &params).await.expect("deleted");
    }

    /// Waits until the slices of a service are these, each as `PORTS: ENDPOINT ENDPOINT`; in any order. The slices.
    pub(crate) async fn slices(&self, service: &str, expected: &[&str]) -> Vec<EndpointSlice> {
        let label = format!("kubernetes.io/service-name={service}");
        let api: Api<EndpointSlice> = self.api();
        let found = until(
            api,
            watcher::Config::default().labels(&label),
            |slices: &[EndpointSlice]| {
                let mut shown: Vec<String> = slices.iter().map(text).collect();
                shown.sort();
                if shown == expected {
                    Ok(())
                } else {
                    Err(format!("{shown:#?}, expected {expected:#?}"))
                }
            },
        );
        found.await
    }

    pub(crate) async fn end(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let pods: Api<Pod> = self.api();
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete_collection(&at_once, &kube::api::ListParams::default())
            .await
            .expect("deleted");
        api.delete(&self.namespace, &DeleteParams::default())
            .await
            .expect("deleted");
        for replica in self.own.into_iter().flat_map(|own| own.replicas) {
            replica.stop().await.expect("an orderly end");
        }
    }
}

/// Watches until what is there satisfies a test; what is there then.
pub(crate) async fn until<K>(
    api: Api<K>,
    config: watcher::Config,
    holds: impl Fn(&[K]) -> Result<(), String>,
) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Send
        + k8s_openapi::serde::de::DeserializeOwned
        + 'static,
{
    let mut known = std::collections::BTreeMap::new();
    let mut last = "nothing was listed".to_owned();
    let watching = async {
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.try_next().await.expect("the watch goes on") {
            match event {
                watcher::Event::Init => known.clear(),
                watcher::Event::InitApply(one) => drop(known.insert(one.name_any(), one)),
                watcher::Event::Apply(one) => drop(known.insert(one.name_any(), one)),
                watcher::Event::Delete(one) => drop(known.remove(&one.name_any())),
                watcher::Event::InitDone => {}
            }
            let all: Vec<K> = known.values().cloned().collect();
            match holds(&all) {
                Ok(()) => return all,
                Err(why) => last = why,
            }
        }
        Vec::new()
    };
    let found = tokio::time::timeout(LIMIT, watching).await;
    found.unwrap_or_else(|_| panic!("found {last}"))
}

/// A slice in one line: ports, then endpoints with what differs from ready.
fn text(slice: &EndpointSlice) -> String {
    let mut ports: Vec<String> = slice
        .ports
        .iter()
        .flatten()
        .map(|port| {
            format!(
                "{}={}",
                port.name.as_deref().unwrap_or("?"),
                port.port.unwrap_or_default()
            )
        })
        .collect();
    ports.sort();
    let mut endpoints: Vec<String> = slice
        .endpoints
        .iter()
        .flatten()
        .map(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let mut text = endpoint.addresses.join("+");
            for (holds, word) in [
                (conditions.ready != Some(true), "!ready"),
                (conditions.serving != Some(true), "!serving"),
                (conditions.terminating == Some(true), "terminating"),
            ] {
                if holds {
                    text = format!("{text} {word}");
                }
            }
            let hints = endpoint.hints.clone().unwrap_or_default();
            for zone in hints.for_zones.iter().flatten() {
                text = format!("{text} for:{}", zone.name);
            }
            for node in hints.for_nodes.iter().flatten() {
                text = format!("{text} on:{}", node.name);
            }
            text
        })
        .collect();
    endpoints.sort();
    format!("{}: {}", ports.join(","), endpoints.join(", "))
}

/// A typed object from JSON.
pub(crate) fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of this kind")
}
