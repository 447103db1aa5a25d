//! Model → what the maps should say. Pure, without ids, sorted.
//!
//! `plan` is the union of `plan_service` over all Services: what the incremental path writes for one Service
//! after an event is what a fresh agent would write for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::{self, Model, Service, ServicePort},
    names::ObjectId,
    transport::{Protocol, TransportAddress},
};

/// A port of a Service: the API has them unique by number and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId {
    /// The frontends' port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// What a service port should be: the frontends that share one set of backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// Where clients connect to; at least one.
    pub frontends: BTreeSet<TransportAddress>,
    /// Who serves them. Empty: connections are refused.
    pub backends: BTreeSet<TransportAddress>,
}

/// What a Service should be; a Service without frontends has no entry.
pub type ServicePlan = BTreeMap<PortId, PortPlan>;

/// What everything should be.
pub type Plan = BTreeMap<ObjectId, ServicePlan>;

/// The plan of everything, from scratch.
pub fn plan(model: &Model) -> Plan {
    let services = model.services().map(|(id, _)| (id, plan_service(model, id)));
    services.filter(|(_, plan)| !plan.is_empty()).collect()
}

/// The plan of one Service; empty if there is none.
pub fn plan_service(model: &Model, id: ObjectId) -> ServicePlan {
    let Some(service) = model.service(id) else {
        return ServicePlan::new();
    };
    let ports = service.ports.iter().map(|port| {
        let key = PortId {
            port: port.port,
            protocol: port.protocol,
        };
        let frontends = owned_frontends(model, id, service, port);
        (
            key,
            PortPlan {
                frontends,
                backends: backends(model, id, port),
            },
        )
    });
    ports.filter(|(_, port)| !port.frontends.is_empty()).collect()
}

/// Every frontend with its backends: what clients can tell.
pub fn resolve(plan: &Plan) -> BTreeMap<TransportAddress, BTreeSet<TransportAddress>> {
    let ports = plan.values().flat_map(BTreeMap::values);
    ports
        .flat_map(|port| {
            port.frontends
                .iter()
                .map(|frontend| (*frontend, port.backends.clone()))
        })
        .collect()
}

fn owned_frontends(
    model: &Model,
    id: ObjectId,
    service: &Service,
    port: &ServicePort,
) -> BTreeSet<TransportAddress> {
    let claimed = model::frontends_of_port(service, port);
    claimed
        .filter(|frontend| model.owner(frontend) == Some(id))
        .collect()
}

fn backends(model: &Model, id: ObjectId, port: &ServicePort) -> BTreeSet<TransportAddress> {
    let mut backends = BTreeSet::new();
    for slice in model.slices_of(id) {
        let ports = slice.ports.iter();
        for target in ports.filter(|target| target.name == port.name && target.protocol == port.protocol) {
            let ready = slice.endpoints.iter().filter(|endpoint| endpoint.ready);
            backends.extend(ready.map(|endpoint| TransportAddress {
                protocol: port.protocol,
                address: endpoint.address,
                port: target.port,
            }));
        }
    }
    backends
}
