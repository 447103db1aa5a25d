//! Stops, starts and cleans up after the agents of a target, under [`Tier::Node`](super::Tier::Node).
//!
//! A stopped agent's node has a label of the run, which the agents' DaemonSet avoids by an affinity ([`daemon_set`]).
//! The clean-up of a node is the target's own program, in a pod like the agent's.

use cluster::{RUN_LABEL, Stop};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Agents, KubernetesError, LIMITS, Options, daemon_set,
    error::api,
    labels::{MANAGED_BY, MANAGER},
    limits::ask,
    node_access,
    pods::{on, remove, replace, running, status},
};

/// Controls the agents of a target.
#[derive(Clone, Copy)]
pub(super) struct AgentController<'a> {
    pub(super) client: &'a Client,
    pub(super) agents: &'a Agents,
    pub(super) options: &'a Options,
}

impl AgentController<'_> {
    /// The agents' pods, including those that are terminating.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>, KubernetesError> {
        let what = "list the agents";
        let params = ListParams::default().labels(&self.agents.agent.selector());
        let listed = ask(what, self.api().list(&params)).await?;
        Ok(listed.map_err(api(what))?.items)
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.agents.agent.namespace)
    }

    /// The first process of a container on a node, which gets a signal if one is named; `None` if it has none.
    pub(super) async fn process(
        &self,
        node: &str,
        container: &str,
        signal: Option<&str>,
    ) -> Result<Option<u32>, KubernetesError> {
        let mut words = vec!["process", "--container", container];
        words.extend(signal.into_iter().flat_map(|signal| ["--signal", signal]));
        node_access::ask(self.client, self.options, node, &words).await
    }

    /// Stops the agent of a node until it is started again; returns when none of its pods is left.
    pub(super) async fn stop(&self, node: &str, how: Stop) -> Result<(), KubernetesError> {
        let (agent, run) = (&self.agents.agent, self.options.run.as_str());
        daemon_set::borrow(self.client, agent, run).await?;
        let mut killed = Vec::new();
        if how == Stop::Kill {
            let pods = self.pods().await?;
            let of_node = pods.iter().filter(|pod| on(pod, node));
            let running = of_node.filter_map(|pod| running(status(pod, &agent.container)?));
            killed.extend(running.map(str::to_owned));
        }
        // A stopped process does not handle the kubelet's SIGTERM, and the container is not restarted before its pod
        // is deleted.
        self.signal(node, &killed, "SIGSTOP").await?;
        let kept_off = self.keep_off(node, run).await;
        self.signal(node, &killed, "SIGKILL").await?;
        kept_off?;
        self.until(node, "is gone", |pods| pods.is_empty()).await
    }

    async fn signal(&self, node: &str, containers: &[String], signal: &str) -> Result<(), KubernetesError> {
        for container in containers {
            self.process(node, container, Some(signal)).await?;
        }
        Ok(())
    }

    /// Returns when the pods of a node are terminating.
    async fn keep_off(&self, node: &str, run: &str) -> Result<(), KubernetesError> {
        daemon_set::label(self.client, node, Some(run)).await?;
        let stays = |pod: &&Pod| on(pod, node);
        self.until(node, "is to go", |pods| !pods.iter().any(stays)).await
    }

    /// Allows the agent on a node again.
    pub(super) async fn start(&self, node: &str) -> Result<(), KubernetesError> {
        daemon_set::label(self.client, node, None).await
    }

    /// Waits until the agent runs.
    pub(super) async fn runs(&self, node: &str) -> Result<(), KubernetesError> {
        let container = &self.agents.agent.container;
        let runs = |pod: &&Pod| on(pod, node) && status(pod, container).and_then(running).is_some();
        self.until(node, "runs", |pods| pods.iter().any(runs)).await
    }

    async fn until(
        &self,
        node: &str,
        what: &str,
        holds: impl Fn(&[&Pod]) -> bool,
    ) -> Result<(), KubernetesError> {
        let began = Instant::now();
        loop {
            let pods = self.pods().await?;
            let is_here = |pod: &&Pod| {
                let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                placed == Some(node)
            };
            let here: Vec<&Pod> = pods.iter().filter(is_here).collect();
            if holds(&here) {
                return Ok(());
            }
            if began.elapsed() >= LIMITS.agents {
                return Err(KubernetesError::Late {
                    what: format!("see that the agent of {node} {what}"),
                    limit: LIMITS.agents,
                });
            }
            sleep(LIMITS.look).await;
        }
    }

    /// Removes what the target keeps on a node, by its documented clean-up.
    pub(super) async fn clean(&self, node: &str) -> Result<(), KubernetesError> {
        let what = format!("clean up after the agent of {node}");
        let failed = |why: String| KubernetesError::Api {
            what: what.clone(),
            why,
        };
        let argv = self.agents.clean.as_ref().ok_or_else(|| {
            failed("the file of its target does not say how (`clean` of its part `cluster`)".to_owned())
        })?;
        if self.pods().await?.iter().any(|pod| on(pod, node)) {
            return Err(failed("it runs; stop it first".to_owned()));
        }
        let agent = &self.agents.agent;
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &agent.namespace);
        let set = ask(&what, sets.get(&agent.daemon_set))
            .await?
            .map_err(api(&what))?;
        let name = format!("plumbline-clean-{node}");
        let pod = cleaner(&set, self.agents, argv, self.options, node)
            .ok_or_else(|| failed(format!("its pods have no container {}", agent.container)))?;
        let pods = self.api();
        replace(&pods, &name, &pod).await?;
        let ended = ended(&pods, &name).await;
        remove(&pods, &name).await?;
        match ended? {
            None => Ok(()),
            Some(why) => Err(failed(why)),
        }
    }
}

