//! A pod is assigned to a node (`pods/binding`, `pkg/registry/core/pod/storage`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Key, Object, Store, WriteOptions, write::now};
use crate::{kinds::Kind, status::Status};

/// Labels of a node that its pods get.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl Store {
    /// Assigns a pod without a node to one, and sets its condition PodScheduled.
    ///
    /// # Errors
    /// 404 without the pod, 409 if it has a node or is being deleted, 500 without a node's name. The node need not
    /// exist, as upstream.
    pub(crate) fn bind(&self, key: &Key, node: &str, options: &WriteOptions) -> Result<Arc<Object>, Status> {
        let conflict = |why: &str| Err(Status::conflict("", "pods/binding", &key.name, why));
        if node.is_empty() {
            return Err(Status::without_reason("target.name: Required value"));
        }
        let mut state = self.lock();
        let old = Arc::clone(state.get(key)?);
        if old.is_terminating() {
            return conflict(&format!(
                "pod {} is being deleted, cannot be assigned to a host",
                key.name
            ));
        }
        let held = old.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if !held.is_empty() {
            return conflict(&format!(
                "pod {} is already assigned to node \"{held}\"",
                key.name
            ));
        }
        if options.dry_run {
            return Ok(old);
        }
        let mut new = old.value.clone();
        new["spec"]["nodeName"] = node.into();
        // Pods get the topology labels of their node (KEP-4742).
        let labels = state
            .get(&Key::new(Kind::Node, "", node))
            .map(|node| node.meta()["labels"].clone());
        for label in TOPOLOGY {
            if let Some(value) = labels.as_ref().ok().and_then(|labels| labels[label].as_str()) {
                new["metadata"]["labels"][label] = value.into();
            }
        }
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now(),
        });
        let mut conditions = new["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(scheduled);
        new["status"]["conditions"] = Value::from(conditions);
        let bound = state.commit(key.clone(), new);
        self.publish(&state);
        Ok(bound)
    }
}
