//! The agents of a cluster: pods of a DaemonSet, stopped and started by a label of their nodes.
//!
//! A stopped agent's node has the label [`STOPPED`], which the DaemonSet avoids by an affinity. An agent in a
//! variant, or with another API endpoint, is a custom pod from the DaemonSet's template, on a node with the label.
//! Pods are replaced at each start, so records about earlier ones are in the cluster's folder.
//!
//! Files: this one; `objects` (writes to the API); `custom_pod` (variants and redirected agents); `pods` (status of
//! agents' pods).

mod custom_pod;
mod objects;
mod pods;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use cluster::{AgentState, ApiEndpoint, Stop, Variant, target::program::Program};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, LogParams},
};
use lab::{NetNs, agent_is_ready};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::{sleep, timeout};

use super::{
    KindError, LIMITS,
    config::KindTarget,
    containers::Container,
    error::api_error,
    manifests::{AGENT, NAMESPACE},
    process_lookup::{self, container_id},
    programs::install,
    state::Folder,
};

pub(super) use self::objects::{
    apply, exclude_stopped_nodes, expect_proxy, nodes_ready, set_proxy_api_server,
};
use self::{
    custom_pod::{AgentOverrides, OTHER},
    objects::{label, rollout},
    pods::{last_exit, starts, unready_reason},
};

/// The agents of one cluster.
#[derive(Debug)]
pub(super) struct Agents {
    program: Program,
    daemon_set: &'static str,
    /// Selects the DaemonSet's pods and custom pods.
    selector: String,
    folder: Folder,
}

impl Agents {
    pub(super) fn new(kind: KindTarget, program: Program, folder: Folder) -> Self {
        let (daemon_set, selector) = match kind {
            KindTarget::Reference => (AGENT, format!("app.kubernetes.io/name in ({AGENT},{OTHER})")),
            KindTarget::KubeProxyIptables | KindTarget::KubeProxyNftables => {
                ("kube-proxy", "k8s-app=kube-proxy".to_owned())
            }
        };
        Self {
            program,
            daemon_set,
            selector,
            folder,
        }
    }

    /// Start, readiness and clean-up of the agent.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// Whether agents support another API endpoint: custom pods need the reference agent's template.
    pub(super) fn supports_api_endpoint(&self) -> bool {
        self.daemon_set == AGENT
    }

