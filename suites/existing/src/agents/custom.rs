//! Custom pods: the agent of a node in a variant, or with another API endpoint.
//!
//! A custom pod is made from the DaemonSet's template, and has its variant in an annotation. For another endpoint, a
//! ConfigMap replaces the agents' own: the same configuration without the addresses of the API, and a kubeconfig with
//! the case's server. Its address can be a Service's, which no certificate contains, so the kubeconfig names the
//! expected certificate (`tls-server-name`). The ConfigMap has the endpoint in an annotation, so that other processes
//! find what a killed one has set.

use std::collections::BTreeMap;

use cluster::{
    ApiEndpoint, RUN_LABEL, Variant,
    target::{Agent, program::Api as ApiOptions},
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    KubernetesError, LIMITS,
    error::{api, if_any},
    labels::{CUSTOM, MANAGED_BY, MANAGER},
    limits::{ask, ask_again},
};

/// Name of custom pods and of their ConfigMaps, before the node's.
const NAME: &str = "plumbline-custom";
/// Ends the labels of custom pods, which are otherwise the agents': the DaemonSet would adopt pods with its own.
const SUFFIX: &str = "-custom";
/// Annotation of a custom pod: its variant, as JSON.
const VARIANT: &str = "plumbline-run/variant";
/// Annotation of a custom pod's ConfigMap: the API endpoint, as JSON.
const ENDPOINT: &str = "plumbline-run/api-endpoint";
/// Key of the kubeconfig in that ConfigMap.
const KUBECONFIG: &str = "kubeconfig";
/// A name that kubeadm writes into the certificate of every API server.
const CERTIFICATE: &str = "kubernetes";
/// Folder of a pod's ServiceAccount token.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How agents are started in other configurations than their DaemonSet's. They take the option `--kubeconfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomAgents {
    /// Further arguments of each variant.
    pub variants: BTreeMap<Variant, Vec<String>>,
    /// API endpoints that the target documents.
    pub api: ApiOptions,
    /// The ConfigMap with the agents' configuration, which their pods mount.
    pub config_map: String,
    /// Key of the configuration in it: a YAML mapping of options.
    pub key: String,
    /// The option that lists addresses of the API.
    pub addresses: String,
}

/// Selects the agents' pods, custom ones included.
pub(super) fn selector(agent: &Agent) -> String {
    let labels = agent.labels.iter();
    let either = labels.map(|(name, value)| format!("{name} in ({value},{value}{SUFFIX})"));
    either.collect::<Vec<_>>().join(",")
}

/// Whether a pod is a custom pod.
pub(super) fn is_custom(pod: &Pod) -> bool {
    pod.labels().contains_key(CUSTOM)
}

/// The variant of a pod; `None`: the target's default.
pub(super) fn variant(pod: &Pod) -> Option<Variant> {
    serde_json::from_str(pod.annotations().get(VARIANT)?).ok()
}

/// The custom pods of a target.
pub(super) struct CustomPods {
    client: Client,
    agent: Agent,
    /// Name of the run, for labels.
    run: String,
    settings: CustomAgents,
}

impl CustomPods {
    pub(super) fn new(client: Client, agent: Agent, run: String, settings: CustomAgents) -> Self {
        Self {
            client,
            agent,
            run,
            settings,
        }
    }

    /// Whether agents can be started with this endpoint.
    pub(super) fn supports(&self, endpoint: Option<&ApiEndpoint>) -> bool {
        let has_further = endpoint.is_some_and(|endpoint| !endpoint.further.is_empty());
        !has_further || self.settings.api.further.is_some()
    }

