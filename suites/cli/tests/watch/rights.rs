//! The permissions that `plumbline rbac` prints, with an API server that grants nothing else.

use std::{
    net::IpAddr,
    process::Command,
    time::{Duration, Instant},
};

use cluster::RUN_LABEL;
use existing::{
    Agents, Connection, Guard, KubernetesCluster, KubernetesError, Options, Own, PodOptions, Tested, Tier,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod, Secret},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    borrowed,
    kubernetes::{ControlPlane, LEAST, client},
};

pub(super) use testing::patience::LIMIT;

pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The only node.
pub(super) const NODE: &str = "n1";
/// The Secret with which nodes pull images.
pub(super) const SECRET: &str = "registry";
/// A namespace that no run makes.
pub(super) const TEAM: &str = "team";

pub(super) fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// The role that is printed for a tier.
fn printed(tier: Tier) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["rbac", "--tier", tier.name(), "--namespace", TEAM])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Creates the role for the user of the test, as an administrator does.
async fn grant(admin: &Client, role: &Value) {
    let params = PostParams::default();
    let kind = role["kind"].as_str().unwrap();
    let name = role["metadata"]["name"].clone();
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "User", "name": LEAST, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    if kind == "Role" {
        let namespace = role["metadata"]["namespace"].as_str().unwrap();
        let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
        roles.create(&params, &typed(role.clone())).await.unwrap();
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), namespace);
        bindings.create(&params, &typed(binding)).await.unwrap();
    } else {
        let roles: Api<ClusterRole> = Api::all(admin.clone());
        roles.create(&params, &typed(role.clone())).await.unwrap();
        let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
        bindings.create(&params, &typed(binding)).await.unwrap();
    }
}

/// Creates a node and a namespace, as the administrator.
pub(super) async fn furnish(admin: &Client) {
    let params = PostParams::default();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let team = typed(json!({"metadata": {"name": TEAM}}));
    namespaces.create(&params, &team).await.unwrap();
    let nodes: Api<Node> = Api::all(admin.clone());
    let node = typed(json!({"metadata": {"name": NODE}}));
    nodes.create(&params, &node).await.unwrap();
    let ready = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
    }});
    nodes
        .patch_status(NODE, &PatchParams::default(), &Patch::Merge(ready))
        .await
        .unwrap();
}

/// Acts as scheduler, kubelet and namespace controller: one pod of those without a node gets the only node, its pods
/// become Ready, and deleted namespaces end.
pub(super) async fn others(admin: Client) {
    let pods: Api<Pod> = Api::all(admin.clone());
    loop {
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let (name, params) = (pod.name_any(), PatchParams::default());
            let of: Api<Pod> = Api::namespaced(admin.clone(), &pod.namespace().unwrap());
            let is_placed = pod.spec.is_some_and(|spec| spec.node_name.is_some());
            let status = if is_placed {
                json!({"phase": "Running", "hostIPs": [{"ip": "10.0.0.1"}], "hostIP": "10.0.0.1",
                       "conditions": [{"type": "Ready", "status": "True"}]})
            } else if name.ends_with("-0") {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": NODE},
                });
                let create = PostParams::default();
                let _: Result<Value, _> = of.create_subresource("binding", &name, &create, &binding).await;
                continue;
            } else {
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                       "message": "0/1 nodes are available"}]})
            };
            // It may be deleted meanwhile.
            let _ = of
                .patch_status(&name, &params, &Patch::Merge(json!({ "status": status })))
                .await;
        }
        end(&admin).await;
        copy_secrets(&admin).await;
        tokio::time::sleep(LOOK).await;
    }
}

/// Acts as a policy that copies the Secret with which nodes pull images.
pub(super) async fn copy_secrets(admin: &Client) {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let of_runs = ListParams::default().labels(RUN_LABEL);
    let others = [TEAM.to_owned()];
    let own = namespaces.list(&of_runs).await.unwrap();
    for namespace in own.iter().map(kube::ResourceExt::name_any).chain(others) {
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), &namespace);
        let secret = typed(json!({"metadata": {"name": SECRET}}));
        // The Secret may exist, or its namespace may be deleted.
        let _: Result<Secret, _> = secrets.create(&PostParams::default(), &secret).await;
    }
}

