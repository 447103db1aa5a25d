//! Packet programs of an earlier load that stay at the devices of a node.
//!
//! - this file: the fault, and what it is told; `holder.rs`: its part on the node.

mod holder;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::Cluster;
use serde::{Deserialize, Serialize};

pub use self::holder::{Arguments, run};
use crate::{FaultError, helper::Helper};

/// Programs at the devices of a node, held by a helper there and attached again in another way.
///
/// Drop detaches them, as the end of this process does; and they go by themselves when they expire.
#[must_use = "the fault heals when this is dropped"]
#[derive(Debug)]
pub struct LeftoverPackets {
    held: Vec<AtDevice>,
    helper: Helper,
}

/// A program at a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtDevice {
    /// The device's name.
    pub device: String,
    /// At which layer, and which packets it sees: `tcx ingress`, `clsact egress`, `xdp ingress` …
    pub place: String,
    /// How: by a link, as a filter of which priority and handle …
    pub manner: String,
    /// Its id.
    pub id: u32,
}

/// How they are attached again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Again {
    /// As filters of a priority that nobody takes for his own.
    Filters,
    /// By links of TCX that are pinned nowhere: the helper's descriptors keep them.
    Links,
    /// None of them, but one of XDP in their place, at the device that has an address: it uses their maps, and sends
    /// datagrams for the first of each pair to the second.
    Xdp {
        /// An address of the device.
        device_of: IpAddr,
        /// From where to where.
        pairs: Vec<(SocketAddr, SocketAddr)>,
    },
}

/// What the helper is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Command {
    /// Try whether the kernel attaches by links of TCX.
    TryLinks,
    /// Attach again what is held.
    Attach(Again),
    /// Say what is attached to devices, whose ever it is.
    List,
    /// Detach what it has attached.
    Detach,
}

/// What the helper answers; its first line too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// What it holds, what it has attached, what is attached; of what it detached, what was still there.
    At(Vec<AtDevice>),
    /// The kernel has no such thing, and says so.
    Unsupported(String),
    /// It could not.
    Failed(String),
}

impl LeftoverPackets {
    /// Takes hold of the programs that are attached to devices of a node by TCX or as filters. Changes nothing yet.
    ///
    /// # Errors
    /// The node can't be reached, or looked at.
    pub async fn hold(cluster: &Cluster, node: &str, expires: Duration) -> Result<Self, FaultError> {
        let cgroup = cluster.nodes()?.cgroup_root().to_string_lossy().into_owned();
        let expires = expires.as_secs().to_string();
        let arguments = ["hold-packets", "--cgroup", &cgroup, "--expires-s", &expires];
        let mut helper = Helper::start(cluster, node, &arguments).await?;
        match helper.answer().await? {
            Answer::At(held) => Ok(Self { held, helper }),
            Answer::Unsupported(why) | Answer::Failed(why) => Err(helper.refused("hold", why)),
        }
    }

    /// What is held.
    #[must_use]
    pub fn held(&self) -> &[AtDevice] {
        &self.held
    }

    /// Why they can't be attached by links of TCX on this node; `None`: they can. For a moment a program that passes
    /// everything on is attached to the node's loopback device.
    ///
    /// # Errors
    /// The helper has ended, or the kernel refuses it for another reason than that it is too old.
    pub async fn lacks_links(&mut self) -> Result<Option<String>, FaultError> {
        match self.helper.ask(&Command::TryLinks).await? {
            Answer::At(_) => Ok(None),
            Answer::Unsupported(why) => Ok(Some(why)),
            Answer::Failed(why) => Err(self.helper.refused("try links of TCX", why)),
        }
    }

    /// Attaches them again; devices that are gone meanwhile get none. Returns what is attached by it now.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub async fn attach(&mut self, again: Again) -> Result<Vec<AtDevice>, FaultError> {
        self.ask(Command::Attach(again), "attach").await
    }

    /// What is attached to devices of the node.
    ///
    /// # Errors
    /// The helper has ended, or can't look.
    pub async fn list(&mut self) -> Result<Vec<AtDevice>, FaultError> {
        self.ask(Command::List, "list").await
    }

    /// Heals, and says so only when it has. Returns what was still attached.
    ///
    /// # Errors
    /// It is still there.
    pub async fn heal(mut self) -> Result<Vec<AtDevice>, FaultError> {
        let left = self.ask(Command::Detach, "detach").await?;
        self.helper.end().await?;
        Ok(left)
    }

    async fn ask(&mut self, command: Command, name: &str) -> Result<Vec<AtDevice>, FaultError> {
        match self.helper.ask(&command).await? {
            Answer::At(all) => Ok(all),
            Answer::Unsupported(why) | Answer::Failed(why) => Err(self.helper.refused(name, why)),
        }
    }
}
