//! The part of a pod's spec that this kubelet supports.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

/// The only image.
const IMAGE: &str = cluster::PROBE;

/// A pod that this kubelet can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodSpec {
    /// Name of container 0.
    pub(super) container: String,
    /// Its image, as in the spec.
    pub(super) image: String,
    /// Arguments of the probe.
    pub(super) args: Vec<String>,
    /// The pod uses the node's network namespace.
    pub(super) host_network: bool,
    /// Processes that are started in the pod later use the node's mounts and no pod's cgroup.
    pub(super) host_processes: bool,
    /// What follows the end of the container.
    pub(super) restart: Restart,
    /// How long a pod that is being deleted serves on before the container gets SIGTERM (`lifecycle.preStop.sleep`, KEP-3960).
    pub(super) pre_stop: Duration,
}

/// `restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Why a pod can't run: the reason in the words of upstream's kubelet, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Parses a pod; volumes are ignored.
///
/// # Errors
/// What this kubelet does not support: another image, a command, more than one container.
pub(super) fn parse(pod: &Pod) -> Result<PodSpec, Problem> {
    let config = |message: String| Problem {
        reason: "CreateContainerConfigError",
        message,
    };
    let spec = pod
        .spec
        .as_ref()
        .ok_or_else(|| config("the pod has no spec".to_owned()))?;
    let [container] = spec.containers.as_slice() else {
        let found = spec.containers.len();
        return Err(config(format!(
            "a pod of the lab has exactly one container, this one has {found}"
        )));
    };
    if spec
        .init_containers
        .as_ref()
        .is_some_and(|containers| !containers.is_empty())
    {
        return Err(config("a pod of the lab has no init containers".to_owned()));
    }
    let image = container.image.clone().unwrap_or_default();
    if repository(&image) != IMAGE {
        let message = format!("the lab has the image {IMAGE:?} only, expected it instead of {image:?}");
        return Err(Problem {
            reason: "InvalidImageName",
            message,
        });
    }
    if container
        .command
        .as_ref()
        .is_some_and(|command| !command.is_empty())
    {
        let message = "the lab runs the image's own entry point: give args only, such as \
                       [serve, --name, b1, --tcp, \"8080\"], and no command";
        return Err(config(message.to_owned()));
    }
    let restart = match spec.restart_policy.as_deref() {
        None | Some("Always") => Restart::Always,
        Some("OnFailure") => Restart::OnFailure,
        Some("Never") => Restart::Never,
        Some(other) => {
            return Err(config(format!(
                "expected restartPolicy Always, OnFailure or Never, found {other:?}"
            )));
        }
    };
    let pre_stop = pre_stop(container).map_err(|found| {
        config(format!(
            "the lab knows the hook preStop.sleep alone, expected it instead of {found}"
        ))
    })?;
    Ok(PodSpec {
        container: container.name.clone(),
        image,
        args: container.args.clone().unwrap_or_default(),
        host_network: spec.host_network.unwrap_or(false),
        host_processes: spec.host_network == Some(true)
            && spec.host_pid == Some(true)
            && is_privileged(container),
        restart,
        pre_stop,
    })
}

/// How long the hook sleeps; none sleeps for no time. An error names another hook.
fn pre_stop(container: &Container) -> Result<Duration, String> {
    let lifecycle = container.lifecycle.as_ref();
    if let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref()) {
        return Err(format!("postStart {hook:?}"));
    }
    let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else {
        return Ok(Duration::ZERO);
    };
    let sleep = hook.sleep.as_ref().ok_or_else(|| format!("preStop {hook:?}"))?;
    Ok(Duration::from_secs(
        u64::try_from(sleep.seconds).unwrap_or_default(),
    ))
}

fn is_privileged(container: &Container) -> bool {
    let context = container.security_context.as_ref();
    context.and_then(|context| context.privileged) == Some(true)
}

/// Grace period of a pod that is being deleted.
pub(super) fn grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Last part of an image's name, without registry, tag and digest.
fn repository(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split(['@', ':']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    #[test]
    fn a_probe_pod_is_read_whole() {
        let spec = parse(&pod(&json!({
            "hostNetwork": true, "restartPolicy": "OnFailure",
            "containers": [{
                "name": "c", "image": "registry.example/x/probe:v1@sha256:00", "args": ["serve"],
                "lifecycle": {"preStop": {"sleep": {"seconds": 7}}},
            }],
        })));
        assert_eq!(
            spec,
            Ok(PodSpec {
                container: "c".to_owned(),
                image: "registry.example/x/probe:v1@sha256:00".to_owned(),
                args: vec!["serve".to_owned()],
                host_network: true,
                host_processes: false,
                restart: Restart::OnFailure,
                pre_stop: Duration::from_secs(7),
            })
        );
    }

    #[test]
    fn only_a_pod_that_could_enter_its_node_has_processes_of_it() {
        let of = |network: bool, processes: bool, privileged: bool| {
            let spec = parse(&pod(&json!({
                "hostNetwork": network, "hostPID": processes,
                "containers": [{"name": "c", "image": "probe", "securityContext": {"privileged": privileged}}],
            })));
            spec.expect("a pod of the lab").host_processes
        };
        assert!(of(true, true, true));
        assert!(!of(false, true, true) && !of(true, false, true) && !of(true, true, false));
    }

    #[test]
    fn what_the_lab_cannot_run_is_named() {
        let cases = [
            (
                json!({"containers": [{"name": "c", "image": "nginx"}]}),
                "InvalidImageName",
                "nginx",
            ),
            (json!({"containers": [{"name": "c"}]}), "InvalidImageName", "\"\""),
            (
                json!({"containers": []}),
                "CreateContainerConfigError",
                "this one has 0",
            ),
            (
                json!({"containers": [{"name": "a", "image": "probe"}, {"name": "b", "image": "probe"}]}),
                "CreateContainerConfigError",
                "this one has 2",
            ),
            (
                json!({"containers": [{"name": "a", "image": "probe", "command": ["sh"]}]}),
                "CreateContainerConfigError",
                "no command",
            ),
            (
                json!({"containers": [{"name": "a", "image": "probe", "lifecycle": {"preStop": {"exec": {}}}}]}),
                "CreateContainerConfigError",
                "preStop.sleep",
            ),
            (
                json!({"restartPolicy": "Maybe", "containers": [{"name": "a", "image": "probe"}]}),
                "CreateContainerConfigError",
                "Maybe",
            ),
        ];
        for (spec, reason, part) in cases {
            let problem = parse(&pod(&spec)).expect_err("refused");
            assert_eq!(problem.reason, reason, "{spec}");
            assert!(problem.message.contains(part), "{}", problem.message);
        }
    }

    #[test]
    fn grace_is_that_of_the_deletion() {
        let mut deleted = pod(&json!({"containers": []}));
        assert_eq!(grace(&deleted), None);
        deleted.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time"));
        deleted.metadata.deletion_grace_period_seconds = Some(7);
        assert_eq!(grace(&deleted), Some(Duration::from_secs(7)));
    }
}
