//! What pods send to backends comes from their node's address.
//!
//! The bug of an agent, or of a network of pods, whose rule for masquerading does not leave out the addresses of the
//! cluster.

use std::{collections::BTreeSet, io};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Range,
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
    pod_network::Masquerade,
};

/// A planner that has pods masqueraded as it gets their Nodes.
pub struct PodsMasqueraded<F> {
    planner: Planner,
    pods: BTreeSet<Range>,
    masquerade: F,
}

impl<F: FnMut(&BTreeSet<Range>) + Send> PodsMasqueraded<F> {
    /// Wraps the production agent's planner. `masquerade` gets all ranges of pods that are known.
    pub fn new(planner: Planner, masquerade: F) -> Self {
        Self {
            planner,
            pods: BTreeSet::new(),
            masquerade,
        }
    }
}

impl<F: FnMut(&BTreeSet<Range>) + Send> DesiredState for PodsMasqueraded<F> {
    fn apply(&mut self, event: Event) -> Dirty {
        if let Event::NodeApplied(node) = &event {
            let known = self.pods.len();
            self.pods.extend(&node.pods);
            if self.pods.len() > known {
                (self.masquerade)(&self.pods);
            }
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.planner.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}

/// Masquerades what pods of these ranges send, wherever it goes.
///
/// # Errors
/// The kernel's error.
pub fn masquerade(pods: &BTreeSet<Range>) -> io::Result<()> {
    let pods = pods.iter().filter_map(|range| range.to_string().parse().ok());
    let everywhere = Masquerade {
        pods: pods.collect(),
        kept: Vec::new(),
    };
    everywhere.write().map(drop)
}
