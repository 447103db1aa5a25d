//! Secrets with which nodes pull the image, missing where the run needs them.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use existing::{KubernetesError, LIMITS, Tier};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use tempfile::NamedTempFile;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    held::{NAMESPACE, namespaces, options, take},
    kubernetes::{ControlPlane, client},
    rights::{LOOK, SECRET, TEAM, copy_secrets, end, furnish},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_secret_that_is_not_there_is_named_before_a_pod_is_made_and_one_that_comes_is_waited_for() {
    let Some(mut plane) = ControlPlane::start_or_skip() else {
        return;
    };
    plane.up().await;
    let admin = client(&plane.kubeconfig()).await;
    let kubeconfig = NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), plane.kubeconfig()).unwrap();
    furnish(&admin).await;
    let ends = {
        let admin = admin.clone();
        tokio::spawn(async move {
            loop {
                end(&admin).await;
                sleep(LOOK).await;
            }
        })
    };
    let never = CancellationToken::new();
    let confined = || options(kubeconfig.path(), Tier::Namespaced, TEAM, "run-1-team");
    let began = Instant::now();
    let error = take(confined(), &never).await.unwrap_err();
    assert!(
        matches!(&error, KubernetesError::NoPullSecret { namespace, .. } if namespace == TEAM),
        "{error}"
    );
    assert!(began.elapsed() < LIMITS.pull_secrets, "nobody copies it there");

    let out = tempfile::tempdir().unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    run.args(["run", "--provider", "existing", "--image", "probe:1"])
        .args([
            "--image-pull-secret",
            SECRET,
            "--filter",
            "clusterip-from-pod",
            "--out",
        ])
        .arg(out.path())
        .env("KUBECONFIG", kubeconfig.path());
    let output = tokio::task::spawn_blocking(move || run.output().unwrap());
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = format!("there is no Secret {SECRET:?} in the namespace {NAMESPACE:?}");
    assert!(
        said.contains(&expected) && said.contains("label plumbline-run"),
        "{said}"
    );
    let pods: Api<Pod> = Api::all(admin.clone());
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items, []);
    assert_eq!(namespaces(&admin).await, [""; 0]);

    copy_secrets(&admin).await;
    let guard = take(confined(), &never).await.unwrap();
    guard.release().await.unwrap();
    let own = options(kubeconfig.path(), Tier::Api, NAMESPACE, "run-2-api");
    let later = async {
        // Its namespace exists by then.
        sleep(Duration::from_secs(2)).await;
        copy_secrets(&admin).await;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        while pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
            sleep(LOOK).await;
        }
    };
    let interrupted = CancellationToken::new();
    let begun = async {
        later.await;
        interrupted.cancel();
    };
    let (taken, ()) = tokio::join!(take(own, &interrupted), begun);
    let error = taken.unwrap_err();
    assert!(
        matches!(error, KubernetesError::Interrupted),
        "it went on to its pods: {error}"
    );
    ends.abort();
}
