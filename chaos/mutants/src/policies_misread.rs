//! Traffic policies count for other clients or frontends than they are about, not at all, or as they were when the
//! Service was created.
//!
//! Bugs of agents that keep one policy for a whole Service (KEP-2086 names that one), that compute the backends of a
//! node once for clients inside and outside, or that read a Service's policies only when they first see it.

use std::collections::HashMap;

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::Backend,
    model::{Dirty, Event, Model, Policy, Service},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// What is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// `internalTrafficPolicy` is always `Cluster`.
    InternalIgnored,
    /// `externalTrafficPolicy` is always `Cluster`.
    ExternalIgnored,
    /// `Local` of one policy is `Local` of both.
    Coupled,
    /// Both are as they were when the Service was created.
    Once,
    /// `externalTrafficPolicy` counts for clients inside, too.
    ExternalInside,
    /// Backends that serve clients outside under `externalTrafficPolicy: Local` see the node's address.
    SourceLost,
}

/// A planner that misreads policies.
#[derive(Debug)]
pub struct PoliciesMisread {
    planner: Planner,
    misread: Misread,
    /// Policies of the Services when they were created.
    first: HashMap<ObjectName, [Policy; 2]>,
}

impl PoliciesMisread {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, misread: Misread) -> Self {
        Self {
            planner,
            misread,
            first: HashMap::new(),
        }
    }

    fn misread(&mut self, service: &mut Service) {
        let read = [service.internal_policy, service.external_policy];
        let first = *self.first.entry(service.name.clone()).or_insert(read);
        [service.internal_policy, service.external_policy] = match self.misread {
            Misread::InternalIgnored => [Policy::Cluster, read[1]],
            Misread::ExternalIgnored => [read[0], Policy::Cluster],
            Misread::Coupled => [read[0].max(read[1]); 2],
            Misread::Once => first,
            Misread::ExternalInside | Misread::SourceLost => read,
        };
    }
}

impl DesiredState for PoliciesMisread {
    fn apply(&mut self, mut event: Event) -> Dirty {
        match &mut event {
            Event::ServiceApplied(service) => self.misread(service),
            Event::ServiceDeleted(name) => _ = self.first.remove(name),
            _ => {}
        }
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        for port in plan.ports.values_mut() {
            match self.misread {
                Misread::ExternalInside => {
                    for frontend in port.frontends.values_mut().filter(|frontend| !frontend.own) {
                        frontend.internal = frontend.external;
                    }
                }
                Misread::SourceLost => {
                    let elsewhere = |backend: &Backend| Backend {
                        local: false,
                        ..*backend
                    };
                    port.local = port.local.iter().map(elsewhere).collect();
                    port.serving.extend(&port.local);
                }
                _ => {}
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
