//! The note in a run's Lease for later runs: how the run reached nodes, and which nodes it changed.
//!
//! The request that takes the Lease also writes the note, before any node is changed, and the note stays until the
//! changes are undone: a run that takes over a Lease takes over its nodes.

use std::collections::BTreeSet;

use cluster::RUN_LABEL;
use k8s_openapi::api::{coordination::v1::Lease as Object, core::v1::Node};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};

use super::{Connection, KubernetesError, Options, Tier, error::api, limits::ask};

/// Annotation of a Lease: [`Left`], of a run that changes nodes.
const NOTE: &str = "plumbline-run/options";
/// Annotation of every Lease: the run's tier.
const TIER: &str = "plumbline-run/tier";

/// Nodes that a run may have left changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Left {
    /// Options of the run, without the API endpoint, which depends on the reader.
    #[serde(flatten)]
    pub options: Options,
    /// The nodes of the run, and those that it had taken over itself.
    #[serde(default)]
    pub nodes: BTreeSet<String>,
}

impl Left {
    /// Nodes of the cluster that can't be healed through `nodes`.
    ///
    /// # Errors
    /// The nodes can't be read.
    pub(super) async fn beyond(
        &self,
        client: &Client,
        reached: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, KubernetesError> {
        let nodes: Api<Node> = Api::all(client.clone());
        let mut beyond = BTreeSet::new();
        for name in self.nodes.difference(reached) {
            let what = format!("look for the node {name}");
            if ask(&what, nodes.get_opt(name))
                .await?
                .map_err(api(&what))?
                .is_some()
            {
                beyond.insert(name.clone());
            }
        }
        Ok(beyond)
    }
}

/// Annotations of a run's Lease.
pub(super) fn annotations(
    options: &Options,
    nodes: BTreeSet<String>,
) -> serde_json::Result<Vec<(String, String)>> {
    let mut all = vec![(TIER.to_owned(), options.tier.name().to_owned())];
    if options.tier >= Tier::Node {
        let options = Options {
            connection: Connection::default(),
            ..options.clone()
        };
        all.push((NOTE.to_owned(), serde_json::to_string(&Left { options, nodes })?));
    }
    Ok(all)
}

/// The tier of a run, from its Lease. Runs of versions without this annotation had to be alone.
pub(super) fn tier(there: &Object) -> Tier {
    let tier_name = there.annotations().get(TIER);
    let known = Tier::ALL
        .into_iter()
        .find(|tier| tier_name.is_some_and(|tier_name| tier_name == tier.name()));
    known.unwrap_or(Tier::Node)
}

/// Whether a run changed nodes that a run of this tier can't heal.
pub(super) fn is_beyond(there: &Object, tier: Tier) -> bool {
    there.annotations().contains_key(NOTE) && tier < Tier::Node
}

/// The note in a Lease.
///
/// # Errors
/// [`KubernetesError::UnknownNote`]: another version of the suite has written it.
pub(super) fn left(there: &Object) -> Result<Option<Left>, KubernetesError> {
    let Some(text) = there.annotations().get(NOTE) else {
        return Ok(None);
    };
    let note = serde_json::from_str(text).map_err(|error| KubernetesError::UnknownNote {
        run: there.labels().get(RUN_LABEL).cloned().unwrap_or_default(),
        namespace: there.namespace().unwrap_or_default(),
        why: error.to_string(),
    })?;
    Ok(Some(note))
}
