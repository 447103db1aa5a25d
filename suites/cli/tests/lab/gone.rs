//! Nothing is left: this host is after a lab what it was before, however the lab ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use lab::{
    cluster::{Cluster, Place},
    embedded::{self, AgentCommand, Downed, IpFamilies, LabCluster, LabConfig, Lifetime},
};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
        },
    },
    unistd::Pid,
};

use super::{
    support::{TestLab, cgroup, config, eventually, name, node, privileged},
    traces::Traces,
};

/// What a lab could change of this host, apart from processes, namespaces and cgroups, which [`Traces`] has.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    links: BTreeSet<PathBuf>,
    mounts: Vec<String>,
    pins: BTreeSet<PathBuf>,
    sysctls: BTreeMap<PathBuf, Vec<u8>>,
    nftables: Vec<u8>,
    iptables: Vec<String>,
}

impl Host {
    fn now() -> Self {
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
            mounts: mounts.lines().map(str::to_owned).collect(),
            pins: children(Path::new("/sys/fs/bpf")).into_iter().collect(),
            sysctls,
            nftables: nftables(),
            iptables: tables
                .map(|path| fs::read_to_string(path).unwrap_or_default())
                .to_vec(),
        }
    }

    /// Each part by itself: a difference shall be readable.
    fn is_unchanged(&self) {
        let now = Self::now();
        assert_eq!(now.links, self.links, "links");
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

/// All tables of nftables (iptables-nft's too), as the kernel lists them: NFT_MSG_GETTABLE of linux/netfilter/nf_tables.h.
fn nftables() -> Vec<u8> {
    const GET_TABLE: u16 = (10 << 8) | 1;
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
    request.extend(GET_TABLE.to_ne_bytes());
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

fn with_the_reference_agent(config: &mut LabConfig) {
    let program = config.plumbline.with_file_name("reference-agent");
    config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    config.families = IpFamilies::Dual;
}

async fn all_ready(lab: &LabCluster) {
    for node in ["node1", "node2"] {
        super::support::agent_is_ready(lab, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_labs_in_a_row_with_agents_and_pods_leave_the_host_as_it_was() {
    let before = Host::now();
    for _ in 0..2 {
        let Some(test) = TestLab::up_with("row", with_the_reference_agent).await else {
            return;
        };
        all_ready(&test.lab).await;
        test.server("b1", "node1", false).await;
        test.server("h2", "node2", true).await;
        let (_, pins) = test.shell(&node("node1"), "ls /sys/fs/bpf").await;
        assert!(
            pins.contains("plumbline"),
            "the agent has pinned in its node's bpffs: {pins:?}"
        );
        let traces = Traces::of(&name("row"));
        test.lab.down().await.expect("down");
        traces.are_gone().await;
        before.is_unchanged();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_with_agents_that_is_killed_leaves_the_host_as_it_was_and_another_lab_up() {
    let before = Host::now();
    let Some(other) = TestLab::up_with("beside", with_the_reference_agent).await else {
        return;
    };
    let test = TestLab::up_with("kill9", with_the_reference_agent)
        .await
        .expect("root");
    all_ready(&test.lab).await;
    test.server("b1", "node1", false).await;
    let traces = Traces::of(&name("kill9"));
    let supervisor = test.lab.status().await.expect("status").supervisor;
    kill(Pid::from_raw(supervisor.cast_signed()), Signal::SIGKILL).expect("SIGKILL");
    eventually("the end of all processes", || traces.ended()).await;
    drop(test.lab);
    // Another test's `up` may have removed it meanwhile.
    assert_ne!(embedded::down(&name("kill9")).await.expect("down"), Downed::Up);
    traces.are_gone().await;
    before.is_unchanged();

    all_ready(&other.lab).await;
    let traces = Traces::of(&name("beside"));
    other.lab.down().await.expect("down");
    traces.are_gone().await;
    before.is_unchanged();
}

/// A container has mount, process and network namespaces of its own; here the network is that of another lab's outside
/// client, whose loopback is up as a container's is.
#[tokio::test(flavor = "multi_thread")]
async fn a_lab_comes_up_and_goes_down_in_a_container() {
    let Some(outer) = TestLab::up("outer").await else {
        return;
    };
    let before = Host::now();
    let inner = name("inner");
    let plumbline = env!("CARGO_BIN_EXE_plumbline");
    let script = format!(
        "set -e; p() {{ {plumbline} lab \"$@\"; }}\n\
         p up --name {inner}; p status --name {inner}\n\
         p exec --name {inner} node2 -- cat /proc/self/cgroup\n\
         p down --name {inner}; p up --name {inner}; p down --name {inner}\n\
         p down --name {inner}"
    );
    let argv = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &script,
    ];
    let child = outer.lab.exec(&Place::Outside, &argv.map(str::to_owned)).await;
    let output = child.expect("start").wait_with_output().await.expect("wait");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    assert_eq!(said.matches("ready, process").count(), 2, "{said}");
    assert!(
        said.contains(&format!("plumbline-lab-{inner}/node2/system")),
        "{said}"
    );
    assert!(said.contains("is not up, and has left nothing"), "{said}");
    assert!(!cgroup(&inner).exists());
    before.is_unchanged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lacks_something_is_told_what_and_nothing_is_made() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("lacks"), folder.path());
    // As in a container to which nobody gave them: no cgroup2 mount to be seen.
    let script = format!(
        "set -e; for m in $(awk '$0 ~ / - cgroup2 / {{print $5}}' /proc/self/mountinfo); do umount -l $m; done; \
         exec {} lab up --name {} --agent {}",
        config.plumbline.display(),
        config.name,
        folder.path().join("agent").display()
    );
    let said = in_a_mount_namespace(&script);
    assert!(said.contains("no cgroup2 file system is mounted"), "{said}");
    assert!(said.contains("Mount it (mount -t cgroup2"), "{said}");
    // As an ordinary user.
    let nobody = "exec setpriv --reuid 65534 --clear-groups ";
    let said = in_a_mount_namespace(&format!("{nobody} {} lab up", config.plumbline.display()));
    assert!(
        said.contains("needs root, but runs as uid 65534; start it with sudo"),
        "{said}"
    );
    assert!(!cgroup(&config.name).exists());
    assert!(LabCluster::attach(&config.name).await.is_err());
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect("up");
    lab.down().await.expect("down");
}

/// Stderr of a script that must fail.
fn in_a_mount_namespace(script: &str) -> String {
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .output()
        .expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it went well: {said}");
    said
}
