//! Frontends at load balancer addresses and external IPs are there only if something else is, too.

use lb_abi::address_flags::NODE;
use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::TransportAddress,
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{FrontendPlan, PortPlan, ServicePlan},
};

/// What such a frontend wrongly depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depends {
    /// A backend on this node.
    LocalBackend,
    /// A node port of the same port.
    NodePort,
}

/// A planner that omits frontends at external addresses.
#[derive(Debug)]
pub struct ExternalFrontends {
    planner: Planner,
    depends: Depends,
}

impl ExternalFrontends {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, depends: Depends) -> Self {
        Self { planner, depends }
    }

    fn are_there(&self, port: &PortPlan) -> bool {
        match self.depends {
            Depends::LocalBackend => !port.local.is_empty(),
            Depends::NodePort => port.frontends.keys().any(is_node_port),
        }
    }
}

fn is_node_port(frontend: &TransportAddress) -> bool {
    frontend.address.is_unspecified()
}

fn is_external(address: &TransportAddress, frontend: &FrontendPlan) -> bool {
    !frontend.own && !is_node_port(address)
}

impl DesiredState for ExternalFrontends {
    fn apply(&mut self, event: Event) -> Dirty {
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        // The agent's own probe is no Service.
        if service == ObjectId::NODE {
            return plan;
        }
        for port in plan.ports.values_mut() {
            if !self.are_there(port) {
                port.frontends
                    .retain(|address, frontend| !is_external(address, frontend));
            }
        }
        plan.ports.retain(|_, port| !port.frontends.is_empty());
        let served = |address: &std::net::IpAddr| {
            let mut frontends = plan.ports.values().flat_map(|port| port.frontends.keys());
            frontends.any(|frontend| frontend.address == *address)
        };
        plan.addresses = plan
            .addresses
            .iter()
            .filter(|(address, flags)| **flags & NODE != 0 || served(address))
            .map(|(address, flags)| (*address, *flags))
            .collect();
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}
