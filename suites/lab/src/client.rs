//! A lab that is up, as its users see it.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    AgentState, ApiEndpoint, ApiFault, ApiServer, Cluster, ClusterError, Description, EVERY_PIN,
    HeldApiFault, NODE_FOLDER, Place, Stop, Variant, command_line,
    spawn::{self, Placement},
};
use kube::Client;
use tokio::process::Child;

use super::{
    LIMITS, LabConfig, LabError, SupervisorGuard,
    api::kube_client,
    dir::LabDir,
    error::io_error,
    evidence, held,
    host::root,
    leftovers::{self, Downed},
    mounts::CGROUPS,
    protocol::{About, Descriptor, Located, Reply, Request, Status},
    request::{call, cluster_error, unexpected},
};

/// How long a lab lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the value is dropped or its process ends, however that happens.
    WithCaller,
    /// Until [`LabCluster::down`], or `plumbline lab down`.
    Detached,
}

/// A lab that is up.
#[derive(Debug)]
pub struct LabCluster {
    pub(super) dir: LabDir,
    about: About,
    client: DebugClient,
    kubeconfig: PathBuf,
    leash: Option<SupervisorGuard>,
}

/// [`Client`] has no `Debug`.
struct DebugClient(Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

impl LabCluster {
    /// Brings a lab up: returns when its nodes are Ready and its agents are started.
    ///
    /// `progress` is called with each step as it begins.
    ///
    /// # Errors
    /// What keeps it from coming up; nothing is left then.
    pub async fn up(
        config: &LabConfig,
        lifetime: Lifetime,
        progress: impl FnMut(&str) + Send,
    ) -> Result<Self, LabError> {
        root()?;
        config.check()?;
        let leash = SupervisorGuard::start(config, progress).await?;
        let mut cluster = Self::attach(&config.name).await?;
        match lifetime {
            Lifetime::WithCaller => cluster.leash = Some(leash),
            Lifetime::Detached => leash.detach().await?,
        }
        Ok(cluster)
    }

    /// A lab that somebody else brought up.
    ///
    /// # Errors
    /// There is none of this name, or it does not answer.
    pub async fn attach(name: &str) -> Result<Self, LabError> {
        root()?;
        super::check_name(name)?;
        let dir = LabDir::new(name);
        let about = match call(&dir, &Request::About, LIMITS.control).await? {
            Reply::About(about) => *about,
            _ => return Err(unexpected(&dir)),
        };
        let kubeconfig = dir.kubeconfig();
        let client = DebugClient(kube_client(&kubeconfig).await?);
        Ok(Self {
            dir,
            about,
            client,
            kubeconfig,
            leash: None,
        })
    }

    /// Takes it down, and returns when nothing is left.
    ///
    /// # Errors
    /// What could not be removed.
    pub async fn down(self) -> Result<(), LabError> {
        leftovers::take_down(self.dir.name()).await?;
        match self.leash {
            Some(leash) => leash.ended().await,
            None => Ok(()),
        }
    }

    /// Nodes, agents and pods as they are now.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn status(&self) -> Result<Status, LabError> {
        match call(&self.dir, &Request::Status, LIMITS.control).await? {
            Reply::Status(status) => Ok(status),
            _ => Err(unexpected(&self.dir)),
        }
    }

    /// Administrator's kubeconfig, for a process on this host: the API server's address is on loopback.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Folder of the logs of supervisor, agents and pods.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir.logs()
    }

    /// The kubeconfig of processes on a node.
    pub(super) fn kubeconfig_of(&self, node: &str) -> PathBuf {
        self.dir.node_kubeconfig(node)
    }

    /// What the agent of a node keeps between its runs.
    pub(super) fn agent_state(&self, node: &str) -> PathBuf {
        self.dir.agent_state(node)
    }

    /// Becomes a program in a place: terminal, process id and exit code are the program's. Returns only if that
    /// fails. `argv` is as in [`Cluster::exec`].
    ///
    /// # Errors
    /// There is no such place, or the program can't be started.
    pub async fn become_program(&self, place: &Place, argv: &[String]) -> Result<ExitCode, LabError> {
        let (command, placement) = self.command(place, argv).await?;
        spawn::become_program(command, placement).map_err(|error| LabError::NotStarted {
            program: argv.first().cloned().unwrap_or_default(),
            place: place.clone(),
            error,
        })
    }

    pub(super) async fn locate(&self, place: &Place) -> Result<Located, LabError> {
        let request = Request::Locate { place: place.clone() };
        match call(&self.dir, &request, LIMITS.control).await? {
            Reply::Located(located) => Ok(located),
            _ => Err(unexpected(&self.dir)),
        }
    }

    async fn command(&self, place: &Place, argv: &[String]) -> Result<(Command, Placement), LabError> {
        let located = self.locate(place).await?;
        let placement = self.placement(&located)?;
        let mut command =
            spawn::program(&self.about.config.plumbline, argv).map_err(io_error("start a program"))?;
        if let Some(kubeconfig) = located.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        if let Place::Host { node } = place {
            command.env(NODE_FOLDER, self.dir.node_folder(node));
        }
        Ok((command, placement))
    }

    fn placement(&self, located: &Located) -> Result<Placement, LabError> {
        let procs = located.cgroup.join("cgroup.procs");
        let cgroup = OpenOptions::new().write(true).open(&procs);
        let cgroup = cgroup.map_err(io_error(format!("open {}", procs.display())))?;
        let mnt = located.mnt.map(|mnt| self.namespace(mnt)).transpose()?;
        Ok(Placement {
            net: Some(self.namespace(located.net)?),
            mnt,
            cgroup: Some(cgroup),
            ..Placement::default()
        })
    }

    pub(super) fn namespace(&self, descriptor: Descriptor) -> Result<File, LabError> {
        let path = format!("/proc/{}/fd/{}", self.about.pid, descriptor.fd);
        let open = || -> io::Result<File> {
            let file = File::open(&path)?;
            if file.metadata()?.ino() == descriptor.inode {
                Ok(file)
            } else {
                Err(io::Error::other(
                    "it is not the namespace that it was; the pod is gone",
                ))
            }
        };
        open().map_err(io_error(format!("open the namespace {path}")))
    }

    async fn order(&self, request: Request) -> Result<(), ClusterError> {
        // As long as the slowest order may take: a clean-up, or a stop that waits for SIGTERM to work.
        let limit = LIMITS.control + LIMITS.agent_cleanup + LIMITS.agent_stop;
        match call(&self.dir, &request, limit).await {
            Ok(Reply::Done) => Ok(()),
            Ok(_) => Err(cluster_error("give an order to the lab")(unexpected(&self.dir))),
            Err(error) => Err(cluster_error("give an order to the lab")(error)),
        }
    }
}

