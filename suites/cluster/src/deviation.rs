//! What a target is known not to do as the catalogue says.

use std::collections::BTreeSet;

use semver::VersionReq;
use serde::{Deserialize, Serialize};

/// A claim of the catalogue that a target is known not to keep: always, or only in some versions, families or frontends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// The claim.
    pub claim: String,
    /// What it does instead, in a few words.
    pub reason: String,
    /// Where that is known.
    pub link: String,
    /// Versions of the agent that deviate, as Cargo writes requirements (`>=1.18.0, <1.18.7`). All do, if there is none; where the
    /// version is not known, it is no deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<VersionReq>,
    /// Families in which it deviates; all, if there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub families: BTreeSet<Family>,
    /// Frontends at which it deviates; all, if there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub frontends: BTreeSet<Frontend>,
}

/// A family of addresses, as Services name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

/// What of a Service is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frontend {
    /// Its ClusterIP.
    ClusterIp,
    /// Its node port, at an address of a node.
    NodePort,
    /// An address of its load balancer.
    LoadBalancer,
}
