//! Counts of what an implementation has on a node, to compare two moments.
//!
//! [`Remains::of`] runs `plumbline node remains` on the node. It leaves out what comes and goes with pods: programs for device
//! access, which container runtimes attach, and rules of CNI plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use cluster::Cluster;
use doctor::{Found, Manner, MapDescription, Place, Scope, inventory};
use lb_loader::RawMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{FaultError, commands, error::message};

/// Attach type of programs that control access to devices.
const DEVICE: &str = "device";
/// Prefix of nftables chains of CNI plugins (portmap, and those that masquerade).
const CNI: &str = "CNI-";

/// Arguments of `plumbline node remains`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The node's cgroup; all below it is counted too.
    #[arg(long, value_name = "FOLDER")]
    cgroup: PathBuf,
    /// The node's bpffs.
    #[arg(long, default_value = "/sys/fs/bpf", value_name = "FOLDER")]
    bpffs: PathBuf,
    /// Count what these hold, too, and listeners
    #[arg(long)]
    contents: bool,
}

/// Names of kinds of attachments.
const LINKS: &str = "links";
const PROGRAMS: &str = "programs at ";
/// How kinds of rules and chains begin, before their table.
const RULES: &str = "rules of ";
const CHAINS: &str = "chains of ";

/// Counts by kind: `programs at connect4`, `links`, `pins` … Kinds with a count of zero are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains(BTreeMap<String, usize>);

impl Remains {
    /// Counts on a node: programs at its cgroups and at the devices of its network namespace, their links and maps, pins, and
    /// rules of nftables.
    ///
    /// # Errors
    /// The node can't be reached, or something can't be counted.
    pub async fn of(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        commands::plumbline(cluster, node, &["remains", "--cgroup", &cgroup]).await
    }

    /// The same, and what these hold: entries of the maps of attached programs, chains and elements of nftables; and TCP
    /// listeners of the node. Not what comes and goes by itself: maps that forget what was not used lately, sets whose
    /// elements time out.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub async fn with_contents(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        commands::plumbline(cluster, node, &["remains", "--cgroup", &cgroup, "--contents"]).await
    }

    /// The counts of a node before its agent was installed.
    ///
    /// # Errors
    /// The cluster does not know it.
    pub async fn before(cluster: &Cluster, node: &str) -> Result<Self, FaultError> {
        Ok(Self(cluster.nodes()?.baseline(node).await?))
    }

    /// What exceeds the counts of an earlier moment.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> Self {
        let mut more = Self::default();
        for (kind, count) in &self.0 {
            let was = before.0.get(kind).copied().unwrap_or_default();
            more.add(kind, count.saturating_sub(was));
        }
        more
    }

    /// Only programs and links.
    pub(crate) fn attached(mut self) -> Self {
        self.0
            .retain(|kind, _| kind == LINKS || kind.starts_with(PROGRAMS));
        self
    }

    /// Whether all counts are zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the count of a kind is above zero.
    #[must_use]
    pub fn has(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// Whether programs are attached.
    #[must_use]
    pub fn has_programs(&self) -> bool {
        self.0.keys().any(|kind| kind.starts_with(PROGRAMS))
    }

    /// Tables of nftables with rules or chains, each by its family and name.
    #[must_use]
    pub fn tables(&self) -> BTreeSet<&str> {
        let kinds = self.0.keys().map(String::as_str);
        let of = |kind: &'static str| kinds.clone().filter_map(move |of| of.strip_prefix(kind));
        of(RULES).chain(of(CHAINS)).collect()
    }

    /// Whether the count of some kind is higher.
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
/// A message for stderr: something can't be counted.
pub fn count(arguments: &Arguments) -> Result<Remains, String> {
    let scope = Scope {
        cgroup: arguments.cgroup.clone(),
        bpffs: None,
        current: Vec::new(),
    };
    let inventory = inventory(&scope).map_err(message)?;
    let mut remains = Remains::default();
    let (mut links, mut maps) = (BTreeSet::new(), BTreeMap::new());
    for found in inventory.attachments {
        let Some(place) = kind(&found, &arguments.cgroup) else {
            continue;
        };
        remains.add(format!("{PROGRAMS}{place}"), 1);
        if let Manner::Link { id, .. } = found.manner {
            links.insert(id);
        }
        maps.extend(found.program.maps.into_iter().map(|map| (map.id, map)));
    }
    remains.add(LINKS, links.len());
    remains.add("maps", maps.len());
    remains.add("pins", pinned_files(&arguments.bpffs)?.len());
    let ruleset = ruleset()?;
    for table in tables_of_rules(&ruleset) {
        remains.add(format!("{RULES}{table}"), 1);
    }
    if arguments.contents {
        for map in maps.values().filter(|map| KEEPING.contains(&map.map_type)) {
            remains.add(format!("entries of {}", map.name), entries(map)?);
        }
        for (kind, count) in contents(&ruleset) {
            remains.add(kind, count);
        }
        remains.add("TCP listeners", listeners()?);
    }
    Ok(remains)
}

/// Types of maps that have an entry until it is deleted (`enum bpf_map_type` of linux/bpf.h): hash, hash by processor,
/// longest prefix, maps in a hash.
pub(crate) const KEEPING: [u32; 4] = [1, 5, 11, MAPS_IN_HASH];
pub(crate) const MAPS_IN_HASH: u32 = 13;

fn entries(map: &MapDescription) -> Result<usize, String> {
    // One that has ended since has none.
    let Some(raw) = RawMap::open(map.id).map_err(message)? else {
        return Ok(0);
    };
    let most = usize::try_from(map.max_entries).unwrap_or(usize::MAX);
    Ok(raw.entries(most).map_err(message)?.len())
}

/// TCP listeners of this network namespace.
fn listeners() -> Result<usize, String> {
    let mut count = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            // No IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            text => count += listening(&text.map_err(|error| format!("can't read {table}: {error}"))?),
        }
    }
    Ok(count)
}

