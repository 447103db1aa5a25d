//! What a run's Lease says for whoever comes after it: how the run reached nodes, and which it had to do with.
//!
//! It is written by the request that takes the Lease, so before anything is done to a node, and stays until that is undone:
//! whoever takes a Lease over takes its nodes over, too.

use std::collections::BTreeSet;

use cluster::RUN_LABEL;
use k8s_openapi::api::{coordination::v1::Lease as Object, core::v1::Node};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};

use super::{Connection, KubernetesError, Options, Tier, error::api, limits::ask};

/// Annotation of a Lease: [`Left`], of a run that has to do with nodes.
const NOTE: &str = "plumbline-run/options";
/// Annotation of every Lease: the run's tier.
const TIER: &str = "plumbline-run/tier";

/// What a run may have left on nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Left {
    /// What it was told, but the way to the API, which is whoever's.
    #[serde(flatten)]
    pub options: Options,
    /// The nodes, and those that the run itself had found so.
    #[serde(default)]
    pub nodes: BTreeSet<String>,
}

impl Left {
    /// Nodes that can't be healed through these, and are still the cluster's.
    ///
    /// # Errors
    /// Nodes can't be read.
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

/// The annotations of a run's Lease.
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

/// The tier of a run, by its Lease. Versions that did not say it had to be alone.
pub(super) fn tier(there: &Object) -> Tier {
    let said = there.annotations().get(TIER);
    let known = Tier::ALL
        .into_iter()
        .find(|tier| said.is_some_and(|said| said == tier.name()));
    known.unwrap_or(Tier::Node)
}

/// Whether a run had to do with nodes that one of this tier can't heal.
pub(super) fn is_beyond(there: &Object, tier: Tier) -> bool {
    there.annotations().contains_key(NOTE) && tier < Tier::Node
}

/// What a run may have left on nodes, by its Lease.
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
