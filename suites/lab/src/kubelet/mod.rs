//! A small kubelet: runs the pods of one node.
//!
//! ```text
//!  watch (spec.nodeName) ─▶ Kubelet ─▶ one Worker per pod ─▶ Sandbox (netns, veth, cgroup) ─▶ Container (probe)
//!                                          └─▶ status, deletion ─▶ API server
//! ```
//!
//! A pod is Ready while its probe has bound its ports and reports that it is ready. A deleted pod gets the time of its hook
//! `preStop.sleep`, SIGTERM, the rest of its grace period, SIGKILL, and leaves the API when nothing of it is left on the node. It runs container 0 with the
//! image `probe` and nothing else.
//!
//! Files: `spec` (the parsed spec), `pod` (the life of a pod), `sandbox`, `container`, `status`, `table` (pods for
//! other modules); for kubectl `serve` (logs, exec, port forwarding) and `tail` (reads a log by lines).

mod container;
mod pod;
mod sandbox;
mod serve;
mod spec;
mod status;
mod table;
mod tail;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use cluster::image::own_architecture;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};

use super::{LabError, dir::LabDir, underlay::Node};
use pod::{PodContext, PodGoal, Worker};
pub(super) use {sandbox::PodPlace, serve::Kubelets, table::Table};

/// The kubelet of one node.
pub(super) struct Kubelet {
    context: Arc<PodContext>,
}

/// A pod with its worker.
struct PodWorker {
    wanted: watch::Sender<PodGoal>,
}

impl Kubelet {
    pub(super) fn new(node: Arc<Node>, client: Client, plumbline: PathBuf, dir: LabDir) -> Self {
        Self {
            context: Arc::new(PodContext {
                node,
                client,
                plumbline,
                dir,
                pool: Arc::default(),
                table: Arc::default(),
            }),
        }
    }

    /// The pods of the node, for other modules.
    pub(super) fn table(&self) -> Arc<Table> {
        self.context.table.clone()
    }

    /// Creates the node's object and sets its condition Ready.
    pub(super) async fn register(&self) -> Result<(), LabError> {
        let node = &self.context.node;
        let api: Api<NodeObject> = Api::all(self.context.client.clone());
        let failed = |what: &str| {
            let what = format!("{what} the node {}", node.name);
            move |error| LabError::Api {
                what,
                error: Box::new(error),
            }
        };
        let object: NodeObject = node_object(node);
        api.create(&PostParams::default(), &object)
            .await
            .map_err(failed("register"))?;
        let status = json!({"status": object.status});
        api.patch_status(&node.name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .map_err(failed("write the status of"))?;
        Ok(())
    }

    /// Runs the node's pods; dropping the future kills them.
    pub(super) async fn run(self) {
        let api: Api<Pod> = Api::all(self.context.client.clone());
        let name = self.context.node.name.clone();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut known: HashMap<String, PodWorker> = HashMap::new();
        let mut listed: HashSet<String> = HashSet::new();
        let mut workers = JoinSet::new();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                Some(ended) = workers.join_next() => {
                    match ended {
                        Ok(uid) => drop(known.remove(&uid)),
                        Err(error) => tracing::error!(%error, "a pod's worker panicked"),
                    }
                    continue;
                }
            };
            match event {
                None => return,
                Some(Err(error)) => tracing::warn!(node = name, %error, "the watch of pods broke"),
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    listed.extend(pod.uid());
                    self.see(pod, &mut known, &mut workers);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    for (_, gone) in known.iter().filter(|(uid, _)| !listed.contains(*uid)) {
                        gone.wanted.send_replace(PodGoal::Gone);
                    }
                }
                Some(Ok(watcher::Event::Apply(pod))) => self.see(pod, &mut known, &mut workers),
                Some(Ok(watcher::Event::Delete(pod))) => {
                    if let Some(gone) = pod.uid().and_then(|uid| known.get(&uid)) {
                        gone.wanted.send_replace(PodGoal::Gone);
                    }
                }
            }
        }
    }

    fn see(&self, pod: Pod, known: &mut HashMap<String, PodWorker>, workers: &mut JoinSet<String>) {
        let ours =
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.context.node.name);
        let Some(uid) = pod.uid().filter(|_| ours) else {
            return;
        };
        let wanted = PodGoal::of(&pod);
        if let Some(known) = known.get(&uid) {
            known
                .wanted
                .send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
            return;
        }
        let (sender, receiver) = watch::channel(wanted);
        known.insert(uid.clone(), PodWorker { wanted: sender });
        let context = self.context.clone();
        workers.spawn(async move {
            Worker::run(context, pod, receiver).await;
            uid
        });
    }
}

fn node_object(node: &Node) -> NodeObject {
    let cidrs = node.addresses.pod_cidrs();
    let internal = node.addresses.internal().into_iter();
    let mut addresses: Vec<Value> = internal
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    addresses.push(json!({"type": "Hostname", "address": node.name}));
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    // All nodes share the same CPUs, so only the ratio between zones matters.
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = json!({"cpu": cpus.to_string()});
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/arch": own_architecture(),
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": node.addresses.zone(),
            },
        },
        "spec": {"podCIDR": cidrs.first(), "podCIDRs": cidrs},
        "status": {
            "addresses": addresses,
            "capacity": cpu, "allocatable": cpu,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "the lab's kubelet is running pods",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "architecture": std::env::consts::ARCH, "bootID": "", "containerRuntimeVersion": "plumbline-lab",
                "kernelVersion": kernel, "kubeProxyVersion": "", "kubeletVersion": env!("CARGO_PKG_VERSION"),
                "machineID": "", "operatingSystem": "linux", "osImage": "plumbline lab", "systemUUID": "",
            },
        },
    });
    // Every start of a lab covers this literal, so an invalid Node would be noticed.
    serde_json::from_value(object).unwrap_or_default()
}