    /// Makes the pod of a node, which the DaemonSet has to avoid.
    ///
    /// # Errors
    /// The target has no such variant; the DaemonSet's template lacks a part that is replaced.
    pub(super) async fn make(
        &self,
        node: &str,
        variant: Option<Variant>,
        endpoint: Option<&ApiEndpoint>,
    ) -> Result<(), KubernetesError> {
        let in_variant = variant.map_or_else(String::new, |variant| format!(" in its variant {variant}"));
        let at_endpoint = endpoint.map_or_else(String::new, |endpoint| {
            format!(", which uses the API at {}", endpoint.server)
        });
        let what = format!("start the agent of {node}{in_variant}{at_endpoint}");
        let arguments = self.arguments(variant, endpoint);
        let arguments = arguments.ok_or_else(|| unexpected(&what, "its target has no such variant"))?;
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &self.agent.namespace);
        let set = ask_again(&what, || sets.get(&self.agent.daemon_set)).await?;
        let template = set.map_err(api(&what))?.spec.map(|spec| spec.template);
        let mut metadata = self.metadata(node);
        for (name, value) in &self.agent.labels {
            metadata["labels"][name] = format!("{value}{SUFFIX}").into();
        }
        if let Some(variant) = variant {
            metadata["annotations"] = json!({ VARIANT: json!(variant).to_string() });
        }
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": metadata, "spec": template.and_then(|template| template.spec),
        });
        self.complete(&mut pod["spec"], node, &arguments, endpoint.is_some())
            .map_err(|lacks| unexpected(&what, &format!("the template of its DaemonSet has no {lacks}")))?;
        let pod: Pod = typed(pod, &what)?;
        let params = PostParams::default();
        let pods = self.pods();
        match ask_again(&what, || pods.create(&params, &pod)).await? {
            // An earlier attempt had no response.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => made.map(drop).map_err(api(&what)),
        }
    }

    /// Removes the pod of a node; a missing one is no error.
    pub(super) async fn remove(&self, node: &str) -> Result<(), KubernetesError> {
        let what = format!("end the agent of {node}");
        let (pods, name, params) = (self.pods(), name(node), DeleteParams::default());
        let done = ask_again(&what, || pods.delete(&name, &params)).await?;
        gone(done.map(drop)).map_err(api(&what))
    }

    /// The API endpoint that a case has set for the agent of a node.
    pub(super) async fn endpoint(&self, node: &str) -> Result<Option<ApiEndpoint>, KubernetesError> {
        let what = format!("read the API endpoint of the agent of {node}");
        let (maps, name) = (self.maps(), name(node));
        let map = ask_again(&what, || maps.get_opt(&name)).await?;
        let Some(map) = map.map_err(api(&what))? else {
            return Ok(None);
        };
        let note = map.annotations().get(ENDPOINT).map_or("", String::as_str);
        let endpoint = serde_json::from_str(note);
        endpoint.map(Some).map_err(|error| {
            unexpected(
                &what,
                &format!("{ENDPOINT} of its ConfigMap is {note:?}: {error}"),
            )
        })
    }

    /// Sets the API endpoint for the next starts of an agent; `None`: the original one.
    pub(super) async fn set_endpoint(
        &self,
        node: &str,
        endpoint: Option<&ApiEndpoint>,
    ) -> Result<(), KubernetesError> {
        let (maps, name) = (self.maps(), name(node));
        let Some(endpoint) = endpoint else {
            let what = format!("restore the API endpoint of the agent of {node}");
            let params = DeleteParams::default();
            let done = ask_again(&what, || maps.delete(&name, &params)).await?;
            return gone(done.map(drop)).map_err(api(&what));
        };
        let what = format!("set the API endpoint of the agent of {node}");
        let CustomAgents { config_map, key, .. } = &self.settings;
        let own = ask_again(&what, || maps.get(config_map)).await?;
        let own = own.map_err(api(&what))?.data;
        let own = own.and_then(|data| data.get(key).cloned());
        let own =
            own.ok_or_else(|| unexpected(&what, &format!("the ConfigMap {config_map} has no {key}")))?;
        let configuration = without(&self.settings.addresses, &own)
            .map_err(|why| unexpected(&what, &format!("{key} {why}")))?;
        let mut metadata = self.metadata(node);
        metadata["annotations"] = json!({ ENDPOINT: json!(endpoint).to_string() });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": { key: configuration, KUBECONFIG: kubeconfig(endpoint) },
        });
        let map: ConfigMap = typed(map, &what)?;
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&map);
        let done = ask_again(&what, || maps.patch(&name, &params, &patch)).await?;
        done.map(drop).map_err(api(&what))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.agent.namespace)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.agent.namespace)
    }

    fn metadata(&self, node: &str) -> Value {
        json!({
            "name": name(node), "namespace": self.agent.namespace,
            "labels": { RUN_LABEL: self.run, MANAGED_BY: MANAGER, CUSTOM: "true" },
        })
    }

    /// Arguments after those of the template; `None` if the target has no such variant.
    fn arguments(&self, variant: Option<Variant>, endpoint: Option<&ApiEndpoint>) -> Option<Vec<String>> {
        let mut arguments = match variant {
            None => Vec::new(),
            Some(variant) => self.settings.variants.get(&variant)?.clone(),
        };
        if let Some(endpoint) = endpoint {
            arguments.extend(self.settings.api.further(&endpoint.further));
        }
        Some(arguments)
    }

    /// Completes the DaemonSet's pod spec; the error names a missing part.
    fn complete(
        &self,
        spec: &mut Value,
        node: &str,
        arguments: &[String],
        is_redirected: bool,
    ) -> Result<(), &'static str> {
        spec["nodeName"] = node.into();
        // The pod names its node: the scheduler would find none because of the affinity.
        spec["affinity"] = Value::Null;
        let mut more: Vec<Value> = arguments.iter().map(|argument| json!(argument)).collect();
        let volume = if is_redirected {
            let volumes = spec["volumes"].as_array_mut().ok_or("volumes")?;
            let own = self.settings.config_map.as_str();
            let volume = volumes
                .iter_mut()
                .find(|volume| volume["configMap"]["name"] == own);
            let volume = volume.ok_or("volume of the agents' ConfigMap")?;
            volume["configMap"]["name"] = name(node).into();
            Some(volume["name"].clone())
        } else {
            None
        };
        let containers = spec["containers"].as_array_mut().ok_or("containers")?;
        let container = containers
            .iter_mut()
            .find(|container| container["name"] == self.agent.container.as_str());
        let container = container.ok_or("container of the agent")?;
        if let Some(volume) = volume {
            let mut mounts = container["volumeMounts"].as_array().ok_or("volumeMounts")?.iter();
            let mount = mounts.find(|mount| mount["name"] == volume);
            let path = mount.and_then(|mount| mount["mountPath"].as_str());
            let path = path.ok_or("mount of the agents' ConfigMap")?;
            more.push(format!("--kubeconfig={path}/{KUBECONFIG}").into());
        }
        container["args"].as_array_mut().ok_or("arguments")?.extend(more);
        Ok(())
    }
}

