//! What is read of a cluster before anything is made in it.

use std::{collections::BTreeSet, net::IpAddr};

use k8s_openapi::api::core::v1::{Node as ApiNode, Service, ServicePort, ServiceSpec};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use tokio::time::timeout;

use super::{
    Extension, KubernetesError, LIMITS, Options, Tier, daemon_set, error, installed, limits::ask, rights,
};
use crate::cluster::{Capability, Description, Node};

/// Reads it. Nothing is written: the one Service that is sent is a dry run.
///
/// # Errors
/// It can't be reached or used; see [`KubernetesError`].
pub(super) async fn survey(
    client: &Client,
    options: &Options,
    extension: &dyn Extension,
) -> Result<Description, KubernetesError> {
    reach(client, options).await?;
    rights::check(client, options).await?;
    // Whoever may use one namespace may not list nodes: pods find them, when the run has the namespace.
    let (nodes, kernel) = match options.confined() {
        Some(_) => (Vec::new(), "not shown to this account".to_owned()),
        None => nodes(client).await?,
    };
    let mut capabilities = families(client, options.confined().unwrap_or("default")).await?;
    if let Some(agents) = &options.tested.agents {
        installed::check(client, agents, &nodes).await?;
        if options.tier >= Tier::Node {
            daemon_set::expect(client, &agents.agent).await?;
        }
    }
    capabilities.insert(Capability::ApiWrite);
    if options.tier >= Tier::Node {
        capabilities.insert(Capability::HostNetwork);
    }
    capabilities.extend(extension.capabilities());
    let tested = options.tested.clone();
    Ok(Description {
        provider: options.provider.clone(),
        target: tested.label,
        kernel,
        nodes,
        capabilities,
        features: tested.features,
        deviations: tested.deviations,
        ways: tested.ways,
        variants: tested.variants,
        image: options.image.clone(),
        confined: options.confined().map(str::to_owned),
    })
}

async fn reach(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let server = options.connection.config().await?.cluster_url.to_string();
    let answer = timeout(LIMITS.request, client.apiserver_version()).await;
    match answer {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => Err(KubernetesError::Unauthenticated {
            server,
            why: status.message.clone(),
        }),
        // It does not show its version to everybody: who may not see it may still do the rest.
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Ok(()),
        Ok(Err(error)) => Err(KubernetesError::Unreachable {
            server,
            why: error::words(&error),
        }),
        Err(_) => Err(KubernetesError::Unreachable {
            server,
            why: format!("no answer within {:?}", LIMITS.request),
        }),
    }
}

/// Nodes that pods can be put on, in the order of their names, and what kernels they have.
async fn nodes(client: &Client) -> Result<(Vec<Node>, String), KubernetesError> {
    let what = "list nodes";
    let api: Api<ApiNode> = Api::all(client.clone());
    let params = ListParams::default();
    let listed = ask(what, api.list(&params)).await?.map_err(error::api(what))?;
    choose(listed.items)
}

fn choose(mut all: Vec<ApiNode>) -> Result<(Vec<Node>, String), KubernetesError> {
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let (mut nodes, mut kernels, mut left_out) = (Vec::new(), BTreeSet::new(), Vec::new());
    for node in all {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(why) = unusable(&node) {
            left_out.push(format!("{name} {why}"));
            continue;
        }
        let status = node.status.unwrap_or_default();
        kernels.extend(status.node_info.map(|info| info.kernel_version));
        let internal = status.addresses.unwrap_or_default().into_iter();
        let internal = internal.filter(|address| address.type_ == "InternalIP");
        nodes.push(Node {
            name,
            addresses: internal
                .filter_map(|address| address.address.parse::<IpAddr>().ok())
                .collect(),
        });
    }
    if nodes.is_empty() {
        let why = if left_out.is_empty() {
            "it has no nodes".to_owned()
        } else {
            left_out.join(", ")
        };
        return Err(KubernetesError::NoNodes { why });
    }
    let kernels: Vec<String> = kernels.into_iter().collect();
    Ok((nodes, kernels.join(", ")))
}

/// So much of what a node says of itself is repeated.
const MOST_SAID: usize = 300;

/// Why a pod that names this node would not run there. Pods of the suite name their nodes, so nothing but `NoExecute` keeps
/// them away.
fn unusable(node: &ApiNode) -> Option<String> {
    let status = node.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions.iter().find(|one| one.type_ == "Ready");
    if ready.is_none_or(|one| one.status != "True") {
        // In its own words, as kubelet says what it lacks (such as a network for pods).
        let why = ready.and_then(|one| one.message.as_deref());
        let why: String = why.unwrap_or_default().chars().take(MOST_SAID).collect();
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        return Some(format!("is not Ready{why}"));
    }
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let taint = taints.iter().find(|taint| taint.effect == "NoExecute")?;
    Some(format!("has the taint {}:NoExecute", taint.key))
}

/// Families of Services, as the API would allocate them.
async fn families(client: &Client, namespace: &str) -> Result<BTreeSet<Capability>, KubernetesError> {
    let what = "ask by a dry run which families Services have";
    let service = Service {
        metadata: ObjectMeta {
            generate_name: Some("plumbline-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(vec![ServicePort {
                port: 80,
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let answer = ask(what, api.create(&params, &service)).await?;
    let answer = answer.map_err(error::api(what))?;
    let families = answer.spec.and_then(|spec| spec.ip_families).unwrap_or_default();
    Ok(families
        .iter()
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some(Capability::Ipv4),
            "IPv6" => Some(Capability::Ipv6),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, ready: &str, taints: &Value) -> ApiNode {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"taints": taints},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"},
                              {"type": "InternalIP", "address": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": ready, "message": "no network"}],
                "nodeInfo": {"kernelVersion": "6.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                             "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                             "osImage": "", "systemUUID": ""},
            },
        }))
        .unwrap()
    }

    #[test]
    fn nodes_that_no_pod_can_run_on_are_left_out() {
        let kept = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
        let evicts = json!([{"key": "broken", "effect": "NoExecute"}]);
        let (nodes, kernels) = choose(vec![
            node("c", "True", &evicts),
            node("b", "True", &kept),
            node("a", "True", &json!([])),
            node("d", "Unknown", &json!([])),
        ])
        .unwrap();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!((names, kernels.as_str()), (vec!["a", "b"], "6.1"));
        assert_eq!(nodes[0].addresses.len(), 2, "both families, and no host name");
        let none = choose(vec![node("c", "True", &evicts), node("d", "False", &json!([]))]).unwrap_err();
        assert_eq!(
            none.to_string(),
            "the cluster has no node that pods can be put on: c has the taint broken:NoExecute, d is not Ready \
             (no network)"
        );
    }
}
