//! Access to a running lab through its supervisor: requests, and processes in its namespaces and cgroups.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
};

use cluster::{
    ClusterError, NODE_FOLDER, Place,
    spawn::{self, Placed, Placement},
};
use kube::Client;

use super::{
    LIMITS, LabError,
    api::kube_client,
    dir::LabDir,
    error::io_error,
    protocol::{About, Descriptor, Located, Reply, Request, Status},
    request::{call, cluster_error, unexpected},
};

/// Access to a running lab through its supervisor.
pub(super) struct LabAccess {
    pub(super) dir: LabDir,
    pub(super) about: About,
    pub(super) client: Client,
}

/// [`Client`] has no `Debug`.
impl fmt::Debug for LabAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LabAccess")
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl LabAccess {
    /// Connects to the lab of a folder.
    ///
    /// # Errors
    /// No lab is running there, or its supervisor does not answer.
    pub(super) async fn of(dir: LabDir) -> Result<Self, LabError> {
        let about = match call(&dir, &Request::About, LIMITS.control).await? {
            Reply::About(about) => *about,
            _ => return Err(unexpected(&dir)),
        };
        let client = kube_client(&dir.kubeconfig()).await?;
        Ok(Self { dir, about, client })
    }

    pub(super) async fn status(&self) -> Result<Status, LabError> {
        match call(&self.dir, &Request::Status, LIMITS.control).await? {
            Reply::Status(status) => Ok(status),
            _ => Err(unexpected(&self.dir)),
        }
    }

    pub(super) async fn locate(&self, place: &Place) -> Result<Located, LabError> {
        let request = Request::Locate { place: place.clone() };
        match call(&self.dir, &request, LIMITS.control).await? {
            Reply::Located(located) => Ok(located),
            _ => Err(unexpected(&self.dir)),
        }
    }

    /// Prepares the command that runs a program in a place.
    pub(super) async fn place(&self, place: &Place, argv: &[String]) -> Result<Placed, LabError> {
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
        Ok(Placed { command, placement })
    }

    pub(super) async fn placed(&self, place: &Place, argv: &[String]) -> Result<Placed, ClusterError> {
        let placed = self.place(place, argv).await;
        placed.map_err(cluster_error(format!("start a program {place}")))
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

    pub(super) async fn order(&self, request: Request) -> Result<(), ClusterError> {
        // The slowest request is a clean-up, or a stop that waits for SIGTERM to take effect.
        let limit = LIMITS.control + LIMITS.agent_cleanup + LIMITS.agent_stop;
        match call(&self.dir, &request, limit).await {
            Ok(Reply::Done) => Ok(()),
            Ok(_) => Err(cluster_error("give an order to the lab")(unexpected(&self.dir))),
            Err(error) => Err(cluster_error("give an order to the lab")(error)),
        }
    }
}