/// Removes the custom pods and their ConfigMaps of the runs that a label selector names, and returns when they are
/// gone; what was done, as text. An account that may not list them has made none.
pub(super) async fn remove_all(client: &Client, selector: &str) -> Result<Vec<String>, KubernetesError> {
    let of_runs = ListParams::default().labels(&format!("{selector},{CUSTOM}"));
    let params = DeleteParams::default();
    let mut done = Vec::new();
    let what = "end agents in configurations of runs";
    let pods: Api<Pod> = Api::all(client.clone());
    let began = Instant::now();
    loop {
        let left = if_any(ask(what, pods.list(&of_runs)).await?).map_err(api(what))?;
        if left.is_empty() {
            break;
        }
        if began.elapsed() >= LIMITS.agents {
            return Err(KubernetesError::Late {
                what: what.to_owned(),
                limit: LIMITS.agents,
            });
        }
        for pod in left
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        {
            let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
            let own: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            gone(ask(what, own.delete(&name, &params)).await?.map(drop)).map_err(api(what))?;
            done.push(format!(
                "the agent {namespace}/{name} in a configuration of a run has ended"
            ));
        }
        sleep(LIMITS.look).await;
    }
    let what = "remove configurations of agents that runs have made";
    let maps: Api<ConfigMap> = Api::all(client.clone());
    for map in if_any(ask(what, maps.list(&of_runs)).await?).map_err(api(what))? {
        let (namespace, name) = (map.namespace().unwrap_or_default(), map.name_any());
        let own: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        gone(ask(what, own.delete(&name, &params)).await?.map(drop)).map_err(api(what))?;
        done.push(format!(
            "the API endpoint {namespace}/{name} of an agent is removed"
        ));
    }
    Ok(done)
}

/// An agent's configuration without an option (JSON, which is also YAML).
fn without(option: &str, configuration: &str) -> Result<String, String> {
    let parsed = serde_saphyr::from_str::<Map<String, Value>>(configuration);
    let mut options = parsed.map_err(|error| format!("is no mapping of options: {error}"))?;
    options.remove(option);
    Ok(format!("{:#}\n", Value::Object(options)))
}

/// The kubeconfig for a pod's ServiceAccount (JSON, which is also YAML).
fn kubeconfig(endpoint: &ApiEndpoint) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "case",
        "clusters": [{"name": "case", "cluster": {
            "server": format!("https://{}", endpoint.server),
            "certificate-authority": format!("{ACCOUNT}/ca.crt"),
            "tls-server-name": CERTIFICATE,
        }}],
        "users": [{"name": "case", "user": {"tokenFile": format!("{ACCOUNT}/token")}}],
        "contexts": [{"name": "case", "context": {"cluster": "case", "user": "case"}}],
    });
    format!("{config:#}\n")
}

/// Name of a node's custom pod and of its ConfigMap.
fn name(node: &str) -> String {
    format!("{NAME}-{node}")
}

/// The result of a deletion: a missing object is no error.
fn gone(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done,
    }
}

fn typed<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, KubernetesError> {
    serde_json::from_value(value).map_err(|error| unexpected(what, &error.to_string()))
}

