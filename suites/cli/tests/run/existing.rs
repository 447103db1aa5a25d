//! `plumbline run --provider existing`, in a lab of which it only has the kubeconfig.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use cluster::{Capability, Place, RUN_LABEL};
use existing::{
    Connection, Guard, KubernetesCluster, KubernetesError, Options, Own, PodOptions, Tested, Tier,
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Pod, Service},
        discovery::v1::EndpointSlice,
    },
};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams},
    runtime::wait::{await_condition, conditions::is_pod_running},
};
use lab::LabCluster;
use tempfile::NamedTempFile;
use testing::patience::TIMES;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use super::{
    CASE, LIMIT, privileged,
    support::{lab_up, report, tells_what_ran},
};

pub(super) const NAMESPACE: &str = "plumbline-run";
/// A namespace that no run makes.
const GIVEN: &str = "default";
/// A case that makes namespaces.
const OWN_NAMESPACES: &str = "release-name-lattice";

pub(super) async fn lab(test: &str) -> LabCluster {
    lab_up(&format!("{test}-{}", std::process::id())).await
}

pub(super) fn options(lab: &LabCluster, run: &str) -> Options {
    Options {
        provider: "existing".to_owned(),
        tested: Tested::default(),
        connection: Connection {
            kubeconfig: Some(lab.kubeconfig().to_owned()),
            context: None,
        },
        tier: Tier::Node,
        image: "probe".to_owned(),
        program: "plumbline".to_owned(),
        namespace: NAMESPACE.to_owned(),
        run: run.to_owned(),
        plumbline: env!("CARGO_BIN_EXE_plumbline").into(),
        pods: PodOptions::default(),
    }
}

pub(super) async fn survey(options: Options) -> Result<KubernetesCluster, KubernetesError> {
    KubernetesCluster::survey(options, Own::default()).await
}

/// Runs the selected cases.
pub(super) async fn run(kubeconfig: &Path, out: &Path, which: &[&str]) -> Output {
    let mut command = command(kubeconfig, out);
    command.args(which);
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

/// The command that runs them.
pub(super) fn command(kubeconfig: &Path, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    command
        .args(["run", "-v", "--provider", "existing", "--image", "probe"])
        .args(["--image-program", "plumbline", "--profile", "lab"])
        .args(["--timeout-scale", &TIMES.to_string()])
        // The image from scratch has no folder for temporary files.
        .env("TMPDIR", "/no/such/folder")
        .args([OsStr::new("--kubeconfig"), kubeconfig.as_ref()])
        .args([OsStr::new("--out"), out.as_ref()]);
    command
}

/// Names of the namespaces of runs.
pub(super) async fn namespaces(lab: &LabCluster) -> Vec<String> {
    let api: Api<Namespace> = Api::all(lab.cluster().client());
    let of_runs = ListParams::default().labels(RUN_LABEL);
    let items = api.list(&of_runs).await.unwrap().items.into_iter();
    items.filter_map(|namespace| namespace.metadata.name).collect()
}

/// Number of objects of a kind with a run's label in the given namespace.
async fn in_given<K>(lab: &LabCluster) -> usize
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(lab.cluster().client(), GIVEN);
    let of_runs = ListParams::default().labels(RUN_LABEL);
    api.list(&of_runs).await.unwrap().items.len()
}

