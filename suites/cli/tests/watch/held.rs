//! A run's hold of a cluster with Kubernetes' own API server: begun and interrupted, seen by others, lost, left for
//! `heal`.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use cluster::RUN_LABEL;
use existing::{
    Connection, Guard, KubernetesCluster, KubernetesError, Options, Own, PodOptions, Tested, Tier,
    left_on_nodes,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    kubernetes::{ControlPlane, client},
    rights::{LIMIT, LOOK, NODE, SECRET, TEAM, copy_secrets, end, furnish, others, typed},
};

pub(super) const NAMESPACE: &str = "plumbline-run";
const SECOND: &str = "n2";

/// An API server, its administrator's client, and that client's kubeconfig.
async fn plane() -> Option<(ControlPlane, Client, NamedTempFile)> {
    let mut plane = ControlPlane::start_or_skip()?;
    plane.up().await;
    let admin = client(&plane.kubeconfig()).await;
    let kubeconfig = NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), plane.kubeconfig()).unwrap();
    furnish(&admin).await;
    Some((plane, admin, kubeconfig))
}

pub(super) fn options(kubeconfig: &Path, tier: Tier, namespace: &str, run: &str) -> Options {
    Options {
        provider: "existing".to_owned(),
        tested: Tested::default(),
        connection: Connection {
            kubeconfig: Some(kubeconfig.to_owned()),
            context: None,
        },
        tier,
        image: "probe".to_owned(),
        program: "plumbline".to_owned(),
        namespace: namespace.to_owned(),
        run: run.to_owned(),
        plumbline: "plumbline".into(),
        pods: PodOptions {
            pull_secrets: vec![SECRET.to_owned()],
            architectures: Vec::new(),
        },
    }
}

pub(super) async fn take(
    options: Options,
    interrupted: &CancellationToken,
) -> Result<Guard, KubernetesError> {
    let cluster = KubernetesCluster::survey(options, Own::default()).await.unwrap();
    Guard::take(&cluster, "somebody", interrupted).await
}

pub(super) async fn namespaces(admin: &Client) -> Vec<String> {
    let all: Api<Namespace> = Api::all(admin.clone());
    let of_runs = ListParams::default().labels(RUN_LABEL);
    let list = all.list(&of_runs).await.unwrap();
    list.items
        .into_iter()
        .filter_map(|one| one.metadata.name)
        .collect()
}

/// Only the namespace controller and a policy that copies Secrets: pods never run.
async fn ends(admin: Client) {
    loop {
        end(&admin).await;
        copy_secrets(&admin).await;
        sleep(LOOK).await;
    }
}

