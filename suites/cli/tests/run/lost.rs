//! A run that loses a cluster that is there: to another, or because its API server is away.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::{
    cluster::{Cluster as _, RUN_LABEL},
    embedded::LabCluster,
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    LIMIT,
    existing::{NAMESPACE, lab, namespaces, run},
    privileged,
    support::report,
};

/// A case that lasts longer than it takes to notice.
const LONG: &str = "release-prefix-object-deleted";

/// Waits until there is a namespace of the case, beside the run's own.
async fn until_the_case_begins(lab: &LabCluster) {
    let began = Instant::now();
    while namespaces(lab).await.len() < 2 {
        assert!(began.elapsed() < LIMIT, "the case does not begin");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A run of [`LONG`] that loses its cluster by what is done meanwhile: what it says, and why its case is inconclusive.
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
    let leases: Api<Lease> = Api::namespaced(lab.client(), NAMESPACE);
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

/// Carries connections on to an API server, as long as the way is open; closed, it is silent. Returns its port.
async fn way_to(server: SocketAddr, open: watch::Receiver<bool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let open = open.clone();
            tokio::spawn(async move {
                let Ok(to) = TcpStream::connect(server).await else {
                    return;
                };
                let ((from, back), (answers, to)) = (from.into_split(), to.into_split());
                tokio::join!(carry(from, to, open.clone()), carry(answers, back, open));
            });
        }
    });
    port
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if open.wait_for(|open| *open).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
    // Whoever is first to close it ends it.
    let _ = to.shutdown().await;
}

/// A command about what runs have left.
async fn repair(command: &'static str, kubeconfig: &Path) -> Output {
    let mut plumbline = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    plumbline.args([command, "--kubeconfig"]).arg(kubeconfig);
    tokio::task::spawn_blocking(move || plumbline.output().unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_api_server_goes_away_stops_says_so_and_what_it_has_left_is_removed_later() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-away").await;
    let text = std::fs::read_to_string(lab.kubeconfig()).unwrap();
    let server = text.split("https://").nth(1).unwrap();
    let server = server.split(['"', '\n']).next().unwrap();
    let (open, is_open) = watch::channel(true);
    let port = way_to(server.parse().unwrap(), is_open).await;
    let through = tempfile::NamedTempFile::new().unwrap();
    let way = format!("127.0.0.1:{port}");
    std::fs::write(through.path(), text.replace(server, &way)).unwrap();

    let gone = async {
        until_the_case_begins(&lab).await;
        open.send_replace(false);
    };
    let (said, why) = loses(through.path(), gone).await;
    assert!(why.contains("it could not be renewed for 30s"), "{why}");
    // It can't know any more whether agents are as they were, and nobody is told less than that.
    assert!(
        said.contains("`plumbline heal` with the kubeconfig does it"),
        "{said}"
    );
    assert!(namespaces(&lab).await.len() >= 2, "nobody could remove them");

    // The API server is there for others all the time.
    let healed = repair("heal", lab.kubeconfig()).await;
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
