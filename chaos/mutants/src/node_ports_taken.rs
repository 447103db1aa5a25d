//! A node port is a frontend at each of the node's addresses, like a cluster IP's, and no socket of the node can use
//! that port.
//!
//! The bug of an agent that only considers clients: every packet to that port is the Service's, even if the node's own
//! process has connected from it, or has listened there before the Service was created.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::{Family, TransportAddress},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{PortPlan, ServicePlan},
};

/// A planner that ignores the node's own sockets.
#[derive(Debug, Default)]
pub struct NodePortsTaken(pub Planner);

impl NodePortsTaken {
    fn node(&self) -> BTreeSet<IpAddr> {
        let host = self.0.model().host();
        host.map(|host| host.addresses.clone()).unwrap_or_default()
    }
}

impl DesiredState for NodePortsTaken {
    fn apply(&mut self, event: Event) -> Dirty {
        let before = self.node();
        let mut dirty = self.0.apply(event);
        if self.node() != before {
            dirty.extend(self.0.model().services().map(|(id, _)| id));
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.0.plan_service(service);
        let node = self.node();
        if service == ObjectId::NODE {
            // Marks the addresses as no machine's, as far as packets are concerned.
            for (_, flags) in plan
                .addresses
                .iter_mut()
                .filter(|(address, _)| node.contains(address))
            {
                *flags = 0;
            }
        }
        let at_node: Vec<IpAddr> = plan
            .ports
            .values_mut()
            .flat_map(|port| at_each(port, &node))
            .collect();
        for address in at_node {
            plan.addresses.entry(address).or_default();
        }
        plan
    }

    fn model(&self) -> &Model {
        self.0.model()
    }
}

/// Adds a port's node port to each of the node's addresses, and returns these.
fn at_each(port: &mut PortPlan, node: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
    let mut at = Vec::new();
    let of_node = port
        .frontends
        .iter()
        .filter(|(frontend, _)| frontend.address.is_unspecified());
    for (frontend, plan) in of_node
        .map(|(frontend, plan)| (*frontend, *plan))
        .collect::<Vec<_>>()
    {
        let family = Family::of(frontend.address);
        for &address in node.iter().filter(|address| Family::of(**address) == family) {
            port.frontends
                .entry(TransportAddress { address, ..frontend })
                .or_insert(plan);
            at.push(address);
        }
    }
    at
}
