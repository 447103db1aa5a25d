//! A cluster by a kubeconfig: its survey, and its assembly for cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use async_trait::async_trait;
use cluster::{
    Capability, Cluster, ClusterError, Description, NodeAccess, PROBE, Parts, PodAccess,
    spawn::{Placed, Placement},
    target::Agent,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{
    ExecArguments, Host, KubernetesError, LIMITS, Options, Tier, agents,
    api_servers::ListedServers,
    error::words,
    node_access,
    node_discovery::scout,
    options::{host_pod, on_host},
    software,
    survey::{self, survey},
};

/// What another process needs to attach to the same cluster, except for the provider's own parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// Options of the run.
    pub options: Options,
    /// Description from the survey.
    pub description: Description,
    /// Facts of the nodes, under [`Tier::Node`].
    #[serde(default)]
    pub host: Option<Host>,
}

/// Parts of a cluster that a provider has of its own. Missing parts use the API.
#[derive(Clone, Default)]
pub struct Own {
    /// Pods; by default [`ApiPods`].
    pub pods: Option<Arc<dyn PodAccess>>,
    /// Other parts; by default nodes through pods of the run, agents if the target describes their pods, and the API
    /// servers that `default/kubernetes` lists.
    pub parts: Parts,
}

/// A cluster by a kubeconfig.
pub struct KubernetesCluster {
    about: About,
    left_out: Vec<String>,
    client: Client,
    own: Own,
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
    /// Surveys a cluster: whether it answers, the permissions of the account, nodes and families. Writes nothing.
    ///
    /// # Errors
    /// The cluster can't be used for cases; see [`KubernetesError`].
    pub async fn survey(options: Options, own: Own) -> Result<Self, KubernetesError> {
        let client = options.connection.client().await?;
        let own = with_agents(own, &client, &options);
        let (description, left_out) = survey(&client, &options, &own.parts).await?;
        Ok(Self {
            about: About {
                options,
                description,
                host: None,
            },
            left_out,
            client,
            own,
        })
    }

    /// Attaches to a cluster that another process has surveyed.
    ///
    /// # Errors
    /// The kubeconfig is gone.
    pub async fn attach(about: About, own: Own) -> Result<Self, KubernetesError> {
        let client = about.options.connection.client().await?;
        let own = with_agents(own, &client, &about.options);
        Ok(Self {
            about,
            left_out: Vec::new(),
            client,
            own,
        })
    }

    /// The cluster for cases, as far as it is surveyed.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        let About {
            options,
            description,
            host,
        } = &self.about;
        let mut parts = self.own.parts.clone();
        parts.nodes.get_or_insert_with(|| {
            Arc::new(RunPods {
                options: options.clone(),
                cgroup: host.as_ref().map(|host| host.cgroup.clone()),
            })
        });
        if parts.control_plane.is_none() && description.capabilities.contains(&Capability::ApiServers) {
            parts.control_plane = Some(Arc::new(ListedServers(self.client.clone())));
        }
        let pods = self.own.pods.clone();
        let pods = pods.unwrap_or_else(|| Arc::new(ApiPods::new(self.client.clone(), options.clone())));
        Cluster::new(description.clone(), self.client.clone(), pods, parts)
    }

    /// Finds nodes by pods, where the account may not list nodes: under [`Tier::Namespaced`], when the run holds the
    /// namespace.
    ///
    /// # Errors
    /// No node accepts a pod; the image can't be pulled.
    pub async fn find_nodes(&mut self) -> Result<(), KubernetesError> {
        if self.about.options.tier == Tier::Namespaced {
            self.about.description.nodes = scout(&self.client, &self.about.options).await?;
        }
        Ok(())
    }

    /// Reads facts of the nodes through the run's pods, if the tier has such.
    ///
    /// # Errors
    /// A node can't be entered, or has no cgroup v2; or the paths of cgroup v2 differ.
    pub async fn look_at_hosts(&mut self) -> Result<(), KubernetesError> {
        let About {
            options, description, ..
        } = &self.about;
        if options.tier >= Tier::Node {
            self.about.host = Some(node_access::look(&self.client, options, &description.nodes).await?);
        }
        Ok(())
    }

    /// Reads the software of the cluster, of these agents or of those of the target; `images` are those of nodes that
    /// are containers. What can't be read is listed.
    pub async fn look_at_software(&mut self, agent: Option<&Agent>, images: &BTreeMap<String, String>) {
        let About {
            options, description, ..
        } = &self.about;
        let agent = agent.or(options.tested.agents.as_ref().map(|agents| &agents.agent));
        let nodes = &description.nodes;
        self.about.description.software = software::read(&self.client, nodes, agent, images).await;
    }

    /// Nodes that are not used, each with its reason; empty in a process that has attached.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The value for [`KubernetesCluster::attach`].
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }
}

