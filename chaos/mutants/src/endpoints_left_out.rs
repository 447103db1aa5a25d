//! Some endpoints are left out of every set, as agents do that take them for a mistake, or for a case of another kind.
//!
//! Each is the bug of an agent with a rule of its own about endpoints that the API lists as ready.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::{Backend, Protocol},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};

use crate::is_kubernetes;

/// Which endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Those at an address of this node: pods with its network.
    OfThisNode,
    /// A Service's only one, by UDP, on its own node: it would be its own client.
    AloneByUdp,
    /// Those that name no node: machines outside.
    WithoutNode,
}

/// A planner without these endpoints. Those of `default/kubernetes` stay.
#[derive(Debug)]
pub struct EndpointsLeftOut {
    planner: Planner,
    left_out: LeftOut,
}

impl EndpointsLeftOut {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, left_out: LeftOut) -> Self {
        Self { planner, left_out }
    }

    fn node(&self) -> BTreeSet<IpAddr> {
        let host = self.planner.model().host();
        host.map(|host| host.addresses.clone()).unwrap_or_default()
    }
}

impl DesiredState for EndpointsLeftOut {
    fn apply(&mut self, mut event: Event) -> Dirty {
        if let Event::SliceApplied(slice) = &mut event
            && self.left_out == LeftOut::WithoutNode
            && !slice.owner().is_some_and(|owner| is_kubernetes(&owner))
        {
            slice.endpoints.retain(|endpoint| endpoint.node.is_some());
        }
        let before = self.node();
        let mut dirty = self.planner.apply(event);
        if self.left_out == LeftOut::OfThisNode && self.node() != before {
            dirty.extend(self.planner.model().services().map(|(id, _)| id));
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        let name = self.planner.model().name(service);
        if name.is_none_or(is_kubernetes) {
            return plan;
        }
        let node = self.node();
        for (id, port) in &mut plan.ports {
            let alone = port.cluster.len() == 1 && id.protocol == Protocol::Udp;
            let stays = |backend: &Backend| match self.left_out {
                LeftOut::OfThisNode => !node.contains(&backend.address.address),
                LeftOut::AloneByUdp => !(alone && backend.local),
                LeftOut::WithoutNode => true,
            };
            for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
                set.retain(stays);
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
