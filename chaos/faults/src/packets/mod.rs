//! Packet programs of an earlier load that stay at the devices of a node.
//!
//! Here: the fault and its commands. `holder.rs`: its helper.

mod holder;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::Cluster;
use serde::{Deserialize, Serialize};

pub use self::holder::{Arguments, run};
use crate::{FaultError, helper::Helper};

/// Programs at the devices of a node, which a helper keeps loaded and attaches again in another way.
///
/// Dropping it, the end of this process and their expiry detach them.
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
    /// Layer and direction: `tcx ingress`, `clsact egress`, `xdp ingress` …
    pub place: String,
    /// How it is attached: by a link, or as a filter with priority and handle.
    pub manner: String,
    /// Its id.
    pub id: u32,
}

/// How programs are attached again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Again {
    /// As filters of a priority that no implementation uses.
    Filters,
    /// By links of TCX that are not pinned: the helper's descriptors keep them.
    Links,
    /// Instead of them, one of XDP that uses their maps, at one device. It sends datagrams for the first address of each pair
    /// to the second.
    Xdp {
        /// An address of the device.
        device_of: IpAddr,
        /// Old and new destinations.
        pairs: Vec<(SocketAddr, SocketAddr)>,
    },
}

/// Commands to the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Command {
    /// Test whether the kernel has links of TCX.
    TryLinks,
    /// Attach the held programs.
    Attach(Again),
    /// List what is attached to devices, of all owners.
    List,
    /// Detach what the helper attached.
    Detach,
}

/// The helper's answers. The first line that it writes is one too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// The programs that it holds, attached, lists, or has detached.
    At(Vec<AtDevice>),
    /// The kernel does not support it, with its error.
    Unsupported(String),
    /// The command failed, with the reason.
    Failed(String),
}

impl LeftoverPackets {
    /// Opens the programs that are attached to devices of a node by TCX or as filters, which keeps them loaded.
    ///
    /// # Errors
    /// The node can't be reached, or its programs can't be listed.
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

    /// The programs that are held.
    #[must_use]
    pub fn held(&self) -> &[AtDevice] {
        &self.held
    }

    /// The reason why links of TCX don't work on this node; `None` if they do. Attaches a program that passes everything to the
    /// loopback device for a moment.
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

    /// Attaches them again, except at devices that are gone. Returns what was attached.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub async fn attach(&mut self, again: Again) -> Result<Vec<AtDevice>, FaultError> {
        self.ask(Command::Attach(again), "attach").await
    }

    /// Lists what is attached to devices of the node.
    ///
    /// # Errors
    /// The helper has ended, or can't look.
    pub async fn list(&mut self) -> Result<Vec<AtDevice>, FaultError> {
        self.ask(Command::List, "list").await
    }

    /// Heals, and waits until that is done. Returns what was still attached.
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
