//! The plan of one Service, and of the node itself.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use lb_abi::address_flags::{LOAD_BALANCER, NODE, VIP};

use super::{
    FrontendPlan, HealthCheck, Perspective, PortId, PortName, PortPlan, ServicePlan, Set,
    backends::{BACKENDS, Port, Sets, sets},
};
use crate::{
    endpoint_address::{Backend, Family, Range, TransportAddress},
    findings::{Findings, Reason},
    model::{
        Exposure, FRONTENDS, Frontend, Model, Policy, Probe, Service, ServicePort, frontends, health_checks,
    },
    names::ObjectId,
};

/// Addresses that a finding names.
const NAMED: usize = 3;

/// The plan of a Service.
pub(super) fn service(
    model: &Model,
    perspective: &Perspective,
    id: ObjectId,
    service: &Service,
) -> ServicePlan {
    let mut plan = ServicePlan::default();
    let mut findings = Findings::default();
    let mut refused = BTreeSet::<IpAddr>::new();
    let mut ready_here = BTreeSet::<IpAddr>::new();
    let (wanted, left_out) = frontends(service);
    for frontend in wanted {
        let address = frontend.address;
        if let Some(other) = model.owner(&address).filter(|owner| *owner != id) {
            taken(&mut findings, model, frontend, other);
            continue;
        }
        let port = &service.ports[frontend.port];
        let family = Family::of(address.address);
        let key = PortId {
            name: PortName::Of(Arc::clone(&port.name)),
            protocol: port.protocol,
            family,
        };
        let entry = plan.ports.entry(key).or_insert_with_key(|key| {
            let of = Port {
                service: id,
                port,
                family,
            };
            let sets = sets(model, perspective, of);
            if let Some(found) = sets.clipped {
                clipped(&mut findings, key, found);
            }
            refused.extend(&sets.refused);
            ready_here.extend(&sets.ready_here);
            port_plan(model, perspective, service, sets)
        });
        add_frontend(
            entry,
            model,
            service,
            frontend,
            is_target(model, id, port, frontend),
        );
        if let Some(flags) = address_flags(model, frontend) {
            *plan.addresses.entry(address.address).or_default() |= flags;
        }
    }
    // At a machine's address that machine answers.
    for address in health_checks(service).filter(|asked| !model.is_machine(asked.address)) {
        let frontend = Frontend {
            address,
            exposure: Exposure::HealthCheck,
            port: 0,
        };
        if let Some(other) = model.owner(&address).filter(|owner| *owner != id) {
            taken(&mut findings, model, frontend, other);
        } else if let Some(backend) = this_machine(model, address) {
            answer_here(&mut plan, model, perspective, address, backend, false);
            if let Some(flags) = address_flags(model, frontend) {
                *plan.addresses.entry(address.address).or_default() |= flags;
            }
        }
    }
    if left_out > 0 {
        let message = format!(
            "spec: expected at most {FRONTENDS} frontends (addresses times ports), found {left_out} more; left out"
        );
        findings.add(Reason::FrontendRefused, message);
    }
    if !refused.is_empty() {
        let named: Vec<_> = refused.iter().take(NAMED).map(ToString::to_string).collect();
        let (count, named) = (refused.len(), named.join(", "));
        let message = format!(
            "endpoints: expected addresses of pods or machines, found {count} that are Services' cluster IPs, such as {named}; \
             left out"
        );
        findings.add(Reason::EndpointRefused, message);
    }
    plan.health_check = service.health_check_port.map(|port| HealthCheck {
        port,
        local_endpoints: ready_here.len(),
    });
    plan.findings = findings.finish();
    plan
}

/// The plan of the node itself: its addresses, the agent's own probe, and the cluster's clients.
pub(super) fn node(model: &Model, perspective: &Perspective) -> ServicePlan {
    let mut plan = ServicePlan {
        clients: model.clients().collect(),
        ..ServicePlan::default()
    };
    let Some(host) = model.host() else {
        return plan;
    };
    let loopback = [Family::V4, Family::V6].map(Family::loopback);
    let has_addresses = !host.addresses.is_empty();
    let loopback = loopback.iter().filter(|_| has_addresses);
    for &address in host.addresses.iter().chain(loopback) {
        plan.addresses.insert(address, NODE);
    }
    let Some(Probe { frontend, backend }) = host.probe else {
        return plan;
    };
    let mut findings = Findings::default();
    if let Some(other) = model.owner(&frontend).filter(|owner| *owner != ObjectId::NODE) {
        let wanted = Frontend {
            address: frontend,
            exposure: Exposure::Probe,
            port: 0,
        };
        taken(&mut findings, model, wanted, other);
        plan.findings = findings.finish();
        return plan;
    }
    answer_here(&mut plan, model, perspective, frontend, backend, true);
    plan.addresses.entry(frontend.address).or_default();
    plan
}

/// The address at which this machine answers health checks that come to a load balancer's address.
fn this_machine(model: &Model, asked: TransportAddress) -> Option<TransportAddress> {
    let family = Family::of(asked.address);
    let mut addresses = model.host()?.addresses.iter();
    let address = *addresses.find(|&&address| Family::of(address) == family)?;
    Some(TransportAddress { address, ..asked })
}

