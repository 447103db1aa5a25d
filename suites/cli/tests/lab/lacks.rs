//! Hosts that lack something: the error names each missing thing and what to do, and nothing is left.

use std::{fs, path::Path, process::Command};

use lab::{LabCluster, LabConfig, Lifetime};
use tempfile::TempDir;

use super::support::{cgroup, config, name, privileged};

/// A host that lacks one thing.
struct Row {
    what: &'static str,
    /// Options of unshare(1), besides `--mount`.
    namespaces: &'static [&'static str],
    /// Preparation in sh(1); `$FOLDER` is empty.
    before: &'static str,
    /// The program that starts the lab.
    through: &'static str,
    options: &'static str,
    expected: &'static [&'static str],
}

const WHOLE: Row = Row {
    what: "",
    namespaces: &[],
    before: "",
    through: "",
    options: "",
    expected: &[],
};

const ROWS: &[Row] = &[
    Row {
        what: "root",
        through: "setpriv --reuid 65534 --clear-groups",
        expected: &["needs root, but runs as uid 65534", "start it with sudo"],
        ..WHOLE
    },
    Row {
        what: "root of the host",
        namespaces: &["--user", "--map-root-user"],
        expected: &[
            "this is root of a user namespace",
            "Start it with sudo on the host",
        ],
        ..WHOLE
    },
    Row {
        what: "capabilities, as in an ordinary container",
        through: "setpriv --bounding-set -sys_admin,-net_admin",
        expected: &["needs CAP_NET_ADMIN and CAP_SYS_ADMIN", "docker run --privileged"],
        ..WHOLE
    },
    Row {
        what: "a new kernel",
        through: "setarch --uname-2.6",
        expected: &[
            "this host's kernel is 2.6.",
            "expected 5.15 or newer",
            "Run the lab on a newer kernel",
        ],
        ..WHOLE
    },
    Row {
        what: "a mount of cgroup v2",
        before: "for m in $(awk '$0 ~ / - cgroup2 / {print $5}' /proc/self/mountinfo); do umount -l $m; done",
        expected: &["no cgroup2 file system is mounted", "Mount it (mount -t cgroup2"],
        ..WHOLE
    },
    Row {
        what: "a mount of cgroup v2 that can be written",
        before: "for m in $(awk '$0 ~ / - cgroup2 / {print $5}' /proc/self/mountinfo); do \
                 mount -o remount,bind,ro $m; done",
        expected: &["can't write to the cgroup2 file system at /", "run it privileged"],
        ..WHOLE
    },
    Row {
        what: "a bpf file system",
        before: "grep -v bpf /proc/filesystems > $FOLDER/known; mount --bind $FOLDER/known /proc/filesystems",
        expected: &["has no bpf file system", "Use a kernel with CONFIG_BPF_SYSCALL"],
        ..WHOLE
    },
    Row {
        what: "IPv6",
        before: "mount --bind $FOLDER /proc/sys/net",
        options: "--ipv6",
        expected: &["has no IPv6, which was asked for", "make a lab of IPv4"],
        ..WHOLE
    },
    Row {
        what: "settings that can be written",
        before: "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys",
        expected: &[
            "can't set /proc/sys/net/",
            "run it privileged, so that /proc/sys is writable",
        ],
        ..WHOLE
    },
    Row {
        what: "a folder for what runs",
        before: "mount --bind /run /run; mount -o remount,bind,ro /run",
        expected: &[
            "can't lock /run/plumbline/",
            "Read-only file system",
            "must be writable",
        ],
        ..WHOLE
    },
    Row {
        what: "a loopback that is up",
        namespaces: &["--net"],
        expected: &["nothing can be reached at 127.0.0.1", "ip link set lo up"],
        ..WHOLE
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lacks_something_is_told_what_and_nothing_is_made() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("lacks"), folder.path());
    for row in ROWS {
        let empty = tempfile::tempdir().expect("a folder");
        let script = format!(
            "set -e; {}\nexec {} {}",
            row.before,
            row.through,
            up(&config, folder.path(), row.options)
        );
        let (code, said) = elsewhere(row.namespaces, &empty, &script);
        assert_ne!(code, Some(0), "without {} it went well: {said}", row.what);
        for expected in row.expected {
            assert!(
                said.contains(expected),
                "without {}: expected {expected:?}, found: {said}",
                row.what
            );
        }
        assert!(!cgroup(&config.name).exists(), "without {}", row.what);
        assert!(
            !Path::new("/run/plumbline").join(&config.name).exists(),
            "without {}",
            row.what
        );
    }
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect("up");
    lab.down().await.expect("down");
}

