//! What is in `deploy/`: read once, by types of the API that refuse what they don't know.

use std::{collections::BTreeMap, fs, path::PathBuf};

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Container, PodSpec, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
    },
    serde::de::DeserializeOwned,
};
use serde_json::Value;

/// A file of the folder.
pub(crate) fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

/// Its text.
pub(crate) fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// The objects of agent.yaml.
pub(crate) struct Manifest {
    pub(crate) account: ServiceAccount,
    pub(crate) role: ClusterRole,
    pub(crate) binding: ClusterRoleBinding,
    pub(crate) config: ConfigMap,
    pub(crate) daemon_set: DaemonSet,
}

impl Manifest {
    pub(crate) fn read() -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text("agent.yaml")).expect("YAML");
        let mut by_kind: BTreeMap<String, Value> = BTreeMap::new();
        for object in objects {
            let kind = object["kind"].as_str().expect("a kind").to_owned();
            let before = by_kind.insert(kind, object);
            assert_eq!(before, None, "each kind once");
        }
        let manifest = Self {
            account: typed(&mut by_kind, "ServiceAccount"),
            role: typed(&mut by_kind, "ClusterRole"),
            binding: typed(&mut by_kind, "ClusterRoleBinding"),
            config: typed(&mut by_kind, "ConfigMap"),
            daemon_set: typed(&mut by_kind, "DaemonSet"),
        };
        assert_eq!(by_kind, BTreeMap::new(), "nothing else");
        manifest
    }

    pub(crate) fn rules(&self) -> &[PolicyRule] {
        self.role.rules.as_deref().expect("rules")
    }

    pub(crate) fn pod(&self) -> &PodSpec {
        let spec = self.daemon_set.spec.as_ref().expect("a spec");
        spec.template.spec.as_ref().expect("a pod")
    }

    pub(crate) fn container(&self) -> &Container {
        let [container] = self.pod().containers.as_slice() else {
            panic!("one container")
        };
        container
    }

    /// Names of the capabilities that are granted, as capabilities(7) has them.
    pub(crate) fn capabilities(&self) -> Vec<String> {
        let context = self.container().security_context.as_ref().expect("a context");
        let capabilities = context.capabilities.as_ref().expect("capabilities");
        assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        let added = capabilities.add.as_deref().expect("some are granted");
        added.iter().map(|name| format!("CAP_{name}")).collect()
    }
}

/// Every field must be one that the type has: what it gives back is what it took.
fn typed<T: DeserializeOwned + serde::Serialize>(objects: &mut BTreeMap<String, Value>, kind: &str) -> T {
    let object = objects
        .remove(kind)
        .unwrap_or_else(|| panic!("no {kind} in agent.yaml"));
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(
        serde_json::to_value(&typed).expect("JSON"),
        object,
        "fields of {kind}"
    );
    typed
}
