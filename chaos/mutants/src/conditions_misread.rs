//! Conditions of endpoints are misread, each in its own way.
//!
//! The bugs of agents that look at one condition only (`ready`, or `serving`), or take every terminating endpoint as
//! gone, as all did before KEP-1669; and of one that restores from the kernel what was terminating, and never lets it
//! return.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Endpoint, Event, Kind, Model, Slice},
    names::{ObjectId, ObjectName},
    plan::ServicePlan,
};

/// What is misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// An endpoint that is not ready, and not terminating, is taken as ready.
    Unready,
    /// One that is terminating and serving is taken as ready.
    Draining,
    /// One that is terminating is not there.
    Terminating,
    /// One that is terminating and not serving is taken as serving.
    Stopped,
    /// One that was terminating when the agent started stays so.
    Returning,
}

/// A planner that misreads conditions.
#[derive(Debug)]
pub struct ConditionsMisread {
    planner: Planner,
    misread: Misread,
    is_started: bool,
    /// Slices and endpoints that were terminating at the start.
    terminating: BTreeSet<(ObjectName, IpAddr)>,
}

impl ConditionsMisread {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, misread: Misread) -> Self {
        Self {
            planner,
            misread,
            is_started: false,
            terminating: BTreeSet::new(),
        }
    }

    fn read(&mut self, slice: &mut Slice) {
        let is = |endpoint: &Endpoint| (endpoint.ready, endpoint.serving, endpoint.terminating);
        let be = |endpoint: &mut Endpoint, (ready, serving, terminating)| {
            (endpoint.ready, endpoint.serving, endpoint.terminating) = (ready, serving, terminating);
        };
        if self.misread == Misread::Terminating {
            slice.endpoints.retain(|endpoint| !endpoint.terminating);
        }
        for endpoint in &mut slice.endpoints {
            let key = || (slice.name.clone(), endpoint.address);
            if self.misread == Misread::Returning && !self.is_started && endpoint.terminating {
                self.terminating.insert(key());
            }
            match (self.misread, is(endpoint)) {
                (Misread::Unready, (false, _, false)) | (Misread::Draining, (false, true, true)) => {
                    be(endpoint, (true, true, false));
                }
                (Misread::Stopped, (false, false, true)) => be(endpoint, (false, true, true)),
                (Misread::Returning, _) if self.terminating.contains(&key()) => {
                    be(endpoint, (false, false, true));
                }
                _ => {}
            }
        }
    }
}

impl DesiredState for ConditionsMisread {
    fn apply(&mut self, mut event: Event) -> Dirty {
        match &mut event {
            Event::SliceApplied(slice) => self.read(slice),
            Event::Synced(Kind::EndpointSlice) => self.is_started = true,
            _ => {}
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
