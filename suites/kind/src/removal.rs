//! Removes clusters: by name, of dead runs, and after a failed start.

use super::{
    KindError, api, containers, outside,
    state::Folder,
    tools::{Tools, kind_on_docker},
};

/// Removes a cluster that a run has made, and other containers of runs beside it; a missing cluster is no error.
///
/// # Errors
/// What could not be removed.
pub async fn down(name: &str) -> Result<(), KindError> {
    let folder = Folder::new(name)?;
    let tools = Tools::find().await?;
    outside::remove(&tools, name).await?;
    // A cluster of another owner, which a killed run was about to use, is not removed.
    if folder.config().exists() {
        let delete = ["delete", "cluster", "--name", name];
        tools.kind(&format!("delete the cluster {name}"), delete).await?;
    }
    folder.remove()
}

/// Names of the clusters that were kept when their runs ended.
///
/// # Errors
/// Their folders can't be read.
pub fn kept() -> Result<Vec<String>, KindError> {
    let all = Folder::all()?.into_iter();
    Ok(all
        .filter(Folder::is_kept)
        .map(|folder| folder.name().to_owned())
        .collect())
}

/// Names of the clusters of dead runs.
///
/// # Errors
/// Their folders can't be read; Docker does not answer.
pub async fn dead() -> Result<Vec<String>, KindError> {
    let all = Folder::all()?;
    let mut dead = Vec::new();
    if all.is_empty() {
        return Ok(dead);
    }
    let tools = Tools::find().await?;
    for folder in all {
        if is_dead(&tools, &folder).await? {
            dead.push(folder.name().to_owned());
        }
    }
    Ok(dead)
}

/// Removes the clusters of dead runs; returns their names.
///
/// # Errors
/// What could not be removed.
pub async fn remove_dead() -> Result<Vec<String>, KindError> {
    let dead = dead().await?;
    for name in &dead {
        down(name).await?;
    }
    Ok(dead)
}

/// Removes one cluster, if its run is dead; returns its state before.
///
/// # Errors
/// What could not be removed.
pub async fn remove_if_dead(name: &str) -> Result<Standing, KindError> {
    let standing = standing(name).await?;
    if standing == Standing::Dead {
        down(name).await?;
    }
    Ok(standing)
}

/// The state of a cluster.
///
/// # Errors
/// Its folder can't be read; Docker does not answer.
pub async fn standing(name: &str) -> Result<Standing, KindError> {
    let folder = Folder::new(name)?;
    if !folder.path().exists() {
        return Ok(Standing::Unused);
    }
    if folder.is_held()? {
        return Ok(Standing::Held);
    }
    let is_dead = is_dead(&Tools::find().await?, &folder).await?;
    Ok(if is_dead { Standing::Dead } else { Standing::Kept })
}

/// Relation of a cluster to the runs of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No run has made or used it, or its remains are gone.
    Unused,
    /// A run holds it.
    Held,
    /// It was kept when its run ended, and its nodes exist.
    Kept,
    /// Its run is dead, or its nodes are gone.
    Dead,
}

/// A kept cluster stays as long as its nodes exist.
async fn is_dead(tools: &Tools, folder: &Folder) -> Result<bool, KindError> {
    if folder.is_left()? {
        return Ok(true);
    }
    // Stopped nodes exist, too.
    Ok(!containers::exist(tools, folder.name()).await? && folder.lock()?.is_some())
}

/// Removes a cluster after a failed or interrupted start: dropping it waits for kind. Of a cluster with another
/// owner, only additional containers are removed.
#[derive(Debug)]
pub(super) struct Undo {
    /// `None` after the start has succeeded.
    folder: Option<Folder>,
    is_ours: bool,
}

impl Undo {
    pub(super) fn new(folder: Folder, is_ours: bool) -> Self {
        Self {
            folder: Some(folder),
            is_ours,
        }
    }

    /// The start has succeeded: nothing is removed.
    pub(super) fn disarm(mut self) {
        self.folder = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        let name = folder.name();
        if !self.is_ours && folder.path().join(api::SHARED).exists() {
            // The second API server and its clients' configuration stay.
            return;
        }
        // The next run finds the folder, and removes what is left.
        let delete = || {
            let deleted = kind_on_docker("kind")
                .args(["delete", "cluster", "--quiet", "--name", name])
                .stdin(std::process::Stdio::null())
                .status();
            deleted.is_ok_and(|status| status.success())
        };
        let gone = !self.is_ours || delete();
        let outside = std::process::Command::new("docker")
            .args(["rm", "--force"])
            .args([
                outside::name(name),
                outside::router_name(name),
                api::balancer_name(name),
            ])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        if !gone || outside.is_err() || folder.remove().is_err() {
            tracing::warn!(name, "the cluster could not be removed; `plumbline cleanup` does");
        }
    }
}
