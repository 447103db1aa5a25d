//! Reads the state of agents from their pods.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// Number of starts of its container.
pub(super) fn starts(pod: &Pod) -> u32 {
    let status = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref()?.first());
    let Some(status) = status else { return 0 };
    let has_begun = status.container_id.is_some();
    u32::try_from(status.restart_count).unwrap_or_default() + u32::from(has_begun)
}

/// How its container ended last, as text.
pub(super) fn last_exit(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    Some(format!("exit code {}", ended.exit_code))
}

/// Why a pod is not ready, from its status.
pub(super) fn unready_reason(pod: &Pod) -> String {
    let status = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref()?.first());
    let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
    let why = waiting.map(|waiting| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}", text(&waiting.reason), text(&waiting.message))
    });
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    let why = why.or(last_exit(pod)).or(phase).unwrap_or_default();
    format!("{}: {}", pod.name_any(), why.trim())
}
