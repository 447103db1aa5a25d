//! The software of a run: versions, images with their digests, and the agents' configuration.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use cluster::software;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Folder of the agents' ConfigMaps, in the folder of the report.
const KEPT: &str = "evidence/configuration";

/// The software of a run. `not_read` lists what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Software {
    /// Version of Kubernetes, from its API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kubernetes: Option<String>,
    /// Nodes, grouped by software.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeSoftware>,
    /// Agents, grouped by version and configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) agents: Vec<AgentSoftware>,
    /// ConfigMaps that pods of the agents name; their contents are in `evidence/configuration`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) config_maps: Vec<ConfigMap>,
    /// What could not be read, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_read: Vec<String>,
}

/// Software of some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSoftware {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// The image of the node containers, with its digest (kind).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    /// Operating system.
    pub(crate) os: String,
    /// Kernel.
    pub(crate) kernel: String,
    /// Container runtime.
    pub(crate) container_runtime: String,
    /// kubelet.
    pub(crate) kubelet: String,
}

/// The agent of some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSoftware {
    /// The image of the agent's container; in the lab, the file name of its program.
    pub(crate) name: String,
    /// `sha256:…` of that image or program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// Version: the tag of the image, or the output of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The command line, without values that may be secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) arguments: Vec<String>,
    /// The environment, without values that may be secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
    /// The nodes; empty if all run the same program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<String>,
}

/// A ConfigMap that pods of the agents name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigMap {
    /// The ConfigMap's namespace.
    pub(crate) namespace: String,
    /// The ConfigMap's name.
    pub(crate) name: String,
    /// SHA-256 of its keys and values, in the order of the keys, each ended by a zero byte.
    pub(crate) sha256: String,
    /// The ConfigMap's keys.
    pub(crate) keys: Vec<String>,
}

impl From<&software::Software> for Software {
    fn from(found: &software::Software) -> Self {
        let found = found.clone();
        let node = |node: software::NodeSoftware| NodeSoftware {
            names: node.names,
            image: node.image,
            os: node.os,
            kernel: node.kernel,
            container_runtime: node.container_runtime,
            kubelet: node.kubelet,
        };
        let agent = |agent: software::AgentSoftware| AgentSoftware {
            name: agent.name,
            digest: agent.digest,
            version: agent.version,
            arguments: agent.arguments,
            environment: agent.environment,
            nodes: agent.nodes,
        };
        let config_map = |map: software::ConfigMapFound| ConfigMap {
            namespace: map.namespace,
            name: map.name,
            sha256: map.sha256,
            keys: map.keys,
        };
        Self {
            kubernetes: found.kubernetes,
            nodes: found.nodes.into_iter().map(node).collect(),
            agents: found.agents.into_iter().map(agent).collect(),
            config_maps: found.config_maps.into_iter().map(config_map).collect(),
            not_read: found.not_read,
        }
    }
}

impl Software {
    /// Whether nothing is known, as in a report of an earlier version.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The agents' versions, each once: of an image its tag.
    pub(crate) fn agent_versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self
            .agents
            .iter()
            .filter_map(|agent| agent.version.as_deref())
            .collect();
        versions.dedup();
        versions
    }

    /// What a reader of the verdicts has to know.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &'static str> {
        let words = "nodes have different agents: what a case shows may be of either";
        (self.agents.len() > 1).then_some(words).into_iter()
    }

    /// Lines of a name and a text.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.extend(
            self.kubernetes
                .iter()
                .map(|version| ("Kubernetes", version.clone())),
        );
        for node in &self.nodes {
            let image = node.image.iter().map(|image| format!("image {image}, "));
            let image: String = image.collect();
            let NodeSoftware {
                os,
                kernel,
                container_runtime,
                kubelet,
                names,
                ..
            } = node;
            let text = format!(
                "{image}{os}, kernel {kernel}, {container_runtime}, kubelet {kubelet} ({})",
                names.join(", ")
            );
            lines.push(("node", text));
        }
        for agent in &self.agents {
            let mut text = agent.name.clone();
            let of_image = agent
                .version
                .as_ref()
                .is_some_and(|version| agent.name.contains(version));
            if let Some(version) = agent.version.as_ref().filter(|_| !of_image) {
                text += &format!(", {version}");
            }
            match &agent.digest {
                Some(digest) if !agent.name.contains(digest) => text += &format!(", {digest}"),
                Some(_) => {}
                None => text += ", digest not known",
            }
            if !agent.nodes.is_empty() {
                text += &format!(" ({})", agent.nodes.join(", "));
            }
            lines.push(("agent", text));
        }
        for map in &self.config_maps {
            let text = format!("{}/{}, sha256:{}", map.namespace, map.name, map.sha256);
            lines.push(("ConfigMap", text));
        }
        lines.extend(self.warnings().map(|words| ("warning", words.to_owned())));
        lines.extend(self.not_read.iter().map(|why| ("not read", why.clone())));
        lines
    }
}

