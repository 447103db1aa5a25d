//! What an implementation has on a node, removed, overwritten or crowded out by a third party: `plumbline node wipe`.
//!
//! Nothing undoes it: the implementation must. Rules go with their tables, of which those that were there before it are
//! never given.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use cluster::Cluster;
use doctor::{Evicted, Scope, evict, inventory};
use lb_loader::{empty_map_by_id, fill_map_by_id, zero_map_by_id};
use serde::{Deserialize, Serialize};

use crate::{
    FaultError, commands,
    error::message,
    object_counts::{KEEPING, MAPS_IN_HASH, kind},
};

/// Types of maps whose values are overwritten (`enum bpf_map_type`): hash, array, longest prefix. Those that forget by themselves hold what
/// programs have noted, not what an implementation keeps there.
const WITH_VALUES: [u32; 3] = [1, 2, 11];

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiped<'a> {
    /// Programs at the node's cgroups and at the devices of its network namespace are detached; their pins stay.
    Programs,
    /// Entries of the maps of these programs, but of those that forget by themselves.
    Entries,
    /// The values of maps of these programs are filled with zeros.
    Values,
    /// Hash maps of these programs get entries of no meaning until they are full; their own stay.
    Room,
    /// Tables of nftables, each by its family and name.
    Tables(&'a [String]),
}

/// Arguments of `plumbline node wipe`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup, with all below it
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// Detach programs
    #[arg(long)]
    programs: bool,
    /// Remove entries of maps
    #[arg(long)]
    entries: bool,
    /// Fill the values of maps with zeros
    #[arg(long)]
    values: bool,
    /// Fill hash maps up with entries of no meaning
    #[arg(long)]
    room: bool,
    /// A table of nftables to delete, such as 'ip nat'
    #[arg(long, value_name = "FAMILY NAME")]
    table: Vec<String>,
}

/// How much was removed, overwritten or put; a map that was full already counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed(pub usize);

impl Removed {
    /// Removes it on a node.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses it.
    pub async fn from(cluster: &Cluster, node: &str, what: Wiped<'_>) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        let mut arguments = vec!["wipe", "--cgroup", &*cgroup];
        match what {
            Wiped::Programs => arguments.push("--programs"),
            Wiped::Entries => arguments.push("--entries"),
            Wiped::Values => arguments.push("--values"),
            Wiped::Room => arguments.push("--room"),
            Wiped::Tables(tables) => arguments.extend(tables.iter().flat_map(|table| ["--table", &**table])),
        }
        commands::plumbline(cluster, node, &arguments).await
    }
}

/// Removes it, on the node.
///
/// # Errors
/// A message for stderr: something can't be removed.
pub fn wipe(arguments: &Arguments) -> Result<Removed, String> {
    let mut removed = 0;
    for table in &arguments.table {
        let words = ["delete", "table"].into_iter().chain(table.split(' '));
        let deleted = Command::new("nft").args(words).status();
        match deleted {
            Ok(status) if status.success() => removed += 1,
            Ok(status) => return Err(format!("nft can't delete table {table}: {status}")),
            Err(error) => return Err(format!("can't start nft: {error}")),
        }
    }
    let of_maps = arguments.entries || arguments.values || arguments.room;
    if !arguments.programs && !of_maps {
        return Ok(Removed(removed));
    }
    let scope = Scope {
        cgroup: arguments.cgroup.clone(),
        bpffs: None,
        current: Vec::new(),
    };
    let mut found = inventory(&scope).map_err(message)?.attachments;
    found.retain(|found| kind(found, &arguments.cgroup).is_some());
    if of_maps {
        let maps: BTreeMap<u32, u32> = found
            .iter()
            .flat_map(|found| &found.program.maps)
            .map(|map| (map.id, map.map_type))
            .collect();
        for (id, map_type) in maps {
            if arguments.values && WITH_VALUES.contains(&map_type) {
                removed += zero_map_by_id(id).map_err(message)?;
            }
            if arguments.entries && KEEPING.contains(&map_type) && map_type != MAPS_IN_HASH {
                removed += empty_map_by_id(id).map_err(message)?;
            }
            if arguments.room {
                // One that is full already is full, too.
                removed += fill_map_by_id(id).map_err(message)?.map_or(0, |put| put.max(1));
            }
        }
    }
    if arguments.programs {
        for found in &found {
            removed += usize::from(evict(found, true).map_err(message)? == Evicted::Detached);
        }
    }
    Ok(Removed(removed))
}
