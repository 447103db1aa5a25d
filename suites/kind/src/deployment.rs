//! The objects of the agents and of kube-proxy, and what they need of nodes.

use std::{net::SocketAddr, time::Instant};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Node, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{KindConfig, KindError, LIMITS, api::asking, error::api_error, manifests::NAMESPACE};

/// Field manager of what is applied.
const MANAGER: &str = "plumbline";
/// Name of kube-proxy's DaemonSet and ConfigMap, as kubeadm creates them.
const PROXY: &str = "kube-proxy";
/// Key of kube-proxy's kubeconfig in the ConfigMap.
const PROXY_KUBECONFIG: &str = "kubeconfig.conf";
/// Annotation of kube-proxy's pods: the API server that they were started with.
const PROXY_SERVER: &str = "plumbline-run/api-server";

/// Applies objects of the agent's manifest.
pub(crate) async fn apply(client: &Client, objects: &[Value]) -> Result<(), KindError> {
    let params = PatchParams::apply(MANAGER).force();
    for object in objects {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (name, namespace) = (text("name"), text("namespace"));
        let what = format!("apply {} {name}", object["kind"]);
        let resource =
            resource(object["kind"].as_str().unwrap_or_default()).ok_or_else(|| KindError::Unexpected {
                what: what.clone(),
                why: "its kind is none that the agent's manifest had".to_owned(),
            })?;
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace, &resource)
        };
        api.patch(name, &params, &Patch::Apply(object))
            .await
            .map_err(api_error(what))?;
    }
    Ok(())
}

/// Waits until nodes are Ready, so that they have a CNI plugin.
pub(crate) async fn nodes_ready(client: &Client) -> Result<(), KindError> {
    let begin = Instant::now();
    let api: Api<Node> = Api::all(client.clone());
    loop {
        let nodes = api
            .list(&ListParams::default())
            .await
            .map_err(api_error("list the nodes"))?;
        let late: Vec<String> = nodes.items.iter().filter_map(unready).collect();
        if late.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > LIMITS.agents_ready {
            return Err(KindError::NodesNotReady {
                nodes: late.join("; "),
                limit: LIMITS.agents_ready,
            });
        }
        sleep(LIMITS.look).await;
    }
}

/// Name and message of a node; `None` if it accepts pods.
fn unready(node: &Node) -> Option<String> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Ready");
    // The taint is removed shortly after the condition has changed.
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let tainted = taints
        .into_iter()
        .any(|taint| taint.key == "node.kubernetes.io/not-ready");
    match ready {
        Some(ready) if ready.status == "True" => {
            tainted.then(|| format!("{name}: is still tainted not-ready"))
        }
        Some(ready) => Some(format!(
            "{name}: {}",
            ready.message.as_deref().unwrap_or_default()
        )),
        None => Some(format!("{name}: says nothing")),
    }
}

fn resource(kind: &str) -> Option<ApiResource> {
    fn of<T: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<T>(&())
    }
    match kind {
        "ServiceAccount" => Some(of::<ServiceAccount>()),
        "ClusterRole" => Some(of::<ClusterRole>()),
        "ClusterRoleBinding" => Some(of::<ClusterRoleBinding>()),
        "ConfigMap" => Some(of::<ConfigMap>()),
        "DaemonSet" => Some(of::<DaemonSet>()),
        _ => None,
    }
}

/// Checks that a cluster has the configured kube-proxy, or none (another one would serve beside the agent), and that
/// its version supports the mode.
pub(crate) async fn expect_proxy(client: &Client, config: &KindConfig) -> Result<(), KindError> {
    let version = client
        .apiserver_version()
        .await
        .map_err(api_error("ask for the version of Kubernetes"))?;
    // Some builds have a plus sign after the number.
    let number = |text: &str| text.trim_end_matches('+').parse().ok();
    if let (Some(major), Some(minor)) = (number(&version.major), number(&version.minor)) {
        config.expect_known(&format!("the kind cluster {:?}", config.name), (major, minor))?;
    }
    let what = "look for kube-proxy";
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let is_there = sets.get_opt(PROXY).await.map_err(api_error(what))?.is_some();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get_opt(PROXY).await.map_err(api_error(what))?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let mode = proxy_mode(data.get("config.conf").map_or("", String::as_str));
    let (mode, found) = if is_there {
        (mode, format!("kube-proxy in its mode {mode}"))
    } else {
        ("none", "no kube-proxy".to_owned())
    };
    if mode == config.target.proxy_mode() {
        return Ok(());
    }
    Err(KindError::Foreign {
        name: config.name.clone(),
        found,
        expected: config.target.name(),
    })
}

/// Sets kube-proxy's API endpoint. Where it is another one, its pods are replaced.
pub(crate) async fn set_proxy_api_server(client: &Client, to: SocketAddr) -> Result<(), KindError> {
    let what = "set kube-proxy's API endpoint";
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get(PROXY).await.map_err(api_error(what))?;
    let data = map.data.unwrap_or_default();
    let asking = data
        .get(PROXY_KUBECONFIG)
        .and_then(|text| asking(text, to))
        .ok_or_else(|| KindError::Unexpected {
            what: what.to_owned(),
            why: format!("{PROXY_KUBECONFIG} of its ConfigMap names no server"),
        })?;
    let patch = json!({"data": {PROXY_KUBECONFIG: asking}});
    let params = PatchParams::default();
    maps.patch(PROXY, &params, &Patch::Merge(&patch))
        .await
        .map_err(api_error(what))?;
    let metadata = json!({"annotations": {PROXY_SERVER: to.to_string()}});
    let patch = json!({"spec": {"template": {"metadata": metadata}}});
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    sets.patch(PROXY, &params, &Patch::Merge(&patch))
        .await
        .map(drop)
        .map_err(api_error(what))
}

/// The mode of a KubeProxyConfiguration; the default is iptables.
fn proxy_mode(configuration: &str) -> &str {
    let mode = configuration.lines().find_map(|line| line.strip_prefix("mode:"));
    match mode.map(|mode| mode.trim().trim_matches('"')) {
        Some(mode) if !mode.is_empty() => mode,
        _ => "iptables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_kube_proxy_is_what_its_configuration_says_or_its_own_choice() {
        assert_eq!(proxy_mode("kind: K\nmode: nftables\n"), "nftables");
        assert_eq!(proxy_mode("mode: \"ipvs\"\n"), "ipvs");
        assert_eq!(proxy_mode("mode: \"\"\n"), "iptables");
        assert_eq!(proxy_mode("iptables:\n  masqueradeAll: false\n"), "iptables");
    }
}
