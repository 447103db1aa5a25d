//! Removing clusters: by name, of runs that are dead, and what did not come up.

use super::{
    KindError, api, containers, outside,
    state::Folder,
    tools::{Tools, kind_on_docker},
};

/// Removes a cluster by its name, if a run has made it, and what runs have put beside it; that there is none is no error.
///
/// # Errors
/// What could not be removed.
pub async fn down(name: &str) -> Result<(), KindError> {
    let folder = Folder::new(name)?;
    let tools = Tools::find().await?;
    outside::remove(&tools, name).await?;
    // One that somebody else has made, and a run was to use that was killed at once, is his.
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

/// Removes the clusters of runs that are dead; returns their names.
///
/// # Errors
/// What could not be removed.
pub async fn remove_dead() -> Result<Vec<String>, KindError> {
    let mut removed = Vec::new();
    let all = Folder::all()?;
    if all.is_empty() {
        return Ok(removed);
    }
    let tools = Tools::find().await?;
    for folder in all {
        if is_dead(&tools, &folder).await? {
            down(folder.name()).await?;
            removed.push(folder.name().to_owned());
        }
    }
    Ok(removed)
}

/// Removes one cluster, if its run is dead; what became of it.
///
/// # Errors
/// What could not be removed.
pub async fn remove_if_dead(name: &str) -> Result<Standing, KindError> {
    let folder = Folder::new(name)?;
    if !folder.path().exists() {
        return Ok(Standing::Nobodys);
    }
    if folder.is_held()? {
        return Ok(Standing::Held);
    }
    if is_dead(&Tools::find().await?, &folder).await? {
        down(name).await?;
        return Ok(Standing::Removed);
    }
    Ok(Standing::Kept)
}

/// What a cluster is to the runs of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None has made or used it, or what it had left is gone.
    Nobodys,
    /// One has it.
    Held,
    /// It was left when its run ended, and its nodes are there.
    Kept,
    /// Its run was dead, or its nodes were gone; now all of it is.
    Removed,
}

/// One that was kept belongs to whoever kept it, until he has removed its nodes.
async fn is_dead(tools: &Tools, folder: &Folder) -> Result<bool, KindError> {
    if folder.is_left()? {
        return Ok(true);
    }
    // Stopped nodes are there.
    Ok(!containers::exist(tools, folder.name()).await? && folder.lock()?.is_some())
}

/// Removes a cluster that did not come up, or whose maker was interrupted: dropped, it waits for kind. Of one that somebody
/// else has made, only what was put beside it.
pub(super) struct Undo {
    /// Until it is up.
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

    /// It is up, and stays.
    pub(super) fn not(mut self) {
        self.folder = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        let name = folder.name();
        if !self.is_ours && folder.path().join(api::SHARED).exists() {
            // Its second API server stays, and what leads there.
            return;
        }
        // What is still left is the next run's to remove, which finds the folder.
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
