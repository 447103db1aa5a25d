//! A cluster by a kubeconfig, as cases see it.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Cluster, ClusterError, Description, HeldApiFault, PROBE,
    Place, Stop, Variant, command_line,
    spawn::{self, Placement},
    target::Agent,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use serde::{Deserialize, Serialize};
use tokio::{process::Child, time::timeout};

use super::{
    ExecArguments, Extension, Host, KubernetesError, LIMITS, Options, Tier, api_servers,
    error::words,
    hosts,
    options::{host_pod, on_host},
    scouts::scout,
    software,
    survey::survey,
};

/// Everything that another process needs to use the same cluster in the same way, but for its extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// What was told.
    pub options: Options,
    /// What was read.
    pub description: Description,
    /// What was read on the nodes, under [`Tier::Node`].
    #[serde(default)]
    pub host: Option<Host>,
}

/// A cluster by a kubeconfig.
pub struct KubernetesCluster {
    about: About,
    left_out: Vec<String>,
    client: Client,
    extension: Arc<dyn Extension>,
}

impl fmt::Debug for KubernetesCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KubernetesCluster")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl KubernetesCluster {
    /// Looks at a cluster: whether it answers, what the account may do, nodes and families. Nothing is made.
    ///
    /// # Errors
    /// It can't be used for cases; see [`KubernetesError`].
    pub async fn survey(options: Options, extension: Arc<dyn Extension>) -> Result<Self, KubernetesError> {
        let client = options.connection.client().await?;
        let (description, left_out) = survey(&client, &options, &*extension).await?;
        Ok(Self {
            about: About {
                options,
                description,
                host: None,
            },
            left_out,
            client,
            extension,
        })
    }

    /// One that another process has looked at.
    ///
    /// # Errors
    /// There is no kubeconfig any more.
    pub async fn attach(about: About, extension: Arc<dyn Extension>) -> Result<Self, KubernetesError> {
        let client = about.options.connection.client().await?;
        Ok(Self {
            about,
            left_out: Vec::new(),
            client,
            extension,
        })
    }

    /// Finds nodes by pods, where the account may not list them: under [`Tier::Namespaced`], when the run has the namespace.
    ///
    /// # Errors
    /// No node takes a pod; the image can't be had.
    pub async fn find_nodes(&mut self) -> Result<(), KubernetesError> {
        if self.about.options.tier == Tier::Namespaced {
            self.about.description.nodes = scout(&self.client, &self.about.options).await?;
        }
        Ok(())
    }

    /// Looks at the nodes themselves, where the tier has a pod on each of them: when the run has its pods.
    ///
    /// # Errors
    /// A node can't be entered, or has no cgroup v2; or they have it at different paths.
    pub async fn look_at_hosts(&mut self) -> Result<(), KubernetesError> {
        let About {
            options, description, ..
        } = &self.about;
        if options.tier >= Tier::Node {
            self.about.host = Some(hosts::look(&self.client, options, &description.nodes).await?);
        }
        Ok(())
    }

    /// Reads what runs on its nodes: agents are these, or those of the target that was told; `images` are those of nodes that are
    /// containers. What can't be read is named in it.
    pub async fn look_at_software(&mut self, agent: Option<&Agent>, images: &BTreeMap<String, String>) {
        let About {
            options, description, ..
        } = &self.about;
        let agent = agent.or(options.tested.agents.as_ref().map(|agents| &agents.agent));
        let nodes = &description.nodes;
        self.about.description.software = software::read(&self.client, nodes, agent, images).await;
    }

    /// Nodes that are not used, each with its reason, as far as this has looked at the cluster itself.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// What another process needs for [`KubernetesCluster::attach`].
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The command that runs a program in a place.
    async fn command(&self, place: &Place, argv: &[String]) -> Result<(Command, Placement), ClusterError> {
        if let Some(own) = self.extension.command(place, argv).await? {
            return Ok(own);
        }
        let options = &self.about.options;
        let (namespace, pod) = match place {
            Place::Pod { namespace, name } => (namespace.clone(), name.clone()),
            Place::Host { node } => (options.namespace.clone(), host_pod(node)),
            Place::Outside => {
                return Err(ClusterError::Unsupported {
                    what: "run anything outside of itself",
                });
            }
        };
        let is_host = matches!(place, Place::Host { .. });
        let arguments = ExecArguments {
            connection: options.connection.clone(),
            namespace,
            pod,
            argv: if is_host && options.tier >= Tier::Node {
                on_host(&options.program, argv)
            } else {
                in_image(&options.program, argv)
            },
        };
        let mut command = Command::new(&options.plumbline);
        command.args(arguments.words());
        Ok((command, Placement::default()))
    }

    /// Asks the API, for as long as one question may take.
    async fn ask<T>(
        &self,
        what: &str,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ClusterError> {
        let failed = |why: String| ClusterError::Failed {
            what: what.to_owned(),
            why,
        };
        timeout(LIMITS.request, question)
            .await
            .map_err(|_| failed(format!("no answer within {:?}", LIMITS.request)))?
            .map_err(|error| failed(words(&error)))
    }
}

