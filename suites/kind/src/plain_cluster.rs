//! A new cluster on which others install a target: nodes and images, and no other part of the suite.

use std::path::{Path, PathBuf};

use cluster::{image::PROBE, target::Api};
use lab::sibling;

use super::{
    KindError,
    api::PORT,
    containers,
    images::Archive,
    removal::{Undo, down, remove_dead},
    state::{Folder, Lock},
    tools::Tools,
};

/// A running kind cluster without a target. Dropping it removes it.
#[derive(Debug)]
pub struct PlainCluster {
    folder: Folder,
    tools: Tools,
    undo: Undo,
    /// Never read: without it, the next run would remove the cluster.
    _lock: Lock,
}

impl PlainCluster {
    /// Creates a cluster from kind's configuration, which names no cluster, with this image of nodes. Clusters of dead
    /// runs are removed before.
    ///
    /// # Errors
    /// Docker or kind is missing, or can't make the cluster; nothing is left then.
    pub async fn create(name: &str, configuration: &str, image: Option<&str>) -> Result<Self, KindError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(KindError::NotRoot);
        }
        let folder = Folder::new(name)?;
        let tools = Tools::find().await?;
        remove_dead().await?;
        containers::expect_none(&tools, name).await?;
        let lock = folder.lock()?.ok_or_else(|| KindError::Held {
            name: name.to_owned(),
        })?;
        let undo = Undo::new(folder.clone(), true);
        folder.write("kind.yaml", configuration.as_bytes())?;
        let (file, kubeconfig) = (folder.config(), folder.kubeconfig());
        let mut arguments = ["create", "cluster", "--name", name, "--config"]
            .map(AsRef::as_ref)
            .to_vec();
        arguments.extend([file.as_os_str(), "--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
        if let Some(image) = image {
            arguments.extend(["--image", image].map(AsRef::<std::ffi::OsStr>::as_ref));
        }
        tools.kind(&format!("make the cluster {name}"), arguments).await?;
        // Nodes get a bpffs, where they have none.
        let nodes = containers::nodes(&tools, name).await?;
        containers::disable_icmp_rate_limit(&nodes)?;
        Ok(Self {
            folder,
            tools,
            undo,
            _lock: lock,
        })
    }

    /// Name of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        self.folder.name()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.kubeconfig()
    }

    /// Where nodes of a cluster of this name reach the API server without a Service.
    #[must_use]
    pub fn api(name: &str) -> Api {
        Api {
            host: format!("{name}-control-plane"),
            port: PORT,
        }
    }

    /// Builds the image of clients and backends, and loads it into the nodes; returns its name.
    ///
    /// # Errors
    /// This program is not static; nodes do not take the image.
    pub async fn load_probe(&self) -> Result<String, KindError> {
        let program = sibling("plumbline").map_err(|error| KindError::Unexpected {
            what: "find the program plumbline".to_owned(),
            why: error.to_string(),
        })?;
        let archive = Archive::make(&PROBE, &program)?;
        let nodes = containers::nodes(&self.tools, self.name()).await?;
        archive.load_into_nodes(&self.tools, self.name(), &nodes).await?;
        Ok(archive.name)
    }

    /// Whether this host's Docker has an image.
    pub async fn is_in_docker(&self, image: &str) -> bool {
        let arguments = ["image", "inspect", "--format", "{{.Id}}", image];
        self.tools.docker("look for an image", arguments).await.is_ok()
    }

    /// Loads an image of this host's Docker into the nodes.
    ///
    /// # Errors
    /// Docker does not have it, or nodes do not take it.
    pub async fn load_from_docker(&self, image: &str) -> Result<(), KindError> {
        let what = format!("load the image {image} into the nodes of {}", self.name());
        let arguments = ["load", "docker-image", image, "--name", self.name()];
        self.tools.kind(&what, arguments).await.map(drop)
    }

    /// Removes the cluster.
    ///
    /// # Errors
    /// What could not be removed.
    pub async fn remove(self) -> Result<(), KindError> {
        down(self.name()).await?;
        self.undo.disarm();
        Ok(())
    }

    /// Leaves the cluster as one that no run has made, and its kubeconfig in this file.
    ///
    /// # Errors
    /// The kubeconfig can't be written; the cluster is removed then.
    pub fn leave(self, kubeconfig: &Path) -> Result<(), KindError> {
        let failed = super::error::io_error(format!("write {}", kubeconfig.display()));
        // A copy keeps the mode: only root and the owner of the folder may read it.
        std::fs::copy(self.folder.kubeconfig(), kubeconfig).map_err(failed)?;
        self.undo.disarm();
        self.folder.remove()
    }
}