/// Ends deleted namespaces.
pub(super) async fn end(admin: &Client) {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for mut namespace in namespaces.list(&ListParams::default()).await.unwrap() {
        if namespace.metadata.deletion_timestamp.is_some() {
            let name = namespace.name_any();
            // Their contents are deleted with them; other processes look only for Leases.
            let leases: Api<Lease> = Api::namespaced(admin.clone(), &name);
            let all = ListParams::default();
            let _ = leases.delete_collection(&DeleteParams::default(), &all).await;
            namespace.spec = None;
            let _: Result<Namespace, _> = namespaces
                .replace_subresource("finalize", &name, &PostParams::default(), &namespace)
                .await;
        }
    }
}

/// Surveys the cluster until the result is the expected one: an API server applies roles slightly later than they are
/// written.
async fn survey_until(
    options: &Options,
    expected: impl Fn(&Result<KubernetesCluster, KubernetesError>) -> bool,
) -> Result<KubernetesCluster, KubernetesError> {
    let began = Instant::now();
    loop {
        let found = KubernetesCluster::survey(options.clone(), Own::default()).await;
        if expected(&found) {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "{found:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Number of permissions in a role that a run requires, each of which is reported if missing. ConfigMaps are only read
/// for reports, and are optional.
fn rights(role: &Value) -> usize {
    let count = |rule: &Value| {
        let resources = rule["resources"].as_array().unwrap();
        let needed = resources.iter().filter(|&resource| resource != "configmaps");
        rule["verbs"].as_array().unwrap().len() * needed.count()
    };
    role["rules"].as_array().unwrap().iter().map(count).sum()
}

fn lacks(found: &Result<KubernetesCluster, KubernetesError>, of: usize) -> bool {
    matches!(found, Err(KubernetesError::Rights { missing, .. }) if missing.len() == of)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_roles_are_enough_and_what_lacks_of_them_is_named() {
    let Some(mut control_plane) = ControlPlane::start_or_skip() else {
        return;
    };
    control_plane.up().await;
    let admin = client(&control_plane.kubeconfig()).await;
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), control_plane.kubeconfig_of(LEAST)).unwrap();
    let options = |tier: Tier, namespace: &str| Options {
        provider: "existing".to_owned(),
        tested: Tested::default(),
        connection: Connection {
            kubeconfig: Some(kubeconfig.path().to_owned()),
            context: None,
        },
        tier,
        image: "probe".to_owned(),
        program: "plumbline".to_owned(),
        namespace: namespace.to_owned(),
        run: "run-1-rights".to_owned(),
        plumbline: "plumbline".into(),
        pods: PodOptions::default(),
    };
    furnish(&admin).await;
    let others = tokio::spawn(others(admin.clone()));
    one_namespace(&admin, &options(Tier::Namespaced, TEAM)).await;
    own_namespaces(&admin, &options(Tier::Node, "plumbline-run")).await;
    others.abort();
}

/// Applies the strictest of the Pod Security Standards to the namespace, or none.
async fn pods_are_restricted(admin: &Client, standard: Option<&str>) {
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": standard}}});
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    namespaces
        .patch(TEAM, &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
}

/// With permissions in one namespace only, nodes are found by pods, and the namespace stays, empty.
async fn one_namespace(admin: &Client, options: &Options) {
    let role = printed(options.tier);
    pods_are_restricted(admin, Some("restricted")).await;
    let any = typed(json!({
        "metadata": {"name": "any"}, "spec": {"containers": [{"name": "any", "image": "any"}]},
    }));
    let pods: Api<Pod> = Api::namespaced(admin.clone(), TEAM);
    let refused = pods.create(&PostParams::default(), &any).await.unwrap_err();
    assert!(refused.to_string().contains("violates PodSecurity"), "{refused}");
    drop(survey_until(options, |found| lacks(found, rights(&role))).await);
    grant(admin, &role).await;
    let mut cluster = survey_until(options, Result::is_ok).await.unwrap();
    let guard = Guard::take(&cluster, "somebody", &CancellationToken::new())
        .await
        .unwrap();
    let leases: Api<Lease> = Api::namespaced(admin.clone(), TEAM);
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 1);
    cluster.find_nodes().await.unwrap();
    let nodes = &cluster.about().description.nodes;
    assert_eq!(
        (nodes.len(), nodes[0].name.as_str()),
        (1, NODE),
        "no other takes a pod"
    );
    assert_eq!(nodes[0].addresses, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    guard.release().await.unwrap();
    let pods: Api<Pod> = Api::all(admin.clone());
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(leases.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let team = namespaces.get(TEAM).await.unwrap();
    assert_eq!(team.metadata.deletion_timestamp, None);
    pods_are_restricted(admin, None).await;
}

/// The agents of a target are found by its labels, or named as missing; each start of one is recorded.
async fn agents_are_seen(admin: &Client, options: &Options) {
    let mut options = options.clone();
    options.tested.agents = Some(Agents {
        agent: typed(json!({
            "namespace": TEAM, "daemon-set": "agent", "container": "agent", "labels": {"app": "agent"},
        })),
        dump: None,
        differences: None,
        clean: None,
        pod_network: false,
        pins: vec!["agent".to_owned()],
    });
    let error = KubernetesCluster::survey(options.clone(), Own::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the node n1 has no agent of the target: expected a pod app=agent in the namespace team with a container agent; \
         choose the --target that is installed, or none"
    );
    let pods: Api<Pod> = Api::namespaced(admin.clone(), TEAM);
    let pod = typed(json!({
        "metadata": {"name": "agent", "labels": {"app": "agent"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "agent", "image": "agent"}]},
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let runs = |restarts: i32| {
        let ended = json!({"terminated": {"exitCode": 137}});
        Patch::Merge(json!({"status": {"containerStatuses": [{
            "name": "agent", "image": "agent", "imageID": "", "ready": true, "restartCount": restarts,
            "containerID": "containerd://abc", "lastState": if restarts > 0 { ended } else { json!({}) },
        }]}}))
    };
    let params = PatchParams::default();
    pods.patch_status("agent", &params, &runs(0)).await.unwrap();
    let cluster = KubernetesCluster::survey(options, Own::default()).await.unwrap();
    for (restarts, starts, last_exit) in [(0, 1, None), (0, 1, None), (3, 4, Some("exit code 137"))] {
        pods.patch_status("agent", &params, &runs(restarts))
            .await
            .unwrap();
        let state = cluster.cluster().agents().unwrap().state(NODE).await.unwrap();
        assert_eq!(
            (state.starts, state.ready),
            (starts, Some(true)),
            "{restarts} restarts"
        );
        assert_eq!(state.last_exit.as_deref(), last_exit);
    }
}

/// The role of the whole cluster: without one of its permissions, the error names that permission.
async fn own_namespaces(admin: &Client, options: &Options) {
    let role = printed(options.tier);
    // A permission in one namespace is not enough for all of them.
    drop(survey_until(options, |found| lacks(found, rights(&role))).await);
    grant(admin, &role).await;
    let cluster = survey_until(options, Result::is_ok).await.unwrap();
    let guard = Guard::take(&cluster, "somebody", &CancellationToken::new())
        .await
        .unwrap();
    guard.release().await.unwrap();
    // Checks on nodes need real nodes, which this API server lacks.
    let mut seen = options.clone();
    seen.tier = Tier::Api;
    agents_are_seen(admin, &seen).await;
    borrowed::agents_are_stopped_and_given_back(admin, options).await;
    borrowed::agents_are_started_in_other_configurations(admin, &options.run).await;

    let mut less: ClusterRole = typed(role);
    for rule in less.rules.iter_mut().flatten() {
        if rule.resources.as_deref() == Some(&["services".to_owned()]) {
            rule.verbs.retain(|verb| verb != "delete");
        }
    }
    let patch = Patch::Merge(json!({ "rules": less.rules }));
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles
        .patch(&less.name_any(), &PatchParams::default(), &patch)
        .await
        .unwrap();
    let found = survey_until(options, |found| lacks(found, 1)).await.unwrap_err();
    assert_eq!(
        found.to_string(),
        "the account of the kubeconfig may not delete services; `plumbline rbac --tier node` prints what it needs"
    );
}