    /// Name of the agents' DaemonSet.
    pub(super) fn daemon_set(&self) -> &'static str {
        self.daemon_set
    }

    /// Copies the program of a running agent to its node, for the clean-up: its container is removed at each stop.
    pub(super) async fn keep_program(&self, client: &Client, node: &Container) -> Result<(), KindError> {
        let pid = self
            .state(client, node)
            .await?
            .pid
            .ok_or_else(|| KindError::Unexpected {
                what: format!("keep the program of the agent of {}", node.name),
                why: "it does not run".to_owned(),
            })?;
        install(
            node,
            Path::new(&format!("/proc/{pid}/exe")),
            &self.program.program,
        )
    }

    /// State of the agent of a node.
    pub(super) async fn state(&self, client: &Client, node: &Container) -> Result<AgentState, KindError> {
        let record = self.folder.agent(&node.name)?;
        let pods = self.pods(client, &node.name).await?;
        let pod = pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
        let pid = pod
            .and_then(container_id)
            .and_then(|id| process_lookup::process(node, id));
        let ready = match pid {
            Some(_) => self.is_ready(node).await,
            None => None,
        };
        let crashed = pod.and_then(last_exit);
        Ok(AgentState {
            pid,
            starts: record.starts + pods.iter().map(starts).sum::<u32>(),
            ready,
            last_exit: crashed.or(record.last_exit),
            way: record.way,
            variant: record.variant,
        })
    }

    async fn is_ready(&self, node: &Container) -> Option<bool> {
        let net = NetNs::of(node.namespace("net").ok()?);
        let asked = timeout(LIMITS.agent_ready, agent_is_ready(&net, &self.program.ready)).await;
        asked.ok().and_then(Result::ok)
    }

    /// Stops the agent until it is started again.
    pub(super) async fn stop(&self, client: &Client, node: &Container, how: Stop) -> Result<(), KindError> {
        let pods = self.pods(client, &node.name).await?;
        label(client, &node.name, true).await?;
        if how == Stop::Kill {
            // Signals before the DaemonSet's controller and kubelet react to the label.
            for pid in pods
                .iter()
                .filter_map(container_id)
                .filter_map(|id| process_lookup::process(node, id))
            {
                let pid = i32::try_from(pid).map(Pid::from_raw);
                // The process may have ended meanwhile.
                pid.map(|pid| kill(pid, Signal::SIGKILL).ok()).ok();
            }
        }
        custom_pod::remove(client, &node.name).await?;
        self.gone(client, node).await?;
        let mut record = self.folder.agent(&node.name)?;
        record.starts += pods.iter().map(starts).sum::<u32>();
        if !pods.is_empty() {
            let signal = match how {
                Stop::Term => "SIGTERM",
                Stop::Kill => "SIGKILL",
            };
            record.last_exit = Some(format!("ended by {signal}"));
        }
        record.variant = None;
        self.folder.set_agent(&node.name, &record)
    }

    /// Sets the API endpoint for the next starts; the agent must be stopped.
    pub(super) async fn set_api_endpoint(
        &self,
        client: &Client,
        node: &Container,
        endpoint: Option<&ApiEndpoint>,
    ) -> Result<(), KindError> {
        if !self.pods(client, &node.name).await?.is_empty() {
            return Err(KindError::Unexpected {
                what: format!("set the API endpoint of the agent of {}", node.name),
                why: "it runs; stop it first".to_owned(),
            });
        }
        let mut record = self.folder.agent(&node.name)?;
        record.way = endpoint.cloned();
        match endpoint {
            Some(endpoint) => {
                custom_pod::write_config_map(client, &node.name, endpoint).await?;
                self.folder.set_agent(&node.name, &record)
            }
            // Recorded first: otherwise the record would name a ConfigMap that no longer exists.
            None => {
                self.folder.set_agent(&node.name, &record)?;
                custom_pod::remove_config_map(client, &node.name).await
            }
        }
    }

    /// Starts the agent, if it does not run in this configuration; `None`: the target's default.
    pub(super) async fn start(
        &self,
        client: &Client,
        node: &Container,
        variant: Option<Variant>,
    ) -> Result<(), KindError> {
        let mut record = self.folder.agent(&node.name)?;
        let runs = self.state(client, node).await?.pid.is_some();
        if runs && record.variant == variant {
            return Ok(());
        }
        if runs {
            self.stop(client, node, Stop::Term).await?;
            record = self.folder.agent(&node.name)?;
        }
        let overrides = AgentOverrides {
            program: &self.program,
            daemon_set: self.daemon_set,
            variant,
            endpoint: record.way.as_ref(),
        };
        if overrides.is_none() {
            label(client, &node.name, false).await?;
        } else {
            custom_pod::make(client, &node.name, &overrides).await?;
        }
        record.variant = variant;
        self.folder.set_agent(&node.name, &record)?;
        let wait = async {
            while self.state(client, node).await?.pid.is_none() {
                sleep(LIMITS.look).await;
            }
            Ok(())
        };
        let started = timeout(LIMITS.agent, wait).await;
        started.unwrap_or_else(|_| Err(late(format!("start the agent of {}", node.name))))
    }

    /// Resets agents that a killed run has left in a variant, redirected or stopped.
    pub(super) async fn reset_agents(&self, client: &Client, nodes: &[Container]) -> Result<(), KindError> {
        for node in nodes {
            let pods = self.pods(client, &node.name).await?;
            let mut record = self.folder.agent(&node.name)?;
            // The run may have been killed between creating a pod and recording it.
            let is_other = pods.iter().any(custom_pod::is_custom);
            if is_other || record.variant.is_some() || record.way.is_some() {
                self.stop(client, node, Stop::Term).await?;
                record = self.folder.agent(&node.name)?;
                record.way = None;
                self.folder.set_agent(&node.name, &record)?;
            }
            custom_pod::remove_config_map(client, &node.name).await?;
            label(client, &node.name, false).await?;
        }
        Ok(())
    }

    /// Waits until all agents are ready.
    pub(super) async fn all_ready(&self, client: &Client, nodes: &[Container]) -> Result<(), KindError> {
        let begin = Instant::now();
        loop {
            let mut late = Vec::new();
            let mut why = Vec::new();
            for node in nodes {
                let state = self.state(client, node).await?;
                if state.ready != Some(true) {
                    late.push(node.name.clone());
                    why.extend(self.pods(client, &node.name).await?.iter().map(unready_reason));
                }
            }
            if let Some(unfinished) = rollout(client, self.daemon_set).await? {
                late.push(format!("the DaemonSet {}", self.daemon_set));
                why.push(unfinished);
            }
            if late.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > LIMITS.agents_ready {
                return Err(KindError::NoAgents {
                    nodes: late.join(", "),
                    limit: LIMITS.agents_ready,
                    why: if why.is_empty() {
                        "they have no pods".to_owned()
                    } else {
                        why.join("; ")
                    },
                });
            }
            sleep(LIMITS.look).await;
        }
    }

    /// Log of the agent of a node, if its pod exists.
    pub(super) async fn log(&self, client: &Client, node: &str) -> Result<String, KindError> {
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let mut text = String::new();
        for pod in self.pods(client, node).await? {
            let name = pod.name_any();
            let what = format!("read the log of {name}");
            text += &api
                .logs(&name, &LogParams::default())
                .await
                .map_err(api_error(what))?;
        }
        Ok(text)
    }

    async fn pods(&self, client: &Client, node: &str) -> Result<Vec<Pod>, KindError> {
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let params = ListParams::default()
            .labels(&self.selector)
            .fields(&format!("spec.nodeName={node}"));
        let what = format!("list the agents of {node}");
        let begin = Instant::now();
        loop {
            match api.list(&params).await {
                Ok(listed) => return Ok(listed.items),
                // A connection ends with the API server that a case has stopped; another one answers.
                Err(error) if !matches!(error, kube::Error::Api(_)) && begin.elapsed() < LIMITS.request => {
                    sleep(LIMITS.look).await;
                }
                Err(error) => return Err(api_error(what)(error)),
            }
        }
    }

    /// Waits until no pod and no process of the agent is left.
    async fn gone(&self, client: &Client, node: &Container) -> Result<(), KindError> {
        let wait = async {
            while !self.pods(client, &node.name).await?.is_empty() {
                sleep(LIMITS.look).await;
            }
            Ok(())
        };
        let ended = timeout(LIMITS.agent, wait).await;
        ended.unwrap_or_else(|_| Err(late(format!("end the agent of {}", node.name))))
    }
}

/// The error for an operation that exceeds its limit.
fn late(what: String) -> KindError {
    KindError::Unexpected {
        what,
        why: format!("it had not happened after {:?}", LIMITS.agent),
    }
}

/// Path of an agent's program on its node, for the clean-up.
pub(super) fn program_path(program: &Program) -> PathBuf {
    Path::new(super::PROGRAMS).join(&program.program)
}
