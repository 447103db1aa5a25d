//! Maps of another owner that have the names of the agent's.

use std::time::Duration;

use cluster::Cluster;
use serde::{Deserialize, Serialize};

use super::{Answer, Command};
use crate::{FaultError, helper::Helper};

/// To each map that the agent's programs at a hook of its cgroup use, another of the same name and layout, with one entry:
/// the sentinel. A program of another owner, which lets everything pass, is attached to the same hook and uses them.
///
/// Drop detaches it, as the end of this process does, and the twins go with it; they go by themselves when they expire.
#[must_use = "the twins go when this is dropped"]
#[derive(Debug)]
pub struct TwinMaps {
    helper: Helper,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Twin {
    /// The name of both, as the kernel keeps it: at most 15 bytes.
    pub name: String,
    /// Its id.
    pub id: u32,
    /// The id of the agent's.
    pub of: u32,
    /// What is wrong with it; nothing: it has its sentinel and nothing else, and its program is attached.
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

    /// What has become of them.
    ///
    /// # Errors
    /// The helper has ended, or can't look.
    pub async fn look(&mut self) -> Result<Vec<Twin>, FaultError> {
        self.ask(Command::Look, "look at twins").await
    }

    /// Heals: detaches the program, and lets go of them.
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
