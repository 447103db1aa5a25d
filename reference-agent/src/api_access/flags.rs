//! The command line of the agent's own way.

use std::path::PathBuf;

use clap::Args;
use http::Uri;

use super::{ApiServers, OwnCgroup, OwnWayError};

/// How the agent reaches the API server, whatever becomes of the Service that leads there.
#[derive(Debug, Args)]
pub struct OwnFlags {
    /// A further address of the API server, such as https://10.0.0.1:6443; may be given several times
    ///
    /// All addresses are tried for each connection, beginning with the kubeconfig's: the next one as soon as one has
    /// failed, or has not answered for a quarter of a second. Whoever answers must have the certificate of the
    /// kubeconfig's host. Endpoints of the API server's Service that the agent has seen are tried, too, and need not be
    /// named here.
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

/// What becomes of the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It is the agent's own: read, and written as things are learned.
    Kept,
    /// It is another process's, and only read.
    Read,
}

impl OwnFlags {
    /// The API servers that are known.
    ///
    /// # Errors
    /// As [`ApiServers::new`].
    pub async fn servers(&self, config: &kube::Config, memory: Memory) -> Result<ApiServers, OwnWayError> {
        match memory {
            Memory::Kept => ApiServers::new(config, &self.api_servers, Some(&self.state)).await,
            Memory::Read => ApiServers::looked_at(config, &self.api_servers, &self.state).await,
        }
    }

    /// The agent's own cgroup. Without one the agent goes on, and says what it lacks.
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
