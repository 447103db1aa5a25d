//! ServiceAccounts of a run's pods, with Kubernetes' own API server, which requires them.

use std::time::Duration;

use existing::Tier;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    held::{NAMESPACE, namespaces, options, take},
    kubernetes::{ControlPlane, client},
    rights::{NODE, furnish, others, typed},
};

/// Delay of the controller: longer than a run that does not wait takes.
const LATE: Duration = Duration::from_secs(2);

/// The controller that makes a namespace's account.
async fn accounts(admin: Client) {
    let all: Api<Namespace> = Api::all(admin.clone());
    loop {
        let seen = all.list(&ListParams::default()).await.unwrap();
        sleep(LATE).await;
        for namespace in seen {
            let of: Api<ServiceAccount> = Api::namespaced(admin.clone(), &namespace.name_any());
            let account = typed(json!({"metadata": {"name": "default"}}));
            // The account may exist, or its namespace may be deleted.
            let _: Result<ServiceAccount, _> = of.create(&PostParams::default(), &account).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_run_wait_for_the_account_of_their_namespace_and_have_no_token_of_it() {
    let Some(mut plane) = ControlPlane::with_accounts_or_skip() else {
        return;
    };
    plane.up().await;
    let admin = client(&plane.kubeconfig()).await;
    let kubeconfig = NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), plane.kubeconfig()).unwrap();
    furnish(&admin).await;
    let all = [
        tokio::spawn(others(admin.clone())),
        tokio::spawn(accounts(admin.clone())),
    ];
    for (tier, run) in [(Tier::Api, "run-1-api"), (Tier::Node, "run-2-node")] {
        let options = options(kubeconfig.path(), tier, NAMESPACE, run);
        let guard = take(options, &CancellationToken::new()).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        let spec = pods.get(&format!("host-{NODE}")).await.unwrap().spec.unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some("default"));
        assert_eq!(spec.automount_service_account_token, Some(false));
        assert_eq!(spec.volumes.unwrap_or_default(), [], "no token");
        // Only the namespace's own account exists, and is deleted with it.
        let of: Api<ServiceAccount> = Api::all(admin.clone());
        let labelled = ListParams::default().labels(cluster::RUN_LABEL);
        assert_eq!(of.list(&labelled).await.unwrap().items, []);
        guard.release().await.unwrap();
        assert_eq!(namespaces(&admin).await, [""; 0]);
    }
    for one in all {
        one.abort();
    }
}