/// Waits until a pod has ended; returns its output if it failed.
async fn ended(pods: &Api<Pod>, name: &str) -> Result<Option<String>, KubernetesError> {
    let what = format!("follow the pod {name}");
    let began = Instant::now();
    loop {
        let pod = ask(&what, pods.get(name)).await?.map_err(api(&what))?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        match phase {
            Some("Succeeded") => return Ok(None),
            Some("Failed") => {
                let log = ask(&what, pods.logs(name, &LogParams::default())).await?;
                return Ok(Some(format!(
                    "it failed: {}",
                    log.map_err(api(&what))?.trim_end()
                )));
            }
            _ if began.elapsed() >= LIMITS.agents => {
                return Err(KubernetesError::Late {
                    what,
                    limit: LIMITS.agents,
                });
            }
            _ => sleep(LIMITS.look).await,
        }
    }
}

/// A pod like the agent's, which runs another program of its image once.
fn cleaner(
    set: &DaemonSet,
    Agents { agent, .. }: &Agents,
    argv: &[String],
    options: &Options,
    node: &str,
) -> Option<Pod> {
    let template = serde_json::to_value(&set.spec.as_ref()?.template).ok()?;
    let containers = template["spec"]["containers"].as_array()?;
    let mut container = containers
        .iter()
        .find(|one| one["name"] == agent.container.as_str())?
        .clone();
    container["command"] = json!(argv);
    for field in [
        "args",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "startupProbe",
    ] {
        container[field] = Value::Null;
    }
    let mut spec = template["spec"].clone();
    spec["containers"] = json!([container]);
    for field in ["affinity", "initContainers", "nodeSelector"] {
        spec[field] = Value::Null;
    }
    spec["nodeName"] = node.into();
    spec["restartPolicy"] = "Never".into();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("plumbline-clean-{node}"), "namespace": agent.namespace,
            // Without the labels of the agents, by which their DaemonSet would adopt it.
            "labels": { RUN_LABEL: options.run, MANAGED_BY: MANAGER },
        },
        "spec": spec,
    });
    serde_json::from_value(pod).ok()
}

#[cfg(test)]
mod tests {
    use cluster::target::Target;

    use super::*;