/// What a server wrote to its stdout, each line an object, out of a container's log, which has its stderr, too.
fn served(log: &str) -> String {
    log.split_inclusive('\n')
        .filter(|line| line.starts_with('{'))
        .collect()
}

/// A command line as the image has its programs.
fn in_image(program: &str, argv: &[String]) -> Vec<String> {
    let own = || program.to_owned();
    let (first, rest) = match argv.split_first() {
        Some((first, rest)) if first == PROBE => (vec![own(), PROBE.to_owned()], rest),
        Some((first, rest)) if first == "plumbline" => (vec![own()], rest),
        _ => (Vec::new(), argv),
    };
    [&first, rest].concat()
}

#[async_trait]
impl Cluster for KubernetesCluster {
    fn describe(&self) -> &Description {
        &self.about.description
    }

    fn client(&self) -> Client {
        self.client.clone()
    }

    async fn exec(&self, place: &Place, argv: &[String]) -> Result<Child, ClusterError> {
        let (mut command, placement) = self.command(place, argv).await?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C is for whoever started it, who ends it in his own order.
        command.process_group(0);
        let child = spawn::spawn(command, placement).await;
        child.map_err(|error| ClusterError::Failed {
            what: format!("start `{}` {place}", command_line(argv)),
            why: error.to_string(),
        })
    }

    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("read the log of {namespace}/{pod}");
        let log = self.ask(&what, pods.logs(pod, &LogParams::default())).await?;
        Ok(served(&log))
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        // First what does not come back by itself.
        self.extension.intact().await?;
        self.ask("reach the API server", self.client.apiserver_version())
            .await?;
        Ok(())
    }

    async fn agent(&self, node: &str) -> Result<AgentState, ClusterError> {
        self.extension.agent(node).await
    }

    async fn stop_agent(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        self.extension.stop_agent(node, how).await
    }

    async fn start_agent(&self, node: &str) -> Result<(), ClusterError> {
        self.extension.start_agent(node, None).await
    }

    async fn set_agent_api_endpoint(
        &self,
        node: &str,
        way: Option<&ApiEndpoint>,
    ) -> Result<(), ClusterError> {
        self.extension.set_agent_api_endpoint(node, way).await
    }

    async fn start_agent_as(&self, node: &str, variant: Variant) -> Result<(), ClusterError> {
        self.extension.start_agent(node, Some(variant)).await
    }

    async fn wipe_state(&self, node: &str) -> Result<(), ClusterError> {
        self.extension.wipe_state(node).await
    }

    async fn baseline(&self, node: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        self.extension.baseline(node).await
    }

    async fn api_servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        if let Some(all) = self.extension.api_servers() {
            return Ok(all);
        }
        let listed = api_servers::listed(&self.client).await;
        listed.map_err(|why| ClusterError::Failed {
            what: "see the API servers".to_owned(),
            why,
        })
    }

    async fn api_fault(&self, fault: &ApiFault, lasts: Duration) -> Result<HeldApiFault, ClusterError> {
        self.extension.api_fault(fault, lasts).await
    }

    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError> {
        self.extension.jump_versions(by).await
    }

    fn cgroup_root(&self) -> &Path {
        let seen = self.about.host.as_ref().map(|host| host.cgroup.as_path());
        seen.unwrap_or_else(|| self.extension.cgroup_root())
    }

    fn pins(&self) -> Vec<String> {
        self.extension.pins()
    }

    /// Nodes, where they may be listed, and what the extension has; objects and logs of the case are the harness's.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let failed = |why: String| ClusterError::Failed {
            what: format!("write evidence into {}", folder.display()),
            why,
        };
        if self.about.options.confined().is_none() {
            let nodes: Api<Node> = Api::all(self.client.clone());
            let nodes = self.ask("list nodes", nodes.list(&ListParams::default())).await?;
            let text = serde_json::to_vec_pretty(&nodes.items).map_err(|error| failed(error.to_string()))?;
            fs::write(folder.join("nodes.json"), text).map_err(|error| failed(error.to_string()))?;
        }
        self.extension.evidence(folder).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself_is_no_part_of_what_it_served() {
        let log = "ready: b01 serves TCP/8000\n{\"a\":1}\nwarning\n{\"b\":2}\n{\"cut";
        assert_eq!(served(log), "{\"a\":1}\n{\"b\":2}\n{\"cut");
    }

    #[test]
    fn programs_of_the_suite_are_those_of_the_image() {
        let of = |line: &str| {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            in_image("/plumbline", &argv).join(" ")
        };
        assert_eq!(of("probe client"), "/plumbline probe client");
        assert_eq!(of("plumbline node remains"), "/plumbline node remains");
        assert_eq!(of("/bin/true probe"), "/bin/true probe");
    }
}
