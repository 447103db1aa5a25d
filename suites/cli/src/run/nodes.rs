//! Nodes of an existing cluster: which cases use which exclusively, and how busy they are.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cluster::{Cluster, Node, Place};
use tokio::time::timeout;

/// A node that takes longer to return its /proc/stat counts as busy.
const STAT: Duration = Duration::from_secs(10);

/// Nodes that cases use exclusively.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<BTreeSet<String>>);

/// A node that a case uses exclusively until this is dropped.
#[derive(Debug)]
pub(super) struct OwnNode<'a> {
    pub(super) name: String,
    used: &'a Used,
}

impl Used {
    /// Takes a node that no case uses.
    pub(super) fn free<'a>(&'a self, nodes: &[Node]) -> Option<OwnNode<'a>> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = nodes
            .iter()
            .map(|node| &node.name)
            .find(|name| !used.contains(*name))?;
        used.insert(free.clone());
        Some(OwnNode {
            name: free.clone(),
            used: self,
        })
    }
}

impl Drop for OwnNode<'_> {
    fn drop(&mut self) {
        let mut used = self.used.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.remove(&self.name);
    }
}

/// The `/proc/stat` of each node; empty if it can't be read in time.
pub(super) async fn processors(cluster: &Cluster) -> Vec<String> {
    let argv = ["cat", "/proc/stat"].map(str::to_owned);
    let each = cluster.describe().nodes.iter().map(async |node| {
        let place = Place::Host {
            node: node.name.clone(),
        };
        let child = cluster.exec(&place, &argv).await.ok()?;
        let output = timeout(STAT, child.wait_with_output()).await.ok()?.ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let each = futures::future::join_all(each).await;
    each.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_cases_until_it_has_ended() {
        let nodes = ["a", "b"].map(|name| Node {
            name: name.to_owned(),
            addresses: Vec::new(),
        });
        let used = Used::default();
        let (a, b) = (used.free(&nodes).unwrap(), used.free(&nodes).unwrap());
        assert_eq!((a.name.as_str(), b.name.as_str()), ("a", "b"));
        assert!(used.free(&nodes).is_none());
        drop(a);
        assert_eq!(used.free(&nodes).unwrap().name, "a");
    }
}
