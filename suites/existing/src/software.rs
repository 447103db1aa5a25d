//! Reads the software of a cluster from its API: Kubernetes, nodes, the agents' images and configuration. All of it
//! is optional: what the account may not read is listed, and never an error.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{
    Node,
    software::{self, AgentSoftware, ConfigMapFound, LEFT_OUT, NodeSoftware, Software},
    target::Agent,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, Node as ApiNode, Pod, PodSpec, VolumeProjection,
};
use kube::{Api, Client, api::ListParams};

use super::{KubernetesError, error, limits::ask, pods};

/// Most ConfigMaps that are read.
const MOST_CONFIG_MAPS: usize = 16;
/// Most bytes of the data of one that are kept; larger data is kept as a hash.
const MOST_BYTES: usize = 256 * 1024;
/// In every pod, so no configuration of an agent.
const OF_EVERY_POD: &str = "kube-root-ca.crt";

/// Reads the software of these nodes and of their agents, if their pods are known; `images` are those of nodes that
/// are containers.
pub(super) async fn read(
    client: &Client,
    nodes: &[Node],
    agent: Option<&Agent>,
    images: &BTreeMap<String, String>,
) -> Software {
    let mut found = Software::default();
    let mut not_read = Vec::new();
    match readable(ask("read the version", client.apiserver_version()).await) {
        Ok(version) => found.kubernetes = Some(version.git_version),
        Err(why) => not_read.push(format!("the version of Kubernetes: {why}")),
    }
    let all: Api<ApiNode> = Api::all(client.clone());
    match readable(ask("list nodes", all.list(&ListParams::default())).await) {
        Ok(listed) => found.nodes = of_nodes(listed.items, nodes, images),
        Err(why) => not_read.push(format!("what nodes run: {why}")),
    }
    let Some(agent) = agent else {
        not_read.push("what agents run: no target says which pods they are (--target)".to_owned());
        found.not_read = not_read;
        return found;
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &agent.namespace);
    let of_agents = ListParams::default().labels(&agent.selector());
    match readable(ask("list the agents", pods.list(&of_agents)).await) {
        Ok(listed) => {
            let mut pods = listed.items;
            pods.retain(|pod| nodes.iter().any(|node| pods::on(pod, &node.name)));
            found.agents = of_pods(&pods, &agent.container);
            let (config_maps, lacks) = config_maps(client, &agent.namespace, &pods).await;
            found.config_maps = config_maps;
            not_read.extend(lacks);
        }
        Err(why) => not_read.push(format!("what agents run: {why}")),
    }
    found.not_read = not_read;
    found
}

/// The response, or why there is none, as text.
fn readable<T>(answer: Result<kube::Result<T>, KubernetesError>) -> Result<T, String> {
    match answer {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(refused)) => Err(error::words(&refused)),
        Err(late) => Err(late.to_string()),
    }
}

fn of_nodes(listed: Vec<ApiNode>, used: &[Node], images: &BTreeMap<String, String>) -> Vec<NodeSoftware> {
    let mut groups: BTreeMap<NodeSoftware, Vec<String>> = BTreeMap::new();
    for node in listed {
        let name = node.metadata.name.unwrap_or_default();
        if !used.iter().any(|one| one.name == name) {
            continue;
        }
        let info = node
            .status
            .and_then(|status| status.node_info)
            .unwrap_or_default();
        let software = NodeSoftware {
            image: images.get(&name).cloned(),
            os: info.os_image,
            kernel: info.kernel_version,
            container_runtime: info.container_runtime_version,
            kubelet: info.kubelet_version,
            names: Vec::new(),
        };
        groups.entry(software).or_default().push(name);
    }
    let named = |(software, mut names): (NodeSoftware, Vec<String>)| {
        names.sort();
        NodeSoftware { names, ..software }
    };
    groups.into_iter().map(named).collect()
}

