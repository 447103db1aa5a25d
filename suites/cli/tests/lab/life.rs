//! The life of a lab: up, down, and interruptions.

use std::{fs::File, path::Path, process::Command};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use lab::{Downed, LabCluster, LabError, Lifetime};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    support::{TestLab, cgroup, config, eventually, name, node, privileged},
    traces::Traces,
};

/// Whether the lock of a lab is free and its cgroup empty.
fn released(name: &str) -> bool {
    let lock = File::open(Path::new("/run/plumbline").join(name).join("lock"));
    let events = std::fs::read_to_string(cgroup(name).join("cgroup.events")).unwrap_or_default();
    lock.map_or(true, |lock| lock.try_lock_shared().is_ok()) && !events.contains("populated 1")
}

fn sigkill(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("SIGKILL");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_ready_when_up_returns_and_nothing_is_left_when_down_does() {
    let Some(test) = TestLab::up("life").await else {
        return;
    };
    let nodes: Api<Node> = Api::all(test.lab.cluster().client());
    let nodes = nodes
        .list(&ListParams::default())
        .await
        .expect("list nodes")
        .items;
    assert_eq!(nodes.len(), 2);
    for (node, described) in nodes.iter().zip(&test.lab.cluster().describe().nodes) {
        assert_eq!(node.metadata.name.as_ref(), Some(&described.name));
        let status = node.status.clone().expect("a status");
        let ready = status
            .conditions
            .unwrap_or_default()
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        assert!(ready, "{}", described.name);
        let addresses = status.addresses.unwrap_or_default();
        let internal = addresses
            .iter()
            .find(|address| address.type_ == "InternalIP")
            .expect("InternalIP");
        assert_eq!(internal.address, described.addresses[0].to_string());
    }
    test.server("b1", "node1", false).await;
    test.server("h1", "node2", true).await;
    let traces = Traces::of(&name("life"));
    test.lab.down().await.expect("down");
    traces.are_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_ends_with_its_caller() {
    let Some(test) = TestLab::up("leash").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let traces = Traces::of(&name("leash"));
    // The end of the calling process also closes its end of the pipe.
    drop(test.lab);
    traces.are_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_lab_does_not_and_down_twice_is_fine() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("detached"), folder.path());
    drop(
        LabCluster::up(&config, Lifetime::Detached, |_| {})
            .await
            .expect("up"),
    );
    let again = LabCluster::attach(&config.name).await.expect("attach");
    assert_eq!(again.status().await.expect("status").nodes.len(), 2);
    let traces = Traces::of(&config.name);
    assert_eq!(lab::down(&config.name).await.expect("down"), Downed::Up);
    traces.are_gone().await;
    assert_eq!(
        lab::down(&config.name).await.expect("down again"),
        Downed::Nothing
    );
    match LabCluster::attach(&config.name).await {
        Err(LabError::NotUp { name }) => assert_eq!(name, config.name),
        other => panic!("expected NotUp, found {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_taken_once_and_two_labs_do_not_meet() {
    let Some(first) = TestLab::up("two-a").await else {
        return;
    };
    let pid = first.lab.status().await.expect("status").supervisor;
    let taken = config(&name("two-a"), first.folder.path());
    match LabCluster::up(&taken, Lifetime::WithCaller, |_| {}).await {
        Err(LabError::AlreadyUp { name: found, pid: by }) => assert_eq!((found, by), (taken.name, pid)),
        other => panic!("expected AlreadyUp, found {other:?}"),
    }
    let second = TestLab::up("two-b").await.expect("root");
    let address = first.server("b1", "node1", false).await;
    assert_eq!(
        second.server("b2", "node1", false).await,
        address,
        "the same addresses, in other namespaces"
    );
    for (test, identity) in [(&first, "b1/TCP/8080"), (&second, "b2/TCP/8080")] {
        let outcome = test
            .dial(&node("node2"), oracle::history::Transport::Tcp, &address, 8080)
            .await;
        assert_eq!(super::support::answered(&outcome), identity);
    }
    second.lab.down().await.expect("down");
    let outcome = first
        .dial(&node("node2"), oracle::history::Transport::Tcp, &address, 8080)
        .await;
    assert_eq!(
        super::support::answered(&outcome),
        "b1/TCP/8080",
        "the other lab is still up"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_leaves_no_process_and_the_next_up_and_down_remove_the_rest() {
    let Some(test) = TestLab::up("killed").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let name = name("killed");
    let supervisor = test.lab.status().await.expect("status").supervisor;
    let traces = Traces::of(&name);
    assert!(traces.others_than(supervisor).len() >= 3, "two agents and a pod");
    sigkill(supervisor);
    eventually("the end of all processes", || traces.ended()).await;

    let folder = test.folder;
    let lab = LabCluster::up(&config(&name, folder.path()), Lifetime::WithCaller, |_| {})
        .await
        .expect("up again");
    let status = lab.status().await.expect("status");
    assert!(
        status.nodes.iter().all(|node| node.pods.is_empty()),
        "a new lab is empty: {status:?}"
    );
    sigkill(status.supervisor);
    drop(lab);
    // Another test's `up` may have removed it meanwhile.
    assert_ne!(lab::down(&name).await.expect("down"), Downed::Up);
    traces.are_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_up_removes_what_a_dead_lab_of_another_name_left() {
    let Some(test) = TestLab::up("dead").await else {
        return;
    };
    let dead = name("dead");
    let traces = Traces::of(&dead);
    sigkill(test.lab.status().await.expect("status").supervisor);
    // A zombie's last threads may still hold the lock; `up` ignores a lab that is ending.
    eventually("the end of the supervisor", || released(&dead)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("alive"), folder.path());
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect("up");
    traces.are_gone().await;
    lab.down().await.expect("down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_cannot_start_says_why_and_leaves_nothing() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let good = config(&name("broken"), folder.path());

    for nodes in [0, 10] {
        let mut config = good.clone();
        config.nodes = nodes;
        let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
            .await
            .expect_err("none, or too many")
            .to_string();
        let expected = format!("a lab of {nodes} nodes can't be made; expected 1 to 9: all nodes share");
        assert!(error.starts_with(&expected), "{error}");
    }

    let mut config = good.clone();
    config.agent.argv = vec!["/nonexistent/agent".to_owned()];
    let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect_err("no agent")
        .to_string();
    assert!(
        error.contains("/nonexistent/agent") && error.contains("cargo build"),
        "{error}"
    );

    // The file exists, but is no program: the supervisor notices, and undoes what it has made.
    let mut config = good.clone();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").expect("write");
    config.agent.argv = vec![text.to_string_lossy().into_owned()];
    let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect_err("no program")
        .to_string();
    assert!(
        error.contains("start the agent") && error.contains("Permission denied"),
        "{error}"
    );
    assert!(!cgroup(&good.name).exists());
    assert!(!Path::new("/run/plumbline").join(&good.name).exists());
}

#[test]
fn the_program_says_what_is_wrong_in_a_line() {
    if !privileged() {
        return;
    }
    let plumbline = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(arguments)
            .output()
            .expect("start");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let missing = name("missing");
    let (code, said) = plumbline(&["lab", "status", "--name", &missing]);
    assert_ne!(code, Some(0));
    assert!(
        said.contains(&format!("make one: plumbline lab up --name {missing}")),
        "{said}"
    );
    let (code, said) = plumbline(&["lab", "up", "--name", "Not a name"]);
    assert_ne!(code, Some(0));
    assert!(said.contains("can't be a lab's name"), "{said}");
    let (code, _) = plumbline(&["lab", "down", "--name", &missing]);
    assert_eq!(code, Some(0), "there is nothing to take down, and that is fine");
}
