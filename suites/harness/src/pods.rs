//! Pods of the suite: backends, which answer and log, and clients.

use std::net::IpAddr;

use cluster::{Description, PROBE, dress::dress};
use futures::future::try_join_all;
use kube::{api::DynamicObject, runtime::wait::await_condition};
use oracle::history::Transport;
use serde_json::{Value, json};

use crate::{
    case::Family,
    context::Context,
    names,
    objects::{Key, Kind},
    sending::answered,
    spent::Activity,
    verdict::Halt,
};

/// Pods whose creation is asked for at once. An API server admits one after another in tens of milliseconds; more at once from each
/// of many cases would be more than its fair share (API Priority and Fairness queues what one user asks for).
const AT_ONCE: usize = 8;

/// A pod that serves probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The namespace in which it is.
    pub namespace: String,
    /// Its name in the API, which need not be what the case calls it ([`plain`](Self::plain)).
    pub in_api: String,
    /// Its node.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Backend {
    /// What the case calls it.
    #[must_use]
    pub fn plain(&self) -> &str {
        names::plain(self.axis(), &self.in_api)
    }

    /// The namespace as the case has it.
    fn axis(&self) -> &str {
        names::namespace_of(&self.namespace, &self.in_api)
    }

    /// Name of its server, unique in the cluster: what identities begin with.
    #[must_use]
    pub fn server(&self) -> String {
        format!("{}.{}", self.plain(), self.axis())
    }

    /// Its identity on a port.
    #[must_use]
    pub fn identity(&self, transport: Transport, port: u16) -> String {
        let transport = match transport {
            Transport::Tcp | Transport::Http | Transport::Tls => "TCP",
            Transport::Sctp => "SCTP",
            Transport::Udp | Transport::UdpConnected => "UDP",
        };
        format!("{}/{transport}/{port}", self.server())
    }

    /// Its address of a family.
    pub fn address(&self, family: Family) -> Result<IpAddr, Halt> {
        let of_family = |address: &&IpAddr| address.is_ipv6() == (family == Family::IPv6);
        self.addresses
            .iter()
            .find(of_family)
            .copied()
            .ok_or_else(|| Halt::Harness(format!("pod {} has no {family} address", self.server())))
    }

    /// An endpoint for it.
    pub fn endpoint(&self, family: Family, ready: bool) -> Result<Value, Halt> {
        Ok(json!({
            "addresses": [self.address(family)?.to_string()],
            "conditions": { "ready": ready, "serving": ready, "terminating": false },
            "nodeName": self.node,
        }))
    }
}

/// Arguments of a pod's container that serves these ports.
#[must_use]
pub fn serve(name: &str, namespace: &str, tcp: &[u16], udp: &[u16]) -> Value {
    let mut args = vec![
        "serve".to_owned(),
        "--name".to_owned(),
        format!("{name}.{namespace}"),
    ];
    args.extend(tcp.iter().flat_map(|port| ["--tcp".to_owned(), port.to_string()]));
    args.extend(udp.iter().flat_map(|port| ["--udp".to_owned(), port.to_string()]));
    json!(args)
}

/// A pod of the suite that is no part of a manifest; it serves TCP and UDP at each of its ports.
pub(crate) fn pod(namespace: &str, name: &str, node: &str, ports: &[u16]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "probe", "image": PROBE, "args": serve(name, namespace, ports, ports) }],
        },
    })
}

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

/// Ready endpoints for backends.
pub fn endpoints<'a>(backends: impl IntoIterator<Item = &'a Backend>, family: Family) -> Result<Value, Halt> {
    backends
        .into_iter()
        .map(|backend| backend.endpoint(family, true))
        .collect()
}

impl Context {
    /// Creates pods, several at once, and returns when all are ready, in the order given.
    pub async fn pods(&self, objects: Vec<Value>) -> Result<Vec<Backend>, Halt> {
        let _spent = self.clock.during(Activity::Staging);
        for some in objects.chunks(AT_ONCE) {
            try_join_all(some.iter().map(|object| self.objects().create(object))).await?;
        }
        try_join_all(objects.iter().map(|object| self.ready(object))).await
    }

    async fn ready(&self, object: &Value) -> Result<Backend, Halt> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = Key::new(Kind::Pod, &text("namespace"), &text("name"));
        let limit = self.limits().pods;
        let ready = await_condition(
            self.objects().api(&key),
            &key.name,
            |pod: Option<&DynamicObject>| pod.is_some_and(is_ready),
        );
        let Ok(ready) = tokio::time::timeout(limit, ready).await else {
            let api = self.objects().api(&key);
            let found = tokio::time::timeout(limit, answered(|| api.get_opt(&key.name))).await;
            let state = found.ok().and_then(Result::ok).flatten().map_or_else(
                || "the API server does not say how it is".to_owned(),
                |pod| state(&pod.data["status"]),
            );
            return Err(Halt::Inconclusive(format!(
                "{key} is not ready within {limit:?}: {state}"
            )));
        };
        let pod = ready
            .map_err(|error| Halt::Harness(format!("failed to watch {key}: {error}")))?
            .ok_or_else(|| Halt::Inconclusive(format!("{key} was deleted, and not by the suite")))?;
        Ok(Backend {
            namespace: self.objects().namespace(&key),
            in_api: key.name,
            node: pod.data["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            addresses: addresses(&pod.data),
        })
    }
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && !addresses(&pod.data).is_empty()
}

/// What a pod that is not ready does: a container that waits, or a condition that says why it is not met.
fn state(status: &Value) -> String {
    let listed = |field: &str| status[field].as_array().into_iter().flatten();
    let waiting = listed("containerStatuses").find_map(|container| {
        let waiting = &container["state"]["waiting"];
        Some((waiting["reason"].as_str()?, waiting["message"].as_str()))
    });
    let unmet = || {
        listed("conditions")
            .filter(|one| one["status"] != "True")
            .find_map(|one| Some((one["type"].as_str()?, Some(one["message"].as_str()?))))
    };
    match waiting.or_else(unmet) {
        Some((what, Some(message))) => format!("{what}: {message}"),
        Some((what, None)) => what.to_owned(),
        None => format!("its phase is {}", status["phase"].as_str().unwrap_or("not said")),
    }
}

fn addresses(pod: &Value) -> Vec<IpAddr> {
    let several = pod["status"]["podIPs"].as_array().into_iter().flatten();
    several
        .filter_map(|one| one["ip"].as_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_pod_is_not_ready_is_told_in_its_own_words() {
        let not_ready = json!({"type": "Ready", "status": "False"});
        let unplaced =
            json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"});
        let container = |waiting: Value| json!({"name": "c", "state": {"waiting": waiting}});
        let cases = [
            (
                json!({"phase": "Pending", "conditions": [&not_ready], "containerStatuses": [
                    container(json!({"reason": "ErrImageNeverPull", "message": "no such image"}))]}),
                "ErrImageNeverPull: no such image",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [container(json!({"reason": "ContainerCreating"}))]}),
                "ContainerCreating",
            ),
            (
                json!({"phase": "Pending", "conditions": [&not_ready, unplaced]}),
                "PodScheduled: 0/3 nodes are available",
            ),
            (
                json!({"phase": "Running", "conditions": [not_ready]}),
                "its phase is Running",
            ),
            (Value::Null, "its phase is not said"),
        ];
        for (status, expected) in cases {
            assert_eq!(state(&status), expected, "{status}");
        }
    }
}
