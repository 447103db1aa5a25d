//! The cluster that faults are made in, and what of them could not be healed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::Cluster;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::timeout,
};

use crate::FaultError;

/// How long the drop of a fault waits until it is healed.
const HEALING_LIMIT: Duration = Duration::from_secs(30);

/// Makes the faults of one case that are undone from here: agents that are stopped, reconfigured or redirected, and hidden
/// pins. Each fault keeps a clone, to report it if its drop could not heal it.
#[derive(Clone)]
pub struct FaultInjector {
    cluster: Arc<Cluster>,
    unhealed: Unhealed,
}

impl FaultInjector {
    /// For a cluster, with nothing unhealed.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            unhealed: Unhealed::default(),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Descriptions of dropped faults that could not be healed. They stay on the node until [`heal`](crate::heal) undoes
    /// them.
    #[must_use]
    pub fn unhealed(&self) -> Vec<String> {
        self.unhealed.all()
    }

    /// Heals a fault in its drop, for at most [`HEALING_LIMIT`]. What fails is added to [`unhealed`](Self::unhealed).
    pub(crate) fn heal_in_drop(&self, fault: &str, healing: impl Future<Output = Result<(), FaultError>>) {
        self.unhealed.heal_in_drop(fault, healing);
    }
}

/// Descriptions of faults that stay. Clones share the list.
#[derive(Clone, Default)]
struct Unhealed(Arc<Mutex<Vec<String>>>);

impl Unhealed {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn heal_in_drop(&self, fault: &str, healing: impl Future<Output = Result<(), FaultError>>) {
        let why = match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                match tokio::task::block_in_place(|| handle.block_on(timeout(HEALING_LIMIT, healing))) {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("not healed within {HEALING_LIMIT:?}"),
                }
            }
            _ => "there is no runtime to heal it in".to_owned(),
        };
        tracing::error!("{fault}: {why}");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(format!("{fault}: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_drop_could_not_heal_is_listed_afterwards() {
        let list = Unhealed::default();
        let of_fault = list.clone();
        of_fault.heal_in_drop("the agent of n1 stays down", async { Ok(()) });
        assert_eq!(list.all(), [""; 0]);
        let refused = FaultError::Refused {
            node: "n2".to_owned(),
            what: "umount".to_owned(),
            why: "target is busy".to_owned(),
        };
        let expected = format!("the pins of n2 stay hidden: {refused}");
        of_fault.heal_in_drop("the pins of n2 stay hidden", async { Err(refused) });
        assert_eq!(list.all(), [expected]);
    }
}