/// Takes a lab down by its name, or removes what a dead one left; nothing to do is no error.
///
/// # Errors
/// What could not be removed.
pub async fn down(name: &str) -> Result<Downed, LabError> {
    root()?;
    super::check_name(name)?;
    leftovers::take_down(name).await
}

/// Removes what a dead lab left. One that has a supervisor is [`Downed::Up`], and nothing happens to it: it lives, comes
/// up, or is dying and will have left something in a moment.
///
/// # Errors
/// What could not be removed.
pub fn remove_dead(name: &str) -> Result<Downed, LabError> {
    root()?;
    super::check_name(name)?;
    leftovers::remove_dead(name)
}

/// Names of all labs that are up, or have left something.
///
/// # Errors
/// They can't be listed.
pub fn labs() -> Result<Vec<String>, LabError> {
    root()?;
    leftovers::names()
}

#[async_trait]
impl Cluster for LabCluster {
    fn describe(&self) -> &Description {
        &self.about.description
    }

    fn client(&self) -> Client {
        self.client.0.clone()
    }

    async fn exec(&self, place: &Place, argv: &[String]) -> Result<Child, ClusterError> {
        let what = format!("start `{}` {place}", command_line(argv));
        let (mut command, placement) = self.command(place, argv).await.map_err(cluster_error(&what))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C is for whoever started it, who ends it in his own order.
        command.process_group(0);
        let child = spawn::spawn(command, placement).await;
        child.map_err(|error| ClusterError::Failed {
            what,
            why: error.to_string(),
        })
    }

