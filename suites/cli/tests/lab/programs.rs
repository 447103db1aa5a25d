//! Kubernetes' own control plane in the lab.

use std::{
    env,
    path::PathBuf,
    time::{Duration, Instant},
};

use cluster::{ApiFault, Clients, Fault, Stop};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, api::PostParams};
use lab::{Advertise, AgentCommand, ControlPlane, LabCluster, Lifetime};
use oracle::history::{Outcome, Transport};
use serde_json::json;

use super::support::{LIMIT, TestLab, agent_is_ready, config, name, node, privileged};

/// Folder of etcd and the programs of a Kubernetes release.
const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// Longer than any fault in this test.
const LASTS: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_own_control_plane_runs_pods_that_a_service_reaches() {
    let Some(folder) = env::var_os(KUBERNETES).map(PathBuf::from) else {
        testing::skip(
            &testing::current(),
            "PLUMBLINE_KUBE_API does not say where Kubernetes' programs are",
        );
        return;
    };
    let kubectl = folder.join("kubectl").display().to_string();
    let up = TestLab::up_with("programs", |config| {
        let program = config.plumbline.with_file_name("reference-agent");
        config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
        config.control_plane = ControlPlane {
            servers: 2,
            advertise: Advertise::Shared,
            programs: Some(folder),
        };
    });
    let Some(test) = up.await else {
        return;
    };
    for node in ["node1", "node2"] {
        agent_is_ready(&test.lab, node).await;
    }
    let labels = json!({"app": "web"});
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "c", "image": "probe", "args": ["serve", "--name", "web", "--tcp", "8080"],
            }]}},
        },
    }))
    .expect("a Deployment");
    let deployments: Api<Deployment> = Api::namespaced(test.lab.cluster().client(), "default");
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .expect("created");
    let service = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    }))
    .expect("a Service");
    let services: Api<Service> = Api::namespaced(test.lab.cluster().client(), "default");
    let service = services
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    let address = service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .expect("a ClusterIP");
    answers(&test, &address).await;

    let slices: Api<EndpointSlice> = Api::namespaced(test.lab.cluster().client(), "default");
    let kubernetes = slices.get("kubernetes").await.expect("default/kubernetes");
    let shown: Vec<String> = kubernetes
        .endpoints
        .into_iter()
        .flatten()
        .flat_map(|endpoint| endpoint.addresses)
        .collect();
    assert_eq!(shown, ["172.30.0.9"], "both advertise the front");

    let expire = ApiFault::Answers {
        server: None,
        clients: Clients::All,
        fault: Fault::Expire,
    };
    let error = test
        .control_plane()
        .begin(&expire, LASTS)
        .await
        .expect_err("not ours");
    assert!(error.to_string().contains("can only be stopped"), "{error}");
    let down = ApiFault::Down {
        server: 1,
        how: Stop::Kill,
    };
    let held = test.control_plane().begin(&down, LASTS).await.expect("killed");
    let running: Vec<bool> = test
        .control_plane()
        .servers()
        .await
        .expect("servers")
        .iter()
        .map(|server| server.running)
        .collect();
    assert_eq!(running, [false, true]);
    test.lab
        .cluster()
        .client()
        .apiserver_version()
        .await
        .expect("the front passes over the one that is down");
    answers(&test, &address).await;
    held.end().await.expect("started again");
    // This server serves, too, not only the other one.
    let first = test.control_plane().servers().await.expect("servers").remove(0);
    assert!(first.running);
    let ask = format!("{kubectl} --server=https://{} get --raw=/readyz", first.address);
    assert_eq!(test.shell(&node("node1"), &ask).await, (Some(0), "ok".to_owned()));
    test.lab.down().await.expect("down");
}

async fn answers(test: &TestLab, address: &str) {
    for from in [node("node1"), node("node2")] {
        let deadline = Instant::now() + LIMIT;
        loop {
            let outcome = test.dial(&from, Transport::Tcp, address, 80).await;
            if matches!(&outcome, Outcome::Answered { answer, .. } if answer.identity.starts_with("web/")) {
                break;
            }
            assert!(Instant::now() < deadline, "{from:?}: {outcome:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_the_programs_is_named_with_what_it_lacks() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&name("no-programs"), folder.path());
    std::fs::write(folder.path().join("etcd"), "").expect("written");
    config.control_plane.programs = Some(folder.path().to_owned());
    let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect_err("it has no API server")
        .to_string();
    let expected = format!("there is no kube-apiserver in {}", folder.path().display());
    assert!(error.starts_with(&expected), "{error}");
}
