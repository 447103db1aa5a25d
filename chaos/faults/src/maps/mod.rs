//! Maps that are not what their names or pins say.
//!
//! - `twins.rs`: maps of another owner that have the names of the agent's; `twin.rs`: its part on the node.
//! - `refit.rs`: pinned maps of another layout, on the node.

mod refit;
mod twin;
mod twins;

use serde::{Deserialize, Serialize};

pub use self::{
    refit::{Arguments as RefitArguments, Refitted, refit},
    twin::{Arguments as TwinArguments, run},
    twins::{Twin, TwinMaps},
};

/// What the helper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    /// Say what has become of them.
    Look,
    /// Let go of them.
    Release,
}

/// What the helper answers; its first line too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// All of them.
    Twins(Vec<Twin>),
    /// It could not.
    Failed(String),
}
