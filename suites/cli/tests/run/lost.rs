//! A run that loses its cluster to another, or whose API server goes away.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use cluster::RUN_LABEL;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::LabCluster;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    CASE, LIMIT,
    existing::{NAMESPACE, command, lab, namespaces, run},
    privileged,
    support::{report, signal},
};

/// A case that lasts longer than the detection.
const LONG: &str = "release-prefix-object-deleted";
/// How long the API server is away: longer than the Lease is valid.
const AWAY: Duration = Duration::from_secs(60);

/// Waits for a namespace of the case, besides the run's own.
async fn until_the_case_begins(lab: &LabCluster) {
    let began = Instant::now();
    while namespaces(lab).await.len() < 2 {
        assert!(began.elapsed() < LIMIT, "the case does not begin");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A run of [`LONG`] that loses its cluster meanwhile: its output, and why its case is inconclusive.
async fn loses(kubeconfig: &Path, meanwhile: impl Future<Output = ()>) -> (String, String) {
    let out = tempfile::tempdir().unwrap();
    let filter = format!("^{LONG}$");
    let options = ["--tier", "node", "--filter", &filter];
    let (output, ()) = tokio::join!(run(kubeconfig, out.path(), &options), meanwhile);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let case = &report(out.path())["cases"][0];
    assert_eq!(case["verdict"], "inconclusive", "{case}");
    let why = case["why"].as_str().unwrap().to_owned();
    assert!(why.contains("lost the cluster: "), "{why}");
    (said, why)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_is_inconclusive_under_which_the_lease_was_lost_and_the_others_namespace_stays() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-lost").await;
    let leases: Api<Lease> = Api::namespaced(lab.cluster().client(), NAMESPACE);
    let taken = async {
        until_the_case_begins(&lab).await;
        let patch = Patch::Merge(json!({
            "metadata": {"labels": {RUN_LABEL: "run-2-two"}},
            "spec": {"holderIdentity": "run-2-two of another"},
        }));
        leases
            .patch(NAMESPACE, &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    let (_, why) = loses(lab.kubeconfig(), taken).await;
    assert!(why.contains("its holder is run-2-two of another now"), "{why}");
    let lease = leases.get(NAMESPACE).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()[RUN_LABEL], "run-2-two");
    lab.down().await.unwrap();
}

/// What happens to connections to an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// They are closed, and new ones are refused, as after the kill of a server.
    Cut,
}

/// Forwards connections to an API server according to `way`; returns a kubeconfig with the forwarding address.
async fn way_to(lab: &LabCluster, way: watch::Receiver<Way>) -> NamedTempFile {
    let text = std::fs::read_to_string(lab.kubeconfig()).unwrap();
    let server = text.split("https://").nth(1).unwrap();
    let server = server.split(['"', '\n']).next().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    let kubeconfig = NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), text.replace(server, &through)).unwrap();
    let server: SocketAddr = server.parse().unwrap();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let way = way.clone();
            tokio::spawn(async move {
                let mut cut = way.clone();
                if *cut.borrow() == Way::Cut {
                    return;
                }
                let Ok(to) = TcpStream::connect(server).await else {
                    return;
                };
                let ((from, back), (answers, to)) = (from.into_split(), to.into_split());
                let carried = async { tokio::join!(carry(from, to, way.clone()), carry(answers, back, way)) };
                tokio::select! {
                    _ = carried => {}
                    _ = cut.wait_for(|way| *way == Way::Cut) => {}
                }
            });
        }
    });
    kubeconfig
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut way: watch::Receiver<Way>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let is_open = way.wait_for(|way| *way == Way::Open).await.is_ok();
        if !is_open || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    // Whichever side closes first ends the connection.
    let _ = to.shutdown().await;
}

/// Runs `cleanup` or `heal`.
async fn repair(command: &'static str, kubeconfig: &Path) -> Output {
    let mut plumbline = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    plumbline.args([command, "--kubeconfig"]).arg(kubeconfig);
    tokio::task::spawn_blocking(move || plumbline.output().unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_survives_a_minute_without_its_api_server_and_all_cases_pass() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-survives").await;
    let (way, as_it_is) = watch::channel(Way::Open);
    let kubeconfig = way_to(&lab, as_it_is).await;
    let out = tempfile::tempdir().unwrap();
    let filter = format!("^({LONG}|{CASE}|release-port-scoped)$");
    let options = [
        "--tier", "node", "--filter", &filter, "--jobs", "1", "--tries", "3",
    ];
    let away = async {
        until_the_case_begins(&lab).await;
        way.send_replace(Way::Cut);
        tokio::time::sleep(AWAY).await;
        way.send_replace(Way::Open);
    };
    let (output, ()) = tokio::join!(run(kubeconfig.path(), out.path(), &options), away);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for words in [
        "waits for the API server, for up to 5 min",
        "the API server answers again after",
        "and the Lease is still this run's",
        "will be tried again",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let report = report(out.path());
    let cases = report["cases"].as_array().unwrap();
    for case in cases {
        assert_eq!(case["verdict"], "pass", "{case}");
    }
    let tries = |case: &Value| case["undecided"].as_array().map_or(0, Vec::len);
    let long = cases.iter().find(|case| case["id"] == LONG).unwrap();
    assert!(tries(long) >= 1, "it was under way, and each try is told: {long}");
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_ended_while_its_api_server_is_away_says_so_and_what_it_has_left_is_removed_later() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-away").await;
    let (way, as_it_is) = watch::channel(Way::Open);
    let kubeconfig = way_to(&lab, as_it_is).await;
    let out = tempfile::tempdir().unwrap();
    let mut child = command(kubeconfig.path(), out.path())
        .args(["--tier", "node", "--filter", &format!("^{LONG}$")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_the_case_begins(&lab).await;
    way.send_replace(Way::Cut);
    let pid = child.id();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let said = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        for line in stderr.lines() {
            let line = line.unwrap();
            if line.contains("waits for the API server") {
                signal(pid, Signal::SIGINT);
            }
            said = said + &line + "\n";
        }
        said
    });
    let said = said.await.unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    // The run can't know whether agents are as they were, and must report that.
    assert!(
        said.contains("`plumbline heal` with the kubeconfig does it"),
        "{said}"
    );
    assert!(namespaces(&lab).await.len() >= 2, "nobody could remove them");

    // The API server still answers other clients.
    let began = Instant::now();
    let healed = loop {
        let healed = repair("heal", lab.kubeconfig()).await;
        // The run holds the cluster until its Lease has expired.
        let is_held = String::from_utf8_lossy(&healed.stderr).contains("try again");
        if !is_held || began.elapsed() > LIMIT {
            break healed;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let said = String::from_utf8_lossy(&healed.stdout);
    assert!(
        healed.status.success() && said.contains("nothing is wrong"),
        "{healed:?}"
    );
    let cleaned = repair("cleanup", lab.kubeconfig()).await;
    let said = String::from_utf8_lossy(&cleaned.stdout);
    assert!(
        cleaned.status.success() && said.contains("is removed"),
        "{cleaned:?}"
    );
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());
    lab.down().await.unwrap();
}
