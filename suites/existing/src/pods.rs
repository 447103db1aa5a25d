//! Pods of the run: creates, removes and awaits them, and explains why they don't run.

use cluster::dress::{dress, has_no_account};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{KubernetesError, LIMITS, Options, error::api, limits::ask};

/// Waiting reasons of a container that are final, as the kubelet names them.
const HOPELESS: &[&str] = &[
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// A pod of the run, with the common settings.
pub(super) fn dressed(options: &Options, mut pod: Value) -> serde_json::Result<Pod> {
    dress(&mut pod["spec"], &options.pods.pull_secrets);
    serde_json::from_value(pod)
}

/// Creates a pod in place of one that an earlier run has left, maybe with another image.
pub(super) async fn replace(pods: &Api<Pod>, name: &str, pod: &Pod) -> Result<(), KubernetesError> {
    let what = format!("make the pod {name}");
    match make(pods, &what, pod).await? {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            remove(pods, name).await?;
            make(pods, &what, pod).await?.map_err(api(&what))?;
        }
        // 422 comes from an API server without --allow-privileged.
        Err(kube::Error::Api(status))
            if status.is_forbidden() || (status.code == 422 && status.message.contains("privileged")) =>
        {
            return Err(KubernetesError::Refused {
                what,
                why: status.message,
            });
        }
        made => drop(made.map_err(api(&what))?),
    }
    Ok(())
}

/// Creates a pod, as soon as its namespace has the ServiceAccount.
async fn make(pods: &Api<Pod>, what: &str, pod: &Pod) -> Result<kube::Result<Pod>, KubernetesError> {
    let params = PostParams::default();
    let began = Instant::now();
    loop {
        let made = ask(what, pods.create(&params, pod)).await?;
        if began.elapsed() >= LIMITS.account || !made.as_ref().is_err_and(has_no_account) {
            return Ok(made);
        }
        sleep(LIMITS.look).await;
    }
}

/// Removes a pod, if it exists, and returns when it is gone.
pub(super) async fn remove(pods: &Api<Pod>, name: &str) -> Result<(), KubernetesError> {
    let what = format!("remove the pod {name}");
    let params = DeleteParams::default().grace_period(0);
    match ask(&what, pods.delete(name, &params)).await? {
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        done => drop(done.map_err(api(&what))?),
    }
    let began = Instant::now();
    while ask(&what, pods.get_opt(name))
        .await?
        .map_err(api(&what))?
        .is_some()
    {
        if began.elapsed() >= LIMITS.pods {
            return Err(KubernetesError::Late {
                what,
                limit: LIMITS.pods,
            });
        }
        sleep(LIMITS.look).await;
    }
    Ok(())
}

/// Waits until a pod is Ready.
///
/// # Errors
/// [`KubernetesError::Image`], as soon as its container can't be started; [`KubernetesError::Late`].
pub(super) async fn until_ready(
    pods: &Api<Pod>,
    name: &str,
    node: &str,
    options: &Options,
) -> Result<(), KubernetesError> {
    let what = format!("start the image {} on the node {node}", options.image);
    let began = Instant::now();
    loop {
        let pod = ask(&what, pods.get(name)).await?.map_err(api(&what))?;
        match look(&pod) {
            PodProgress::Ready => return Ok(()),
            PodProgress::Hopeless(why) => {
                return Err(KubernetesError::Image {
                    image: options.image.clone(),
                    node: node.to_owned(),
                    why,
                });
            }
            PodProgress::Coming if began.elapsed() >= LIMITS.pods => {
                return Err(KubernetesError::Late {
                    what,
                    limit: LIMITS.pods,
                });
            }
            PodProgress::Coming => sleep(LIMITS.look).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodProgress {
    Ready,
    Coming,
    Hopeless(String),
}

pub(super) fn look(pod: &Pod) -> PodProgress {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    if conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
    {
        return PodProgress::Ready;
    }
    if let Some(status) = status.filter(|status| status.phase.as_deref() == Some("Failed")) {
        let why = status.message.clone().or_else(|| status.reason.clone());
        return PodProgress::Hopeless(why.unwrap_or_else(|| "the pod has failed".to_owned()));
    }
    let containers = status
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default();
    let waiting = containers
        .iter()
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref())
        .find(|waiting| {
            waiting
                .reason
                .as_deref()
                .is_some_and(|reason| HOPELESS.contains(&reason))
        });
    match waiting {
        Some(waiting) => {
            let reason = waiting.reason.clone().unwrap_or_default();
            PodProgress::Hopeless(match &waiting.message {
                Some(message) => format!("{reason}: {message}"),
                None => reason,
            })
        }
        None => PodProgress::Coming,
    }
}

/// Whether a pod is on a node and not terminating.
pub(super) fn on(pod: &Pod, node: &str) -> bool {
    let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    placed == Some(node) && pod.metadata.deletion_timestamp.is_none()
}

/// Status of a container of a pod.
pub(super) fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    all.iter().find(|status| status.name == container)
}

/// Id of a running container, without the name of its runtime.
pub(super) fn running(status: &ContainerStatus) -> Option<&str> {
    status.state.as_ref()?.running.as_ref()?;
    let id = status.container_id.as_deref()?;
    Some(id.rsplit('/').next().unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn progress(status: &Value) -> PodProgress {
        look(&serde_json::from_value(json!({ "status": status })).unwrap())
    }

    #[test]
    fn an_image_that_cannot_be_had_is_told_from_one_that_comes() {
        let waits = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "not found"}},
            }]})
        };
        assert_eq!(progress(&waits("ContainerCreating")), PodProgress::Coming);
        assert_eq!(
            progress(&waits("ErrImagePull")),
            PodProgress::Coming,
            "the first try is no verdict"
        );
        assert_eq!(
            progress(&waits("ImagePullBackOff")),
            PodProgress::Hopeless("ImagePullBackOff: not found".to_owned())
        );
        assert_eq!(progress(&json!({})), PodProgress::Coming);
        assert_eq!(
            progress(&json!({"phase": "Failed", "reason": "NodeAffinity"})),
            PodProgress::Hopeless("NodeAffinity".to_owned())
        );
        assert_eq!(
            progress(&json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            PodProgress::Ready
        );
    }
}
