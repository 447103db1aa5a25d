//! `plumbline node refit-pins`: puts a map of another layout in the place of each pinned one.
//!
//! An upgrade with another layout, or a restart with other sizes, finds such maps. Loaded programs keep their old ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cluster::Cluster;
use lb_loader::{CraftedMap, Geometry, RawMap};
use serde::{Deserialize, Serialize};

use crate::{FaultError, commands, error::message, object_counts::pinned_files};

/// Most entries that are copied to a new map.
const ENTRIES: usize = 256;

/// Arguments of `plumbline node refit-pins`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's bpffs.
    #[arg(long, default_value = "/sys/fs/bpf", value_name = "FOLDER")]
    bpffs: PathBuf,
    /// Only list what would be replaced.
    #[arg(long)]
    dry_run: bool,
}

/// The path of each replaced map, and how the new layout differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refitted(pub Vec<(String, String)>);

impl Refitted {
    /// Replaces the pinned maps of a node. Its agent must be down.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses it.
    pub async fn on(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        commands::plumbline(cluster, node, &["refit-pins"]).await
    }

    /// Lists what would be replaced, without changing anything.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses it.
    pub async fn would(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        commands::plumbline(cluster, node, &["refit-pins", "--dry-run"]).await
    }
}

/// Replaces the maps, on the node. Larger keys, larger values and more entries alternate; if the kernel refuses one, the next
/// is used.
///
/// # Errors
/// A message for stderr.
pub fn refit(arguments: &Arguments) -> Result<Refitted, String> {
    let mut done = Vec::new();
    for path in pinned_files(&arguments.bpffs)? {
        let Some(old) = RawMap::pinned(&path).map_err(message)? else {
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
    for entry in old.entries(ENTRIES).map_err(message)? {
        let resized = |mut bytes: Vec<u8>, size: usize| {
            bytes.resize(size, 0);
            bytes
        };
        let (key, value) = (
            resized(entry.key, key),
            resized(entry.value, new.bytes_of_value()),
        );
        new.put(&key, &value).map_err(message)?;
    }
    fs::remove_file(path).map_err(|error| format!("can't remove {}: {error}", path.display()))?;
    new.pin(path).map_err(message)
}
