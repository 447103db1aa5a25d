//! What an implementation has on a node: counted, so that two moments can be compared.
//!
//! `plumbline node remains` counts on the node; [`Remains::of`] asks it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use lab::cluster::Cluster;
use lb_loader::{Found, Manner, Place, Scope, inventory};
use serde::{Deserialize, Serialize};

use crate::{FaultError, agent::on_host};

/// Arguments of `plumbline node remains`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup: it and all below it are looked at.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// The node's bpffs.
    #[arg(long, default_value = "/sys/fs/bpf", value_name = "FOLDER")]
    bpffs: PathBuf,
}

/// How many there are of each kind: `programs at connect4`, `links`, `pins` …; a kind of which there is none is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains(BTreeMap<String, usize>);

impl Remains {
    /// Of a node: programs at its cgroups and at the devices of its network namespace, the links and maps that go with
    /// them, pins, and rules of nftables.
    ///
    /// # Errors
    /// The node can't be reached, or looked at.
    pub async fn of(cluster: &dyn Cluster, node: &str) -> Result<Self, FaultError> {
        let cgroup = cluster.cgroup_root().to_string_lossy().into_owned();
        let command = ["plumbline", "node", "remains", "--cgroup", &cgroup];
        let said = on_host(cluster, node, &command).await?;
        serde_json::from_str(&said).map_err(|error| FaultError::Helper {
            node: node.to_owned(),
            what: format!("wrote {said:?}"),
            stderr: error.to_string(),
        })
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is more of some kind.
    #[must_use]
    pub fn exceeds(&self, other: &Self) -> bool {
        self.0
            .iter()
            .any(|(kind, count)| count > other.0.get(kind).unwrap_or(&0))
    }

    fn add(&mut self, kind: impl Into<String>, count: usize) {
        if count > 0 {
            *self.0.entry(kind.into()).or_default() += count;
        }
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        let all: Vec<String> = self
            .0
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        f.write_str(&all.join(", "))
    }
}

/// Counts, on the node.
///
/// # Errors
/// In words, for stderr: something can't be looked at, so that a count would say less than there is.
pub fn count(arguments: &Arguments) -> Result<Remains, String> {
    let scope = Scope {
        cgroup: arguments.cgroup.clone(),
        bpffs: None,
        current: Vec::new(),
    };
    let seen = inventory(&scope).map_err(|error| error.to_string())?;
    let mut remains = Remains::default();
    let (mut links, mut maps) = (BTreeSet::new(), BTreeSet::new());
    for found in seen.attachments {
        let Some(place) = here(&found, &arguments.cgroup) else {
            continue;
        };
        remains.add(format!("programs at {place}"), 1);
        if let Manner::Link { id, .. } = found.manner {
            links.insert(id);
        }
        maps.extend(found.program.maps.iter().map(|map| map.id));
    }
    remains.add("links", links.len());
    remains.add("maps", maps.len());
    remains.add("pins", pins(&arguments.bpffs)?);
    remains.add("rules of nftables", rules()?);
    Ok(remains)
}

/// The kind of place, if it is this node's.
fn here(found: &Found, cgroup: &Path) -> Option<String> {
    match &found.place {
        Place::Cgroup {
            path: Some(path),
            attach_name,
            ..
        } if path.starts_with(cgroup) => Some((*attach_name).to_owned()),
        Place::Device {
            name: Some(_),
            layer,
            direction,
            ..
        } => Some(format!("devices, {} {}", layer.name(), direction.name())),
        _ => None,
    }
}

/// Everything pinned: files with a dot are the kernel's own.
fn pins(bpffs: &Path) -> Result<usize, String> {
    let failed = |error| format!("can't look at {}: {error}", bpffs.display());
    let mut count = 0;
    let mut folders = vec![bpffs.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(entry.path());
            } else if !entry.file_name().to_string_lossy().contains('.') {
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Rules of this network namespace; those of the iptables that comes with nftables are among them. None where nothing can
/// show them: then nothing could have made them either.
fn rules() -> Result<usize, String> {
    let output = match Command::new("nft").args(["--json", "list", "ruleset"]).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        output => output.map_err(|error| format!("can't start nft: {error}"))?,
    };
    if !output.status.success() {
        return Err(format!(
            "nft can't list its rules: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let listed: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("nft wrote no JSON: {error}"))?;
    let objects = listed["nftables"].as_array();
    Ok(objects
        .into_iter()
        .flatten()
        .filter(|object| object.get("rule").is_some())
        .count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(counts: &[(&str, usize)]) -> Remains {
        let mut remains = Remains::default();
        for (kind, count) in counts {
            remains.add(*kind, *count);
        }
        remains
    }

    #[test]
    fn more_of_one_kind_exceeds_whatever_there_is_less_of() {
        let first = remains(&[("links", 2), ("pins", 3)]);
        assert!(!first.exceeds(&first));
        assert!(!remains(&[("pins", 2)]).exceeds(&first));
        assert!(remains(&[("links", 3)]).exceeds(&first));
        assert!(remains(&[("links", 2), ("maps", 1)]).exceeds(&first));
        assert_eq!(remains(&[("links", 0)]).to_string(), "nothing");
    }

    #[test]
    fn pins_are_counted_and_files_of_the_kernel_are_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("agent")).unwrap();
        for name in ["agent/map", "link", "maps.debug"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(pins(folder.path()), Ok(2));
    }
}
