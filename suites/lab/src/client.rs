//! A lab that is up, as its users see it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use cluster::{
    Cluster, Place,
    spawn::{self, Placed},
};

use super::{
    LabConfig, LabError, SupervisorGuard,
    access::LabAccess,
    dir::LabDir,
    host::root,
    leftovers::{self, Downed},
    parts,
    protocol::Status,
    usage,
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
    access: Arc<LabAccess>,
    cluster: Cluster,
    kubeconfig: PathBuf,
    guard: Option<SupervisorGuard>,
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
        let guard = SupervisorGuard::start(config, progress).await?;
        let mut cluster = Self::attach(&config.name).await?;
        match lifetime {
            Lifetime::WithCaller => cluster.guard = Some(guard),
            Lifetime::Detached => guard.detach().await?,
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
        let access = Arc::new(LabAccess::of(LabDir::new(name)).await?);
        Ok(Self {
            cluster: parts::cluster(&access),
            kubeconfig: access.dir.kubeconfig(),
            access,
            guard: None,
        })
    }

    /// It as cases use it.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Takes it down, and returns when nothing is left.
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
    /// It does not answer.
    pub async fn status(&self) -> Result<Status, LabError> {
        self.access.status().await
    }

    /// Administrator's kubeconfig, for a process on this host: the API server's address is on loopback.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Folder of the logs of supervisor, agents and pods.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.access.dir.logs()
    }

    /// Becomes a program in a place: terminal, process id and exit code are the program's. Returns only if that
    /// fails. `argv` is as in [`Cluster::exec`].
    ///
    /// # Errors
    /// There is no such place, or the program can't be started.
    pub async fn become_program(&self, place: &Place, argv: &[String]) -> Result<ExitCode, LabError> {
        let Placed { command, placement } = self.access.place(place, argv).await?;
        spawn::become_program(command, placement).map_err(|error| LabError::NotStarted {
            program: argv.first().cloned().unwrap_or_default(),
            place: place.clone(),
            error,
        })
    }

    /// Seconds of processors, user and system, by program, of those that have ended, too: see [`usage`].
    ///
    /// # Errors
    /// There is no cgroup v2 hierarchy any more.
    pub fn processor_seconds(&self) -> Result<BTreeMap<&'static str, f64>, LabError> {
        usage::processor_seconds(self.access.dir.name())
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