fn of_pods(pods: &[Pod], container: &str) -> Vec<AgentSoftware> {
    let mut groups: BTreeMap<AgentSoftware, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let Some(spec) = &pod.spec else { continue };
        let Some(of_agent) = spec.containers.iter().find(|one| one.name == container) else {
            continue;
        };
        let id = pods::status(pod, container).map(|status| status.image_id.as_str());
        let name = of_agent.image.clone().unwrap_or_default();
        let called = of_agent.command.iter().chain(&of_agent.args).flatten();
        let software = AgentSoftware {
            digest: id
                .and_then(|id| Some(id[id.find("sha256:")?..].to_owned()))
                .filter(|digest| !digest.is_empty()),
            version: software::of_image(&name).map(str::to_owned),
            name,
            arguments: software::arguments(called),
            environment: environment(of_agent),
            nodes: Vec::new(),
        };
        let node = spec.node_name.clone().unwrap_or_default();
        groups.entry(software).or_default().push(node);
    }
    let named = |(software, mut nodes): (AgentSoftware, Vec<String>)| {
        nodes.sort();
        AgentSoftware { nodes, ..software }
    };
    groups.into_iter().map(named).collect()
}

/// Environment by name, without the values of Secrets.
fn environment(container: &Container) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(map) = &from.config_map_ref {
            all.insert(format!("{prefix}*"), format!("(of the ConfigMap {})", map.name));
        }
        if let Some(secret) = &from.secret_ref {
            all.insert(format!("{prefix}*"), format!("(of the Secret {})", secret.name));
        }
    }
    for one in container.env.iter().flatten() {
        all.insert(one.name.clone(), shown(one));
    }
    all
}

fn shown(variable: &EnvVar) -> String {
    let Some(from) = &variable.value_from else {
        let given = variable.value.as_deref().unwrap_or_default();
        return software::value(&variable.name, given);
    };
    if let Some(map) = &from.config_map_key_ref {
        format!("(of the ConfigMap {}, {})", map.name, map.key)
    } else if let Some(secret) = &from.secret_key_ref {
        format!("(of the Secret {})", secret.name)
    } else if let Some(field) = &from.field_ref {
        format!("(of the pod, {})", field.field_path)
    } else {
        LEFT_OUT.to_owned()
    }
}

/// Names of the ConfigMaps that a pod mounts or takes its environment from, including init containers, which prepare
/// the configuration of some agents.
fn names(spec: &PodSpec) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        names.extend(volume.config_map.iter().map(|map| map.name.clone()));
        let projected = volume
            .projected
            .iter()
            .flat_map(|all| all.sources.iter().flatten());
        let of = |source: &VolumeProjection| Some(source.config_map.as_ref()?.name.clone());
        names.extend(projected.filter_map(of));
    }
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        let whole = container.env_from.iter().flatten();
        names.extend(whole.filter_map(|from| Some(from.config_map_ref.as_ref()?.name.clone())));
        let single = container.env.iter().flatten();
        let of = |one: &EnvVar| Some(one.value_from.as_ref()?.config_map_key_ref.as_ref()?.name.clone());
        names.extend(single.filter_map(of));
    }
    names.remove(OF_EVERY_POD);
    names
}

async fn config_maps(client: &Client, namespace: &str, pods: &[Pod]) -> (Vec<ConfigMapFound>, Vec<String>) {
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref());
    let names: BTreeSet<String> = specs.flat_map(names).collect();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let (mut found, mut not_read) = (Vec::new(), Vec::new());
    if names.len() > MOST_CONFIG_MAPS {
        not_read.push(format!(
            "{} of {} ConfigMaps of the agents: expected at most {MOST_CONFIG_MAPS}",
            names.len() - MOST_CONFIG_MAPS,
            names.len()
        ));
    }
    for name in names.into_iter().take(MOST_CONFIG_MAPS) {
        match readable(ask("read a ConfigMap", api.get(&name)).await) {
            Ok(map) => found.push(of_config_map(namespace, &name, map)),
            Err(why) => not_read.push(format!("the ConfigMap {namespace}/{name}: {why}")),
        }
    }
    (found, not_read)
}