fn unexpected(what: &str, why: &str) -> KubernetesError {
    KubernetesError::Api {
        what: what.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use cluster::target::Target;
    use kube::Config;

    use super::*;

    const CONFIG_MAP: &str = "plumbline-agent";

    fn custom_pods() -> CustomPods {
        let target = Target::find("reference").unwrap();
        let nowhere = Config::new("http://127.0.0.1:1".parse().unwrap());
        let program = target.lab.unwrap();
        let settings = CustomAgents {
            variants: program.variants,
            api: program.api,
            config_map: CONFIG_MAP.to_owned(),
            key: "agent.yaml".to_owned(),
            addresses: "api-server".to_owned(),
        };
        let agent = target.cluster.unwrap().agent;
        CustomPods::new(
            Client::try_from(nowhere).unwrap(),
            agent,
            "run-1".to_owned(),
            settings,
        )
    }

    fn template() -> Value {
        let shipped = include_str!("../../../../reference-agent/deploy/agent.yaml");
        let all: Vec<Value> = serde_saphyr::from_multiple(shipped).unwrap();
        let set = all.iter().find(|object| object["kind"] == "DaemonSet");
        set.unwrap()["spec"]["template"]["spec"].clone()
    }

    fn endpoint(server: &str, further: &[&str]) -> ApiEndpoint {
        ApiEndpoint {
            server: server.parse().unwrap(),
            further: further.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[tokio::test]
    async fn a_redirected_agent_reads_the_configuration_and_the_kubeconfig_of_its_endpoint() {
        let custom = custom_pods();
        let endpoint = endpoint("10.96.0.1:443", &["10.0.0.9:6443"]);
        let arguments = custom.arguments(None, Some(&endpoint)).unwrap();
        let mut spec = template();
        custom.complete(&mut spec, "node1", &arguments, true).unwrap();
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
        assert_eq!(spec["volumes"][0]["configMap"]["name"], "plumbline-custom-node1");
        assert_eq!(
            (&spec["nodeName"], &spec["affinity"]),
            (&json!("node1"), &Value::Null)
        );
    }

    #[tokio::test]
    async fn a_variant_keeps_the_agents_own_endpoint() {
        let custom = custom_pods();
        let arguments = custom.arguments(Some(Variant::SocketLbOff), None).unwrap();
        let mut spec = template();
        custom.complete(&mut spec, "node1", &arguments, false).unwrap();
        assert_eq!(spec["containers"][0]["args"][3], "--socket-lb=off");
        assert_eq!(spec["volumes"][0]["configMap"]["name"], CONFIG_MAP);
        let lacks = custom.complete(&mut json!({"volumes": []}), "node1", &[], true);
        assert_eq!(lacks, Err("volume of the agents' ConfigMap"));
    }

    #[tokio::test]
    async fn what_the_target_does_not_document_is_refused() {
        let mut custom = custom_pods();
        let (one, several) = (
            endpoint("10.96.0.1:443", &[]),
            endpoint("10.96.0.1:443", &["10.0.0.9:6443"]),
        );
        assert!(custom.supports(Some(&several)));
        custom.settings.api.further = None;
        custom.settings.variants.clear();
        assert!(custom.supports(None) && custom.supports(Some(&one)));
        assert!(!custom.supports(Some(&several)));
        let refused = custom.make("node1", Some(Variant::SocketLbOff), None).await;
        assert_eq!(
            refused.unwrap_err().to_string(),
            "failed to start the agent of node1 in its variant socket-lb-off: its target has no such variant"
        );
    }

    #[test]
    fn a_redirected_agent_knows_no_address_but_those_of_its_endpoint() {
        let own = "# Why.\ncgroup: /c\napi-server:\n- https://172.18.0.3:6443\npod-network: true\n";
        let redirected = without("api-server", own).unwrap();
        let read: Value = serde_saphyr::from_str(&redirected).unwrap();
        assert_eq!(read, json!({"cgroup": "/c", "pod-network": true}));
        assert!(without("api-server", "- a\n").is_err_and(|why| why.contains("no mapping")));
        let read: Value = serde_saphyr::from_str(&kubeconfig(&endpoint("[fd00:10:96::1]:443", &[]))).unwrap();
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://[fd00:10:96::1]:443");
        assert_eq!(cluster["tls-server-name"], "kubernetes");
    }

    #[test]
    fn the_daemon_set_does_not_adopt_custom_pods_which_are_agents_all_the_same() {
        let custom = "plumbline-agent-custom";
        let agent = Target::find("reference").unwrap().cluster.unwrap().agent;
        assert_eq!(
            selector(&agent),
            format!("app.kubernetes.io/name in (plumbline-agent,{custom})")
        );
        assert_ne!(agent.labels["app.kubernetes.io/name"], custom);
    }
}
