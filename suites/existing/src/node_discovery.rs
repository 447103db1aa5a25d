//! Finds nodes that an account may not list, by pods with anti-affinity.

use cluster::{Node, RUN_LABEL};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    KubernetesError, LIMITS, Options,
    error::api,
    labels::{ARCHITECTURE, MANAGED_BY, MANAGER, OS},
    limits::ask,
    pods::{PodProgress, dressed, look, remove, replace},
};

/// Number of nodes to find: the most that cases of one namespace need.
const MOST: usize = 2;

/// Finds nodes one after the other, and sorts them by name. The pods are removed again in any case.
///
/// # Errors
/// No node accepts a pod; the image can't be pulled.
pub(super) async fn scout(client: &Client, options: &Options) -> Result<Vec<Node>, KubernetesError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    let mut nodes: Vec<Node> = Vec::new();
    let found = find(&pods, options, &mut nodes).await;
    for number in 0..MOST {
        remove(&pods, &name(number)).await?;
    }
    found?;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

async fn find(pods: &Api<Pod>, options: &Options, nodes: &mut Vec<Node>) -> Result<(), KubernetesError> {
    for number in 0..MOST {
        let what = format!("make the pod {}", name(number));
        let pod = pod(options, &name(number)).map_err(|error| KubernetesError::Api {
            what,
            why: error.to_string(),
        })?;
        replace(pods, &name(number), &pod).await?;
        match placed(pods, &name(number), options).await? {
            Scheduling::Node(node) if nodes.iter().all(|known| known.name != node.name) => nodes.push(node),
            Scheduling::None(why) if nodes.is_empty() => return Err(KubernetesError::NoNodes { why }),
            // There are no more nodes.
            Scheduling::Node(_) | Scheduling::None(_) => break,
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("plumbline-scout-{number}")
}

#[derive(Debug, PartialEq, Eq)]
enum Scheduling {
    Node(Node),
    None(String),
}

/// Waits until a pod runs, or is unschedulable.
async fn placed(pods: &Api<Pod>, name: &str, options: &Options) -> Result<Scheduling, KubernetesError> {
    let what = format!("start the image {} in the pod {name}", options.image);
    let began = Instant::now();
    loop {
        let pod = ask(&what, pods.get(name)).await?.map_err(api(&what))?;
        match look(&pod) {
            PodProgress::Ready => return Ok(Scheduling::Node(node(&pod))),
            PodProgress::Hopeless(why) => {
                return Err(KubernetesError::Image {
                    image: options.image.clone(),
                    node: node(&pod).name,
                    why,
                });
            }
            PodProgress::Coming => {}
        }
        if let Some(why) = no_place(&pod) {
            return Ok(Scheduling::None(why));
        }
        if began.elapsed() >= LIMITS.pods {
            return Err(KubernetesError::Late {
                what,
                limit: LIMITS.pods,
            });
        }
        sleep(LIMITS.look).await;
    }
}

/// The node of a pod.
fn node(pod: &Pod) -> Node {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let addresses = pod.status.as_ref().and_then(|status| status.host_ips.as_ref());
    Node {
        name: name.unwrap_or_default(),
        addresses: addresses
            .into_iter()
            .flatten()
            .filter_map(|address| address.ip.parse().ok())
            .collect(),
    }
}

/// The scheduler's message for an unschedulable pod.
fn no_place(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unscheduled = conditions.iter().find(|one| {
        one.type_ == "PodScheduled" && one.status == "False" && one.reason.as_deref() == Some("Unschedulable")
    })?;
    Some(
        unscheduled
            .message
            .clone()
            .unwrap_or_else(|| "no node takes a pod".to_owned()),
    )
}

/// Selects nodes that can run the image; of several architectures, each is tried.
fn selector(options: &Options) -> Value {
    let mut selector = json!({ OS: "linux" });
    if let [only] = options.pods.architectures.as_slice() {
        selector[ARCHITECTURE] = only.as_str().into();
    }
    selector
}

/// A server on loopback, like the run's pods on known nodes.
fn pod(options: &Options, name: &str) -> serde_json::Result<Pod> {
    let args = ["serve", "--name", "scout", "--address", "127.0.0.1", "--tcp", "0"];
    dressed(
        options,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": options.namespace,
                "labels": { RUN_LABEL: options.run, MANAGED_BY: MANAGER },
            },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": selector(options),
                // Pods of cases name their nodes, so NoSchedule taints don't keep them off.
                "tolerations": [{ "operator": "Exists", "effect": "NoSchedule" }],
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": { "matchLabels": { RUN_LABEL: options.run } },
                }] } },
                "containers": [{ "name": "probe", "image": options.image, "args": args }],
            },
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({ "spec": { "nodeName": "n", "containers": [] }, "status": status }))
            .unwrap()
    }

    #[test]
    fn a_pod_says_which_node_it_is_on_and_whether_there_is_none() {
        let runs = pod(&json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}));
        assert_eq!((node(&runs).name.as_str(), node(&runs).addresses.len()), ("n", 2));
        assert_eq!(no_place(&runs), None);
        let condition = |reason: &str| {
            pod(
                &json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/1"}]}),
            )
        };
        assert_eq!(no_place(&condition("Unschedulable")), Some("0/1".to_owned()));
        assert_eq!(no_place(&condition("SchedulerError")), None, "it is tried again");
    }
}
