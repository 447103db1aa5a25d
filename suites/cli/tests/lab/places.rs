//! Processes in places: their namespaces, cgroup, exit code and end.

use std::process::Command;

use cluster::{ClusterError, Place};

use super::support::{TestLab, eventually, in_pod, name, node};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_its_own_links_mounts_and_cgroup() {
    let Some(test) = TestLab::up("own").await else {
        return;
    };
    let (code, links) = test.shell(&node("node1"), "ls /sys/class/net").await;
    assert_eq!((code, links.as_str()), (Some(0), "eth0\nlo"));
    let (_, mounts) = test
        .shell(&node("node1"), "grep -c ' - cgroup2 ' /proc/self/mountinfo")
        .await;
    assert_eq!(mounts, "1", "the node's hierarchy is the only one that it sees");
    let (_, here) = test
        .shell(&node("node2"), "cat /sys/fs/cgroup/system/cgroup.procs")
        .await;
    assert_eq!(
        here.lines().count(),
        2,
        "the shell and cat are in the node's system cgroup: {here:?}"
    );
    let pins = "touch /sys/fs/bpf/x 2>/dev/null; mkdir /sys/fs/bpf/plumbline && ls /sys/fs/bpf";
    let (code, pins) = test.shell(&node("node1"), pins).await;
    assert!(code == Some(0) && pins.contains("plumbline"), "{pins}");
    let (_, other) = test.shell(&node("node2"), "ls /sys/fs/bpf").await;
    assert!(
        !other.contains("plumbline"),
        "each node has a bpffs of its own: {other}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_in_a_pod_is_in_the_pods_cgroup_and_network() {
    let Some(test) = TestLab::up("inpod").await else {
        return;
    };
    let address = test.server("b1", "node1", false).await;
    let (_, cgroup) = test.shell(&in_pod("b1"), "cat /proc/self/cgroup").await;
    let uid = test
        .pods()
        .get("b1")
        .await
        .expect("the pod")
        .metadata
        .uid
        .expect("a uid");
    let own = format!("0::/plumbline-lab-{}/node1/pods/{uid}", name("inpod"));
    assert!(
        cgroup.lines().any(|line| line.ends_with(&own[3..])),
        "{cgroup} has no {own}"
    );
    let (_, addresses) = test.shell(&in_pod("b1"), "cat /proc/net/fib_trie").await;
    assert!(addresses.contains(&address), "{addresses}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_and_missing_places_come_through() {
    let Some(test) = TestLab::up("codes").await else {
        return;
    };
    assert_eq!(test.shell(&node("node1"), "exit 7").await.0, Some(7));
    let argv = ["/nonexistent".to_owned()];
    let error = test
        .lab
        .cluster()
        .exec(&node("node1"), &argv)
        .await
        .expect_err("no such program")
        .to_string();
    assert!(
        error.starts_with("failed to start `/nonexistent` on the node node1: No such file"),
        "{error}"
    );
    for (place, what) in [(node("node9"), "node"), (in_pod("nope"), "pod")] {
        match test.lab.cluster().exec(&place, &argv).await {
            Err(ClusterError::NotFound { what: found, .. }) => assert_eq!(found, what),
            other => panic!("expected NotFound, found {other:?}"),
        }
    }
    // The same through `plumbline lab exec`, which becomes the given program.
    let lab = name("codes");
    let plumbline = |place: &str, command: &[&str]| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_plumbline"));
        process
            .args(["lab", "exec", "--name", &lab, place, "--"])
            .args(command);
        process.output().expect("start")
    };
    assert_eq!(
        plumbline("outside", &["sh", "-c", "exit 9"]).status.code(),
        Some(9)
    );
    let output = plumbline("node2", &["/nonexistent"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    let expected = "plumbline: failed to start /nonexistent on the node node2: No such file or directory (os error 2); \
                    expected the path of a program there";
    assert!(said.starts_with(expected), "{said}");
    let output = plumbline("node2", &["sh", "-c", "echo $KUBECONFIG; ls /sys/class/net"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("/run/plumbline/{lab}/kubeconfig-node2\neth0\nlo\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_process_is_killed() {
    let Some(test) = TestLab::up("drop").await else {
        return;
    };
    let argv = ["sleep", "1000"].map(str::to_owned);
    let child = test
        .lab
        .cluster()
        .exec(&Place::Outside, &argv)
        .await
        .expect("start");
    let pid = child.id().expect("it runs");
    let stat = format!("/proc/{pid}/cmdline");
    eventually("the start of sleep", || {
        std::fs::read(&stat).is_ok_and(|line| line.starts_with(b"sleep"))
    })
    .await;
    drop(child);
    eventually("the end of sleep", || {
        std::fs::read(&stat).map_or(true, |line| line.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_reached_from_host_and_nodes_with_their_kubeconfigs() {
    let Some(test) = TestLab::up("api").await else {
        return;
    };
    let path = test.lab.kubeconfig();
    let text = std::fs::read_to_string(path).expect("the kubeconfig");
    assert!(text.contains("https://127.0.0.1:"), "{text}");
    let version = test
        .lab
        .cluster()
        .client()
        .apiserver_version()
        .await
        .expect("the API server answers on loopback");
    assert_eq!(version.major, "1");
    let underlay = "sed -n 's/.*\"server\": \"https:..\\(.*\\)\".*/\\1/p' $KUBECONFIG";
    let (_, address) = test.shell(&node("node1"), underlay).await;
    assert_eq!(address, "172.30.0.2:6443");
    let (host, port) = ("172.30.0.2", 6443);
    for from in [node("node1"), node("node2"), Place::Outside] {
        // The address has a TLS server, which answers a line of JSON with an alert.
        let outcome = test
            .dial(&from, oracle::history::Transport::Tcp, host, port)
            .await;
        assert!(
            matches!(outcome, oracle::history::Outcome::Garbled { .. }),
            "{from:?}: {outcome:?}"
        );
    }
}
