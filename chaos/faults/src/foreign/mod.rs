//! Programs of another owner, which count and change nothing.
//!
//! - this file: the fault, and what it is told; `tally.rs`: its part on the node.

mod tally;

use std::{net::IpAddr, time::Duration};

use cluster::Cluster;
use serde::{Deserialize, Serialize};

pub(crate) use self::tally::device;
pub use self::tally::{Arguments, run};
use crate::{FaultError, helper::Helper};

/// Counting programs of another owner: one at each socket hook that is asked for, beside others
/// (`BPF_F_ALLOW_MULTI`), and at the device that has an address, in both directions, one filter of clsact and, where the
/// kernel has it, one of TCX.
///
/// Drop detaches them, as the end of this process does; and they go by themselves when they expire.
#[must_use = "the programs go when this is dropped"]
#[derive(Debug)]
pub struct ForeignPrograms {
    helper: Helper,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Where it was attached: `connect4`, `tcx ingress`, `clsact egress` …
    pub place: String,
    /// Its id.
    pub program: u32,
    /// Whether it is still there.
    pub attached: bool,
    /// How often it has run.
    pub count: u64,
}

/// What the helper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    /// Say how often each has run.
    Count,
    /// Detach them.
    Detach,
}

/// What the helper answers; its first line too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// All of them.
    Counted(Vec<Tally>),
    /// It could not.
    Failed(String),
}

impl ForeignPrograms {
    /// Attaches them on a node, to the cgroup that its agent attaches to.
    ///
    /// # Errors
    /// The node can't be reached, or the kernel refuses one.
    pub async fn attach(
        cluster: &Cluster,
        node: &str,
        hooks: &[&str],
        device_of: IpAddr,
        expires: Duration,
    ) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        let arguments = [
            "foreign-programs",
            "--cgroup",
            &cgroup,
            "--hooks",
            &hooks.join(","),
            "--device-of",
            &device_of.to_string(),
            "--expires-s",
            &expires.as_secs().to_string(),
        ];
        let mut helper = Helper::start(cluster, node, &arguments).await?;
        match helper.answer().await? {
            Answer::Counted(_) => Ok(Self { helper }),
            Answer::Failed(why) => Err(helper.refused("attach", why)),
        }
    }

    /// How often each has run, and whether it is still attached.
    ///
    /// # Errors
    /// The helper has ended, or can't look.
    pub async fn count(&mut self) -> Result<Vec<Tally>, FaultError> {
        self.ask(Command::Count, "count").await
    }

    /// Heals: detaches them.
    ///
    /// # Errors
    /// They are still there.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.ask(Command::Detach, "detach").await?;
        self.helper.end().await
    }

    async fn ask(&mut self, command: Command, name: &str) -> Result<Vec<Tally>, FaultError> {
        match self.helper.ask(&command).await? {
            Answer::Counted(all) => Ok(all),
            Answer::Failed(why) => Err(self.helper.refused(name, why)),
        }
    }
}