    async fn log(&self, namespace: &str, pod: &str) -> Result<String, ClusterError> {
        match tokio::fs::read_to_string(self.dir.pod_log(namespace, pod)).await {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ClusterError::NotFound {
                what: "pod",
                name: format!("{namespace}/{pod}"),
            }),
            Err(error) => {
                let what = format!("read the log of {namespace}/{pod}");
                Err(ClusterError::Failed {
                    what,
                    why: error.to_string(),
                })
            }
        }
    }

    async fn intact(&self) -> Result<(), ClusterError> {
        let what = "find the lab's supervisor";
        self.status().await.map(drop).map_err(cluster_error(what))
    }

    async fn agent(&self, node: &str) -> Result<AgentState, ClusterError> {
        let what = format!("ask for the agent of {node}");
        let request = Request::Agent {
            node: node.to_owned(),
        };
        match call(&self.dir, &request, LIMITS.control)
            .await
            .map_err(cluster_error(&what))?
        {
            Reply::Agent(state) => Ok(state),
            _ => Err(cluster_error(what)(unexpected(&self.dir))),
        }
    }

    async fn stop_agent(&self, node: &str, how: Stop) -> Result<(), ClusterError> {
        self.order(Request::StopAgent {
            node: node.to_owned(),
            how,
        })
        .await
    }

    async fn start_agent(&self, node: &str) -> Result<(), ClusterError> {
        self.order(Request::StartAgent {
            node: node.to_owned(),
            variant: None,
        })
        .await
    }

    async fn start_agent_as(&self, node: &str, variant: Variant) -> Result<(), ClusterError> {
        self.order(Request::StartAgent {
            node: node.to_owned(),
            variant: Some(variant),
        })
        .await
    }

    async fn set_agent_api_endpoint(
        &self,
        node: &str,
        way: Option<&ApiEndpoint>,
    ) -> Result<(), ClusterError> {
        self.order(Request::LeadAgent {
            node: node.to_owned(),
            way: way.cloned(),
        })
        .await
    }

    async fn wipe_state(&self, node: &str) -> Result<(), ClusterError> {
        self.order(Request::WipeState {
            node: node.to_owned(),
        })
        .await
    }

    /// A lab's node has nothing but its agent.
    async fn baseline(&self, _: &str) -> Result<BTreeMap<String, usize>, ClusterError> {
        Ok(BTreeMap::new())
    }

    async fn api_servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        let what = "ask for the API servers";
        match call(&self.dir, &Request::ApiServers, LIMITS.control)
            .await
            .map_err(cluster_error(what))?
        {
            Reply::ApiServers(all) => Ok(all),
            _ => Err(cluster_error(what)(unexpected(&self.dir))),
        }
    }

    async fn api_fault(&self, fault: &ApiFault, lasts: Duration) -> Result<HeldApiFault, ClusterError> {
        let held = held::begin(&self.dir, fault.clone(), lasts).await;
        held.map_err(cluster_error(format!("let it happen that {fault}")))
    }

    async fn jump_versions(&self, by: u32) -> Result<(), ClusterError> {
        self.order(Request::JumpVersions { by }).await
    }

    fn cgroup_root(&self) -> &Path {
        Path::new(CGROUPS)
    }

    fn pins(&self) -> Vec<String> {
        vec![EVERY_PIN.to_owned()]
    }

    async fn evidence(&self, folder: &Path) -> Result<(), ClusterError> {
        evidence::collect(self, &self.about.config.agent, folder).await
    }
}
