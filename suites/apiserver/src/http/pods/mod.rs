//! `log`, `exec` and `proxy` of pods. Refusals are those of `pkg/registry/core/pod`; the rest is done by the [`Kubelet`].
//!
//! `log` selects lines, `exec` has kubectl's channels over a WebSocket (`socket`), `proxy` forwards HTTP. There is no
//! `portforward`: kubectl supports only SPDY/3.1 for it, and no maintained library does.

mod exec;
mod log;
mod proxy;
mod socket;

use std::sync::Arc;

use hyper::{Method, Request, Response};
use serde_json::Value;

use super::{Api, Sent, query::Query};
use crate::{
    kinds::Kind,
    kubelet::{Container, Kubelet, KubeletError, PodOnNode},
    respond::Body,
    status::Status,
    store::{Key, Object},
};

/// The lists of containers in a pod's spec.
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The subresource of a request to a pod's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Log,
    Exec,
    /// `[scheme:]name[:port]`, and a path of the pod's own.
    Proxy(String),
}

/// A request to a pod's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRequest {
    pub(crate) namespace: String,
    /// Of a proxy, with the port.
    pub(crate) name: String,
    pub(crate) topic: Topic,
}

impl Api {
    pub(super) async fn pod_request(
        &self,
        asked: &PodRequest,
        request: Request<Sent>,
    ) -> Result<Response<Body>, Status> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match (&asked.topic, request.method()) {
            (Topic::Log, &Method::GET) => self.log(asked, &query).await,
            (Topic::Exec, &Method::GET | &Method::POST) => self.exec(asked, &query, request),
            (Topic::Proxy(path), _) => self.proxy(asked, path, request).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Object>, Status> {
        self.store.get(&Key::new(Kind::Pod, namespace, name))
    }

    fn kubelet(&self, pod: &PodOnNode) -> Result<Arc<dyn Kubelet>, Status> {
        self.store.kubelet().ok_or_else(|| {
            let why = KubeletError::Unreachable {
                node: pod.node.clone(),
                why: "nothing runs the pods of this cluster".to_owned(),
            };
            Status::dialing_failed(&why)
        })
    }
}

/// The node of a pod; `None` if it has none yet.
fn on_node(pod: &Value) -> Option<PodOnNode> {
    let meta = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
    Some(PodOnNode {
        namespace: meta("namespace"),
        name: meta("name"),
        uid: meta("uid"),
        node: node.to_owned(),
    })
}

/// The container of a request: the named one, or the only one.
fn container_name(pod: &Value, asked: &str) -> Result<String, Status> {
    let names = |list: &str| {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        all.filter_map(|container| container["name"].as_str())
            .collect::<Vec<_>>()
    };
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let main = names("containers");
    match (asked, main.as_slice()) {
        ("", [only]) => Ok((*only).to_owned()),
        ("", _) => {
            let mut why = format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                main.join(" ")
            );
            let init = names("initContainers");
            if !init.is_empty() {
                why.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Status::bad_request(why))
        }
        _ if CONTAINER_LISTS
            .into_iter()
            .any(|list| names(list).contains(&asked)) =>
        {
            Ok(asked.to_owned())
        }
        _ => Err(Status::bad_request(format!(
            "container {asked} is not valid for pod {pod_name}"
        ))),
    }
}

/// The error that a kubelet would return.
fn refused(error: &KubeletError, container: &Container) -> Status {
    let (name, pod) = (&container.name, &container.pod.name);
    match error {
        KubeletError::Unreachable { .. } | KubeletError::Connect { .. } => Status::dialing_failed(error),
        KubeletError::NotRunning { state } => {
            Status::bad_request(format!("container \"{name}\" in pod \"{pod}\" is {state}"))
        }
        KubeletError::NoPreviousRun => Status::bad_request(format!(
            "previous terminated container \"{name}\" in pod \"{pod}\" not found"
        )),
        KubeletError::Exec { .. } => Status::internal(error),
    }
}
