//! Maps of another owner with the names of the agent's.

use std::time::Duration;

use cluster::Cluster;
use serde::{Deserialize, Serialize};

use super::{Answer, Command};
use crate::{FaultError, helper::Helper};

/// A twin of each map that the agent's programs at a hook use: the same name and layout, and one entry, the sentinel. A program
/// of another owner, which passes everything, is attached to the same hook and uses the twins.
///
/// Dropping it, the end of this process and their expiry remove the program and the twins.
#[must_use = "the twins go when this is dropped"]
#[derive(Debug)]
pub struct TwinMaps {
    helper: Helper,
}

/// One of these maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Twin {
    /// Name of both maps in the kernel: at most 15 bytes.
    pub name: String,
    /// Its id.
    pub id: u32,
    /// Id of the agent's map.
    pub of: u32,
    /// What has changed. `None`: it has its sentinel and nothing else, and its program is attached.
    pub wrong: Option<String>,
}

impl TwinMaps {
    /// Makes them on a node.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses the program.
    pub async fn make(
        cluster: &Cluster,
        node: &str,
        hook: &str,
        expires: Duration,
    ) -> Result<(Self, Vec<Twin>), FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        let arguments = [
            "twin-maps",
            "--cgroup",
            &cgroup,
            "--hook",
            hook,
            "--expires-s",
            &expires.as_secs().to_string(),
        ];
        let mut helper = Helper::start(cluster, node, &arguments).await?;
        match helper.answer().await? {
            Answer::Twins(twins) => Ok((Self { helper }, twins)),
            Answer::Failed(why) => Err(helper.refused("make twins", why)),
        }
    }

    /// Lists the twins and their state.
    ///
    /// # Errors
    /// The helper has ended, or can't look.
    pub async fn look(&mut self) -> Result<Vec<Twin>, FaultError> {
        self.ask(Command::Look, "look at twins").await
    }

    /// Heals: detaches the program and releases the twins.
    ///
    /// # Errors
    /// It is still there.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.ask(Command::Release, "let go of twins").await?;
        self.helper.end().await
    }

    async fn ask(&mut self, command: Command, name: &str) -> Result<Vec<Twin>, FaultError> {
        match self.helper.ask(&command).await? {
            Answer::Twins(twins) => Ok(twins),
            Answer::Failed(why) => Err(self.helper.refused(name, why)),
        }
    }
}
