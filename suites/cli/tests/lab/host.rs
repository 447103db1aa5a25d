//! The state of the host that a lab could change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

/// The state of the host that a lab could change, apart from processes, namespaces and cgroups, which [`Traces`] has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    links: BTreeSet<PathBuf>,
    addresses: String,
    routes: BTreeSet<String>,
    mounts: Vec<String>,
    pins: BTreeSet<PathBuf>,
    sysctls: BTreeMap<PathBuf, Vec<u8>>,
    nftables: String,
    iptables: Vec<String>,
}

impl Host {
    pub(crate) fn now() -> Self {
        let mut sysctls = BTreeMap::new();
        for folder in ["ipv4", "ipv6", "netfilter", "core"] {
            read_all(&Path::new("/proc/sys/net").join(folder), &mut sysctls);
        }
        // These are counters, which change by themselves.
        sysctls.retain(|path, _| !path.to_string_lossy().contains("count"));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let tables = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
        Self {
            links: children(Path::new("/sys/class/net")).into_iter().collect(),
            addresses: read("/proc/net/fib_trie"),
            routes: routes(),
            mounts: mounts.lines().map(str::to_owned).collect(),
            pins: children(Path::new("/sys/fs/bpf")).into_iter().collect(),
            sysctls,
            nftables: nftables(),
            iptables: tables.map(read).to_vec(),
        }
    }

    /// Compares each part by itself, for readable differences.
    pub(crate) fn is_unchanged(&self) {
        let now = Self::now();
        assert_eq!(now.links, self.links, "links");
        assert_eq!(now.addresses, self.addresses, "IPv4 addresses and routes");
        assert_eq!(now.routes, self.routes, "IPv6 addresses and routes");
        assert_eq!(now.mounts, self.mounts, "mounts");
        assert_eq!(now.pins, self.pins, "pins in the host's bpffs");
        for (path, before) in &self.sysctls {
            let after = now.sysctls.get(path);
            assert_eq!(after, Some(before), "{}", path.display());
        }
        assert_eq!(now.nftables, self.nftables, "nftables");
        assert_eq!(now.iptables, self.iptables, "iptables");
    }
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn read_all(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for path in children(folder) {
        if path.is_dir() {
            read_all(&path, into);
        } else if let Ok(value) = fs::read(&path) {
            // Files that can only be written have no value.
            into.insert(path, value);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Routes of IPv6, including the host's own addresses, without counters: references and uses are the last fields but
/// one.
fn routes() -> BTreeSet<String> {
    let all = read("/proc/net/ipv6_route");
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let kept = [
            fields.get(..5),
            fields.get(5..6),
            fields.last().map(std::slice::from_ref),
        ];
        kept.into_iter()
            .flatten()
            .flatten()
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
    };
    all.lines().map(route).collect()
}

/// Rules of nftables (iptables-nft's too), without counters. nft(8) reads them in several messages, and repeats that if
/// they changed in between; without nft, the record states that nothing was compared.
fn nftables() -> String {
    let output = match Command::new("nft")
        .args(["--stateless", "list", "ruleset"])
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "the rest passed, but rules of nftables were not compared: nft is not installed";
            testing::skip(&testing::current(), why);
            return String::new();
        }
        other => other.expect("run nft"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft list ruleset: {said}");
    String::from_utf8(output.stdout).expect("text")
}
