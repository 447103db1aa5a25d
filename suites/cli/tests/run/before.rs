//! What is decided before a run begins: cases whose needs a cluster does not meet are skipped, with the reason, and no process
//! of theirs is started.

use std::{path::Path, time::Duration};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::{
    cluster::{ApiFault, ApiServer, Capability, Cluster as _},
    embedded::LabCluster,
};
use serde_json::{Value, json};

use super::{
    existing::{options, run, survey},
    privileged,
    support::{lab_up, report},
};

/// The only case of the run's report, of which nothing was run.
fn skipped(out: &Path) -> Value {
    let report = report(out);
    let case = report["cases"][0].clone();
    assert_eq!(case["verdict"], "skipped", "{case}");
    assert!(
        !out.join("evidence").exists(),
        "no process of it was started: {case}"
    );
    case
}

fn addresses(all: &[ApiServer]) -> Vec<String> {
    let mut all: Vec<String> = all.iter().map(|one| one.address.to_string()).collect();
    all.sort();
    all
}

/// Nobody is behind `default/kubernetes`, for as long as the value lives.
async fn without_api_servers(lab: &LabCluster) -> lab::cluster::HeldApiFault {
    let alone = lab
        .api_fault(&ApiFault::Unreconciled, Duration::from_secs(600))
        .await
        .unwrap();
    let slices: Api<EndpointSlice> = Api::namespaced(lab.client(), "default");
    let emptied = Patch::Merge(json!({ "endpoints": [] }));
    let params = PatchParams::default();
    slices.patch("kubernetes", &params, &emptied).await.unwrap();
    alone
}

#[tokio::test(flavor = "multi_thread")]
async fn api_servers_are_read_from_default_kubernetes_and_what_needs_them_is_skipped_without() {
    if !privileged() {
        return;
    }
    let lab = lab_up(&format!("before-servers-{}", std::process::id())).await;
    let cluster = survey(options(&lab, "run-1-servers")).await.unwrap();
    assert!(cluster.describe().capabilities.contains(&Capability::ApiServers));
    let seen = cluster.api_servers().await.unwrap();
    assert_eq!(addresses(&seen), addresses(&lab.api_servers().await.unwrap()));

    let alone = without_api_servers(&lab).await;
    let error = cluster.api_servers().await.unwrap_err().to_string();
    assert!(error.contains("default/kubernetes list none"), "{error}");
    let out = tempfile::tempdir().unwrap();
    let output = run(
        lab.kubeconfig(),
        out.path(),
        &["--tier", "api", "--filter", "kubesvc-reachable"],
    )
    .await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(
        skipped(out.path())["why"],
        "needs API servers that can be seen, which existing does not have: the EndpointSlices of default/kubernetes list none"
    );
    drop(alone);
    lab.down().await.unwrap();
}
