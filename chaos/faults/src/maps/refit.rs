//! `plumbline node refit-pins`: puts a map of another layout in the place of each pinned one.
//!
//! What an upgrade finds whose maps are laid out otherwise, or a restart with other sizes. Programs go on using the maps
//! that they have.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cluster::Cluster;
use lb_loader::{CraftedMap, Geometry, LoaderError, RawMap};
use serde::{Deserialize, Serialize};

use crate::{FaultError, agent::on_host, remains::pinned_files};

/// Most entries that a new map gets of those of the old one.
const ENTRIES: usize = 256;

/// Arguments of `plumbline node refit-pins`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's bpffs.
    #[arg(long, default_value = "/sys/fs/bpf", value_name = "FOLDER")]
    bpffs: PathBuf,
    /// Only say which it would be; nothing is replaced.
    #[arg(long)]
    dry_run: bool,
}

/// What has taken the place of what: for each pinned map its path, and in which way it is laid out otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refitted(pub Vec<(String, String)>);

impl Refitted {
    /// Does it on a node. Its agent must be down.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses it.
    pub async fn on(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        Self::said(cluster, node, &["plumbline", "node", "refit-pins"]).await
    }

    /// What it would be. Changes nothing.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses it.
    pub async fn would(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        Self::said(cluster, node, &["plumbline", "node", "refit-pins", "--dry-run"]).await
    }

    async fn said(cluster: &Cluster, node: &str, command: &[&str]) -> Result<Self, FaultError> {
        let said = on_host(cluster, node, command).await?;
        serde_json::from_str(&said).map_err(|error| FaultError::Helper {
            node: node.to_owned(),
            what: format!("wrote {said:?}"),
            stderr: error.to_string(),
        })
    }
}

/// Does it, on the node: keys, values and sizes become larger in turn, and of what has no larger keys its values.
///
/// # Errors
/// In words, for stderr.
pub fn refit(arguments: &Arguments) -> Result<Refitted, String> {
    let mut done = Vec::new();
    for path in pinned_files(&arguments.bpffs)? {
        let Some(old) = RawMap::pinned(&path).map_err(words)? else {
            continue;
        };
        let (key, value, entries) = (4, 8, old.layout().max_entries);
        let ways = [
            (
                "larger keys",
                Geometry {
                    key,
                    ..Geometry::default()
                },
            ),
            (
                "larger values",
                Geometry {
                    value,
                    ..Geometry::default()
                },
            ),
            (
                "more entries",
                Geometry {
                    entries,
                    ..Geometry::default()
                },
            ),
        ];
        let at = done.len() % ways.len();
        for (what, larger) in ways.into_iter().cycle().skip(at).take(ways.len()) {
            if let Ok(new) = CraftedMap::like(old.id(), larger) {
                if !arguments.dry_run {
                    replace(&path, &old, &new)?;
                }
                done.push((path.to_string_lossy().into_owned(), what.to_owned()));
                break;
            }
        }
    }
    Ok(Refitted(done))
}

fn replace(path: &Path, old: &RawMap, new: &CraftedMap) -> Result<(), String> {
    let key = usize::try_from(new.layout().key_size).unwrap_or_default();
    for entry in old.entries(ENTRIES).map_err(words)? {
        let resized = |mut bytes: Vec<u8>, size: usize| {
            bytes.resize(size, 0);
            bytes
        };
        let (key, value) = (
            resized(entry.key, key),
            resized(entry.value, new.bytes_of_value()),
        );
        new.put(&key, &value).map_err(words)?;
    }
    fs::remove_file(path).map_err(|error| format!("can't remove {}: {error}", path.display()))?;
    new.pin(path).map_err(words)
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by it")]
fn words(error: LoaderError) -> String {
    error.to_string()
}
