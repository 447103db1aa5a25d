//! What the status of a Job's pod says.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::pods::{PodProgress, look};

/// Annotation with the index of a pod, which the Job controller sets.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What every container waits for in the beginning.
const CREATING: &str = "ContainerCreating";

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not run yet; the cause, if one is known.
    Waiting(Option<String>),
    /// It never will.
    Hopeless(String),
    Running,
    /// It has ended; what was wrong with that, if something was.
    Ended(Option<String>),
}

/// The index of a pod.
pub(super) fn index(pod: &Pod) -> Option<u32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

pub(super) fn standing(pod: &Pod) -> Standing {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => return Standing::Ended(None),
        Some("Failed") => return Standing::Ended(Some(end(pod))),
        // It is being deleted, so it will have no result.
        _ if pod.metadata.deletion_timestamp.is_some() => {
            return Standing::Ended(Some("its pod was deleted".to_owned()));
        }
        Some("Running") => return Standing::Running,
        _ => {}
    }
    if let PodProgress::Hopeless(why) = look(pod) {
        return Standing::Hopeless(why);
    }
    let mut conditions = status.conditions.unwrap_or_default().into_iter();
    let unscheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled {
        return Standing::Waiting(condition.message.or(condition.reason));
    }
    let containers = status.container_statuses.unwrap_or_default();
    let mut waiting = containers.into_iter().filter_map(|one| one.state?.waiting);
    let reason = |reason: &String| reason != CREATING;
    Standing::Waiting(waiting.find_map(|one| one.message.or(one.reason.filter(reason))))
}

/// How a pod that failed ended: by the kubelet's word, else by its container's.
fn end(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let said: Vec<String> = [status.reason, status.message].into_iter().flatten().collect();
    if !said.is_empty() {
        return format!("its pod ended: {}", said.join(": "));
    }
    let containers = status.container_statuses.unwrap_or_default();
    let ended = containers.into_iter().find_map(|one| one.state?.terminated);
    let Some(ended) = ended else {
        return "its pod failed".to_owned();
    };
    let reason = ended.reason.filter(|reason| reason != "Error");
    let more: String = reason
        .into_iter()
        .chain(ended.message)
        .map(|words| format!(", {words}"))
        .collect();
    format!("its pod ended with code {}{more}", ended.exit_code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: &Value) -> Standing {
        standing(&serde_json::from_value(json!({ "status": status })).expect("a pod"))
    }

    #[test]
    fn what_has_not_ended_well_says_how_it_ended() {
        assert_eq!(of(&json!({ "phase": "Succeeded" })), Standing::Ended(None));
        let why = |status: &Value| match of(status) {
            Standing::Ended(Some(why)) => why,
            other => panic!("{other:?}"),
        };
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" });
        assert_eq!(why(&evicted), "its pod ended: Evicted: low on memory");
        let container = |ended: Value| {
            json!({ "phase": "Failed", "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": ended },
            }]})
        };
        assert_eq!(
            why(&container(json!({ "exitCode": 2, "reason": "Error" }))),
            "its pod ended with code 2"
        );
        assert_eq!(
            why(&container(json!({ "exitCode": 137, "reason": "OOMKilled" }))),
            "its pod ended with code 137, OOMKilled"
        );
        assert_eq!(why(&json!({ "phase": "Failed" })), "its pod failed");
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "status": { "phase": "Running" } });
        let deleted = standing(&serde_json::from_value(deleted).expect("a pod"));
        assert_eq!(deleted, Standing::Ended(Some("its pod was deleted".to_owned())));
    }

    #[test]
    fn what_waits_says_for_what() {
        let unscheduled = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" },
        ]});
        assert_eq!(
            of(&unscheduled),
            Standing::Waiting(Some("0/3 nodes are available".to_owned()))
        );
        let waits = |reason: &str| {
            json!({ "phase": "Pending", "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": reason } },
            }]})
        };
        assert_eq!(of(&waits(CREATING)), Standing::Waiting(None));
        assert_eq!(
            of(&waits("ErrImagePull")),
            Standing::Waiting(Some("ErrImagePull".to_owned()))
        );
        assert_eq!(
            of(&waits("ImagePullBackOff")),
            Standing::Hopeless("ImagePullBackOff".to_owned())
        );
        assert_eq!(of(&json!({ "phase": "Running" })), Standing::Running);
        assert_eq!(of(&json!({})), Standing::Waiting(None));
    }

    #[test]
    fn the_index_is_that_of_the_controller() {
        let pod = |annotations: Value| {
            index(
                &serde_json::from_value(json!({ "metadata": { "annotations": annotations } }))
                    .expect("a pod"),
            )
        };
        assert_eq!(pod(json!({ INDEX: "12" })), Some(12));
        assert_eq!(pod(json!({ INDEX: "x" })), None);
        assert_eq!(pod(json!({})), None);
    }
}
