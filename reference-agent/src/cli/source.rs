//! Where objects come from.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    agent::Feed,
    folder::Folder,
    own::{ApiServers, Memory, OwnFlags},
    reflect,
    reports::Reports,
};

/// Where objects come from.
#[derive(Debug, Args)]
pub(super) struct SourceFlags {
    /// How to reach the API server; without it: $KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Take Services, EndpointSlices and Nodes from the files of this folder instead of an API server
    ///
    /// YAML and JSON as kubectl takes them: any number of objects in a file, files whose names end in .yaml, .yml or
    /// .json, directly in the folder. Changes count as soon as a file has been as it is for a tenth of a second. Other
    /// kinds of objects are left alone; nothing is written there. A file that can't be read keeps what it said before,
    /// and is named by /readyz.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "api_servers"])]
    from: Option<PathBuf>,
}

/// A source that can be used.
pub enum Source {
    /// API servers.
    Api {
        /// How to reach them.
        servers: ApiServers,
        /// By it objects are watched.
        client: Client,
    },
    /// The files of a folder.
    Folder(Folder),
}

impl SourceFlags {
    /// Reads the configuration; asks nobody.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) async fn open(&self, own: &OwnFlags, memory: Memory) -> anyhow::Result<Source> {
        if let Some(path) = &self.from {
            let folder = Folder::open(path)
                .with_context(|| format!("failed to read the folder {} of --from", path.display()))?;
            return Ok(Source::Folder(folder));
        }
        let config = self.config().await?;
        let servers = own.servers(&config, memory).await?;
        let client = servers.client(&config)?;
        Ok(Source::Api { servers, client })
    }

    async fn config(&self) -> anyhow::Result<kube::Config> {
        let Some(path) = &self.kubeconfig else {
            return kube::Config::infer().await.context(
                "failed to find out how to reach the API server; name a --kubeconfig, or a folder by --from",
            );
        };
        let wrong = || format!("failed to use the kubeconfig {}", path.display());
        let kubeconfig = Kubeconfig::read_from(path).with_context(wrong)?;
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .with_context(wrong)
    }
}

impl Source {
    /// Tells of its objects.
    pub(super) fn feeds(self, reports: &Reports) -> Vec<Feed> {
        match self {
            Self::Api { client, .. } => reflect::feeds(&client, reports),
            Self::Folder(folder) => vec![folder.feed(reports)],
        }
    }
}
