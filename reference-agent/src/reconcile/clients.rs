//! Who is of the cluster: written for the node itself, range by range. Nothing leads there, so that no order matters; one
//! that leaves waits for others that do, as ranges of service ports.

use std::collections::BTreeSet;

use lb_abi::SourceKey;

use super::{Reconciler, retry::Failure};
use crate::{
    maps::{LbMaps, MapError},
    names::ObjectId,
    plan::ServicePlan,
};

impl<M: LbMaps> Reconciler<M> {
    /// Puts the ranges that are missing, and lets others leave.
    pub(super) fn update_clients(
        &mut self,
        service: ObjectId,
        plan: &ServicePlan,
        failures: &mut Vec<Failure>,
    ) {
        if service != ObjectId::NODE {
            return;
        }
        let ranges = plan.clients.iter();
        let wanted: BTreeSet<_> = ranges
            .map(|range| SourceKey::range(SourceKey::CLUSTER, range.address().into(), range.length()))
            .collect();
        let excess = self.written.clients.difference(&wanted);
        self.written.leaving_sources.extend(excess);
        // All of them, before the first that does not fit.
        for key in &wanted {
            self.written.leaving_sources.remove(key);
        }
        for key in wanted {
            // Once is enough, if the map is full.
            if let Err(error) = self.put_client(key) {
                failures.push(Failure { port: None, error });
                break;
            }
        }
    }

    fn put_client(&mut self, key: SourceKey) -> Result<(), MapError> {
        if !self.written.clients.contains(&key) {
            self.writes += 1;
            self.maps.put_source(key)?;
            self.written.clients.insert(key);
        }
        Ok(())
    }
}
