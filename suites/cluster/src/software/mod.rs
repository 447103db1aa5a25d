//! Software of a cluster: names, versions, digests and configuration, as far as they could be read.
//!
//! Files: this one (the data); `version` (versions in image tags and program output); `redact` (values that are left
//! out).

mod redact;
mod version;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::Path,
    process::Stdio,
    time::Duration,
};

use semver::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::{process::Command, time::timeout};

pub use redact::{LEFT_OUT, arguments, is_secret, value};
pub use version::{of_image, parse as parse_version};

/// How long a program may take to print its version.
const VERSION: Duration = Duration::from_secs(10);

/// Software of a cluster. What could not be read is empty, with the reason in `not_read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Software {
    /// Version of Kubernetes, from its API server.
    pub kubernetes: Option<String>,
    /// Nodes, grouped by software.
    pub nodes: Vec<NodeSoftware>,
    /// Agents, grouped by software: several if nodes differ.
    pub agents: Vec<AgentSoftware>,
    /// ConfigMaps that the agents' pods name.
    pub config_maps: Vec<ConfigMapFound>,
    /// What could not be read, each with the reason.
    pub not_read: Vec<String>,
}

/// Software of some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeSoftware {
    /// Image of the nodes with its digest, if they are containers.
    pub image: Option<String>,
    /// Operating system (`nodeInfo.osImage`).
    pub os: String,
    /// Kernel (`nodeInfo.kernelVersion`).
    pub kernel: String,
    /// Container runtime (`nodeInfo.containerRuntimeVersion`).
    pub container_runtime: String,
    /// kubelet (`nodeInfo.kubeletVersion`).
    pub kubelet: String,
    /// Names of the nodes.
    pub names: Vec<String>,
}

/// The agent of some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgentSoftware {
    /// The image of its container; in the lab, the file name of its program.
    pub name: String,
    /// `sha256:…` of that image, or of that program.
    pub digest: Option<String>,
    /// Its version: the tag of the image, or what the program prints.
    pub version: Option<String>,
    /// Command line. Values that may be secrets are left out.
    pub arguments: Vec<String>,
    /// Environment by name. Values that may be secrets are left out; references give their source.
    pub environment: BTreeMap<String, String>,
    /// Nodes of the agent; empty if all nodes have the same program.
    pub nodes: Vec<String>,
}

/// A ConfigMap that an agent's pod names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMapFound {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// SHA-256 of its keys and values, in the order of the keys, each ended by a zero byte.
    pub sha256: String,
    /// Data, for evidence alone. Values that may be secrets are left out.
    #[serde(skip)]
    pub data: BTreeMap<String, String>,
    /// Its keys.
    pub keys: Vec<String>,
}

impl Software {
    /// Versions of all agents; `None` if one of them is unknown, or there is no agent.
    #[must_use]
    pub fn agent_versions(&self) -> Option<BTreeSet<Version>> {
        let parsed = |agent: &AgentSoftware| parse_version(agent.version.as_deref()?);
        let versions: Option<BTreeSet<Version>> = self.agents.iter().map(parsed).collect();
        versions.filter(|versions| !versions.is_empty())
    }
}

impl AgentSoftware {
    /// A program of this machine: digest, and the version that it prints with these arguments. The second part lists
    /// what could not be read.
    pub async fn of_program(path: &Path, arguments: Option<Vec<String>>) -> (Self, Vec<String>) {
        let name = path.display().to_string();
        let mut not_read = Vec::new();
        let digest = digest(path).map_err(|error| not_read.push(format!("the digest of {name}: {error}")));
        let version = match arguments {
            Some(arguments) => printed_version(path, &arguments)
                .await
                .map_err(|why| not_read.push(format!("the version of {name}: {why}")))
                .ok(),
            None => {
                not_read.push(format!(
                    "the version of {name}: its target has no `version` that says how it prints it"
                ));
                None
            }
        };
        // Reports are published: they name the program, whose digest says which it was, and no folder of a machine.
        let file = path.file_name().unwrap_or(path.as_os_str());
        let found = Self {
            name: file.to_string_lossy().into_owned(),
            digest: digest.ok(),
            version,
            ..Self::default()
        };
        (found, not_read)
    }
}

/// `sha256:…` of a file.
fn digest(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(format!("sha256:{:x}", hash.finalize()))
}

/// First line that a program prints with its version arguments.
///
/// # Errors
/// Why there is none, as text.
pub async fn printed_version(program: &Path, arguments: &[String]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match timeout(VERSION, output).await {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => {
            return Err(format!(
                "`{}` did not end within {VERSION:?}",
                arguments.join(" ")
            ));
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    match line {
        Some(line) if output.status.success() => Ok(line.chars().take(100).collect()),
        _ => Err(format!(
            "expected that `{}` prints it, found nothing ({})",
            arguments.join(" "),
            output.status
        )),
    }
}

/// SHA-256 of the data of a ConfigMap, see [`ConfigMapFound::sha256`].
#[must_use]
pub fn hash(data: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for (key, value) in data {
        for part in [key.as_bytes(), value] {
            hash.update(part);
            hash.update([0]);
        }
    }
    format!("{:x}", hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(version: Option<&str>) -> AgentSoftware {
        AgentSoftware {
            version: version.map(str::to_owned),
            ..AgentSoftware::default()
        }
    }

    #[test]
    fn versions_of_agents_are_known_if_all_of_them_are() {
        let of = |agents: &[AgentSoftware]| {
            Software {
                agents: agents.to_vec(),
                ..Software::default()
            }
            .agent_versions()
        };
        let both = of(&[agent(Some("v1.18.5")), agent(Some("1.19.5"))]).expect("known");
        assert_eq!(both.len(), 2);
        assert_eq!(of(&[agent(Some("v1.18.5")), agent(None)]), None);
        assert_eq!(of(&[agent(Some("latest"))]), None);
        assert_eq!(of(&[]), None);
    }

    #[tokio::test]
    async fn a_program_is_known_by_its_digest_and_by_what_it_prints() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent");
        std::fs::write(&path, "#!/bin/sh\necho Kubernetes $1\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("executable");
        let (found, not_read) = AgentSoftware::of_program(&path, Some(vec!["v1.36.3".to_owned()])).await;
        assert_eq!(not_read, [""; 0]);
        assert_eq!(found.version.as_deref(), Some("Kubernetes v1.36.3"));
        assert_eq!(found.name, "agent", "no folder of this machine");
        let digest = found.digest.expect("a digest");
        assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
        let (found, not_read) = AgentSoftware::of_program(Path::new("/no/agent"), None).await;
        assert_eq!((found.digest, found.version), (None, None));
        assert!(
            not_read.len() == 2 && not_read[0].contains("/no/agent") && not_read[1].contains("`version`"),
            "{not_read:?}"
        );
    }

    #[test]
    fn the_hash_of_a_config_map_tells_where_a_value_begins() {
        let of = |key: &str, value: &str| hash(&[(key.to_owned(), value.as_bytes().to_vec())].into());
        assert_ne!(of("a", "bc"), of("ab", "c"));
        assert_eq!(of("a", "b"), of("a", "b"));
    }
}
