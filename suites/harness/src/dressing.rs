//! What pods get besides what their manifests say.

use cluster::{Description, PROBE, dress::dress};
use serde_json::Value;

/// What pods of a cluster get besides what their manifests say.
#[derive(Clone, Debug)]
pub(crate) struct Dressing {
    image: String,
    pull_secrets: Vec<String>,
    on_hosts: bool,
}

impl Dressing {
    /// `on_hosts`: every pod is of its node's network.
    pub(crate) fn of(cluster: &Description, on_hosts: bool) -> Self {
        Self {
            image: cluster.image.clone(),
            pull_secrets: cluster.pull_secrets.clone(),
            on_hosts,
        }
    }

    /// A pod whose containers that are the probe's have the cluster's image of it, with no more rights than they use ([`dress`]),
    /// in the network that it is to have; other objects as they are.
    pub(crate) fn put_on(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let containers = object
            .pointer_mut("/spec/containers")
            .and_then(Value::as_array_mut);
        let Some(containers) = containers else {
            return object;
        };
        for container in containers {
            if container["image"] == PROBE {
                container["image"] = self.image.as_str().into();
            }
        }
        if self.on_hosts {
            object["spec"]["hostNetwork"] = true.into();
        }
        dress(&mut object["spec"], &self.pull_secrets);
        object
    }
}
