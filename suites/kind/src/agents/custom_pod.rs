//! Custom pods: the agent of a node in a variant, or with another API endpoint.
//!
//! A custom pod is made from the DaemonSet's template. For another endpoint, a ConfigMap replaces the agent's own:
//! the same configuration without the addresses of the API, and a kubeconfig with the case's server. Its address can
//! be a Service's, which no certificate contains, so the kubeconfig names the expected certificate
//! (`tls-server-name`).

use cluster::{ApiEndpoint, Variant, target::program::Program};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    KindError,
    error::api_error,
    manifests::{AGENT, CONFIGURATION, NAMESPACE},
};

/// App label of custom pods. It differs from the DaemonSet's, which would adopt them.
pub(super) const OTHER: &str = "plumbline-agent-variant";
/// The label of a pod's app.
const APP: &str = "app.kubernetes.io/name";
/// Key of the kubeconfig in the ConfigMap of a redirected agent.
const KUBECONFIG: &str = "kubeconfig";
/// The option of the agent's configuration that lists further addresses of the API.
const ADDRESSES: &str = "api-server";
/// A name that kubeadm writes into the certificate of every API server.
const CERTIFICATE: &str = "kubernetes";
/// Folder of a pod's ServiceAccount token.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Settings of an agent that differ from its DaemonSet.
#[derive(Debug)]
pub(super) struct AgentOverrides<'a> {
    pub(super) program: &'a Program,
    /// The DaemonSet with the template.
    pub(super) daemon_set: &'a str,
    pub(super) variant: Option<Variant>,
    pub(super) endpoint: Option<&'a ApiEndpoint>,
}

impl AgentOverrides<'_> {
    /// Whether there are none, so that the DaemonSet's own pod is enough.
    pub(super) fn is_none(&self) -> bool {
        self.variant.is_none() && self.endpoint.is_none()
    }

    /// Arguments after those of the template.
    fn arguments(&self, what: &str) -> Result<Vec<String>, KindError> {
        let mut arguments = match self.variant {
            None => Vec::new(),
            Some(variant) => {
                let known = self.program.variants.get(&variant).cloned();
                known.ok_or_else(|| unexpected(what, "its target has no such variant"))?
            }
        };
        if let Some(endpoint) = self.endpoint {
            arguments.extend(self.program.api.further(&endpoint.further));
        }
        Ok(arguments)
    }
}

/// Creates the pod on a node that the DaemonSet avoids.
pub(super) async fn make(
    client: &Client,
    node: &str,
    overrides: &AgentOverrides<'_>,
) -> Result<(), KindError> {
    let variant = overrides
        .variant
        .map_or_else(String::new, |variant| format!(" in its variant {variant}"));
    let endpoint = overrides.endpoint.map_or_else(String::new, |endpoint| {
        format!(", which uses the API at {}", endpoint.server)
    });
    let what = format!("start the agent of {node}{variant}{endpoint}");
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let set = sets.get(overrides.daemon_set).await.map_err(api_error(&what))?;
    let template = set.spec.map(|spec| spec.template).unwrap_or_default();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_of(node), "namespace": NAMESPACE,
            "labels": {APP: OTHER},
        },
        "spec": template.spec,
    });
    complete(
        &mut pod,
        node,
        &overrides.arguments(&what)?,
        overrides.endpoint.is_some(),
    )
    .map_err(|lacks| unexpected(&what, &format!("its template has no {lacks}")))?;
    let pod: Pod = typed(pod, &what)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let made = pods.create(&PostParams::default(), &pod).await;
    made.map(drop).map_err(api_error(what))
}

/// Completes a pod from the DaemonSet's template; the error names a missing part of the template.
fn complete(
    pod: &mut Value,
    node: &str,
    arguments: &[String],
    is_redirected: bool,
) -> Result<(), &'static str> {
    let spec = &mut pod["spec"];
    spec["nodeName"] = node.into();
    // The pod names its node: the scheduler would find none because of the affinity.
    spec["affinity"] = Value::Null;
    let mut more: Vec<Value> = arguments.iter().map(|argument| json!(argument)).collect();
    if is_redirected {
        let volumes = spec["volumes"].as_array_mut().ok_or("volumes")?;
        let is_its = |volume: &&mut Value| volume["configMap"]["name"] == AGENT;
        let volume = volumes.iter_mut().find(is_its);
        let volume = volume.ok_or("volume of the agent's ConfigMap")?;
        volume["configMap"]["name"] = map_of(node).into();
        let name = volume["name"].clone();
        let mounts = spec["containers"][0]["volumeMounts"].as_array();
        let mut mounts = mounts.ok_or("volumeMounts")?.iter();
        let mount = mounts.find(|mount| mount["name"] == name);
        let path = mount.and_then(|mount| mount["mountPath"].as_str());
        let path = path.ok_or("mount of the agent's ConfigMap")?;
        more.push(format!("--kubeconfig={path}/{KUBECONFIG}").into());
    }
    let all = spec["containers"][0]["args"].as_array_mut();
    all.ok_or("arguments")?.extend(more);
    Ok(())
}

/// Whether a pod is a custom pod.
pub(super) fn is_custom(pod: &Pod) -> bool {
    pod.labels().get(APP).is_some_and(|app| app == OTHER)
}

/// Removes the custom pod of a node; a missing pod is no error.
pub(super) async fn remove(client: &Client, node: &str) -> Result<(), KindError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let done = pods.delete(&pod_of(node), &DeleteParams::default()).await;
    gone(done, &format!("end the agent of {node}"))
}