/// In a /proc/net/tcp.
fn listening(table: &str) -> usize {
    const LISTEN: &str = "0A";
    let state = |line: &str| line.split_whitespace().nth(3) == Some(LISTEN);
    table.lines().filter(|line| state(line)).count()
}

/// The kind of an attachment; `None` if it is not this node's.
pub(crate) fn kind(found: &Found, cgroup: &Path) -> Option<String> {
    match &found.place {
        Place::Cgroup {
            path: Some(path),
            attach_name,
            ..
        } if path.starts_with(cgroup) && *attach_name != DEVICE => Some((*attach_name).to_owned()),
        Place::Device {
            name: Some(_),
            layer,
            direction,
            ..
        } => Some(format!("devices, {} {}", layer.name(), direction.name())),
        _ => None,
    }
}

/// All pins, by path. Files with a dot in their name are the kernel's own.
pub(crate) fn pinned_files(bpffs: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("can't look at {}: {error}", bpffs.display());
    let mut files = Vec::new();
    let mut folders = vec![bpffs.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(entry.path());
            } else if !entry.file_name().to_string_lossy().contains('.') {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The nftables of this network namespace, those of iptables-nft included. Nothing without `nft`: then nothing can have made any.
fn ruleset() -> Result<Value, String> {
    let output = match Command::new("nft").args(["--json", "list", "ruleset"]).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Value::Null),
        output => output.map_err(|error| format!("can't start nft: {error}"))?,
    };
    if !output.status.success() {
        return Err(format!(
            "nft can't list its rules: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("nft wrote no JSON: {error}"))
}

/// Chains and elements of nftables, by table. Elements that time out are not counted, nor is what CNI plugins have made.
fn contents(listed: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for object in listed["nftables"].as_array().into_iter().flatten() {
        let of = |what: &str, of: &Value| {
            let text = |field: &str| of[field].as_str().unwrap_or_default();
            format!("{what}{} {}", text("family"), text("table"))
        };
        let chain = &object["chain"];
        if chain.is_object() && !chain["name"].as_str().is_some_and(|name| name.starts_with(CNI)) {
            *counts.entry(of(CHAINS, chain)).or_default() += 1;
        }
        for set in [&object["set"], &object["map"]] {
            let flags = set["flags"].as_array().into_iter().flatten();
            let is_lasting = set["timeout"].is_null() && !flags.into_iter().any(|flag| flag == "timeout");
            let elements = set["elem"].as_array().map_or(0, Vec::len);
            if is_lasting && elements > 0 {
                *counts.entry(of("elements of ", set)).or_default() += elements;
            }
        }
    }
    counts
}

/// libnftables-json(5).
fn tables_of_rules(listed: &Value) -> Vec<String> {
    let objects = listed["nftables"].as_array().into_iter().flatten();
    let rules = objects.filter_map(|object| object.get("rule"));
    rules
        .filter(|rule| !is_of_cni(rule))
        .map(|rule| {
            let text = |field: &str| rule[field].as_str().unwrap_or_default();
            format!("{} {}", text("family"), text("table"))
        })
        .collect()
}

/// Whether a CNI plugin made a rule: it is in a chain of CNI, or jumps to one.
fn is_of_cni(rule: &Value) -> bool {
    let is_theirs = |chain: &Value| chain.as_str().is_some_and(|name| name.starts_with(CNI));
    let statements = rule["expr"].as_array().into_iter().flatten();
    let mut targets = statements.flat_map(|one| [&one["jump"]["target"], &one["goto"]["target"]]);
    is_theirs(&rule["chain"]) || targets.any(is_theirs)
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
    fn a_higher_count_of_one_kind_exceeds() {
        let first = remains(&[("links", 2), ("pins", 3)]);
        assert!(!first.exceeds(&first));
        assert!(!remains(&[("pins", 2)]).exceeds(&first));
        assert!(remains(&[("links", 3)]).exceeds(&first));
        assert!(remains(&[("links", 2), ("maps", 1)]).exceeds(&first));
        assert_eq!(remains(&[("links", 0)]).to_string(), "nothing");
    }

    #[test]
    fn tables_are_those_with_rules_or_chains() {
        let all = [
            ("rules of ip nat", 3),
            ("chains of ip nat", 2),
            ("chains of ip mangle", 1),
            ("pins", 1),
        ];
        assert_eq!(remains(&all).tables(), BTreeSet::from(["ip mangle", "ip nat"]));
    }

    #[test]
    fn earlier_counts_are_subtracted() {
        let now = remains(&[("links", 2), ("pins", 3), ("rules of ip nat", 1)]);
        let before = remains(&[("pins", 2), ("rules of ip nat", 4)]);
        assert_eq!(now.beyond(&before), remains(&[("links", 2), ("pins", 1)]));
        assert!(before.beyond(&before).is_empty());
    }

    #[test]
    fn rules_are_counted_by_table_without_those_of_cni() {
        let rule = |table: &str, chain: &str, target: &str| {
            serde_json::json!({"rule": {
                "family": "ip", "table": table, "chain": chain, "expr": [{"counter": null}, {"jump": {"target": target}}],
            }})
        };
        let listed = serde_json::json!({"nftables": [
            {"metainfo": {"json_schema_version": 1}},
            {"table": {"family": "ip", "name": "nat"}},
            rule("nat", "POSTROUTING", "KUBE-POSTROUTING"),
            rule("nat", "POSTROUTING", "CNI-0a1b"),
            rule("nat", "CNI-0a1b", "ACCEPT"),
            rule("filter", "INPUT", "KUBE-FIREWALL"),
        ]});
        assert_eq!(tables_of_rules(&listed), ["ip nat", "ip filter"]);
    }

    #[test]
    fn chains_and_lasting_elements_are_counted_by_table() {
        let set = |flags: &[&str], elements: &[u8]| serde_json::json!({"family": "ip", "table": "t", "flags": flags, "elem": elements});
        let listed = serde_json::json!({"nftables": [
            {"chain": {"family": "ip", "table": "t", "name": "services"}},
            {"chain": {"family": "ip", "table": "t", "name": "CNI-0a1b"}},
            {"map": set(&["interval"], &[1, 2])},
            {"set": set(&[], &[3])},
            {"set": set(&["dynamic", "timeout"], &[4])},
        ]});
        let expected = [
            ("chains of ip t".to_owned(), 1),
            ("elements of ip t".to_owned(), 3),
        ];
        assert_eq!(contents(&listed), BTreeMap::from(expected));
        assert!(contents(&Value::Null).is_empty());
    }

    #[test]
    fn only_listeners_are_counted() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0:0\n   1: 0100007F:1F90 0200A8C0:01BB 01 0:0\n";
        assert_eq!(listening(table), 1);
    }

    #[test]
    fn files_of_the_kernel_are_no_pins() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("agent")).unwrap();
        for name in ["agent/map", "link", "maps.debug"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = pinned_files(folder.path()).unwrap();
        assert_eq!(
            files,
            [folder.path().join("agent/map"), folder.path().join("link")]
        );
    }
}
