//! A cluster of an API server only: pods become ready and never answer.

use std::{collections::BTreeMap, net::TcpListener, path::Path, process::Stdio, sync::Arc, time::Duration};

use async_trait::async_trait;
use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Capability, Cluster, ClusterError, Description,
    HeldApiFault, Place, RUN_LABEL, Stop, Variant,
};
use k8s_openapi::api::{
    core::v1::{Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Pki, Store, kubeconfig, new_token, serve};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// Interval of looks at pods that are not ready.
const LOOK: Duration = Duration::from_millis(50);

/// The cluster ends when this is dropped.
pub(crate) struct Stage {
    cluster: Arc<Bare>,
    _tasks: JoinSet<()>,
}

struct Bare {
    client: Client,
    about: Description,
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
        let mut about = about(confined);
        if pods_without_agents {
            about.capabilities.insert(Capability::PodsWithoutAgents);
        }
        Self {
            cluster: Arc::new(Bare { client, about }),
            _tasks: tasks,
        }
    }

    pub(crate) fn cluster(&self) -> Arc<dyn Cluster> {
        Arc::clone(&self.cluster) as Arc<dyn Cluster>
    }

    /// All Services, EndpointSlices and pods that a run has created.
    pub(crate) async fn objects(&self) -> Vec<Value> {
        let client = &self.cluster.client;
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
    let nodes = (1..=3).map(|number| {
        json!({ "name": format!("node{number}"), "addresses": [format!("10.0.1.{number}"), format!("fd00:1::{number}")] })
    });
    let about = json!({
        // Objects of a lab's case stay if it is asked to keep them.
        "provider": "lab", "target": "nothing", "kernel": "none", "nodes": nodes.collect::<Vec<_>>(),
        "capabilities": ["ipv4", "ipv6", "api-write", "host-network", "outside"], "features": ["loadbalancer"], "deviations": [],
        "ways": { "service": true, "further": true, "shared": true }, "confined": confined,
    });
    serde_json::from_value(about).expect("a description")
}

/// Gives every pod an address of each family.
async fn become_ready(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let mut number = 0;
    loop {
        // The server ends with the test.
        let Ok(pods) = all.list(&ListParams::default()).await else {
            return;
        };
        let is_new = |pod: &Pod| pod.status.as_ref().is_none_or(|status| status.pod_ips.is_none());
        for pod in pods.into_iter().filter(is_new) {
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
            // A case may have deleted it meanwhile.
            let _ = of
                .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status))
                .await;
        }
        sleep(LOOK).await;
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

fn lacks<T>(what: &'static str) -> Result<T, ClusterError> {
    Err(ClusterError::Unsupported { what })
}

#[async_trait]
impl Cluster for Bare {
    fn describe(&self) -> &Description {
        &self.about
    }

    fn client(&self) -> Client {
        self.client.clone()
    }

    async fn exec(&self, _: &Place, _: &[String]) -> Result<Child, ClusterError> {
        // A client that has its plan and gets no answers.
        let says_nothing = Command::new("sh")
            .args(["-c", "head -n 1 >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        says_nothing.map_err(|error| ClusterError::Failed {
            what: "start a shell".to_owned(),
            why: error.to_string(),
        })
    }

    async fn log(&self, _: &str, _: &str) -> Result<String, ClusterError> {
        Ok(String::new())
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn agent(&self, _: &str) -> Result<AgentState, ClusterError> {
        lacks("show agents")
    }

    async fn stop_agent(&self, _: &str, _: Stop) -> Result<(), ClusterError> {
        lacks("stop agents")
    }

    async fn start_agent(&self, _: &str) -> Result<(), ClusterError> {
        lacks("start agents")
    }

    async fn set_agent_api_endpoint(&self, _: &str, _: Option<&ApiEndpoint>) -> Result<(), ClusterError> {
        lacks("redirect agents")
    }

    async fn start_agent_as(&self, _: &str, _: Variant) -> Result<(), ClusterError> {
        lacks("start agents")
    }

    async fn wipe_state(&self, _: &str) -> Result<(), ClusterError> {
        lacks("wipe nodes")
    }

    async fn baseline(&self, _: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        lacks("know what nodes had")
    }

    async fn api_servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        let address = "10.0.0.1:6443".parse().expect("an address");
        let server = |number| ApiServer {
            number,
            address,
            running: true,
        };
        Ok([1, 2].map(server).to_vec())
    }

    async fn api_fault(&self, _: &ApiFault, _: Duration) -> Result<HeldApiFault, ClusterError> {
        lacks("let API servers fail")
    }

    async fn jump_versions(&self, _: u32) -> Result<(), ClusterError> {
        lacks("let the resourceVersion jump")
    }

    fn cgroup_root(&self) -> &Path {
        Path::new("/sys/fs/cgroup")
    }

    fn pins(&self) -> Vec<String> {
        Vec::new()
    }

    async fn evidence(&self, _: &Path) -> Result<(), ClusterError> {
        Ok(())
    }
}