/// Adds a frontend that this machine serves, for all clients. `own`: as [`FrontendPlan::own`].
fn answer_here(
    plan: &mut ServicePlan,
    model: &Model,
    perspective: &Perspective,
    frontend: TransportAddress,
    backend: TransportAddress,
    own: bool,
) {
    let key = PortId {
        name: PortName::ThisMachine(frontend.port),
        protocol: frontend.protocol,
        family: Family::of(frontend.address),
    };
    let both = FrontendPlan {
        internal: Set::Cluster,
        external: Set::Cluster,
        silent: false,
        ranged: false,
        target_port: false,
        own,
    };
    let port = plan.ports.entry(key).or_insert_with(|| {
        let backends = BTreeSet::from([Backend {
            address: backend,
            local: true,
        }]);
        PortPlan {
            cluster: backends.clone(),
            local: backends.clone(),
            serving: backends,
            selection: perspective.selection,
            scale: perspective.scale(model).unwrap_or_default(),
            ..PortPlan::default()
        }
    });
    port.frontends.insert(frontend, both);
}

/// A service port without frontends.
fn port_plan(model: &Model, perspective: &Perspective, service: &Service, sets: Sets) -> PortPlan {
    PortPlan {
        cluster: sets.cluster,
        local: sets.local,
        serving: sets.serving,
        selection: perspective.selection,
        scale: perspective.scale(model).unwrap_or_default(),
        affinity_seconds: service.affinity_seconds,
        ..PortPlan::default()
    }
}

/// Whether a node port has the number of its target port, in the Service or in a slice. The Service counts first: a pod
/// that is about to bind the port may be in no slice yet.
fn is_target(model: &Model, service: ObjectId, port: &ServicePort, frontend: Frontend) -> bool {
    let number = frontend.address.port;
    let in_slices = || {
        let slices = model.slices_of(service).iter();
        let mut ports = slices.flat_map(|slice| &slice.ports);
        ports
            .any(|target| (target.protocol, &target.name, target.port) == (port.protocol, &port.name, number))
    };
    frontend.exposure == Exposure::NodePort && (port.target_port == Some(number) || in_slices())
}

fn add_frontend(
    port: &mut PortPlan,
    model: &Model,
    service: &Service,
    frontend: Frontend,
    target_port: bool,
) {
    let set = |policy| match policy {
        Policy::Cluster => Set::Cluster,
        Policy::Local => Set::Local,
    };
    let (internal, external) = match frontend.exposure {
        // Each policy is for one kind of frontend only (KEP-2086).
        Exposure::ClusterIp => {
            let inside = set(service.internal_policy);
            (inside, inside)
        }
        // "In-cluster traffic … gets Cluster semantics", ServiceSpec.externalTrafficPolicy.
        _ => (Set::Cluster, set(service.external_policy)),
    };
    let outside = frontend.exposure != Exposure::ClusterIp;
    if frontend.exposure == Exposure::LoadBalancer && port.sources.is_none() {
        port.sources = sources(service, Family::of(frontend.address.address));
    }
    let plan = FrontendPlan {
        internal,
        external,
        // Without any backend, there is no other node that a load balancer could try.
        silent: outside && external == Set::Local && !port.cluster.is_empty(),
        ranged: frontend.exposure == Exposure::LoadBalancer && port.sources.is_some(),
        target_port,
        own: !outside,
    };
    port.keep |= model.is_api_frontend(&frontend.address);
    port.frontends.insert(frontend.address, plan);
}

/// The clients that may use the load balancer addresses of a family; `None`: all. Ranges of the other family do not
/// restrict; an unreadable range does, as its family is not known.
fn sources(service: &Service, family: Family) -> Option<BTreeSet<Range>> {
    let ranges = service.source_ranges.as_ref()?;
    let of_family = ranges.ranges.iter().filter(|range| range.family() == family);
    let of_family: BTreeSet<_> = of_family.copied().collect();
    (ranges.unreadable || !of_family.is_empty()).then_some(of_family)
}

/// The flags of a frontend's address in ADDRESSES; `None`: a node port has no address of its own.
fn address_flags(model: &Model, frontend: Frontend) -> Option<u32> {
    match frontend.exposure {
        Exposure::NodePort => None,
        Exposure::ClusterIp => Some(VIP),
        // Load balancers may assign addresses of nodes, whose other ports are not the agent's to refuse.
        Exposure::LoadBalancer | Exposure::HealthCheck if !model.is_machine(frontend.address.address) => {
            Some(LOAD_BALANCER)
        }
        Exposure::LoadBalancer | Exposure::HealthCheck | Exposure::ExternalIp | Exposure::Probe => Some(0),
    }
}

fn taken(findings: &mut Findings, model: &Model, frontend: Frontend, owner: ObjectId) {
    let Frontend {
        address, exposure, ..
    } = frontend;
    let owner = match model.name(owner) {
        Some(name) => format!("Service {name}"),
        None => "the agent's own probe".to_owned(),
    };
    let message = format!("{exposure}: {address} is {owner}'s, which comes first; left out");
    findings.add(Reason::FrontendTaken, message);
}

fn clipped(findings: &mut Findings, port: &PortId, found: usize) {
    let message = format!(
        "endpoints of port {port}: expected at most {BACKENDS}, found {found}; those of the highest addresses are left out"
    );
    findings.add(Reason::EndpointsClipped, message);
}
