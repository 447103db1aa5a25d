//! The Job and its namespace as objects.

use std::time::Duration;

use cluster::dress::{ADMITS, dress};
use serde_json::{Value, json};

use super::IndexedJobOptions;
use crate::labels::{ARCHITECTURE, CONTAINER, JOB, MANAGED_BY, MANAGER, OS};

/// The cluster deletes a Job this long after its end, if it is still there (`ttlSecondsAfterFinished`).
const KEPT: Duration = Duration::from_secs(3600);
/// From SIGTERM to SIGKILL: what runs in a pod goes with it.
const GRACE: Duration = Duration::from_secs(10);
/// Time for pods to find room, in the limit of the whole Job.
const ROOM: Duration = Duration::from_secs(3600);
/// Folders that the image, which is empty but for programs, does not have: sockets and kubeconfigs of a lab; results.
const FOLDERS: [(&str, &str); 2] = [("run", "/run"), ("tmp", "/tmp")];

/// Finds the pods of a Job, and the Job.
pub(super) fn selector(name: &str) -> String {
    format!("{JOB}={name}")
}

/// The namespace of a Job.
pub(super) fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { MANAGED_BY: MANAGER, JOB: name, ADMITS: "privileged" } },
    })
}

/// The Job. Its pods make labs: network namespaces with their own /sys, cgroups, BPF file systems and programs, which needs root and
/// all capabilities; nothing of the node's network, processes or files is mounted. They share a process namespace, whose first process
/// reaps what labs leave.
pub(super) fn job(options: &IndexedJobOptions, namespace: &str) -> Value {
    let labels = json!({ MANAGED_BY: MANAGER, JOB: options.name });
    let rounds = options.completions.div_ceil(options.at_once.max(1));
    let deadline = ROOM + options.pod_limit + options.pod_takes * rounds;
    let mounts = FOLDERS.map(|(name, path)| json!({ "name": name, "mountPath": path }));
    let volumes = FOLDERS.map(|(name, _)| json!({ "name": name, "emptyDir": {} }));
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": options.pod_limit.as_secs(),
        "terminationGracePeriodSeconds": GRACE.as_secs(),
        "shareProcessNamespace": true,
        "enableServiceLinks": false,
        "nodeSelector": { OS: "linux" },
        "containers": [{
            "name": CONTAINER,
            "image": options.image,
            "command": options.argv,
            "securityContext": { "privileged": true, "runAsUser": 0, "runAsGroup": 0 },
            // A lab with a case takes up to 300 MiB, and a processor while it comes up. The node is guarded by the second.
            "resources": { "requests": { "cpu": "500m", "memory": "512Mi" }, "limits": { "memory": "2Gi" } },
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    if !options.pods.architectures.is_empty() {
        spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": ARCHITECTURE, "operator": "In", "values": options.pods.architectures },
            ] }],
        } } });
    }
    dress(&mut spec, &options.pods.pull_secrets);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": options.name, "namespace": namespace, "labels": labels },
        "spec": {
            "completionMode": "Indexed",
            "completions": options.completions,
            "parallelism": options.at_once.min(options.completions),
            "backoffLimitPerIndex": 0,
            "activeDeadlineSeconds": deadline.as_secs(),
            "ttlSecondsAfterFinished": KEPT.as_secs(),
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::api::batch::v1::Job;

    use super::*;
    use crate::{Connection, PodOptions};

    pub(in super::super) fn options() -> IndexedJobOptions {
        IndexedJobOptions {
            connection: Connection::default(),
            namespace: None,
            name: "plumbline-sweep-1".to_owned(),
            image: "r/lab:1".to_owned(),
            pods: PodOptions {
                pull_secrets: vec!["s".to_owned()],
                architectures: vec!["arm64".to_owned()],
            },
            argv: vec!["/plumbline".to_owned(), "chaos".to_owned()],
            completions: 10,
            at_once: 4,
            pod_limit: Duration::from_secs(1000),
            pod_takes: Duration::from_secs(100),
        }
    }

    #[test]
    fn each_index_is_played_once_within_limits_by_a_pod_that_may_make_labs() {
        let text = job(&options(), "ns");
        let typed: Job = serde_json::from_value(text.clone()).expect("a Job");
        // Unknown fields would be lost here.
        assert_eq!(serde_json::to_value(&typed).expect("JSON"), text);
        let spec = typed.spec.expect("its spec");
        assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
        assert_eq!((spec.completions, spec.parallelism), (Some(10), Some(4)));
        assert_eq!(spec.backoff_limit_per_index, Some(0));
        assert_eq!(spec.active_deadline_seconds, Some(3600 + 1000 + 3 * 100));
        assert_eq!(spec.ttl_seconds_after_finished, Some(3600));
        let pod = &text["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["activeDeadlineSeconds"], 1000);
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "s" }]));
        assert_eq!(pod["containers"][0]["command"], json!(["/plumbline", "chaos"]));
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(
            (&context["privileged"], &context["runAsUser"]),
            (&json!(true), &json!(0))
        );
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[field].is_null(), "{field} is the node's");
        }
        assert!(text.to_string().contains("arm64"));
        assert!(!text.to_string().contains("hostPath"));
    }

    #[test]
    fn what_is_made_is_found_by_its_label() {
        let label = |object: &Value| object["metadata"]["labels"][JOB].clone();
        let job = job(&options(), "ns");
        for object in [&job, &job["spec"]["template"], &namespace("plumbline-sweep-1")] {
            assert_eq!(label(object), "plumbline-sweep-1");
        }
        assert_eq!(selector("x"), "plumbline-job=x");
        assert_eq!(namespace("x")["metadata"]["labels"][ADMITS], "privileged");
        let few = IndexedJobOptions {
            completions: 2,
            ..options()
        };
        assert_eq!(super::job(&few, "ns")["spec"]["parallelism"], 2);
    }
}
