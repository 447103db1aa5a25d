//! Builds the status of a pod and writes it to the API server.

use std::net::IpAddr;

use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::spec::Problem;
use crate::backoff::Backoff;

/// Inputs of a pod's status.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// When the kubelet saw the pod first.
    pub(super) taken: Timestamp,
    /// Addresses of its node, primary family first.
    pub(super) hosts: Vec<IpAddr>,
    /// Addresses of the pod, primary family first; empty until it has some.
    pub(super) addresses: Vec<IpAddr>,
    /// Name and image of container 0.
    pub(super) container: String,
    pub(super) image: String,
    /// Number of restarts.
    pub(super) restarts: u32,
    /// State of the container.
    pub(super) state: State,
    /// When [`Facts::ready`] changed last.
    pub(super) ready_since: Timestamp,
    /// How its last run ended.
    pub(super) last_end: Option<End>,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// The container does not run yet, or will run again.
    Waiting(Problem),
    /// The container runs; `ready` when it serves.
    Running { since: Timestamp, ready: bool },
    /// The container has ended for good.
    Ended(End),
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) signal: Option<i32>,
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
    /// The last lines of its stderr.
    pub(super) message: String,
}

impl Facts {
    /// Whether the pod serves.
    pub(super) fn ready(&self) -> bool {
        matches!(self.state, State::Running { ready: true, .. })
    }

    /// The status object. It has no QoS class: the API server sets it once, and refuses any other.
    pub(super) fn status(&self) -> PodStatus {
        let condition = |kind: &str, yes: bool, since: Timestamp| PodCondition {
            type_: kind.to_owned(),
            status: if yes { "True" } else { "False" }.to_owned(),
            last_transition_time: Some(Time(since)),
            ..PodCondition::default()
        };
        let ready = self.ready();
        PodStatus {
            phase: Some(self.phase().to_owned()),
            conditions: Some(vec![
                condition("PodScheduled", true, self.taken),
                condition("Initialized", true, self.taken),
                condition("ContainersReady", ready, self.ready_since),
                condition("Ready", ready, self.ready_since),
            ]),
            host_ip: self.hosts.first().map(IpAddr::to_string),
            host_ips: Some(
                self.hosts
                    .iter()
                    .map(|host| HostIP { ip: host.to_string() })
                    .collect(),
            ),
            pod_ip: self.addresses.first().map(IpAddr::to_string),
            // Omitted while there are none: a merge patch of an empty list would remove addresses.
            pod_ips: (!self.addresses.is_empty()).then(|| {
                self.addresses
                    .iter()
                    .map(|ip| PodIP { ip: ip.to_string() })
                    .collect()
            }),
            start_time: Some(Time(self.taken)),
            container_statuses: Some(vec![self.container_status()]),
            ..PodStatus::default()
        }
    }

    fn phase(&self) -> &'static str {
        match &self.state {
            State::Waiting(_) if self.last_end.is_none() => "Pending",
            State::Waiting(_) | State::Running { .. } => "Running",
            State::Ended(End { code: 0, .. }) => "Succeeded",
            State::Ended(_) => "Failed",
        }
    }

    fn container_status(&self) -> ContainerStatus {
        let mut state = ContainerState::default();
        match &self.state {
            State::Waiting(problem) => {
                state.waiting = Some(ContainerStateWaiting {
                    reason: Some(problem.reason.to_owned()),
                    message: Some(problem.message.clone()).filter(|message| !message.is_empty()),
                });
            }
            State::Running { since, .. } => {
                state.running = Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                });
            }
            State::Ended(end) => state.terminated = Some(end.terminated()),
        }
        let last_state = self.last_end.as_ref().map(|end| ContainerState {
            terminated: Some(end.terminated()),
            ..ContainerState::default()
        });
        ContainerStatus {
            name: self.container.clone(),
            image: self.image.clone(),
            ready: self.ready(),
            started: Some(matches!(self.state, State::Running { .. })),
            restart_count: i32::try_from(self.restarts).unwrap_or(i32::MAX),
            state: Some(state),
            last_state,
            ..ContainerStatus::default()
        }
    }
}

