//! A cluster of an API server only: pods become ready and never answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    path::Path,
    pin::pin,
    process::Command,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    ApiFault, ApiServer, Capability, Cluster, ClusterError, ControlPlaneFaults, Description, FaultLease,
    NodeAccess, OutsideClient, Parts, PodAccess, RUN_LABEL, ZONE_LABEL,
    spawn::{Placed, Placement},
};
use futures::StreamExt as _;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use lab_apiserver::{Auth, Pki, Store, kubeconfig, new_token, serve};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const NODES: u8 = 3;

/// The cluster ends when this is dropped.
pub(crate) struct Stage {
    cluster: Arc<Cluster>,
    _tasks: JoinSet<()>,
}

impl Stage {
    /// A cluster of three nodes with both families; `confined` is the only namespace that the suite may use.
    pub(crate) async fn new(confined: Option<&str>) -> Self {
        Self::of(confined, true).await
    }

    /// A cluster whose agents are the pods' network.
    pub(crate) async fn of_agents_network() -> Self {
        Self::of(None, false).await
    }

    async fn of(confined: Option<&str>, pods_without_agents: bool) -> Self {
        let ranges = ["10.96.0.0/16", "fd00:96::/108"].map(|range| range.parse().expect("a range"));
        let advertised = "10.0.0.1".parse().expect("an address");
        let config = lab_apiserver::Config::new(ranges.to_vec(), vec![advertised], 6443);
        let (store, pki, token) = (
            Store::new(config).expect("a store"),
            Pki::new().expect("an authority"),
            new_token(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let tls = pki.server_tls(&["127.0.0.1".to_owned()]).expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(token.clone(), "admin"));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let served = serve(store, listener, tls, auth, CancellationToken::new()).await;
            served.expect("it serves");
        });
        let client = client(&kubeconfig(&url, pki.ca_pem(), &token)).await;
        tasks.spawn(become_ready(client.clone()));
        if let Some(namespace) = confined {
            let object =
                serde_json::from_value(json!({ "metadata": { "name": namespace } })).expect("a namespace");
            let namespaces: Api<Namespace> = Api::all(client.clone());
            namespaces
                .create(&PostParams::default(), &object)
                .await
                .expect("a namespace");
        }
        for number in 1..=NODES {
            let labels = json!({ ZONE_LABEL: format!("zone{number}") });
            let object = json!({ "metadata": { "name": format!("node{number}"), "labels": labels } });
            let object = serde_json::from_value(object).expect("a Node");
            let nodes: Api<Node> = Api::all(client.clone());
            nodes
                .create(&PostParams::default(), &object)
                .await
                .expect("a Node");
        }
        let silent = Arc::new(Silent);
        let parts = Parts {
            nodes: Some(silent.clone()),
            outside: Some(silent.clone()),
            control_plane: Some(silent.clone()),
            ..Parts::default()
        };
        let mut about = about(confined);
        if pods_without_agents {
            about.capabilities.insert(Capability::PodsWithoutAgents);
        }
        Self {
            cluster: Arc::new(Cluster::new(about, client, silent.clone(), parts)),
            _tasks: tasks,
        }
    }

    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster)
    }

    /// All Services, EndpointSlices and pods that a run has created.
    pub(crate) async fn objects(&self) -> Vec<Value> {
        let client = &self.cluster.client();
        let mut all = made::<Service>(client, "Service").await;
        all.extend(made::<EndpointSlice>(client, "EndpointSlice").await);
        all.extend(made::<Pod>(client, "Pod").await);
        all
    }
}

async fn client(kubeconfig: &str) -> Client {
    // The tests' dependencies contain two TLS providers; the choice is made once, and later calls find it made.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

fn about(confined: Option<&str>) -> Description {
    let nodes = (1..=NODES).map(|number| {
        json!({ "name": format!("node{number}"), "addresses": [format!("10.0.1.{number}"), format!("fd00:1::{number}")] })
    });
    let about = json!({
        // Objects of a lab's case stay if it is asked to keep them.
        "provider": "lab", "target": "nothing", "kernel": "none", "nodes": nodes.collect::<Vec<_>>(),
        "capabilities": ["ipv4", "ipv6", "api-write"], "features": ["loadbalancer"], "deviations": [],
        "ways": { "service": true, "further": true, "shared": true }, "confined": confined,
    });
    serde_json::from_value(about).expect("a description")
}

/// Gives every pod an address of each family.
async fn become_ready(client: Client) {
    let mut all =
        pin!(watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).applied_objects());
    let mut number = 0;
    // The server ends with the test.
    while let Some(Ok(pod)) = all.next().await {
        if pod.status.as_ref().is_some_and(|status| status.pod_ips.is_some()) {
            continue;
        }
        number += 1;
        let addresses = [
            format!("10.1.{}.{}", number / 250, number % 250 + 1),
            format!("fd00:2::{number:x}"),
        ];
        let status = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "podIPs": addresses.map(|ip| json!({ "ip": ip })),
        } });
        let of: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().expect("a namespace"));
        // A case may have deleted it since.
        let _ = of
            .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status))
            .await;
    }
}

async fn made<K>(client: &Client, kind: &str) -> Vec<Value>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let all: Api<K> = Api::all(client.clone());
    let list = all
        .list(&ListParams::default().labels(RUN_LABEL))
        .await
        .expect("objects");
    let objects = list.items.into_iter().map(|object| {
        let mut object = serde_json::to_value(object).expect("an object");
        object["kind"] = kind.into();
        object
    });
    objects.collect()
}

/// Pods that begin nothing, and API servers that can only be seen.
struct Silent;

/// A client that has its plan, and no answers.
fn says_nothing() -> Placed {
    let mut command = Command::new("sh");
    command.args(["-c", "head -n 1 >/dev/null"]);
    Placed {
        command,
        placement: Placement::default(),
    }
}

#[async_trait]
impl PodAccess for Silent {
    async fn command(&self, _: &str, _: &str, _: &[String]) -> Result<Placed, ClusterError> {
        Ok(says_nothing())
    }

    async fn log(&self, _: &str, _: &str) -> Result<String, ClusterError> {
        Ok(String::new())
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn evidence(&self, _: &Path) -> Result<(), ClusterError> {
        Ok(())
    }
}

#[async_trait]
impl NodeAccess for Silent {
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::from([Capability::HostNetwork])
    }

    async fn command(&self, _: &str, _: &[String]) -> Result<Placed, ClusterError> {
        Ok(says_nothing())
    }

    fn cgroup_root(&self) -> &Path {
        Path::new("/sys/fs/cgroup")
    }

    async fn baseline(&self, _: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        Err(ClusterError::unsupported("know what nodes had"))
    }
}

#[async_trait]
impl OutsideClient for Silent {
    async fn command(&self, _: &[String]) -> Result<Placed, ClusterError> {
        Ok(says_nothing())
    }
}

#[async_trait]
impl ControlPlaneFaults for Silent {
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        let address = "10.0.0.1:6443".parse().expect("an address");
        let server = |number| ApiServer {
            number,
            address,
            running: true,
        };
        Ok([1, 2].map(server).to_vec())
    }

    async fn begin(&self, _: &ApiFault, _: Duration) -> Result<FaultLease, ClusterError> {
        Err(ClusterError::unsupported("let API servers fail"))
    }

    async fn jump_versions(&self, _: u32) -> Result<(), ClusterError> {
        Err(ClusterError::unsupported("let the resourceVersion jump"))
    }
}
