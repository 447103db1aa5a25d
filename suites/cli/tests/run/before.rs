//! Decisions before a run: cases whose needs a cluster does not meet are skipped, with the reason, and no process of
//! theirs is started.

use std::{path::Path, time::Duration};

use cluster::{ApiFault, ApiServer, Capability, Clients, Fault, Refusal, users};
use harness::{cleanup::Made, lb_addresses, limits::Limits};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::LabCluster;
use serde_json::{Value, json};
use testing::patience::TIMES;

use super::{
    existing::{namespaces, options, run, survey},
    privileged,
    support::{Run, lab_up, report},
};

/// One case for each thing that is checked on a node.
const ON_NODES: [&str; 7] = [
    "stale-sock-legacy-multi",
    "stale-sock-reverse-hooks",
    "stale-sock-dying-cgroup",
    "stale-map-pin",
    "stale-map-name-collision",
    "stale-restart-loop-no-growth",
    "uninstall-leaves-nothing",
];

/// The only case of the run's report, which was skipped.
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

/// Removes the endpoints of `default/kubernetes`, for as long as the value lives.
async fn without_api_servers(lab: &LabCluster) -> cluster::FaultLease {
    let alone = lab
        .cluster()
        .control_plane()
        .unwrap()
        .begin(&ApiFault::Unreconciled, Duration::from_secs(600))
        .await
        .unwrap();
    let slices: Api<EndpointSlice> = Api::namespaced(lab.cluster().client(), "default");
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
    assert!(
        cluster
            .cluster()
            .describe()
            .capabilities
            .contains(&Capability::ApiServers)
    );
    let seen = cluster
        .cluster()
        .control_plane()
        .unwrap()
        .servers()
        .await
        .unwrap();
    assert_eq!(
        addresses(&seen),
        addresses(&lab.cluster().control_plane().unwrap().servers().await.unwrap())
    );

    let alone = without_api_servers(&lab).await;
    let error = cluster
        .cluster()
        .control_plane()
        .unwrap()
        .servers()
        .await
        .unwrap_err()
        .to_string();
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

#[test]
fn what_an_agent_does_not_have_on_its_node_is_not_supported_and_nothing_begins() {
    if !privileged() {
        return;
    }
    let filter = format!("^({})$", ON_NODES.join("|"));
    let run = Run::with_options(ON_NODES[0], tempfile::tempdir().unwrap(), &["--filter", &filter]);
    let (status, folder) = run.end_of_all();
    let out = folder.path().join("out");
    assert_eq!(status.code(), Some(0));
    let report = report(&out);
    for id in ON_NODES {
        let cases = report["cases"].as_array().unwrap();
        let case = cases.iter().find(|case| case["id"] == id).unwrap();
        assert_eq!(case["verdict"], "not-supported", "{case}");
        assert_eq!(case["axes"], json!([]), "{case}");
    }
    assert!(!out.join("evidence").exists(), "no process was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_gives_load_balancers_addresses_what_needs_them_is_skipped() {
    if !privileged() {
        return;
    }
    let lab = lab_up(&format!("before-addresses-{}", std::process::id())).await;
    let limits = Limits::default().scaled(f64::from(TIMES));
    let cluster = survey(options(&lab, "run-1-addresses")).await.unwrap();
    let lacking = lb_addresses::lacking(&cluster.cluster(), "run-1-addresses", &limits).await;
    assert_eq!(lacking.unwrap(), None);
    // The controllers delete it in the background, and their requests are refused next.
    let made = Made {
        run: "run-1-addresses",
        case: None,
        confined: None,
    };
    made.cleanup(&lab.cluster().client(), limits.cleanup)
        .await
        .unwrap();
    let refused = ApiFault::Answers {
        server: None,
        clients: Clients::User(users::CONTROLLERS.to_owned()),
        fault: Fault::Refuse {
            refusal: Refusal::TooManyRequests,
            retry_after: None,
        },
    };
    let nobody = lab
        .cluster()
        .control_plane()
        .unwrap()
        .begin(&refused, Duration::from_secs(600))
        .await
        .unwrap();
    let out = tempfile::tempdir().unwrap();
    let which = ["--features", "loadbalancer", "--filter", "reply-from-frontend-lb"];
    let output = run(lab.kubeconfig(), out.path(), &which).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let case = skipped(out.path());
    let why = case["why"].as_str().unwrap();
    let expected = "needs addresses of load balancers, which existing does not have: no Service of type \
                    LoadBalancer got an address of IPv4 within ";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!(namespaces(&lab).await, Vec::<String>::new());

    nobody.end().await.unwrap();
    lab.down().await.unwrap();
}