impl End {
    fn terminated(&self) -> ContainerStateTerminated {
        ContainerStateTerminated {
            exit_code: self.code,
            signal: self.signal,
            reason: Some(if self.code == 0 { "Completed" } else { "Error" }.to_owned()),
            message: Some(self.message.clone()).filter(|message| !message.is_empty()),
            started_at: Some(Time(self.begin)),
            finished_at: Some(Time(self.end)),
            ..ContainerStateTerminated::default()
        }
    }
}

/// Writes the newest status of a pod, with retries, until the API server accepts it or the pod is gone. Ends when the
/// sender of `facts` is dropped. Outdated statuses are skipped.
pub(super) async fn write(api: Api<Pod>, pod: Pod, mut facts: watch::Receiver<Option<Facts>>) {
    let name = pod.name_any();
    while facts.changed().await.is_ok() {
        let mut backoff = Backoff::writes();
        loop {
            let Some(newest) = facts.borrow_and_update().clone() else {
                break;
            };
            // The uid protects a later pod of the same name.
            let patch = json!({"metadata": {"uid": pod.uid()}, "status": newest.status()});
            match api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => break,
                Err(error) => {
                    tracing::warn!(pod = name, %error, "the pod's status could not be written");
                    tokio::select! {
                        () = sleep(backoff.wait()) => {}
                        changed = facts.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(state: State) -> Facts {
        let taken = Timestamp::from_second(1).expect("a time");
        Facts {
            taken,
            hosts: vec!["172.30.0.101".parse().expect("address")],
            addresses: ["10.244.1.2", "fd00:244:1::2"]
                .map(|address| address.parse().expect("address"))
                .to_vec(),
            container: "c".to_owned(),
            image: "probe".to_owned(),
            restarts: 0,
            state,
            ready_since: taken,
            last_end: None,
        }
    }

    fn end(code: i32) -> End {
        let time = Timestamp::from_second(2).expect("a time");
        End {
            code,
            signal: None,
            begin: time,
            end: time,
            message: "said".to_owned(),
        }
    }

    fn ready(status: &PodStatus) -> &str {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .map_or("", |c| c.status.as_str())
    }

    #[test]
    fn phase_and_readiness_follow_the_container() {
        let waiting = || {
            State::Waiting(Problem {
                reason: "ContainerCreating",
                message: String::new(),
            })
        };
        let since = Timestamp::from_second(3).expect("a time");
        let again = Facts {
            last_end: Some(end(1)),
            ..facts(waiting())
        };
        let cases = [
            (facts(waiting()), "Pending", "False"),
            (again, "Running", "False"),
            (facts(State::Running { since, ready: false }), "Running", "False"),
            (facts(State::Running { since, ready: true }), "Running", "True"),
            (facts(State::Ended(end(0))), "Succeeded", "False"),
            (facts(State::Ended(end(2))), "Failed", "False"),
        ];
        for (facts, phase, is_ready) in cases {
            let status = facts.status();
            assert_eq!(
                (status.phase.as_deref(), ready(&status)),
                (Some(phase), is_ready),
                "{facts:?}"
            );
        }
    }

    #[test]
    fn the_last_words_of_a_container_are_kept() {
        let facts = Facts {
            restarts: 3,
            last_end: Some(end(1)),
            ..facts(State::Waiting(Problem {
                reason: "CrashLoopBackOff",
                message: "back-off".to_owned(),
            }))
        };
        let containers = facts.status().container_statuses.unwrap_or_default();
        assert_eq!(containers[0].restart_count, 3);
        let last = containers[0]
            .last_state
            .clone()
            .and_then(|state| state.terminated)
            .expect("terminated");
        assert_eq!((last.exit_code, last.message.as_deref()), (1, Some("said")));
    }
}
