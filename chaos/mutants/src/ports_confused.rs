//! Ports of a Service are not told apart, by their protocols or by their families.
//!
//! Each is the bug of an agent with a key that lacks one of the two.

use std::collections::BTreeSet;

use reference_agent::{
    control::{DesiredState, Planner},
    endpoint_address::{Backend, Family, Protocol, TransportAddress},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{PortId, PortPlan, ServicePlan},
};

/// What is not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confused {
    /// Protocols of one number: UDP has the backends of TCP.
    Protocols,
    /// Families of one port: it serves in none as long as it has no endpoints in one.
    Families,
    /// Families of one Service: there is only its first.
    SecondFamily,
}

/// A planner with such a key.
#[derive(Debug)]
pub struct PortsConfused {
    planner: Planner,
    confused: Confused,
}

impl PortsConfused {
    /// Wraps the production agent's planner.
    pub fn new(planner: Planner, confused: Confused) -> Self {
        Self { planner, confused }
    }

    fn first_family(&self, service: ObjectId) -> Option<Family> {
        let service = self.planner.model().service(service)?;
        service.cluster_ips.first().map(|address| Family::of(*address))
    }
}

impl DesiredState for PortsConfused {
    fn apply(&mut self, event: Event) -> Dirty {
        self.planner.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        let mut plan = self.planner.plan_service(service);
        match self.confused {
            Confused::Protocols => share_tcp(&mut plan),
            Confused::Families => empty_all(&mut plan),
            Confused::SecondFamily => {
                if let Some(first) = self.first_family(service) {
                    plan.ports.retain(|id, _| id.family == first);
                    plan.addresses.retain(|address, _| Family::of(*address) == first);
                }
            }
        }
        plan
    }

    fn model(&self) -> &Model {
        self.planner.model()
    }
}

/// Frontends without their protocol.
fn numbers(port: &PortPlan) -> impl Iterator<Item = (std::net::IpAddr, u16)> {
    port.frontends
        .keys()
        .map(|frontend| (frontend.address, frontend.port))
}

fn share_tcp(plan: &mut ServicePlan) {
    let of_tcp: Vec<PortPlan> = plan
        .ports
        .iter()
        .filter(|(id, _)| id.protocol == Protocol::Tcp)
        .map(|(_, port)| port.clone())
        .collect();
    for (_, port) in plan
        .ports
        .iter_mut()
        .filter(|(id, _)| id.protocol == Protocol::Udp)
    {
        let own: BTreeSet<_> = numbers(port).collect();
        let Some(tcp) = of_tcp
            .iter()
            .find(|tcp| numbers(tcp).any(|number| own.contains(&number)))
        else {
            continue;
        };
        port.cluster = by_udp(&tcp.cluster);
        port.local = by_udp(&tcp.local);
        port.serving = by_udp(&tcp.serving);
    }
}

fn by_udp(backends: &BTreeSet<Backend>) -> BTreeSet<Backend> {
    let by_udp = |backend: &Backend| Backend {
        address: TransportAddress {
            protocol: Protocol::Udp,
            ..backend.address
        },
        ..*backend
    };
    backends.iter().map(by_udp).collect()
}

fn empty_all(plan: &mut ServicePlan) {
    let empty: Vec<PortId> = plan
        .ports
        .iter()
        .filter(|(_, port)| port.cluster.is_empty())
        .map(|(id, _)| id.clone())
        .collect();
    for (id, port) in &mut plan.ports {
        if empty
            .iter()
            .any(|other| other.name == id.name && other.protocol == id.protocol)
        {
            for set in [&mut port.cluster, &mut port.local, &mut port.serving] {
                set.clear();
            }
        }
    }
}
