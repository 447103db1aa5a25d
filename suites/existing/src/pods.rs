//! Pods of the run: made, removed, and whether they run, and why not.

use cluster::dress::{dress, has_no_account};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{KubernetesError, LIMITS, Options, error::api, limits::ask};

/// Reasons of a waiting container that time does not change, as the kubelet calls them.
const HOPELESS: &[&str] = &[
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// A pod of the run, with what all of them have.
pub(super) fn dressed(options: &Options, mut pod: Value) -> serde_json::Result<Pod> {
    dress(&mut pod["spec"], &options.pods.pull_secrets);
    serde_json::from_value(pod)
}

/// Makes a pod in the place of one that an earlier run has left, which may be another image's.
pub(super) async fn replace(pods: &Api<Pod>, name: &str, pod: &Pod) -> Result<(), KubernetesError> {
    let what = format!("make the pod {name}");
    match make(pods, &what, pod).await? {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            remove(pods, name).await?;
            make(pods, &what, pod).await?.map_err(api(&what))?;
        }
        // 422 is an API server without --allow-privileged.
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

/// Makes a pod, as soon as its namespace has the account that it runs as.
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

/// Removes a pod, if there is one, and returns when it is gone.
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
            Seen::Ready => return Ok(()),
            Seen::Hopeless(why) => {
                return Err(KubernetesError::Image {
                    image: options.image.clone(),
                    node: node.to_owned(),
                    why,
                });
            }
            Seen::Coming if began.elapsed() >= LIMITS.pods => {
                return Err(KubernetesError::Late {
                    what,
                    limit: LIMITS.pods,
                });
            }
            Seen::Coming => sleep(LIMITS.look).await,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Ready,
    Coming,
    Hopeless(String),
}

pub(super) fn look(pod: &Pod) -> Seen {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    if conditions
        .iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
    {
        return Seen::Ready;
    }
    if let Some(status) = status.filter(|status| status.phase.as_deref() == Some("Failed")) {
        let why = status.message.clone().or_else(|| status.reason.clone());
        return Seen::Hopeless(why.unwrap_or_else(|| "the pod has failed".to_owned()));
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
            Seen::Hopeless(match &waiting.message {
                Some(message) => format!("{reason}: {message}"),
                None => reason,
            })
        }
        None => Seen::Coming,
    }
}

/// Whether a pod is on a node, and stays.
pub(super) fn on(pod: &Pod, node: &str) -> bool {
    let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    placed == Some(node) && pod.metadata.deletion_timestamp.is_none()
}

/// What is known of a container of a pod.
pub(super) fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let all = pod.status.as_ref()?.container_statuses.as_ref()?;
    all.iter().find(|status| status.name == container)
}

/// The id of a container that runs, without the name of its runtime.
pub(super) fn running(status: &ContainerStatus) -> Option<&str> {
    status.state.as_ref()?.running.as_ref()?;
    let id = status.container_id.as_deref()?;
    Some(id.rsplit('/').next().unwrap_or(id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(status: &Value) -> Seen {
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
        assert_eq!(seen(&waits("ContainerCreating")), Seen::Coming);
        assert_eq!(
            seen(&waits("ErrImagePull")),
            Seen::Coming,
            "the first try is no verdict"
        );
        assert_eq!(
            seen(&waits("ImagePullBackOff")),
            Seen::Hopeless("ImagePullBackOff: not found".to_owned())
        );
        assert_eq!(seen(&json!({})), Seen::Coming);
        assert_eq!(
            seen(&json!({"phase": "Failed", "reason": "NodeAffinity"})),
            Seen::Hopeless("NodeAffinity".to_owned())
        );
        assert_eq!(
            seen(&json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            Seen::Ready
        );
    }
}
