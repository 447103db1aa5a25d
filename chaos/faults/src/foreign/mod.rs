//! Programs of another owner, which only count packets and calls.
//!
//! Here: the fault and its commands. `tally.rs`: its helper.

mod tally;

use std::{net::IpAddr, time::Duration};

use cluster::Cluster;
use serde::{Deserialize, Serialize};

pub(crate) use self::tally::device;
pub use self::tally::{Arguments, run};
use crate::{FaultError, helper::Helper};

/// Counting programs of another owner: at each given socket hook, next to others (`BPF_F_ALLOW_MULTI`), and at one device in
/// both directions, by clsact and, where the kernel has it, by TCX.
///
/// Dropping it, the end of this process and their expiry detach them.
#[must_use = "the programs go when this is dropped"]
#[derive(Debug)]
pub struct ForeignPrograms {
    helper: Helper,
}

/// One of these programs.
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

/// Commands to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    /// List how often each has run.
    Count,
    /// Detach them.
    Detach,
}

/// The helper's answers. The first line that it writes is one too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// All programs.
    Counted(Vec<Tally>),
    /// The command failed, with the reason.
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

    /// Lists how often each has run, and whether it is still attached.
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
