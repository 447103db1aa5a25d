//! Services have frontends that they should not have.
//!
//! Each is the bug of an agent that looks at the port alone, and takes any address of its own, or of a backend, for the
//! Service's.

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::{Family, TransportAddress},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{FrontendPlan, PortPlan, ServicePlan},
};

/// Where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The Service's ports at the node's addresses, and its node ports at its ClusterIP.
    Crossed,
    /// The Service's ports at the addresses of its backends.
    AtBackends,
}

/// A planner that adds such frontends.
#[derive(Debug)]
pub struct FrontendsAdded {
    planner: Planner,
    added: Added,
}

impl FrontendsAdded {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, added: Added) -> Self {
        Self { planner, added }
    }

    fn node(&self) -> BTreeSet<IpAddr> {
        let host = self.planner.model().host();
        host.map(|host| host.addresses.clone()).unwrap_or_default()
    }
}

impl DesiredState for FrontendsAdded {
    fn apply(&mut self, event: Event) -> Dirty {
        let before = self.node();
        let mut dirty = self.planner.apply(event);
        if self.added == Added::Crossed && self.node() != before {
            dirty.extend(self.planner.model().services().map(|(id, _)| id));
        }
        dirty
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        if service == ObjectId::NODE {
            return plan;
        }
        let node = self.node();
        for port in plan.ports.values_mut() {
            let more = match self.added {
                Added::Crossed => crossed(port, &node),
                Added::AtBackends => at_backends(port),
            };
            for (frontend, as_planned) in more {
                plan.addresses.entry(frontend.address).or_default();
                port.frontends.entry(frontend).or_insert(as_planned);
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}

type Frontend = (TransportAddress, FrontendPlan);

/// Frontends at the ClusterIP, and node ports.
fn kinds(port: &PortPlan) -> [Vec<Frontend>; 2] {
    let all = port.frontends.iter().map(|(frontend, plan)| (*frontend, *plan));
    let (own, others): (Vec<Frontend>, Vec<Frontend>) = all.partition(|(_, plan)| plan.own);
    let is_node_port = |(frontend, _): &Frontend| frontend.address.is_unspecified();
    [own, others.into_iter().filter(is_node_port).collect()]
}

fn crossed(port: &PortPlan, node: &BTreeSet<IpAddr>) -> Vec<Frontend> {
    let [own, node_ports] = kinds(port);
    let mut more = Vec::new();
    for (frontend, plan) in &own {
        let family = Family::of(frontend.address);
        let at = node.iter().filter(|address| Family::of(**address) == family);
        let not_own = FrontendPlan { own: false, ..*plan };
        more.extend(at.map(|&address| (TransportAddress { address, ..*frontend }, not_own)));
        let numbers = node_ports.iter().map(|(at, _)| TransportAddress {
            port: at.port,
            ..*frontend
        });
        more.extend(numbers.map(|number| (number, *plan)));
    }
    more
}

fn at_backends(port: &PortPlan) -> Vec<Frontend> {
    let [own, _] = kinds(port);
    let mut more = Vec::new();
    for (frontend, plan) in own {
        let not_own = FrontendPlan { own: false, ..plan };
        let at = port.cluster.iter().map(|backend| TransportAddress {
            address: backend.address.address,
            ..frontend
        });
        // A backend at the port's own number is no frontend: it would be translated to itself.
        let is_free = |at: &TransportAddress| port.cluster.iter().all(|backend| backend.address != *at);
        more.extend(at.filter(is_free).map(|at| (at, not_own)));
    }
    more
}
