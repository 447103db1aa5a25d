//! A running lab, as its users control it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use cluster::{
    Cluster, Description, Place,
    spawn::{self, Placed},
};

use http::Uri;
use kube::{Client, Config};

use super::{
    LabConfig, LabError, SupervisorGuard,
    access::LabAccess,
    cpu_time,
    dir::LabDir,
    host::root,
    lab,
    leftovers::{self, Downed},
    parts,
    protocol::{About, Status},
};

/// Lifetime of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the value is dropped or its process ends.
    WithCaller,
    /// Until [`LabCluster::down`], or `plumbline lab down`.
    Detached,
}

/// A running lab.
#[derive(Debug)]
pub struct LabCluster {
    access: Arc<LabAccess>,
    cluster: Cluster,
    kubeconfig: PathBuf,
    guard: Option<SupervisorGuard>,
}

impl LabCluster {
    /// Starts a lab: returns when its nodes are Ready and its agents are started.
    ///
    /// `progress` is called with each step as it begins.
    ///
    /// # Errors
    /// Why the lab did not start; nothing is left then.
    pub async fn up(
        config: &LabConfig,
        lifetime: Lifetime,
        progress: impl FnMut(&str) + Send,
    ) -> Result<Self, LabError> {
        root()?;
        config.check()?;
        let guard = SupervisorGuard::start(config, progress).await?;
        let mut cluster = Self::attach(&config.name).await?;
        match lifetime {
            Lifetime::WithCaller => cluster.guard = Some(guard),
            Lifetime::Detached => guard.detach().await?,
        }
        Ok(cluster)
    }

    /// The description of a lab of this configuration; no lab is started.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn expected(config: &LabConfig) -> Result<Description, LabError> {
        config.check()?;
        let about = About {
            description: lab::describe(config),
            config: config.clone(),
            pid: std::process::id(),
            api: String::new(),
        };
        // Parts declare what they can without a request.
        let nowhere = Config::new(Uri::from_static("https://127.0.0.1"));
        let client = Client::try_from(nowhere).map_err(|error| LabError::Host {
            what: "make a client of the Kubernetes API".to_owned(),
            why: error.to_string(),
            remedy: "See the error",
        })?;
        let access = LabAccess {
            dir: LabDir::new(&config.name),
            about,
            client,
        };
        Ok(parts::cluster(&Arc::new(access)).describe().clone())
    }

    /// Attaches to a lab that another process has started.
    ///
    /// # Errors
    /// No lab of this name is running, or its supervisor does not answer.
    pub async fn attach(name: &str) -> Result<Self, LabError> {
        root()?;
        super::check_name(name)?;
        let access = Arc::new(LabAccess::of(LabDir::new(name)).await?);
        Ok(Self {
            cluster: parts::cluster(&access),
            kubeconfig: access.dir.kubeconfig(),
            access,
            guard: None,
        })
    }

    /// The lab as a cluster for cases.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Takes the lab down, and returns when nothing is left.
    ///
    /// # Errors
    /// What could not be removed.
    pub async fn down(self) -> Result<(), LabError> {
        leftovers::take_down(self.access.dir.name()).await?;
        match self.guard {
            Some(guard) => guard.ended().await,
            None => Ok(()),
        }
    }

    /// Nodes, agents and pods as they are now.
    ///
    /// # Errors
    /// The supervisor does not answer.
    pub async fn status(&self) -> Result<Status, LabError> {
        self.access.status().await
    }

    /// The administrator's kubeconfig, for processes on this host: the API server's address is on loopback.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Folder of the logs of supervisor, agents and pods.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.access.dir.logs()
    }

    /// Replaces this process by a program in a place, with its terminal and process id. Returns only if that fails.
    /// `argv` is as in [`Cluster::exec`].
    ///
    /// # Errors
    /// The place does not exist, or the program can't be started.
    pub async fn become_program(&self, place: &Place, argv: &[String]) -> Result<ExitCode, LabError> {
        let Placed { command, placement } = self.access.place(place, argv).await?;
        spawn::become_program(command, placement).map_err(|error| LabError::NotStarted {
            program: argv.first().cloned().unwrap_or_default(),
            place: place.clone(),
            error,
        })
    }

    /// CPU seconds, user and system, by program, including programs that have ended.
    ///
    /// # Errors
    /// The cgroup v2 hierarchy is gone.
    pub fn processor_seconds(&self) -> Result<BTreeMap<&'static str, f64>, LabError> {
        cpu_time::processor_seconds(self.access.dir.name())
    }
}

/// Takes a lab down by its name, or removes leftovers of a dead one; a lab that does not exist is no error.
///
/// # Errors
/// What could not be removed.
pub async fn down(name: &str) -> Result<Downed, LabError> {
    root()?;
    super::check_name(name)?;
    leftovers::take_down(name).await
}

/// Removes leftovers of a dead lab. A lab with a supervisor is [`Downed::Up`] and is not changed: it is running,
/// starting, or dying and will soon leave leftovers.
///
/// # Errors
/// What could not be removed.
pub fn remove_dead(name: &str) -> Result<Downed, LabError> {
    root()?;
    super::check_name(name)?;
    leftovers::remove_dead(name)
}

/// What [`remove_dead`] would find; removes nothing.
///
/// # Errors
/// The lab's folder can't be read.
pub fn standing(name: &str) -> Result<Downed, LabError> {
    root()?;
    super::check_name(name)?;
    leftovers::standing(name)
}

/// Names of all labs that are running or have left anything.
///
/// # Errors
/// They can't be listed.
pub fn labs() -> Result<Vec<String>, LabError> {
    root()?;
    leftovers::names()
}
