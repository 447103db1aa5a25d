//! The clean-up of a node after its agent: the target's own program, in a pod like the agent's.

use cluster::RUN_LABEL;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{Api, Client, api::LogParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    Agents, KubernetesError, LIMITS,
    error::api,
    labels::{MANAGED_BY, MANAGER},
    limits::ask,
    pods::{remove, replace},
};

/// Removes what the target keeps on a node without an agent, by its documented clean-up.
///
/// # Errors
/// The target documents none, or it fails.
pub(super) async fn clean_up(
    client: &Client,
    agents: &Agents,
    run: &str,
    node: &str,
) -> Result<(), KubernetesError> {
    let what = format!("clean up after the agent of {node}");
    let failed = |why: String| KubernetesError::Api {
        what: what.clone(),
        why,
    };
    let argv = agents.clean.as_ref().ok_or_else(|| {
        failed("the file of its target does not say how (`clean` of its part `cluster`)".to_owned())
    })?;
    let agent = &agents.agent;
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &agent.namespace);
    let set = ask(&what, sets.get(&agent.daemon_set))
        .await?
        .map_err(api(&what))?;
    let name = format!("plumbline-clean-{node}");
    let pod = cleaner(&set, agents, argv, run, node)
        .ok_or_else(|| failed(format!("its pods have no container {}", agent.container)))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &agent.namespace);
    replace(&pods, &name, &pod).await?;
    let ended = ended(&pods, &name).await;
    remove(&pods, &name).await?;
    match ended? {
        None => Ok(()),
        Some(why) => Err(failed(why)),
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
    run: &str,
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
            "labels": { RUN_LABEL: run, MANAGED_BY: MANAGER },
        },
        "spec": spec,
    });
    serde_json::from_value(pod).ok()
}

#[cfg(test)]
mod tests {
    use cluster::target::Target;

    use super::*;

    const RUN: &str = "run-1-one";

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
        let pod = cleaner(&set(&agents.agent.container), agents, argv, RUN, "n1");
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
                       "labels": {RUN_LABEL: RUN, MANAGED_BY: MANAGER}}),
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
        let shipped = include_str!("../../../../reference-agent/deploy/agent.yaml");
        let all: Vec<Value> = serde_saphyr::from_multiple(shipped).unwrap();
        let set = all.into_iter().find(|object| object["kind"] == "DaemonSet");
        let set: DaemonSet = serde_json::from_value(set.unwrap()).unwrap();
        let agents = agents_of("reference");
        let argv = agents.clean.clone().unwrap();
        let pod = cleaner(&set, &agents, &argv, RUN, "n1").unwrap();
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
        assert!(cleaner(&set("another"), &agents, &[], RUN, "n1").is_none());
    }
}
