//! Surveys a cluster before anything is created in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cluster::{Capability, Description, Node, Parts, ZONE_LABEL, software::Software};
use k8s_openapi::api::core::v1::{Node as ApiNode, Service, ServicePort, ServiceSpec};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use tokio::time::timeout;

use super::{
    KubernetesError, LIMITS, Options, Tier, agents, api_servers, error,
    labels::{ARCHITECTURE, OS},
    limits::ask,
    rights,
};

/// Reads the description of a cluster, and why nodes are left out. Nothing is written: the one Service that is sent
/// is a dry run.
///
/// # Errors
/// The cluster can't be reached or used; see [`KubernetesError`].
pub(super) async fn survey(
    client: &Client,
    options: &Options,
    own: &Parts,
) -> Result<(Description, Vec<String>), KubernetesError> {
    reach(client, options).await?;
    rights::check(client, options).await?;
    // An account for one namespace may not list nodes: pods find them, when the run holds the namespace.
    let Chosen {
        nodes,
        are_zoned,
        kernel,
        left_out,
    } = match options.confined() {
        Some(_) => Chosen {
            kernel: "not shown to this account".to_owned(),
            ..Chosen::default()
        },
        None => choose(list(client).await?, &options.pods.architectures)?,
    };
    let mut capabilities = families(client, options.confined().unwrap_or("default")).await?;
    agents::check(client, options, &nodes).await?;
    capabilities.insert(Capability::ApiWrite);
    if are_zoned {
        capabilities.insert(Capability::Zones);
    }
    if own.nodes.is_none() {
        capabilities.extend(of_nodes(options));
    }
    capabilities.extend(own.capabilities());
    let mut lacking = BTreeMap::new();
    if !capabilities.contains(&Capability::Sctp) {
        let why = "no API shows whether the kernels of its nodes have SCTP; labs and kind clusters of a machine whose \
                   kernel has it run this case";
        lacking.insert(Capability::Sctp, why.to_owned());
    }
    if !capabilities.contains(&Capability::ApiServers) {
        match api_servers::listed(client).await {
            Ok(_) => {
                capabilities.insert(Capability::ApiServers);
            }
            Err(why) => {
                lacking.insert(Capability::ApiServers, why);
            }
        }
    }
    let tested = options.tested.clone();
    let description = Description {
        provider: options.provider.clone(),
        target: tested.label,
        kernel,
        nodes,
        capabilities,
        lacking,
        features: tested.features,
        deviations: tested.deviations,
        most_endpoints: tested.most_endpoints,
        ways: tested.ways,
        variants: tested.variants,
        image: options.image.clone(),
        pull_secrets: options.pods.pull_secrets.clone(),
        confined: options.confined().map(str::to_owned),
        software: Software::default(),
        nodes_of_others: 0,
    };
    Ok((description, left_out))
}

