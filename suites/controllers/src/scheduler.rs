//! A small scheduler: round robin over the nodes that a pod fits.

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    RETRY,
    cache::{Cache, Key, events, key},
};

/// The scheduler of pods that do not name one.
const NAME: &str = "default-scheduler";

/// Binds pods without a node to nodes, round robin, until `stop`.
///
/// A pod fits a node that has all labels of its `nodeSelector`, is not cordoned, and has no taint `NoSchedule` or
/// `NoExecute` that the pod does not tolerate. A pod that fits no node waits for one.
pub async fn schedule(client: Client, stop: CancellationToken) {
    let mut changes = stream::select_all([
        events(Api::<Pod>::all(client.clone())).map(Change::Pod).boxed(),
        events(Api::<Node>::all(client.clone())).map(Change::Node).boxed(),
    ]);
    let mut scheduler = Scheduler {
        client,
        pods: Cache::new(),
        nodes: Cache::new(),
        turn: 0,
        failed: false,
    };
    loop {
        let mut next = tokio::select! {
            () = stop.cancelled() => return,
            change = changes.next() => change,
            () = tokio::time::sleep(RETRY), if scheduler.failed => None,
        };
        while let Some(change) = next {
            scheduler.apply(change);
            next = changes.next().now_or_never().flatten();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = scheduler.work() => {}
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Change {
    Pod(watcher::Result<Event<Pod>>),
    Node(watcher::Result<Event<Node>>),
}

struct Scheduler {
    client: Client,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    /// Counts bound pods, for the round robin.
    turn: usize,
    failed: bool,
}

impl Scheduler {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Pod(Ok(event)) => drop(self.pods.apply(event)),
            Change::Node(Ok(event)) => drop(self.nodes.apply(event)),
            Change::Pod(Err(error)) | Change::Node(Err(error)) => {
                tracing::debug!(%error, "a watch failed and is tried again");
            }
        }
    }

    async fn work(&mut self) {
        if !self.pods.is_complete() || !self.nodes.is_complete() {
            return;
        }
        self.failed = false;
        let waiting: Vec<Pod> = self.pods.all().filter(|pod| is_waiting(pod)).cloned().collect();
        for pod in waiting {
            let Some(node) = choose(&pod, self.nodes.all(), self.turn) else {
                continue;
            };
            match self.bind(&key(&pod), &pod, &node).await {
                Ok(()) => self.turn += 1,
                Err(error) => {
                    tracing::debug!(%error, pod = pod.name_any(), "failed to bind");
                    self.failed = true;
                }
            }
        }
    }

    async fn bind(&mut self, (namespace, name): &Key, pod: &Pod, node: &str) -> kube::Result<()> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let bound = api
            .create_subresource::<Value, Value>("binding", name, &PostParams::default(), &binding)
            .await;
        match bound {
            Ok(_) => {}
            // Deleted, or bound by another scheduler: its event is on the way.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
        let mut bound = pod.clone();
        bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
        self.pods.assume(bound);
        Ok(())
    }
}

fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let bound = spec
        .and_then(|spec| spec.node_name.as_deref())
        .is_some_and(|node| !node.is_empty());
    let scheduler = spec
        .and_then(|spec| spec.scheduler_name.as_deref())
        .unwrap_or(NAME);
    !bound && scheduler == NAME && pod.metadata.deletion_timestamp.is_none()
}

fn choose<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a Node>, turn: usize) -> Option<String> {
    let fitting: Vec<&Node> = nodes.filter(|node| fits(node, pod)).collect();
    let count = fitting.len();
    (count > 0).then(|| fitting[turn % count].name_any())
}

fn fits(node: &Node, pod: &Pod) -> bool {
    let nothing = BTreeMap::new();
    let selector = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_selector.as_ref())
        .unwrap_or(&nothing);
    let spec = node.spec.clone().unwrap_or_default();
    let tolerations = || pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let tolerated = spec.taints.iter().flatten().all(|taint| {
        taint.effect == "PreferNoSchedule"
            || tolerations().any(|toleration| {
                let all = toleration.operator.as_deref() == Some("Exists");
                toleration.key.as_ref().is_none_or(|key| *key == taint.key)
                    && toleration
                        .effect
                        .as_ref()
                        .is_none_or(|effect| *effect == taint.effect)
                    && (all
                        || toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""))
            })
    });
    let labels = node.labels();
    tolerated
        && spec.unschedulable != Some(true)
        && selector
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, rest: Value) -> Node {
        let mut node = rest;
        node["metadata"]["name"] = name.into();
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn pods_go_round_robin_to_the_nodes_that_they_fit() {
        let nodes = [
            node("a", json!({"metadata": {"labels": {"disk": "fast"}}})),
            node("b", json!({})),
            node("c", json!({"spec": {"unschedulable": true}})),
            node(
                "d",
                json!({"spec": {"taints": [{"key": "own", "value": "x", "effect": "NoSchedule"}]}}),
            ),
            node("e", json!({"metadata": {"labels": {"disk": "fast"}}})),
        ];
        let rows = [
            (json!({}), vec!["a", "b", "e", "a"]),
            (
                json!({"nodeSelector": {"disk": "fast"}}),
                vec!["a", "e", "a", "e"],
            ),
            (json!({"nodeSelector": {"disk": "slow"}}), vec!["-", "-"]),
            (
                json!({"tolerations": [{"key": "own", "value": "x"}]}),
                vec!["a", "b", "d", "e"],
            ),
            (
                json!({"tolerations": [{"key": "own", "value": "y"}]}),
                vec!["a", "b", "e"],
            ),
            (
                json!({"tolerations": [{"operator": "Exists"}]}),
                vec!["a", "b", "d", "e"],
            ),
        ];
        for (spec, expected) in rows {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let chosen: Vec<String> = (0..expected.len())
                .map(|turn| choose(&pod, nodes.iter(), turn).unwrap_or_else(|| "-".to_owned()))
                .collect();
            assert_eq!(chosen, expected, "{spec}");
        }
    }
}
