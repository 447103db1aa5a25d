//! The agents of a kind cluster: those of `existing`, with processes that are found on this host.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use cluster::{
    EVERY_PIN,
    target::{
        Target,
        program::{Program, Ready},
    },
};
use existing::{Agents, CustomAgents, InstalledAgents, KubernetesError, Processes};
use k8s_openapi::api::core::v1::ContainerStatus;
use kube::Client;
use lab::{NetNs, agent_is_ready};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use super::{
    KindError, KindTarget, LIMITS, PodNetwork,
    access::node,
    containers::Container,
    manifests::{ADDRESSES, AGENT, CONFIGURATION},
    process_lookup,
};

/// A target that runs on kind.
#[derive(Debug)]
pub(super) struct Deployed {
    kind: KindTarget,
    target: Target,
    program: Program,
    agents: Agents,
}

impl Deployed {
    /// # Errors
    /// The file of the target lacks one of its two parts.
    pub(super) fn find(kind: KindTarget, network: PodNetwork) -> Result<Self, KindError> {
        let target = Target::find(kind.name())?;
        let parts = target.lab.clone().zip(target.cluster.clone());
        let (program, installed) = parts.ok_or_else(|| KindError::Target {
            target: kind.name().to_owned(),
            expected: "one whose file has a part lab and a part cluster".to_owned(),
        })?;
        let agents = Agents {
            // Each node has a bpffs of its own.
            pins: vec![EVERY_PIN.to_owned()],
            pod_network: network == PodNetwork::Agent,
            ..installed.into()
        };
        Ok(Self {
            kind,
            target,
            program,
            agents,
        })
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The program, if its agents can be started in other configurations: that needs the reference agent's template.
    pub(super) fn configurable(&self) -> Option<&Program> {
        (self.kind == KindTarget::Reference).then_some(&self.program)
    }

    /// Its agents in a cluster of this name.
    pub(super) fn agents(
        &self,
        client: &Client,
        cluster: &str,
        nodes: &Arc<Vec<Container>>,
    ) -> InstalledAgents {
        let processes = Arc::new(HostProcesses {
            nodes: Arc::clone(nodes),
            ready: self.program.ready.clone(),
        });
        let (client, agents) = (client.clone(), self.agents.clone());
        let agents = InstalledAgents::new(client, agents, cluster.to_owned(), Some(processes));
        match self.configurable() {
            None => agents,
            Some(program) => agents.with_custom(CustomAgents {
                variants: program.variants.clone(),
                api: program.api.clone(),
                config_map: AGENT.to_owned(),
                key: CONFIGURATION.to_owned(),
                addresses: ADDRESSES.to_owned(),
            }),
        }
    }
}

/// Waits until all agents are ready.
pub(super) async fn all_ready(agents: &InstalledAgents, nodes: &[Container]) -> Result<(), KindError> {
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let begin = Instant::now();
    loop {
        let why = agents.unready(&names).await?;
        if why.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > LIMITS.agents_ready {
            return Err(KindError::NoAgents {
                limit: LIMITS.agents_ready,
                why: why.join("; "),
            });
        }
        sleep(LIMITS.look).await;
    }
}

/// Processes of nodes, which are processes of this host.
#[derive(Debug)]
struct HostProcesses {
    nodes: Arc<Vec<Container>>,
    ready: Ready,
}

#[async_trait]
impl Processes for HostProcesses {
    async fn first(
        &self,
        name: &str,
        container: &str,
        signal: Option<Signal>,
    ) -> Result<Option<u32>, KubernetesError> {
        let node = node(&self.nodes, name).map_err(|error| KubernetesError::Api {
            what: format!("find the agent of {name}"),
            why: error.to_string(),
        })?;
        let Some(pid) = process_lookup::process(node, container) else {
            return Ok(None);
        };
        if let Some(signal) = signal {
            process_lookup::signal(&[pid], signal);
        }
        Ok(process_lookup::as_on_node(node, pid))
    }

    /// The answer of the agent itself: kubelets ask every few seconds, and not every target.
    async fn is_ready(&self, name: &str, status: &ContainerStatus) -> Option<bool> {
        let node = node(&self.nodes, name).ok()?;
        // Another agent may still answer at the port.
        process_lookup::process(node, process_lookup::id(status)?)?;
        let net = NetNs::of(node.namespace("net").ok()?);
        let asked = timeout(LIMITS.agent_ready, agent_is_ready(&net, &self.ready)).await;
        asked.ok()?.ok()
    }
}