/// Writes the contents of ConfigMaps to the run's evidence.
///
/// # Errors
/// They can't be written.
pub(crate) fn keep(found: &software::Software, out: &Path) -> anyhow::Result<()> {
    for map in &found.config_maps {
        if map.data.is_empty() {
            continue;
        }
        let folder = out.join(KEPT);
        // A namespace has no dot, and neither name has a slash, so the file name is unique.
        let path = folder.join(format!("{}.{}.yaml", map.namespace, map.name));
        let text = serde_saphyr::to_string(&map.data).context("failed to write a ConfigMap as YAML")?;
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An example with every field.
    pub(crate) fn example() -> Software {
        Software {
            kubernetes: Some("v1.36.1".into()),
            nodes: vec![NodeSoftware {
                names: vec!["node1".into(), "node2".into()],
                image: Some("kindest/node:v1.36.1 (sha256:aa)".into()),
                os: "Debian GNU/Linux 12".into(),
                kernel: "6.1.0".into(),
                container_runtime: "containerd://2.0.1".into(),
                kubelet: "v1.36.1".into(),
            }],
            agents: vec![AgentSoftware {
                name: "registry.example/agent:v1.2.3".into(),
                digest: Some("sha256:bb".into()),
                version: Some("v1.2.3".into()),
                arguments: vec!["agent".into(), "--token=(left out)".into()],
                environment: BTreeMap::from([("PASSWORD".to_owned(), "(of the Secret s)".to_owned())]),
                nodes: vec!["node1".into(), "node2".into()],
            }],
            config_maps: vec![ConfigMap {
                namespace: "kube-system".into(),
                name: "agent".into(),
                sha256: "cc".into(),
                keys: vec!["mode".into()],
            }],
            not_read: vec!["the ConfigMap kube-system/more: configmaps \"more\" is forbidden".into()],
        }
    }

    #[test]
    fn agents_that_differ_are_warned_of() {
        let agent = |version: &str| software::AgentSoftware {
            name: format!("x/agent:{version}"),
            version: Some(version.to_owned()),
            ..Default::default()
        };
        let of = |agents| {
            Software::from(&software::Software {
                agents,
                ..Default::default()
            })
        };
        assert_eq!(
            of(vec![agent("v1")]).lines(),
            [("agent", "x/agent:v1, digest not known".to_owned())]
        );
        let both = of(vec![agent("v1"), agent("v2")]).lines();
        assert!(
            both[2].0 == "warning" && both[2].1.starts_with("nodes have different agents"),
            "{both:?}"
        );
    }

    #[test]
    fn what_was_in_config_maps_is_kept_beside_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let map = software::ConfigMapFound {
            namespace: "kube-system".into(),
            name: "agent.config".into(),
            data: BTreeMap::from([("mode".to_owned(), "a".to_owned())]),
            ..Default::default()
        };
        let found = software::Software {
            config_maps: vec![map],
            ..Default::default()
        };
        keep(&found, folder.path()).unwrap();
        let kept = folder.path().join(KEPT).join("kube-system.agent.config.yaml");
        assert_eq!(fs::read_to_string(kept).unwrap().trim(), "mode: a");
    }
}
