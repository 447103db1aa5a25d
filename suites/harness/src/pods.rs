//! Pods of the suite: backends, which answer and log, and clients.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU16, Ordering},
};

use cluster::{Family, PROBE};
use futures::future::try_join_all;
use kube::{api::DynamicObject, runtime::wait::await_condition};
use oracle::history::Transport;
use serde_json::{Value, json};

use crate::{
    history::Event,
    names::{self, Key, Kind},
    objects::{MANAGER, Objects},
    requests::{answered, refused},
    verdict::Halt,
    waiting::{Within, eventually},
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

    /// The pod in the API.
    fn key(&self) -> Key {
        Key::new(Kind::Pod, self.axis(), &self.in_api)
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
        family
            .first_of(&self.addresses)
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

/// Ports of servers in nodes' networks: above what kernels hand out, where no program of a node is known to listen. A case has a block
/// of them, by its token: pods of the case before may still be there.
const HOST_PORTS: u16 = 61_000;
const HOST_BLOCK: u16 = 16;
const HOST_BLOCKS: u32 = 250;

/// Ports on which the backends of one node serve.
#[derive(Debug)]
pub(crate) struct Ports {
    /// The next in nodes' networks.
    next: AtomicU16,
    /// Whether pods are of these.
    are_on_hosts: bool,
}

impl Ports {
    /// Of a case that has drawn this token, whose pods are in their nodes' networks or have their own.
    pub(crate) fn new(token: u32, are_on_hosts: bool) -> Self {
        let block = u16::try_from(token % HOST_BLOCKS).unwrap_or_default();
        let first = HOST_PORTS + block * HOST_BLOCK;
        Self {
            next: AtomicU16::new(first),
            are_on_hosts,
        }
    }

    /// This one, which pods with a network of their own have to themselves; in nodes' networks one that no other pod of the case has.
    pub(crate) fn port(&self, of_pods: u16) -> u16 {
        if self.are_on_hosts {
            self.on_hosts()
        } else {
            of_pods
        }
    }

    /// One of nodes' networks that nothing else of the case has.
    pub(crate) fn on_hosts(&self) -> u16 {
        self.next.fetch_add(1, Ordering::Relaxed)
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

/// Ready endpoints for backends.
pub fn endpoints<'a>(backends: impl IntoIterator<Item = &'a Backend>, family: Family) -> Result<Value, Halt> {
    backends
        .into_iter()
        .map(|backend| backend.endpoint(family, true))
        .collect()
}

/// A slice of the Service of its name, with one backend.
pub(crate) fn slice_of(
    name: &str,
    namespace: &str,
    backend: &Backend,
    family: Family,
    ports: &Value,
) -> Result<Value, Halt> {
    Ok(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": MANAGER,
            },
        },
        "addressType": family.to_string(),
        "endpoints": [backend.endpoint(family, true)?],
        "ports": ports,
    }))
}

/// Creates pods, several at once, and returns when all are ready, in the order given.
pub(crate) async fn create(objects: &Objects, pods: &[Value]) -> Result<Vec<Backend>, Halt> {
    for some in pods.chunks(AT_ONCE) {
        try_join_all(some.iter().map(|pod| objects.create(pod))).await?;
    }
    try_join_all(pods.iter().map(|pod| ready(objects, pod))).await
}

async fn ready(objects: &Objects, pod: &Value) -> Result<Backend, Halt> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let key = Key::new(Kind::Pod, &text("namespace"), &text("name"));
    let (api, limit) = (objects.api(&key), objects.limits().pods);
    let ready = await_condition(api.clone(), &key.name, |pod: Option<&DynamicObject>| {
        pod.is_some_and(is_ready)
    });
    let Ok(ready) = tokio::time::timeout(limit, ready).await else {
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
    let backend = Backend {
        namespace: objects.namespace(&key),
        in_api: key.name,
        node: pod.data["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        addresses: addresses(&pod.data),
    };
    objects.history().add(&Event::Backend {
        server: backend.server(),
        node: backend.node.clone(),
        addresses: backend.addresses.clone(),
    });
    Ok(backend)
}

/// Deletes pods, which end in their own time.
pub(crate) async fn delete(objects: &Objects, pods: &[Backend]) -> Result<(), Halt> {
    for pod in pods {
        objects.delete(&pod.key()).await?;
    }
    Ok(())
}

/// Returns when none of these pods is in the API any more, and so none of their processes runs.
///
/// # Errors
/// Inconclusive if one still is at the end of the limit.
pub(crate) async fn gone(objects: &Objects, pods: &[Backend], within: Within) -> Result<(), Halt> {
    eventually("deleted pods have ended", within, async || {
        for pod in pods {
            let (key, api) = (pod.key(), objects.api(&pod.key()));
            let found = answered(|| api.get_opt(&key.name)).await;
            let found = found.map_err(|error| refused(&format!("get {key}"), error))?;
            if found.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
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

/// The addresses in the status of a Pod's JSON: empty before it has any.
#[must_use]
pub fn addresses(pod: &Value) -> Vec<IpAddr> {
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
