//! Maps that are not what their names or pins say.
//!
//! `twins.rs`: maps of another owner with the names of the agent's; `twin.rs`: its helper. `refit.rs`: pinned maps of another
//! layout.

mod refit;
mod twin;
mod twins;

use serde::{Deserialize, Serialize};

pub use self::{
    refit::{Arguments as RefitArguments, Refitted, refit},
    twin::{Arguments as TwinArguments, run},
    twins::{Twin, TwinMaps},
};

/// Commands to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    /// List the twins and their state.
    Look,
    /// Release the twins.
    Release,
}

/// The helper's answers. The first line that it writes is one too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// All twins.
    Twins(Vec<Twin>),
    /// The command failed, with the reason.
    Failed(String),
}
