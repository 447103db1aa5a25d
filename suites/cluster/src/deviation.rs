//! Known differences between a target and the catalogue.

use std::collections::BTreeSet;

use crate::Family;
use semver::VersionReq;
use serde::{Deserialize, Serialize};

/// A claim of the catalogue that a target is known to break: always, or only in some versions, families or frontends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// Name of the claim.
    pub claim: String,
    /// What the target does instead, in a few words.
    pub reason: String,
    /// Link to the issue or documentation.
    pub link: String,
    /// Versions of the agent that deviate, as a Cargo requirement (`>=1.18.0, <1.18.7`). All do, if there is none. A
    /// requirement never matches an unknown version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<VersionReq>,
    /// Families in which the target deviates; all, if there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub families: BTreeSet<Family>,
    /// Frontends at which the target deviates; all, if there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub frontends: BTreeSet<Frontend>,
}

/// Kind of address that a client dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frontend {
    /// ClusterIP.
    ClusterIp,
    /// Node port, at an address of a node.
    NodePort,
    /// Address of a load balancer.
    LoadBalancer,
}
