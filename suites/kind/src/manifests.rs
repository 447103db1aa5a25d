//! The agent's objects from `reference-agent/deploy`, completed as its README documents.

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};

use super::{KindError, PodNetwork};

/// The shipped manifest.
const SHIPPED: &str = include_str!("../../../reference-agent/deploy/agent.yaml");
/// Name of all its objects, and of the key of its configuration.
pub(super) const AGENT: &str = "plumbline-agent";
pub(super) const CONFIGURATION: &str = "agent.yaml";
/// Its namespace.
pub(super) const NAMESPACE: &str = "kube-system";
/// The option of its configuration that lists addresses of the API.
pub(super) const ADDRESSES: &str = "api-server";

/// Folder of CNI configurations, and the volume by which the agent writes there.
const CNI_FOLDER: &str = "/etc/cni/net.d";
const CNI: &str = "cni";

/// Settings of the agent that depend on the cluster.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// Image of the agent.
    pub(super) image: &'a str,
    /// The API server at an address that is no Service's: there is no kube-proxy.
    pub(super) server: SocketAddr,
    /// The root of the nodes' cgroup v2 hierarchy.
    pub(super) cgroup: &'a Path,
    /// Mount point of their bpf file system.
    pub(super) bpffs: &'a Path,
    /// CNI plugin of the cluster.
    pub(super) pod_network: PodNetwork,
}

/// The objects, in the order of their application.
///
/// # Errors
/// The manifest lacks a part that has to be completed.
pub(super) fn objects(wanted: &Wanted<'_>) -> Result<Vec<Value>, KindError> {
    let wrong = |why: String| KindError::Unexpected {
        what: "fill in reference-agent/deploy/agent.yaml".to_owned(),
        why,
    };
    let mut all: Vec<Value> =
        serde_saphyr::from_multiple(SHIPPED).map_err(|error| wrong(error.to_string()))?;
    for object in &mut all {
        match object["kind"].as_str() {
            Some("ConfigMap") => {
                let text = object["data"][CONFIGURATION].as_str().unwrap_or_default();
                let more = match wanted.pod_network {
                    PodNetwork::Kind => "",
                    PodNetwork::Agent => "pod-network: true\n",
                };
                object["data"][CONFIGURATION] =
                    format!("{text}{ADDRESSES}:\n- https://{}\n{more}", wanted.server).into();
            }
            Some("DaemonSet") => {
                daemon_set(object, wanted).map_err(|lacks| wrong(format!("it has no {lacks}")))?;
            }
            _ => {}
        }
    }
    Ok(all)
}

fn daemon_set(object: &mut Value, wanted: &Wanted<'_>) -> Result<(), &'static str> {
    let pod = &mut object["spec"]["template"]["spec"];
    let containers = pod["containers"].as_array_mut().ok_or("containers")?;
    let container = containers.first_mut().ok_or("container")?;
    container["image"] = wanted.image.into();
    let volumes = pod["volumes"].as_array_mut().ok_or("volumes")?;
    for (name, path) in [("cgroup", wanted.cgroup), ("bpffs", wanted.bpffs)] {
        let volume = volumes.iter_mut().find(|volume| volume["name"] == name);
        let volume = volume.ok_or("volume of the node's cgroups or bpffs")?;
        volume["hostPath"]["path"] = path.to_string_lossy().into();
    }
    if wanted.pod_network == PodNetwork::Agent {
        volumes.push(json!({
            "name": CNI, "hostPath": {"path": CNI_FOLDER, "type": "DirectoryOrCreate"},
        }));
        let mounts = pod["containers"][0]["volumeMounts"].as_array_mut();
        let mount = json!({"name": CNI, "mountPath": CNI_FOLDER});
        mounts.ok_or("volumeMounts")?.push(mount);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_manifest_leaves_open_is_filled_in_and_nothing_else() {
        let server = "172.18.0.2:6443".parse().expect("an address");
        let wanted = Wanted {
            image: "agent:1",
            server,
            cgroup: Path::new("/sys/fs/cgroup/unified"),
            bpffs: Path::new("/sys/fs/bpf"),
            pod_network: PodNetwork::Kind,
        };
        let filled = objects(&wanted).expect("filled in");
        let shipped: Vec<Value> = serde_saphyr::from_multiple(SHIPPED).expect("YAML");
        let kinds: Vec<&str> = filled
            .iter()
            .filter_map(|object| object["kind"].as_str())
            .collect();
        assert_eq!(
            kinds,
            [
                "ServiceAccount",
                "ClusterRole",
                "ClusterRoleBinding",
                "ConfigMap",
                "DaemonSet"
            ]
        );
        assert_eq!(filled[..3], shipped[..3]);
        let text = filled[3]["data"]["agent.yaml"].as_str().expect("a text");
        assert!(
            text.ends_with("listen: 127.0.0.1:9440\napi-server:\n- https://172.18.0.2:6443\n"),
            "{text}"
        );
        let pod = &filled[4]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "agent:1");
        let path = |name: &str| {
            let volumes = pod["volumes"].as_array().expect("volumes");
            let volume = volumes.iter().find(|volume| volume["name"] == name);
            volume.expect("the volume")["hostPath"]["path"].clone()
        };
        assert_eq!(path("cgroup"), "/sys/fs/cgroup/unified");
        assert_eq!(path("bpffs"), "/sys/fs/bpf");
        assert_eq!(path("state"), "/run/plumbline");
        let with_network = Wanted {
            pod_network: PodNetwork::Agent,
            ..wanted
        };
        let filled = objects(&with_network).expect("filled in");
        let text = filled[3]["data"]["agent.yaml"].as_str().expect("a text");
        assert!(text.ends_with("6443\npod-network: true\n"), "{text}");
        let more = &filled[4]["spec"]["template"]["spec"];
        let last = |list: &Value| list.as_array().and_then(|list| list.last().cloned());
        assert_eq!(
            last(&more["containers"][0]["volumeMounts"]),
            Some(json!({"name": "cni", "mountPath": "/etc/cni/net.d"}))
        );
        assert_eq!(
            last(&more["volumes"]).expect("a volume")["hostPath"]["path"],
            "/etc/cni/net.d"
        );
    }
}
