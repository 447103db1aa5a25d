//! The command line of API access.

use std::path::PathBuf;

use clap::Args;
use http::Uri;

use super::{ApiAccessError, ApiServers, OwnCgroup};

/// How the agent connects to API servers.
#[derive(Debug, Args)]
pub struct ApiAccessFlags {
    /// A further address of the API server, such as https://10.0.0.1:6443; may be given several times
    ///
    /// All addresses are tried for each connection, beginning with the kubeconfig's: the next one as soon as one has
    /// failed, or has not answered for a quarter of a second. The server must have a certificate for the
    /// kubeconfig's host; in a pod without KUBERNETES_SERVICE_HOST, for kubernetes.default.svc. Endpoints of the API
    /// server's Service that the agent has seen are tried, too, and need not be named here.
    #[arg(long = "api-server", value_name = "URL")]
    api_servers: Vec<Uri>,
    /// Where the endpoints of the API server that were seen last are remembered for the next start
    #[arg(long, value_name = "FOLDER", default_value = "/run/plumbline")]
    state: PathBuf,
    /// The cgroup whose sockets go on using the last good backends of the API server's Service: auto, off, or a folder
    ///
    /// It must hold the agent and nothing else. auto: the cgroup that the agent was started in, or, if it is not alone
    /// there, a child of it, plumbline-agent, which it makes and moves into.
    #[arg(long, value_name = "CGROUP", default_value = "auto")]
    own_cgroup: OwnCgroup,
}

/// How the state file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateAccess {
    /// Read, and written as endpoints are learned.
    ReadWrite,
    /// Only read, as it is another process's.
    ReadOnly,
}

impl ApiAccessFlags {
    /// The API servers of the configuration, the flags and the state file.
    ///
    /// # Errors
    /// As [`ApiServers::new`].
    pub async fn servers(
        &self,
        config: &kube::Config,
        access: StateAccess,
    ) -> Result<ApiServers, ApiAccessError> {
        match access {
            StateAccess::ReadWrite => ApiServers::new(config, &self.api_servers, Some(&self.state)).await,
            StateAccess::ReadOnly => ApiServers::read_only(config, &self.api_servers, &self.state).await,
        }
    }

    /// The agent's own cgroup. If there is none, that is logged.
    pub fn cgroup(&self) -> Option<PathBuf> {
        match self.own_cgroup.find() {
            Ok(Some(path)) => {
                tracing::info!(cgroup = %path.display(), "the agent's own cgroup");
                Some(path)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the agent has no cgroup of its own: without backends of the API server's Service it depends on the \
                     endpoints that it remembers and on --api-server"
                );
                None
            }
        }
    }
}