/// Writes the ConfigMap of a redirected agent.
pub(super) async fn write_config_map(
    client: &Client,
    node: &str,
    endpoint: &ApiEndpoint,
) -> Result<(), KindError> {
    let what = format!("set the API endpoint of the agent of {node}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let own = maps.get(AGENT).await.map_err(api_error(&what))?;
    let own = own.data.and_then(|data| data.get(CONFIGURATION).cloned());
    let own = own.ok_or_else(|| unexpected(&what, &format!("its ConfigMap has no {CONFIGURATION}")))?;
    let configuration = without_addresses(&own).map_err(|why| unexpected(&what, &why))?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": map_of(node), "namespace": NAMESPACE,
            "labels": {APP: OTHER},
        },
        "data": {CONFIGURATION: configuration, KUBECONFIG: kubeconfig(endpoint)},
    });
    let map: ConfigMap = typed(map, &what)?;
    let params = PatchParams::apply(OTHER).force();
    let done = maps.patch(&map_of(node), &params, &Patch::Apply(&map)).await;
    done.map(drop).map_err(api_error(what))
}

/// Removes this ConfigMap; a missing one is no error.
pub(super) async fn remove_config_map(client: &Client, node: &str) -> Result<(), KindError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let done = maps.delete(&map_of(node), &DeleteParams::default()).await;
    gone(done, &format!("restore the API endpoint of the agent of {node}"))
}

/// An agent's configuration without the addresses of the API (JSON, which is also YAML).
fn without_addresses(configuration: &str) -> Result<String, String> {
    let parsed = serde_saphyr::from_str::<Map<String, Value>>(configuration);
    let mut options = parsed.map_err(|error| format!("{CONFIGURATION} is no mapping of options: {error}"))?;
    options.remove(ADDRESSES);
    Ok(format!("{:#}\n", Value::Object(options)))
}

/// The kubeconfig for a pod's ServiceAccount (JSON, which is also YAML).
fn kubeconfig(endpoint: &ApiEndpoint) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "led",
        "clusters": [{"name": "led", "cluster": {
            "server": format!("https://{}", endpoint.server),
            "certificate-authority": format!("{ACCOUNT}/ca.crt"),
            "tls-server-name": CERTIFICATE,
        }}],
        "users": [{"name": "led", "user": {"tokenFile": format!("{ACCOUNT}/token")}}],
        "contexts": [{"name": "led", "context": {"cluster": "led", "user": "led"}}],
    });
    format!("{config:#}\n")
}

fn pod_of(node: &str) -> String {
    format!("{OTHER}-{node}")
}

fn map_of(node: &str) -> String {
    format!("{AGENT}-led-{node}")
}

fn gone<T>(done: kube::Result<T>, what: &str) -> Result<(), KindError> {
    match done {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(drop).map_err(api_error(what)),
    }
}

fn typed<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, KindError> {
    serde_json::from_value(value).map_err(|error| unexpected(what, &error.to_string()))
}

fn unexpected(what: &str, why: &str) -> KindError {
    KindError::Unexpected {
        what: what.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        let shipped = include_str!("../../../../reference-agent/deploy/agent.yaml");
        let all: Vec<Value> = serde_saphyr::from_multiple(shipped).expect("YAML");
        let set = all.iter().find(|object| object["kind"] == "DaemonSet");
        json!({"spec": set.expect("a DaemonSet")["spec"]["template"]["spec"]})
    }

    #[test]
    fn a_redirected_agent_reads_the_configuration_and_the_kubeconfig_of_its_endpoint() {
        let mut pod = template();
        let further = ["--api-server=https://10.0.0.9:6443".to_owned()];
        complete(&mut pod, "node1", &further, true).expect("the agent's own template");
        let spec = &pod["spec"];
        assert_eq!(
            spec["containers"][0]["args"],
            json!([
                "run",
                "--config",
                "/etc/plumbline/agent.yaml",
                "--api-server=https://10.0.0.9:6443",
                "--kubeconfig=/etc/plumbline/kubeconfig",
            ])
        );
        assert_eq!(
            spec["volumes"][0]["configMap"]["name"],
            "plumbline-agent-led-node1"
        );
        assert_eq!(
            (&spec["nodeName"], &spec["affinity"]),
            (&json!("node1"), &Value::Null)
        );
    }

    #[test]
    fn a_variant_keeps_the_agents_own_endpoint() {
        let mut pod = template();
        complete(&mut pod, "node1", &["--socket-lb=off".to_owned()], false)
            .expect("the agent's own template");
        let spec = &pod["spec"];
        assert_eq!(spec["containers"][0]["args"][3], "--socket-lb=off");
        assert_eq!(spec["volumes"][0]["configMap"]["name"], AGENT);
        let lacks = complete(&mut json!({"spec": {"volumes": []}}), "node1", &[], true);
        assert_eq!(lacks, Err("volume of the agent's ConfigMap"));
    }

    #[test]
    fn a_redirected_agent_knows_no_address_but_those_of_its_endpoint() {
        let own = "# Why.\ncgroup: /c\napi-server:\n- https://172.18.0.3:6443\npod-network: true\n";
        let led = without_addresses(own).expect("a mapping");
        let read: Value = serde_saphyr::from_str(&led).expect("YAML");
        assert_eq!(read, json!({"cgroup": "/c", "pod-network": true}));
        assert!(without_addresses("- a\n").is_err_and(|why| why.contains("no mapping")));
        let endpoint = ApiEndpoint {
            server: "[fd00:10:96::1]:443".parse().expect("an address"),
            further: Vec::new(),
        };
        let read: Value = serde_saphyr::from_str(&kubeconfig(&endpoint)).expect("YAML");
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://[fd00:10:96::1]:443");
        assert_eq!(cluster["tls-server-name"], "kubernetes");
    }
}
