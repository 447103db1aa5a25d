//! Processes on nodes of a cluster of which only the kubeconfig is known.

use cluster::Place;
use existing::Guard;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::PostParams,
    runtime::wait::{await_condition, conditions::is_pod_running},
};
use tokio_util::sync::CancellationToken;

use super::{
    LIMIT,
    existing::{NAMESPACE, fed, lab, options, survey},
    privileged,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_on_a_host_is_the_nodes_and_no_pod_without_its_rights_gets_there() {
    if !privileged() {
        return;
    }
    let lab = lab("existing-host").await;
    let mut cluster = survey(options(&lab, "run-1-host")).await.unwrap();
    let guard = Guard::take(&cluster, "somebody", &CancellationToken::new())
        .await
        .unwrap();
    cluster.look_at_hosts().await.unwrap();
    assert_eq!(
        cluster.cluster().nodes().unwrap().cgroup_root(),
        lab.cluster().nodes().unwrap().cgroup_root()
    );
    let host = Place::Host {
        node: "node2".to_owned(),
    };
    // Namespaces, cgroup, and the folder of helpers' notes.
    let look =
        "readlink /proc/self/ns/net /proc/self/ns/mnt; cat /proc/self/cgroup; echo $PLUMBLINE_NODE_FOLDER";
    let look = ["sh", "-c", look].map(str::to_owned);
    let said = async |child: tokio::process::Child| {
        let output = fed(child, b"").await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let by_pod = said(cluster.cluster().exec(&host, &look).await.unwrap()).await;
    let by_lab = said(lab.cluster().exec(&host, &look).await.unwrap()).await;
    assert_eq!(by_pod, by_lab);
    let own = ["plumbline", "node", "host"].map(str::to_owned);
    let by_pod = said(cluster.cluster().exec(&host, &own).await.unwrap()).await;
    assert!(by_pod.contains("cgroup"), "{by_pod}");
    let absent = ["no-such-program".to_owned()];
    let output = fed(cluster.cluster().exec(&host, &absent).await.unwrap(), b"").await;
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && why.contains("no-such-program"),
        "{why}"
    );

    let pods: Api<Pod> = Api::namespaced(lab.cluster().client(), NAMESPACE);
    let pod = serde_json::json!({
        "metadata": {"name": "other"},
        "spec": {"nodeName": "node1", "terminationGracePeriodSeconds": 0, "containers": [{
            "name": "other", "image": "probe", "args": ["serve", "--name", "other", "--tcp", "0"],
        }]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let runs = await_condition(pods.clone(), "other", is_pod_running());
    tokio::time::timeout(LIMIT, runs).await.unwrap().unwrap();
    let other = Place::Pod {
        namespace: NAMESPACE.to_owned(),
        name: "other".to_owned(),
    };
    let enter = ["plumbline", "on-node", "--", "true"].map(str::to_owned);
    let output = fed(cluster.cluster().exec(&other, &enter).await.unwrap(), b"").await;
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && why.contains("expected a privileged pod that runs as root"),
        "{why}"
    );
    guard.release().await.unwrap();
    lab.down().await.unwrap();
}