/// A network namespace represents a host whose own addresses and routes overlap with those of the lab.
#[test]
fn addresses_that_the_host_uses_too_are_named_and_both_work() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("taken"), folder.path());
    let (plumbline, lab) = (config.plumbline.display(), &config.name);
    let empty = tempfile::tempdir().expect("a folder");
    let script = format!(
        "set -e; ip link set lo up\n\
         ip address add 10.96.0.1/32 dev lo; ip address add 172.30.0.101/32 dev lo\n\
         ip route add 10.0.0.0/8 dev lo; ip route add default dev lo\n\
         ip -o address show > $FOLDER/before; ip route show table all >> $FOLDER/before\n\
         {up}\n\
         {plumbline} lab exec --name {lab} node1 -- ip -o -4 address show eth0\n\
         ip -o address show > $FOLDER/after; ip route show table all >> $FOLDER/after\n\
         cmp $FOLDER/before $FOLDER/after && echo the host is as it was\n\
         {plumbline} lab down --name {lab}",
        up = up(&config, folder.path(), "")
    );
    let (code, said) = elsewhere(&["--net"], &empty, &script);
    assert_eq!(code, Some(0), "{said}");
    let expected = [
        "this host uses 172.30.0.101/32, and the lab 172.30.0.0/24 for nodes",
        "this host uses 10.0.0.0/8, and the lab 10.244.1.0/24 for pods",
        "this host uses 10.0.0.0/8, and the lab 10.96.0.0/16 for ClusterIPs",
        &format!("to reach them: plumbline lab exec --name {lab} outside -- COMMAND"),
        "inet 172.30.0.101/24",
        "the host is as it was",
    ];
    for expected in expected {
        assert!(said.contains(expected), "expected {expected:?}, found: {said}");
    }
    assert!(!said.contains("for load balancers"), "nobody uses these: {said}");
}

/// A host that lacks nothing causes no message.
#[test]
fn a_lab_of_whose_addresses_the_host_has_none_comes_up_without_notes() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("free"), folder.path());
    let empty = tempfile::tempdir().expect("a folder");
    let script = format!(
        "set -e; ip link set lo up\n{}\n{} lab down --name {}",
        up(&config, folder.path(), "--dual"),
        config.plumbline.display(),
        config.name
    );
    let (code, said) = elsewhere(&["--net"], &empty, &script);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("note:"), "{said}");
}

/// The command line that starts a lab with the fake agent.
fn up(config: &LabConfig, folder: &Path, options: &str) -> String {
    format!(
        "{} lab up --name {} --agent {} {options}",
        config.plumbline.display(),
        config.name,
        folder.join("agent").display()
    )
}

/// Exit code and output of a script in mount and other namespaces of its own.
fn elsewhere(namespaces: &[&str], empty: &TempDir, script: &str) -> (Option<i32>, String) {
    // No pipes: the lab's processes would keep them open.
    let said = tempfile::NamedTempFile::new().expect("a file");
    let append = || {
        let opened = fs::OpenOptions::new().append(true).open(said.path());
        opened.expect("the file")
    };
    let status = Command::new("unshare")
        .arg("--mount")
        .args(namespaces)
        .args(["sh", "-c", script])
        .env("FOLDER", empty.path())
        .stdout(append())
        .stderr(append())
        .status()
        .expect("unshare of util-linux");
    (status.code(), fs::read_to_string(said.path()).expect("UTF-8"))
}