/// Waits for the run's pod on the only node.
async fn pod(admin: &Client, namespace: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    let began = Instant::now();
    loop {
        if let Some(pod) = pods.get_opt(&format!("host-{NODE}")).await.unwrap() {
            return pod;
        }
        assert!(began.elapsed() < LIMIT, "the run makes no pod");
        sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_interrupted_while_its_pods_come_leaves_nothing() {
    let Some((_plane, admin, kubeconfig)) = plane().await else {
        return;
    };
    let ends = tokio::spawn(ends(admin.clone()));
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args([
            "run",
            "--provider",
            "existing",
            "--image",
            "probe:1",
            "--image-pull-secret",
            "registry",
        ])
        .args(["--filter", "clusterip-from-pod", "--out"])
        .arg(out.path())
        .env("KUBECONFIG", kubeconfig.path())
        .env("TMPDIR", "/no/such/folder")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let spec = json!(pod(&admin, NAMESPACE).await.spec.unwrap());
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
    let container = &spec["containers"][0];
    assert_eq!(
        container["securityContext"]["capabilities"]["drop"],
        json!(["ALL"])
    );
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["runAsNonRoot"], true);
    assert!(container["resources"]["requests"].is_object(), "{spec}");

    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < LIMIT, "it does not end");
        sleep(LOOK).await;
    };
    assert_eq!(status.code(), Some(130));
    assert_eq!(namespaces(&admin).await, [""; 0]);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "in its folder");
    ends.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_in_other_namespaces_are_seen_and_a_lease_is_lost_to_another_holder_alone() {
    let Some((_plane, admin, kubeconfig)) = plane().await else {
        return;
    };
    let others = tokio::spawn(others(admin.clone()));
    let never = CancellationToken::new();
    let of = |tier, namespace, run| options(kubeconfig.path(), tier, namespace, run);
    let first = take(of(Tier::Api, NAMESPACE, "run-1-one"), &never).await.unwrap();
    for tier in [Tier::Api, Tier::Node] {
        let second = take(of(tier, "plumbline-other", "run-2-two"), &never).await;
        let said = second.unwrap_err().to_string();
        assert!(said.contains("run-1-one of somebody"), "{said}");
        assert!(said.contains("Lease plumbline-run/plumbline-run"), "{said}");
        assert_eq!(namespaces(&admin).await, [NAMESPACE]);
    }
    let third = take(of(Tier::Namespaced, TEAM, "run-3-three"), &never)
        .await
        .unwrap();

    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let params = PatchParams::default();
    let note = json!({"metadata": {"annotations": {"somebody": "was here"}}});
    leases
        .patch(NAMESPACE, &params, &Patch::Merge(note))
        .await
        .unwrap();
    let renewed = async || {
        leases
            .get(NAMESPACE)
            .await
            .unwrap()
            .spec
            .unwrap()
            .renew_time
            .unwrap()
    };
    let (before, began) = (renewed().await, Instant::now());
    while renewed().await == before {
        assert!(began.elapsed() < LIMIT && !first.is_lost());
        sleep(LOOK).await;
    }
    assert!(!first.is_lost(), "a write beside it is no loss");

    let taken = json!({
        "metadata": {"labels": {RUN_LABEL: "run-4-four"}},
        "spec": {"holderIdentity": "run-4-four of another"},
    });
    leases
        .patch(NAMESPACE, &params, &Patch::Merge(taken))
        .await
        .unwrap();
    tokio::time::timeout(LIMIT, first.lease().expires())
        .await
        .unwrap();
    let why = first.lease().lost();
    assert_eq!(why.as_deref(), Some("its holder is run-4-four of another now"));
    first.release().await.unwrap();
    assert_eq!(namespaces(&admin).await, [NAMESPACE], "it is the other's");
    assert!(leases.get_opt(NAMESPACE).await.unwrap().is_some());
    leases
        .delete(NAMESPACE, &kube::api::DeleteParams::default())
        .await
        .unwrap();

    // A run that stops agents disturbs runs with a single namespace, too.
    let fourth = take(of(Tier::Node, "plumbline-node", "run-5-five"), &never).await;
    let said = fourth.unwrap_err().to_string();
    assert!(said.contains("run-3-three of somebody"), "{said}");
    third.release().await.unwrap();
    others.abort();
}

