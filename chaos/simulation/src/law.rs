//! What must hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use oracle::{finding, history::Transport};
use reference_agent::{
    model::{Event, Node, Service, Slice},
    plan::{self, Perspective},
    reflect::Reflected,
    resolve,
    testing::{api_state::ApiState, objects::address},
};
use scenarios::chaos::{
    shapes::{PORT, TRANSPORTS, target},
    world::{Client, Front, World},
};
use serde_json::Value;

use crate::{
    agent::{Agent, beginning},
    api::{Api, NODES, backend},
};

/// What has been unlawful of the writes of an agent since its start.
pub(crate) fn unlawful(agent: &Agent) -> impl Iterator<Item = &impl Display> {
    let violations = agent.world.memory().violations().iter();
    violations.chain(agent.world.maps().violations())
}

/// The maps are the plan from scratch of these objects.
pub(crate) fn planned(
    agent: &Agent,
    objects: &ApiState,
    of: &str,
    perspective: &Perspective,
) -> Result<(), String> {
    let fresh = objects.fresh(perspective);
    let (found, defects) = resolve::resolve(&agent.world.contents());
    if let Some(defect) = defects.first() {
        return Err(format!("a defect of the maps: {defect:?}"));
    }
    let expected = plan::resolve(&fresh.plan);
    let frontends: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for frontend in frontends {
        let (expected, found) = (expected.get(frontend), found.get(frontend));
        if expected != found {
            return Err(format!(
                "{frontend}: expected from scratch, of {of}: {expected:?}; found in the maps: {found:?}"
            ));
        }
    }
    let contents = agent.world.contents();
    let found: BTreeMap<_, _> = contents
        .addresses
        .iter()
        .map(|&(address, flags)| (address.into(), flags))
        .collect();
    let expected = plan::addresses(&fresh.plan);
    if expected != found {
        return Err(format!(
            "addresses: expected from scratch, of {of}: {expected:?}; found in the maps: {found:?}"
        ));
    }
    Ok(())
}

/// The objects of the API, and the events with which every agent begins.
pub(crate) fn objects(api: &Api) -> ApiState {
    let mut state = ApiState::default();
    beginning().iter().for_each(|event| state.take(event));
    for object in api.objects() {
        let event = match object["kind"].as_str() {
            Some("Service") => decoded::<Service>(object).map(Event::ServiceApplied),
            Some("EndpointSlice") => decoded::<Slice>(object).map(Event::SliceApplied),
            _ => decoded::<Node>(object).map(Event::NodeApplied),
        };
        event.iter().for_each(|event| state.take(event));
    }
    state
}

fn decoded<T: Reflected>(object: &Value) -> Option<T> {
    T::decode(object).ok().map(|decoded| decoded.object)
}

/// Each frontend is what the schedule's model of the API says, for pods of the agent's node and for clients outside.
pub(crate) fn served(agent: &Agent, api: &Api) -> Result<(), String> {
    let resolved = agent.world.resolved();
    let nodes = u8::try_from(NODES.len()).unwrap_or(u8::MAX);
    for front in World::fronts(api.shapes.is_balanced) {
        for transport in TRANSPORTS {
            let at = at(front, transport, api);
            let serving = resolved.get(&address(&at));
            for (client, slots) in [
                (Client::Pod(0), serving.map(|one| &one.internal)),
                (Client::Outside, serving.map(|one| &one.external)),
            ] {
                // What a cluster IP is outside, implementations decide.
                let is_dialled = client != Client::Outside || !matches!(front, Front::ClusterIp(_));
                // A node sees what comes in on it, of a load balancer, too.
                let to_client = api.world.served(front, client, Some(0), nodes);
                if !to_client.is_exact() || !is_dialled {
                    continue;
                }
                let expected: BTreeSet<_> = to_client
                    .by
                    .into_iter()
                    .map(|(service, number)| (backend(number), target(service)))
                    .collect();
                let found: BTreeSet<_> = slots
                    .into_iter()
                    .flatten()
                    .map(|one| (one.address.address, one.address.port))
                    .collect();
                if expected != found {
                    return Err(format!(
                        "{front} ({at}) for {client:?}: expected, as the API has it, {expected:?}; found in the maps: {found:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Where a frontend is, as the maps name it.
fn at(front: Front, transport: Transport, api: &Api) -> String {
    let protocol = finding::transport(transport);
    match front {
        Front::ClusterIp(service) => format!("{protocol} {}:{PORT}", api.shapes.cluster_ips[&service]),
        Front::LoadBalancer(_) => {
            let balancer = api.shapes.balancer.map(|address| address.to_string());
            format!("{protocol} {}:{PORT}", balancer.unwrap_or_default())
        }
        Front::NodePort(number) => {
            format!(
                "{protocol} 0.0.0.0:{}",
                api.shapes.node_ports[usize::from(number)]
            )
        }
    }
}