/// Capabilities through pods of the run on each node.
pub(super) fn of_nodes(options: &Options) -> BTreeSet<Capability> {
    let privileged = options.tier >= Tier::Node;
    privileged
        .then_some(Capability::HostNetwork)
        .into_iter()
        .collect()
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
        // Some clusters don't show their version to every account, which may still have all other permissions.
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

/// One processor, in the unit of [`processors`].
const PROCESSOR: u64 = 1000;

/// Allocatable CPU of the weakest usable node, in thousandths of a processor: cases may run on any of them.
///
/// # Errors
/// Nodes can't be read, or none is usable.
pub async fn processors(options: &Options) -> Result<u64, KubernetesError> {
    let client = options.connection.client().await?;
    let mut all = list(&client).await?;
    all.retain(|node| unusable(node, &options.pods.architectures).is_none());
    let each = all.iter().filter_map(|node| {
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
        thousandths(&allocatable.get("cpu")?.0)
    });
    each.min().ok_or_else(|| KubernetesError::NoNodes {
        why: "none says how many processors it has for pods".to_owned(),
    })
}

/// An amount of processors (resource.Quantity): `4`, `3920m`, `0.5`.
fn thousandths(quantity: &str) -> Option<u64> {
    if let Some(thousandths) = quantity.strip_suffix('m') {
        return thousandths.parse().ok();
    }
    let (whole, part) = quantity.split_once('.').unwrap_or((quantity, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    Some(whole.parse::<u64>().ok()?.checked_mul(PROCESSOR)? + part.parse::<u64>().ok()?)
}

async fn list(client: &Client) -> Result<Vec<ApiNode>, KubernetesError> {
    let what = "list nodes";
    let api: Api<ApiNode> = Api::all(client.clone());
    let params = ListParams::default();
    let listed = ask(what, api.list(&params)).await?.map_err(error::api(what))?;
    Ok(listed.items)
}

/// Usable nodes, sorted by name.
#[derive(Debug, Default)]
struct Chosen {
    nodes: Vec<Node>,
    /// Whether each names its zone.
    are_zoned: bool,
    /// Their kernels.
    kernel: String,
    /// Other nodes, each with its reason.
    left_out: Vec<String>,
}

fn choose(mut all: Vec<ApiNode>, architectures: &[String]) -> Result<Chosen, KubernetesError> {
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let (mut nodes, mut kernels, mut left_out) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut are_zoned = true;
    for node in all {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(why) = unusable(&node, architectures) {
            left_out.push(format!("{name} {why}"));
            continue;
        }
        are_zoned &= node
            .metadata
            .labels
            .is_some_and(|labels| labels.contains_key(ZONE_LABEL));
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
    Ok(Chosen {
        nodes,
        are_zoned,
        kernel: kernels.join(", "),
        left_out,
    })
}

/// Most letters of a node's message that are shown.
const MOST_SAID: usize = 300;

/// Why a pod with this node's name would not run there, or would not stay. Pods of the suite name their nodes, so of
/// all taints only `NoExecute` keeps them off; a cordoned node is about to be removed.
fn unusable(node: &ApiNode, architectures: &[String]) -> Option<String> {
    let label = |name: &str| node.metadata.labels.as_ref()?.get(name);
    if let Some(os) = label(OS).filter(|os| *os != "linux") {
        return Some(format!("runs {os}, and the image is for linux"));
    }
    let of_other = |found: &&String| !architectures.is_empty() && !architectures.contains(found);
    if let Some(found) = label(ARCHITECTURE).filter(of_other) {
        let expected = architectures.join(" and ");
        return Some(format!(
            "is {found}, and the image is for {expected} (--image-arch)"
        ));
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Some("is cordoned".to_owned());
    }
    let status = node.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions.iter().find(|one| one.type_ == "Ready");
    if ready.is_none_or(|one| one.status != "True") {
        // The kubelet's own message (such as a missing CNI plugin).
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
        let labelled = |name: &str, label: &str, value: &str| {
            let mut node = node(name, "True", &json!([]));
            node.metadata.labels = Some([(label.to_owned(), value.to_owned())].into());
            node
        };
        let mut cordoned = node("g", "True", &json!([]));
        cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
        let all = vec![
            node("c", "True", &evicts),
            node("b", "True", &kept),
            labelled("a", ARCHITECTURE, "amd64"),
            node("d", "Unknown", &json!([])),
            labelled("e", OS, "windows"),
            labelled("f", ARCHITECTURE, "arm64"),
            cordoned,
        ];
        let amd64 = ["amd64".to_owned()];
        let chosen = choose(all.clone(), &amd64).unwrap();
        let names: Vec<&str> = chosen.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!((names, chosen.kernel.as_str()), (vec!["a", "b"], "6.1"));
        assert_eq!(
            chosen.nodes[0].addresses.len(),
            2,
            "both families, and no host name"
        );
        assert_eq!(
            chosen.left_out,
            [
                "c has the taint broken:NoExecute",
                "d is not Ready (no network)",
                "e runs windows, and the image is for linux",
                "f is arm64, and the image is for amd64 (--image-arch)",
                "g is cordoned",
            ]
        );
        let any = choose(all, &[]).unwrap();
        assert_eq!(any.nodes.len(), 3, "an image may be for all of them");
        let unusable = vec![node("c", "True", &evicts), node("d", "False", &json!([]))];
        let none = choose(unusable, &amd64).unwrap_err();
        assert_eq!(
            none.to_string(),
            "the cluster has no node that pods can be put on: c has the taint broken:NoExecute, d is not Ready \
             (no network)"
        );
    }

    #[test]
    fn zones_are_known_where_every_node_that_is_used_names_its_own() {
        let of = |name: &str, ready: &str, zone: Option<&str>| {
            let mut node = node(name, ready, &json!([]));
            node.metadata.labels = zone.map(|zone| [(ZONE_LABEL.to_owned(), zone.to_owned())].into());
            node
        };
        let [a, b, bare] = [("a", Some("x")), ("b", Some("y")), ("c", None)]
            .map(|(name, zone)| move |ready: &str| of(name, ready, zone));
        let are_zoned = |nodes: Vec<ApiNode>| choose(nodes, &[]).unwrap().are_zoned;
        assert!(are_zoned(vec![a("True"), b("True"), bare("False")]));
        assert!(!are_zoned(vec![a("True"), b("True"), bare("True")]));
    }

    #[test]
    fn amounts_of_processors_are_read_as_nodes_say_them() {
        let read = ["4", "3920m", "0.5", "1.25"].map(thousandths);
        assert_eq!(read, [Some(4000), Some(3920), Some(500), Some(1250)]);
        assert_eq!(thousandths("many"), None);
    }
}