/// A second node, Ready or not.
async fn second_node(admin: &Client, ready: &str) {
    let nodes: Api<Node> = Api::all(admin.clone());
    let node = typed(json!({"metadata": {"name": SECOND}}));
    // The node may exist.
    let _: Result<Node, _> = nodes.create(&PostParams::default(), &node).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"}],
    }});
    nodes
        .patch_status(SECOND, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_says_of_nodes_stays_until_all_of_them_are_healed() {
    let Some((_plane, admin, kubeconfig)) = plane().await else {
        return;
    };
    second_node(&admin, "True").await;
    let all = tokio::spawn(others(admin.clone()));
    let never = CancellationToken::new();
    let of = |run| options(kubeconfig.path(), Tier::Node, NAMESPACE, run);
    let killed = take(of("run-1-killed"), &never).await.unwrap();
    drop(killed);
    all.abort();
    let nodes = async || {
        left_on_nodes(&admin, NAMESPACE)
            .await
            .unwrap()
            .map(|left| left.nodes)
    };
    let both: BTreeSet<String> = [NODE, SECOND].map(str::to_owned).into();
    assert_eq!(nodes().await, Some(both.clone()));
    second_node(&admin, "False").await;

    // Interrupted before its pods run.
    let ending = tokio::spawn(ends(admin.clone()));
    old(&admin).await;
    let interrupted = CancellationToken::new();
    let begun = take(of("run-2-broken"), &interrupted);
    let is_marked = async {
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let began = Instant::now();
        loop {
            let labels = namespaces.get(NAMESPACE).await.unwrap().metadata.labels.unwrap();
            if labels[RUN_LABEL] == "run-2-broken" {
                break interrupted.cancel();
            }
            assert!(began.elapsed() < LIMIT * 2);
            sleep(LOOK).await;
        }
    };
    let (broken, ()) = tokio::join!(begun, is_marked);
    let error = broken.unwrap_err();
    assert!(matches!(error, KubernetesError::Interrupted), "{error}");
    assert_eq!(nodes().await, Some(both.clone()), "it is still to be done");
    ending.abort();

    let all = tokio::spawn(others(admin.clone()));
    old(&admin).await;
    let mut healing = take(of("run-3-heals"), &never).await.unwrap();
    assert!(healing.inherits());
    assert_eq!(healing.beyond(), &BTreeSet::from([SECOND.to_owned()]));
    healing.healed();
    assert!(healing.inherits(), "one node was not reached");
    healing.end().await.unwrap();
    assert_eq!(nodes().await, Some(both));
    all.abort();
}

/// Makes the Lease look long expired, with a holder that renews every second, so that waiting for its expiry is short.
async fn old(admin: &Client) {
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let old = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}});
    leases
        .patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(old))
        .await
        .unwrap();
}

/// A name that only the proxy can resolve.
const BEHIND: &str = "kube.invalid";

/// Forwards connections to the server behind it (CONNECT of RFC 9110); returns its port, and their number.
async fn proxy() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let taken = Arc::clone(&taken);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(from.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
                let target = target.replace(BEHIND, "127.0.0.1");
                let mut to = TcpStream::connect(target).await.unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
                from.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                // Whichever side closes first ends the connection.
                let _ = copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    (port, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_killed_runs_have_left_is_removed_by_the_kubeconfig_of_the_environment_behind_its_proxy() {
    let Some((plane, admin, kubeconfig)) = plane().await else {
        return;
    };
    let behind = plane.kubeconfig().replace("127.0.0.1", BEHIND);
    std::fs::write(kubeconfig.path(), behind).unwrap();
    let ending = tokio::spawn(ends(admin.clone()));
    let made: Namespace = typed(json!({
        "metadata": {"name": "left", "labels": {RUN_LABEL: "run-1-left", "app.kubernetes.io/managed-by": "plumbline"}},
    }));
    let all: Api<Namespace> = Api::all(admin.clone());
    all.create(&PostParams::default(), &made).await.unwrap();
    let (port, count) = proxy().await;
    let path = kubeconfig.path().to_owned();
    let run = move |command: &'static str| -> Output {
        Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args([command, "--provider", "existing"])
            .env("KUBECONFIG", &path)
            .env("HTTPS_PROXY", format!("http://127.0.0.1:{port}"))
            .env("NO_PROXY", "127.0.0.1,elsewhere.invalid")
            .env_remove("no_proxy")
            .output()
            .unwrap()
    };
    // NO_PROXY matches the server's name, not the proxy's.
    let (healed, cleaned) = tokio::task::spawn_blocking(move || (run("heal"), run("cleanup")))
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&healed.stdout).into_owned();
    assert_eq!(said, "nothing is wrong\n", "{healed:?}");
    let said = String::from_utf8_lossy(&cleaned.stdout).into_owned();
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(said, "what run-1-left had left is removed\n");
    assert_eq!(namespaces(&admin).await, [""; 0]);
    assert!(count.load(Ordering::Relaxed) >= 2);
    ending.abort();
}
