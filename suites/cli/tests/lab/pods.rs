//! The kubelet: readiness, restarts, deletion, pods that can't run.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use cluster::ClusterError;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::DeleteParams;
use oracle::history::{Outcome, Served, Transport};

use super::support::{LIMIT, TestLab, answered, cgroup, eventually, is_ready, name, node, pod};

fn container(pod: &Pod) -> ContainerStatus {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.clone());
    statuses
        .and_then(|statuses| statuses.into_iter().next())
        .unwrap_or_default()
}

fn waiting(pod: &Pod) -> Option<String> {
    container(pod).state?.waiting?.reason
}

async fn wait_until_gone(test: &TestLab, name: &str) {
    let deadline = Instant::now() + LIMIT;
    while test.pods().get_opt(name).await.expect("get").is_some() {
        assert!(Instant::now() < deadline, "{name} is still there");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_ready_answers_and_its_log_says_so() {
    let Some(test) = TestLab::up("ready").await else {
        return;
    };
    let address = test.server("b1", "node2", false).await;
    let outcome = test.dial(&node("node1"), Transport::Tcp, &address, 8080).await;
    assert_eq!(answered(&outcome), "b1/TCP/8080");
    let log = test.lab.cluster().log("default", "b1").await.expect("a log");
    let served: Vec<Served> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("served"))
        .collect();
    assert_eq!(served.len(), 1);
    assert_eq!(served[0].answer.identity, "b1/TCP/8080");
    match test.lab.cluster().log("default", "b2").await {
        Err(error) => assert_eq!(error, ClusterError::not_found("pod", "default/b2")),
        Ok(log) => panic!("expected that there is no such pod, found its log {log:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_ends_in_order_and_leaves_nothing_on_its_node() {
    let Some(test) = TestLab::up("delete").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let uid = test
        .pods()
        .get("b1")
        .await
        .expect("the pod")
        .metadata
        .uid
        .expect("a uid");
    let folder = cgroup(&name("delete")).join("node1/pods").join(&uid);
    assert!(folder.exists());
    // SIGTERM suffices: this grace period is longer than the test waits.
    let grace = DeleteParams::default().grace_period(2 * u32::try_from(LIMIT.as_secs()).expect("short"));
    test.pods().delete("b1", &grace).await.expect("delete");
    wait_until_gone(&test, "b1").await;
    assert!(!folder.exists(), "its cgroup is gone before its object is");
    let (_, links) = test.shell(&node("node1"), "ls /sys/class/net").await;
    assert_eq!(links, "eth0\nlo", "and so is its link");

    // The next pod with this name is another pod, with another address and an empty log.
    let address = test.server("b1", "node1", false).await;
    assert_eq!(address, "10.244.1.3");
    assert_eq!(test.lab.cluster().log("default", "b1").await.expect("a log"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_end_is_killed_when_its_grace_is_over() {
    let Some(test) = TestLab::up("grace").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    // A stopped probe can't handle SIGTERM.
    let folder = pod_cgroup(&test, "grace").await;
    std::fs::write(folder.join("cgroup.freeze"), "1").expect("freeze");
    let begin = Instant::now();
    test.pods()
        .delete("b1", &DeleteParams::default().grace_period(1))
        .await
        .expect("delete");
    wait_until_gone(&test, "b1").await;
    let took = begin.elapsed();
    assert!(
        took >= Duration::from_secs(1),
        "the grace was a second, it took {took:?}"
    );
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_serves_on_while_it_ends_is_not_ready_and_one_that_is_not_ready_serves() {
    let Some(test) = TestLab::up("linger").await else {
        return;
    };
    let args = ["serve", "--name", "b1", "--tcp", "8080", "--linger", "1000"];
    test.create(&pod("b1", "node1", false, &args)).await;
    let address = |pod: Pod| pod.status.and_then(|status| status.pod_ip).expect("an address");
    let ending = address(test.pod("b1", is_ready).await);
    let params = DeleteParams::default();
    test.pods().delete("b1", &params).await.expect("delete");
    test.pod("b1", |pod| {
        pod.metadata.deletion_timestamp.is_some() && !is_ready(pod)
    })
    .await;
    let outcome = test.dial(&node("node2"), Transport::Tcp, &ending, 8080).await;
    assert_eq!(answered(&outcome), "b1/TCP/8080");
    wait_until_gone(&test, "b1").await;

    let args = ["serve", "--name", "b2", "--tcp", "8080", "--not-ready"];
    test.create(&pod("b2", "node1", false, &args)).await;
    let running = test
        .pod("b2", |pod| {
            container(pod).state.is_some_and(|state| state.running.is_some())
        })
        .await;
    let unready = address(running);
    let deadline = Instant::now() + LIMIT;
    // It serves slightly later than it runs.
    while !matches!(
        test.dial(&node("node2"), Transport::Tcp, &unready, 8080).await,
        Outcome::Answered { .. }
    ) {
        assert!(Instant::now() < deadline, "it does not serve");
    }
    let still = test.pods().get("b2").await.expect("the pod");
    assert!(
        !is_ready(&still) && container(&still).restart_count == 0,
        "{still:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_without_grace_is_gone_at_once() {
    let Some(test) = TestLab::up("force").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let folder = pod_cgroup(&test, "force").await;
    test.pods()
        .delete("b1", &DeleteParams::default().grace_period(0))
        .await
        .expect("delete");
    wait_until_gone(&test, "b1").await;
    eventually("the end of what was on the node", || !folder.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_is_started_again_and_counted() {
    let Some(test) = TestLab::up("restart").await else {
        return;
    };
    let address = test.server("b1", "node1", false).await;
    let folder = pod_cgroup(&test, "restart").await;
    std::fs::write(folder.join("cgroup.kill"), "1").expect("kill");
    let again = test
        .pod("b1", |pod| container(pod).restart_count == 1 && is_ready(pod))
        .await;
    let last = container(&again)
        .last_state
        .and_then(|state| state.terminated)
        .expect("how it ended");
    assert_eq!((last.exit_code, last.signal), (137, Some(9)));
    let outcome = test.dial(&node("node2"), Transport::Tcp, &address, 8080).await;
    assert_eq!(answered(&outcome), "b1/TCP/8080", "at the same address");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_lab_cannot_run_says_why() {
    let Some(test) = TestLab::up("wrong").await else {
        return;
    };
    let mut other = pod("other", "node1", false, &[]);
    if let Some(spec) = &mut other.spec {
        spec.containers[0].image = Some("nginx:1".to_owned());
    }
    test.create(&other).await;
    let refused = test
        .pod("other", |pod| {
            waiting(pod).is_some_and(|reason| reason == "InvalidImageName")
        })
        .await;
    let message = container(&refused)
        .state
        .and_then(|state| state.waiting?.message)
        .unwrap_or_default();
    assert!(
        message.contains("expected it instead of \"nginx:1\""),
        "{message}"
    );

    test.create(&pod("crash", "node1", false, &["serve", "--name", "b"]))
        .await;
    let crashed = test
        .pod("crash", |pod| {
            waiting(pod).is_some_and(|reason| reason == "CrashLoopBackOff")
        })
        .await;
    let last = container(&crashed)
        .last_state
        .and_then(|state| state.terminated)
        .expect("how it ended");
    assert_eq!(last.exit_code, 2);
    assert!(
        last.message.unwrap_or_default().contains("required arguments"),
        "its own words"
    );
    assert!(!is_ready(&crashed));

    // Both are deleted like any pod.
    for name in ["other", "crash"] {
        test.pods()
            .delete(name, &DeleteParams::default())
            .await
            .expect("delete");
        wait_until_gone(&test, name).await;
    }
}

/// The cgroup of pod b1 on node1 of a test's lab.
async fn pod_cgroup(test: &TestLab, lab: &str) -> PathBuf {
    let pod = test.pods().get("b1").await.expect("the pod");
    cgroup(&name(lab))
        .join("node1/pods")
        .join(pod.metadata.uid.expect("a uid"))
}