/// Makes pods that represent the agents of each node, and a target file that describes them.
async fn installed(lab: &LabCluster) -> NamedTempFile {
    let api: Api<Pod> = Api::namespaced(lab.cluster().client(), GIVEN);
    for node in &lab.cluster().describe().nodes {
        let name = format!("agent-{}", node.name);
        let pod = serde_json::json!({
            "metadata": {"name": name, "labels": {"app": "agent"}},
            "spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "agent", "image": "probe", "args": ["serve", "--name", "agent", "--tcp", "0"],
            }]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        api.create(&PostParams::default(), &pod).await.unwrap();
        let runs = await_condition(api.clone(), &name, is_pod_running());
        tokio::time::timeout(LIMIT, runs).await.unwrap().unwrap();
    }
    let target = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let text = format!(
        "cluster: {{agent: {{namespace: {GIVEN}, daemon-set: agent, container: agent, labels: {{app: agent}}}}, \
         dump: [cat, /proc/self/comm]}}"
    );
    std::fs::write(target.path(), text).unwrap();
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_passes_in_a_cluster_by_its_kubeconfig_and_nothing_is_left() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-passes").await;
    let (own, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = installed(&lab).await;
    let path = target.path().to_str().unwrap();
    // Agents of the lab belong to no DaemonSet: they can be read, not stopped.
    let by_node = ["--tier", "node", "--target", path, "--filter", CASE];
    let refused = run(lab.kubeconfig(), own.path(), &by_node).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no DaemonSet default/agent"), "{said}");
    let of_api = [
        "--tier",
        "api",
        "--target",
        path,
        "--filter",
        CASE,
        "--evidence",
        "all",
    ];
    let both = format!("^({CASE}|{OWN_NAMESPACES})$");
    let of_given = ["--tier", "namespaced", "--namespace", GIVEN, "--filter", &both];
    // A run in one namespace leaves other namespaces alone.
    let (of_api, of_given) = tokio::join!(
        run(lab.kubeconfig(), own.path(), &of_api),
        run(lab.kubeconfig(), given.path(), &of_given),
    );
    for (output, out, keeps_all) in [(of_api, &own, true), (of_given, &given, false)] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let report = report(out.path());
        let cases = report["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["id"] == CASE).unwrap();
        assert_eq!(case["verdict"], "pass", "{case}");
        assert_eq!(case["warnings"], serde_json::json!([]), "{case}");
        let replay = case["replay"].as_str().unwrap();
        assert_eq!(replay.contains(" --evidence all"), keeps_all, "{replay}");
    }
    tells_what_ran(&report(own.path()), &report(given.path()));
    let report = report(given.path());
    let cases = report["cases"].as_array().unwrap();
    let skipped = cases.iter().find(|case| case["id"] == OWN_NAMESPACES).unwrap();
    let why = "needs namespaces of its own, and may use none but default";
    assert_eq!(
        (&skipped["verdict"], &skipped["why"]),
        (&"skipped".into(), &why.into()),
        "{skipped}"
    );
    let evidence = own.path().join("evidence").join(CASE).join("cluster");
    let kept = |file: &str| std::fs::read_to_string(evidence.join(file)).unwrap();
    assert_eq!(kept("agent-node1.dump"), "cat\n");
    // No client has connected to it, so its log is empty.
    assert_eq!(kept("agent-node2.log"), "");
    // A passed case keeps only its events, unless full evidence was requested.
    let entries = std::fs::read_dir(given.path().join("evidence").join(CASE)).unwrap();
    let names: BTreeSet<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.contains(OsStr::new("history.jsonl.gz")), "{names:?}");
    for left_out in ["attempts.jsonl.gz", "cluster", "logs", "objects"] {
        assert!(!names.contains(OsStr::new(left_out)), "{names:?}");
        assert!(evidence.with_file_name(left_out).exists(), "{left_out}");
    }
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());
    let left = (in_given::<Pod>(&lab).await, in_given::<Service>(&lab).await);
    let also = (
        in_given::<EndpointSlice>(&lab).await,
        in_given::<Lease>(&lab).await,
    );
    assert_eq!((left, also), ((0, 0), (0, 0)));
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_under_test_is_nobody_elses_and_is_let_go_whole() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-held").await;
    let cluster = survey(options(&lab, "run-1-one")).await.unwrap();
    let assembled = cluster.cluster();
    let can = &assembled.describe().capabilities;
    assert!(
        can.contains(&Capability::Ipv4) && can.contains(&Capability::HostNetwork),
        "{can:?}"
    );
    assert!(
        !can.contains(&Capability::Node) && !can.contains(&Capability::Outside),
        "{can:?}"
    );
    assert_eq!(cluster.cluster().describe().nodes, lab.cluster().describe().nodes);
    let guard = Guard::take(&cluster, "somebody on a host", &CancellationToken::new())
        .await
        .unwrap();

    let out = tempfile::tempdir().unwrap();
    let output = run(
        lab.kubeconfig(),
        out.path(),
        &["--tier", "node", "--filter", CASE],
    )
    .await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("under test by run-1-one of somebody on a host, since 2"),
        "{said}"
    );
    assert_eq!(
        namespaces(&lab).await,
        [NAMESPACE],
        "the other's stays, and nothing is made"
    );

    let cleaned = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["cleanup", "--kubeconfig"])
        .arg(lab.kubeconfig())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&cleaned.stdout);
    assert!(cleaned.status.success() && said.contains("and stays"), "{said}");
    assert!(!guard.is_lost());
    guard.release().await.unwrap();
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_run_from_a_cluster_is_said_and_nothing_is_left() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-refused").await;
    let image = Options {
        image: "no-such-image:1".to_owned(),
        ..options(&lab, "run-1-image")
    };
    let error = Guard::take(
        &survey(image).await.unwrap(),
        "somebody",
        &CancellationToken::new(),
    )
    .await
    .unwrap_err();
    assert!(matches!(&error, KubernetesError::Image { .. }), "{error}");
    assert!(error.to_string().contains("no-such-image:1"), "{error}");
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());

    let foreign = Options {
        namespace: "default".to_owned(),
        ..options(&lab, "run-1-foreign")
    };
    let error = Guard::take(
        &survey(foreign).await.unwrap(),
        "somebody",
        &CancellationToken::new(),
    )
    .await
    .unwrap_err();
    assert!(matches!(&error, KubernetesError::Foreign { .. }), "{error}");

    let missing = Options {
        connection: Connection {
            kubeconfig: Some("/no/such/file".into()),
            context: None,
        },
        ..options(&lab, "run-1-missing")
    };
    let error = survey(missing).await.unwrap_err();
    assert!(matches!(&error, KubernetesError::Kubeconfig { .. }), "{error}");

    let gone = options(&lab, "run-1-gone");
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(lab.kubeconfig(), kubeconfig.path()).unwrap();
    lab.down().await.unwrap();
    let gone = Options {
        connection: Connection {
            kubeconfig: Some(kubeconfig.path().to_owned()),
            context: None,
        },
        ..gone
    };
    let error = survey(gone).await.unwrap_err();
    assert!(matches!(&error, KubernetesError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_a_pod_has_its_pipes_and_ends_with_whoever_started_it() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-exec").await;
    let cluster = survey(options(&lab, "run-1-exec")).await.unwrap();
    let guard = Guard::take(&cluster, "somebody", &CancellationToken::new())
        .await
        .unwrap();
    let place = Place::Host {
        node: "node1".to_owned(),
    };
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned);

    let child = cluster
        .cluster()
        .exec(&place, &shell("cat; echo err >&2; exit 7"))
        .await
        .unwrap();
    let output = fed(child, &vec![b'x'; 300_000]).await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 300_000));
    assert_eq!(output.stderr, b"err\n");

    let mut child = cluster
        .cluster()
        .exec(&place, &shell("echo $$; exec cat"))
        .await
        .unwrap();
    let stdin = child.stdin.take();
    let mut first = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut first).await.unwrap();
    let pid = first.trim().to_owned();
    assert!(Path::new("/proc").join(&pid).exists());
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    let deadline = Instant::now() + LIMIT;
    while Path::new("/proc").join(&pid).exists() {
        assert!(Instant::now() < deadline, "the program stays behind");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(stdin);

    let absent = Place::Pod {
        namespace: "default".to_owned(),
        name: "no-such-pod".to_owned(),
    };
    let mut child = cluster.cluster().exec(&absent, &shell("true")).await.unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .await
        .unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(255));
    assert!(said.contains("no-such-pod"), "{said}");
    guard.release().await.unwrap();
    lab.down().await.unwrap();
}

/// Writes to the child's stdin while its output is read, to its end.
pub(super) async fn fed(mut child: tokio::process::Child, bytes: &[u8]) -> Output {
    let mut stdin = child.stdin.take().unwrap();
    let feed = async move {
        stdin.write_all(bytes).await.unwrap();
        drop(stdin);
    };
    let ended = async { tokio::time::timeout(LIMIT, child.wait_with_output()).await };
    let ((), output) = tokio::join!(feed, ended);
    output.unwrap().unwrap()
}
