//! A node port is a frontend at each of the node's addresses, as a cluster IP's is, and no socket of the node may have that port.
//!
//! What an agent does that thinks of clients alone: a packet to that number is the Service's, also where the node's own process
//! dialled from it, or has served there before the Service came.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{PortPlan, ServicePlan},
    transport::{Family, TransportAddress},
};

/// A planner for which the node has no sockets.
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
            // No machine's, as far as packets are concerned.
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

/// Puts a port's node port at each of the node's addresses too, and returns these.
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
