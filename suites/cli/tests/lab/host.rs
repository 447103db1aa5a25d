//! What a lab could change of this host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// What a lab could change of this host, apart from processes, namespaces and cgroups, which [`Traces`] has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    links: BTreeSet<PathBuf>,
    addresses: String,
    routes: BTreeSet<String>,
    mounts: Vec<String>,
    pins: BTreeSet<PathBuf>,
    sysctls: BTreeMap<PathBuf, Vec<u8>>,
    nftables: BTreeMap<&'static str, Vec<u8>>,
    iptables: Vec<String>,
}

impl Host {
    pub(crate) fn now() -> Self {
        let mut sysctls = BTreeMap::new();
        for folder in ["ipv4", "ipv6", "netfilter", "core"] {
            read_all(&Path::new("/proc/sys/net").join(folder), &mut sysctls);
        }
        // These count, and change by themselves.
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
            nftables: NFTABLES.map(|(what, question)| (what, nftables(question))).into(),
            iptables: tables.map(read).to_vec(),
        }
    }

    /// Each part by itself: a difference shall be readable.
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
            // Those that can only be written hold nothing.
            into.insert(path, value);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Of IPv6, the host's own addresses among them, without what counts: the last fields but one are uses and references.
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

/// What can be listed of nftables (iptables-nft's rules too): NFT_MSG_GET… of linux/netfilter/nf_tables.h.
const NFTABLES: [(&str, u16); 4] = [("tables", 1), ("chains", 4), ("rules", 7), ("sets", 10)];

/// The first part of the kernel's list, which holds all of a host with few rules, and shows a change at the beginning
/// of a host with many.
fn nftables(question: u16) -> Vec<u8> {
    /// NFNL_SUBSYS_NFTABLES.
    const NFTABLES: u16 = 10 << 8;
    const REQUEST_DUMP: u16 = 0x1 | 0x300;
    const HEADER: usize = 16;
    let protocol = SockProtocol::NetlinkNetFilter;
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .expect("netlink");
    // nlmsghdr (length, type, flags, sequence, port), then nfgenmsg (family, version, resource).
    let mut request = 20_u32.to_ne_bytes().to_vec();
    request.extend((NFTABLES | question).to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8 + 4]);
    let kernel = NetlinkAddr::new(0, 0);
    sendto(netlink.as_raw_fd(), &request, &kernel, MsgFlags::empty()).expect("ask");
    let mut buffer = vec![0; 1 << 16];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty()).expect("an answer");
    // The header has the port of this socket, which differs from one question to the next.
    buffer.truncate(length);
    buffer.split_off(HEADER.min(length))
}