    /// A DaemonSet with the fields that a cleaner copies or replaces.
    fn set(container: &str) -> DaemonSet {
        let probe = json!({"exec": {"command": ["true"]}});
        serde_json::from_value(json!({
            "metadata": {"name": "agent"},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
                "affinity": {"nodeAffinity": {}},
                "nodeSelector": {"no": "where"},
                "hostNetwork": true,
                "serviceAccountName": "agent",
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": "bpffs", "hostPath": {"path": "/sys/fs/bpf"}}],
                "initContainers": [{"name": "first", "image": "first"}],
                "containers": [{"name": "beside", "image": "beside"}, {
                    "name": container, "image": "agent:1", "args": ["run"], "env": [{"name": "A", "value": "b"}],
                    "securityContext": {"privileged": true},
                    "volumeMounts": [{"name": "bpffs", "mountPath": "/sys/fs/bpf"}],
                    "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
                    "lifecycle": {"preStop": probe}, "ports": [{"containerPort": 1, "hostPort": 1}],
                }],
            }}},
        }))
        .unwrap()
    }

    fn agents_of(target: &str) -> Agents {
        Target::find(target).unwrap().cluster.unwrap().into()
    }

    /// The cleaner of a target with a documented clean-up, as sent to the API.
    fn rendered(agents: &Agents) -> Value {
        let argv = agents.clean.as_ref().unwrap();
        let pod = cleaner(
            &set(&agents.agent.container),
            agents,
            argv,
            &Options::of_a_test(),
            "n1",
        );
        serde_json::to_value(pod.unwrap()).unwrap()
    }

    #[test]
    fn every_target_is_cleaned_up_after_by_what_its_file_says_in_a_pod_like_its_agents() {
        let mut cleaned = Vec::new();
        for name in Target::names() {
            let agents = agents_of(name);
            let Some(argv) = &agents.clean else { continue };
            // No shell parses the command: shell syntax would be passed as an argument.
            for word in argv {
                assert!(
                    !word.is_empty() && !word.contains(['$', '|', '>', '<', ';', '&', '\n']),
                    "{name}: {word}"
                );
            }
            let pod = rendered(&agents);
            assert_eq!(
                pod["metadata"],
                json!({"name": "plumbline-clean-n1", "namespace": agents.agent.namespace,
                       "labels": {RUN_LABEL: "run-1-one", MANAGED_BY: MANAGER}}),
                "{name}: not one of the DaemonSet's"
            );
            assert_eq!(
                pod["spec"],
                json!({
                    "nodeName": "n1", "restartPolicy": "Never", "hostNetwork": true, "serviceAccountName": "agent",
                    "tolerations": [{"operator": "Exists"}],
                    "volumes": [{"name": "bpffs", "hostPath": {"path": "/sys/fs/bpf"}}],
                    "containers": [{
                        "name": agents.agent.container, "image": "agent:1", "command": argv,
                        "env": [{"name": "A", "value": "b"}], "securityContext": {"privileged": true},
                        "volumeMounts": [{"name": "bpffs", "mountPath": "/sys/fs/bpf"}],
                    }],
                }),
                "{name}"
            );
            cleaned.push(name);
        }
        // The other targets document no clean-up.
        let without: Vec<&str> = Target::names().filter(|name| !cleaned.contains(name)).collect();
        assert_eq!(without, ["antrea", "ovn-kubernetes"]);
    }

    #[test]
    fn the_reference_agent_finds_what_it_cleans_where_its_manifest_mounts_it() {
        let shipped = include_str!("../../../reference-agent/deploy/agent.yaml");
        let all: Vec<Value> = serde_saphyr::from_multiple(shipped).unwrap();
        let set = all.into_iter().find(|object| object["kind"] == "DaemonSet");
        let set: DaemonSet = serde_json::from_value(set.unwrap()).unwrap();
        let agents = agents_of("reference");
        let argv = agents.clean.clone().unwrap();
        let pod = cleaner(&set, &agents, &argv, &Options::of_a_test(), "n1").unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        let paths = argv.iter().filter_map(|word| word.split_once('='));
        let mut seen = 0;
        for (option, path) in paths {
            assert!(
                mounts.iter().any(|mount| mount["mountPath"] == path),
                "{option}={path}: {mounts:?}"
            );
            seen += 1;
        }
        assert_eq!(seen, 2, "{argv:?}");
    }

    #[test]
    fn a_daemon_set_without_the_agents_container_has_no_cleaner() {
        let agents = agents_of("cilium");
        assert!(cleaner(&set("another"), &agents, &[], &Options::of_a_test(), "n1").is_none());
    }
}