/// Adds the agents that the target describes, unless the provider has a part for them.
fn with_agents(mut own: Own, client: &Client, options: &Options) -> Own {
    if own.parts.agents.is_none() {
        own.parts.agents = agents::agents(client, options);
    }
    own
}

/// Prepares a program in a pod by the API, with its pipes bridged.
fn in_pod(
    options: &Options,
    namespace: &str,
    pod: String,
    argv: Vec<String>,
) -> Result<Placed, ClusterError> {
    let arguments = ExecArguments {
        connection: options.connection.clone(),
        namespace: namespace.to_owned(),
        pod,
        argv,
    };
    let mut command = Command::new(&options.plumbline);
    let arguments = arguments.to_json();
    let arguments =
        arguments.map_err(|error| ClusterError::failed(format!("start a program in {namespace}"), error))?;
    command.arg("exec-in-pod").arg(arguments);

    Ok(Placed {
        command,
        placement: Placement::default(),
    })
}

/// Nodes through the run's pods with host network; under [`Tier::Node`] these are privileged and start root's
/// processes on the node.
#[derive(Debug)]
struct RunPods {
    options: Options,
    /// Path of the cgroup v2 hierarchy, if it was read.
    cgroup: Option<PathBuf>,
}

#[async_trait]
impl NodeAccess for RunPods {
    fn capabilities(&self) -> BTreeSet<Capability> {
        survey::of_nodes(&self.options)
    }

    async fn command(&self, node: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        let options = &self.options;
        let argv = if options.tier >= Tier::Node {
            on_host(&options.program, argv)
        } else {
            in_image(&options.program, argv)
        };
        in_pod(options, &options.namespace, host_pod(node), argv)
    }

    fn cgroup_root(&self) -> &Path {
        self.cgroup
            .as_deref()
            .unwrap_or_else(|| Path::new("/sys/fs/cgroup"))
    }

    async fn baseline(&self, _: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        Err(ClusterError::unsupported(
            "tell what nodes had before their agents",
        ))
    }
}

/// Pods by the API.
#[derive(Clone)]
pub struct ApiPods {
    client: Client,
    options: Options,
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for ApiPods {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("ApiPods");
        debug.field("options", &self.options).finish_non_exhaustive()
    }
}

impl ApiPods {
    /// Pods of this client's cluster.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Self {
        Self { client, options }
    }

    /// Sends a request, with the time limit of one.
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

#[async_trait]
impl PodAccess for ApiPods {
    async fn command(&self, namespace: &str, pod: &str, argv: &[String]) -> Result<Placed, ClusterError> {
        let options = &self.options;
        let argv = in_image(&options.program, argv);
        in_pod(options, namespace, pod.to_owned(), argv)
    }

    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("read the log of {namespace}/{pod}");
        let log = self.ask(&what, pods.logs(pod, &LogParams::default())).await?;
        Ok(served(&log))
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        let what = "reach the API server";
        self.ask(what, self.client.apiserver_version()).await.map(drop)
    }

    /// Saves the nodes, if they may be listed; the harness saves objects and logs of the case.
    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        let failed = |why: String| ClusterError::Failed {
            what: format!("write evidence into {}", folder.display()),
            why,
        };
        if self.options.confined().is_some() {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = self.ask("list nodes", nodes.list(&ListParams::default())).await?;
        let text = serde_json::to_vec_pretty(&nodes.items).map_err(|error| failed(error.to_string()))?;
        fs::write(folder.join("nodes.json"), text).map_err(|error| failed(error.to_string()))
    }
}

/// The stdout of a server, whose lines are objects, from a container log that also contains stderr.
fn served(log: &str) -> String {
    log.split_inclusive('\n')
        .filter(|line| line.starts_with('{'))
        .collect()
}

/// A command line with the paths of the image's programs.
fn in_image(program: &str, argv: &[String]) -> Vec<String> {
    let own = || program.to_owned();
    let (first, rest) = match argv.split_first() {
        Some((first, rest)) if first == PROBE => (vec![own(), PROBE.to_owned()], rest),
        Some((first, rest)) if first == "plumbline" => (vec![own()], rest),
        _ => (Vec::new(), argv),
    };
    [&first, rest].concat()
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
