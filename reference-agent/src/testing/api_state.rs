//! Law 1 as a check: after any history, the maps equal the plan from scratch.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    control::{DesiredState as _, Planner},
    endpoint_address::Backend,
    model::{Event, Host, Kind, Model, Node, Service, Slice},
    names::ObjectName,
    plan::{self, Perspective, Plan, ServicePlan},
    resolve,
};

use super::World;

/// The API's objects after a history of events, kept in the simplest way.
#[derive(Clone, Debug, Default)]
pub struct ApiState {
    services: BTreeMap<ObjectName, Service>,
    slices: BTreeMap<ObjectName, Slice>,
    nodes: BTreeMap<String, Node>,
    host: Option<Host>,
    api_servers: Option<BTreeSet<(IpAddr, u16)>>,
}

/// An agent's plans after a history of events, each made when an event marked its Service: the contents of maps without
/// failed writes.
#[derive(Debug)]
pub struct Incremental {
    planner: Planner,
    plans: Plan,
}

impl Incremental {
    /// Of an agent without events.
    pub fn new(perspective: Perspective) -> Self {
        Self {
            planner: Planner::new(perspective),
            plans: Plan::new(),
        }
    }

    /// Applies an event, and plans what it marks.
    pub fn take(&mut self, event: Event) {
        for id in self.planner.apply(event) {
            let plan = self.planner.plan_service(id);
            match plan.is_empty() {
                true => _ = self.plans.remove(&id),
                false => _ = self.plans.insert(id, plan),
            }
        }
    }
}

/// The plan of a new agent, and the model with its names.
#[derive(Debug)]
pub struct Fresh {
    /// The model of the same objects.
    pub model: Model,
    /// From scratch.
    pub plan: Plan,
}

impl ApiState {
    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match event.clone() {
            Event::ServiceApplied(service) => _ = self.services.insert(service.name.clone(), service),
            Event::ServiceDeleted(name) => _ = self.services.remove(&name),
            Event::SliceApplied(slice) => _ = self.slices.insert(slice.name.clone(), slice),
            Event::SliceDeleted(name) => _ = self.slices.remove(&name),
            Event::NodeApplied(node) => _ = self.nodes.insert(node.name.clone(), node),
            Event::NodeDeleted(name) => _ = self.nodes.remove(&name),
            Event::Host(host) => self.host = Some(host),
            Event::ApiServers(servers) => self.api_servers = Some(servers),
            Event::ServiceCidrApplied(_)
            | Event::ServiceCidrDeleted(_)
            | Event::ServiceRanges(_)
            | Event::Synced(_) => {}
        }
    }

    /// The names of all objects of a kind.
    pub fn names(&self, kind: Kind) -> BTreeSet<ObjectName> {
        match kind {
            Kind::Service => self.services.keys().cloned().collect(),
            Kind::EndpointSlice => self.slices.keys().cloned().collect(),
            // No plan depends on ServiceCIDRs.
            Kind::ServiceCidr => BTreeSet::new(),
            Kind::Node => self
                .nodes
                .keys()
                .map(|name| ObjectName::new("", name.as_str()))
                .collect(),
        }
    }

    /// All objects as events, in an order that no history of the tests has.
    pub fn backwards(&self) -> Vec<Event> {
        let host = self.host.clone().into_iter().map(Event::Host);
        let servers = self.api_servers.clone().into_iter().map(Event::ApiServers);
        let slices = self.slices.values().rev().cloned().map(Event::SliceApplied);
        let services = self.services.values().rev().cloned().map(Event::ServiceApplied);
        let nodes = self.nodes.values().rev().cloned().map(Event::NodeApplied);
        slices
            .chain(services)
            .chain(servers)
            .chain(nodes)
            .chain(host)
            .collect()
    }

    /// The plan of a new agent that gets the same objects in another order.
    pub fn fresh(&self, perspective: &Perspective) -> Fresh {
        let mut model = Model::default();
        for event in self.backwards() {
            model.apply(event);
        }
        let plan = plan::plan(&model, perspective);
        Fresh { model, plan }
    }
}

impl Fresh {
    /// The plans by name; the node's own has none.
    fn by_name<'a>(model: &'a Model, plans: &'a Plan) -> BTreeMap<Option<&'a ObjectName>, &'a ServicePlan> {
        plans.iter().map(|(id, plan)| (model.name(*id), plan)).collect()
    }

    /// Panics unless incremental plans equal this one, findings and health checks included.
    pub fn assert_planned(&self, incremental: &Incremental) {
        let Incremental { planner, plans } = incremental;
        assert_eq!(
            Self::by_name(planner.model(), plans),
            Self::by_name(&self.model, &self.plan),
            "plans after this history on the left, from scratch on the right"
        );
    }

    /// Panics unless the maps of a world equal this plan, and every write was lawful.
    pub fn assert_written(&self, world: &World<Planner>) {
        let planned = plan::resolve(&self.plan);
        assert_eq!(
            plan::resolve(&world.control.desired().plan()),
            planned,
            "the model of this history on the left, a fresh one on the right"
        );
        assert_eq!(world.resolved(), planned, "maps on the left, plan on the right");
        let contents = world.contents();
        let addresses = contents.addresses.iter();
        let addresses: BTreeMap<_, _> = addresses
            .map(|&(address, flags)| (address.into(), flags))
            .collect();
        assert_eq!(
            addresses,
            plan::addresses(&self.plan),
            "addresses in the maps on the left, of the plan on the right"
        );
        assert_eq!(
            resolve::clients(&contents),
            plan::clients(&self.plan),
            "clients of the cluster in the maps on the left, of the plan on the right"
        );
        let backends = contents.backends.iter();
        let backends: BTreeSet<_> = backends
            .filter_map(|(_, value)| Backend::from_value(*value))
            .map(|backend| backend.address)
            .collect();
        let kept = resolve::kept(&contents).into_values().flatten();
        let ports = self.plan.values().flat_map(|service| service.ports.values());
        let serving = ports
            .flat_map(|port| &port.serving)
            .map(|backend| backend.address);
        assert_eq!(
            backends,
            serving.chain(kept).collect(),
            "backends in the maps on the left, those that serve or are kept on the right"
        );
        world.assert_clean();
    }
}