fn of_config_map(namespace: &str, name: &str, map: ConfigMap) -> ConfigMapFound {
    let data = map.data.unwrap_or_default();
    let mut all: BTreeMap<String, Vec<u8>> = data
        .iter()
        .map(|(key, value)| (key.clone(), value.clone().into_bytes()))
        .collect();
    let binary = map.binary_data.unwrap_or_default();
    all.extend(binary.into_iter().map(|(key, value)| (key, value.0)));
    let bytes: usize = data.values().map(String::len).sum();
    let kept = |(key, value): (String, String)| match software::is_secret(&key) {
        true => (key, LEFT_OUT.to_owned()),
        false => (key, value),
    };
    ConfigMapFound {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        sha256: software::hash(&all),
        keys: all.into_keys().collect(),
        data: match bytes <= MOST_BYTES {
            true => data.into_iter().map(kept).collect(),
            false => BTreeMap::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, image: &str, digest: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": format!("agent-{node}")},
            "spec": {
                "nodeName": node,
                "initContainers": [{"name": "config", "env": [{"name": "A", "valueFrom":
                    {"configMapKeyRef": {"name": "agent-config", "key": "a"}}}]}],
                "containers": [{"name": "agent", "image": image, "command": ["agent"], "args": ["--token=x", "--mode=a"],
                    "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                            {"name": "MODE", "value": "b"}],
                    "envFrom": [{"configMapRef": {"name": "more"}}]}],
                "volumes": [{"name": "c", "configMap": {"name": "files"}}, {"name": "t", "projected": {"sources":
                    [{"configMap": {"name": "kube-root-ca.crt"}}]}}],
            },
            "status": {"containerStatuses": [{"name": "agent", "image": image, "imageID": format!("x/agent@{digest}"),
                "ready": true, "restartCount": 0}]},
        }))
        .unwrap()
    }

    #[test]
    fn agents_that_are_the_same_are_one_and_another_image_shows() {
        let (old, new) = ("x/agent:v1.18.5", "x/agent:v1.18.7");
        let pods = [
            pod("node2", old, "sha256:aa"),
            pod("node1", old, "sha256:aa"),
            pod("node3", new, "sha256:bb"),
        ];
        let found = of_pods(&pods, "agent");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].nodes, ["node1", "node2"]);
        let digest = found[0].digest.as_deref();
        assert_eq!(
            (digest, found[0].version.as_deref()),
            (Some("sha256:aa"), Some("v1.18.5"))
        );
        assert_eq!(found[0].arguments, ["agent", "--token=(left out)", "--mode=a"]);
        let environment: Vec<(&str, &str)> = found[0]
            .environment
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let expected = [
            ("*", "(of the ConfigMap more)"),
            ("MODE", "b"),
            ("PASSWORD", "(of the Secret s)"),
        ];
        assert_eq!(environment, expected);
        assert_eq!(of_pods(&pods, "other"), []);
    }

    #[test]
    fn configuration_is_what_any_container_of_the_pod_takes_from_config_maps() {
        let pod = pod("node1", "x", "sha256:aa");
        let names: Vec<String> = names(pod.spec.as_ref().unwrap()).into_iter().collect();
        assert_eq!(names, ["agent-config", "files", "more"]);
    }

    #[test]
    fn of_a_config_map_the_hash_is_of_all_and_secrets_are_not_kept() {
        let map = |token: &str| {
            let data = json!({"data": {"mode": "a", "api-token": token}});
            of_config_map("n", "c", serde_json::from_value(data).unwrap())
        };
        let (one, other) = (map("x"), map("y"));
        assert_ne!(one.sha256, other.sha256);
        assert_eq!(one.keys, ["api-token", "mode"]);
        let kept: Vec<(&str, &str)> = one.data.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(kept, [("api-token", "(left out)"), ("mode", "a")]);
        let large = map(&"x".repeat(MOST_BYTES + 1));
        assert!(large.data.is_empty() && !large.keys.is_empty());
    }

    #[test]
    fn nodes_with_the_same_software_are_one_and_those_that_are_not_used_none() {
        let node = |name: &str, kernel: &str| -> ApiNode {
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"nodeInfo": {
                "kernelVersion": kernel, "architecture": "", "bootID": "", "containerRuntimeVersion": "containerd://2.0",
                "kubeProxyVersion": "", "kubeletVersion": "v1.36.1", "machineID": "", "operatingSystem": "",
                "osImage": "Debian", "systemUUID": ""}}}))
            .unwrap()
        };
        let used = ["a", "b", "c"].map(|name| Node {
            name: name.to_owned(),
            addresses: Vec::new(),
        });
        let listed = vec![
            node("b", "6.1"),
            node("a", "6.1"),
            node("c", "6.8"),
            node("left-out", "5.4"),
        ];
        let images = BTreeMap::from([("a".to_owned(), "i".to_owned()), ("b".to_owned(), "i".to_owned())]);
        let found = of_nodes(listed, &used, &images);
        let names: Vec<_> = found
            .iter()
            .map(|group| (group.names.join(" "), &*group.kernel))
            .collect();
        assert_eq!(names, [("c".to_owned(), "6.8"), ("a b".to_owned(), "6.1")]);
        assert_eq!(found[1].image.as_deref(), Some("i"));
    }
}
