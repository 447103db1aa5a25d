//! The objects of a run in the API, and the times of the calls that change them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::{Capability, Place};
use harness::{
    client::Client,
    context::Context,
    destination::Destination,
    frontends::{balancers, node_addresses},
    history::now_us,
    pods::{Backend, serve},
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::{
    chaos::{Frontend, Listed, State},
    history::Transport,
};
use serde_json::{Value, json};

use super::{
    calls::send,
    schedule::{BACKENDS, NODE_PORTS, Namespace},
    shapes::{self, PORT, Shapes, TARGETS, TRANSPORTS, target},
    words,
    world::{self, BALANCED, Call, Front, Served, World},
};

/// The objects, and the states that frontends have had.
pub(super) struct Staged<'a> {
    cx: &'a Context,
    shapes: Shapes,
    backends: Vec<Backend>,
    /// What the API had after each write, the last one being now.
    worlds: Vec<Written>,
}

/// A write, and what the API had after it.
struct Written {
    sent_us: u64,
    done_us: u64,
    by: String,
    world: World,
}

/// A place that clients dial.
pub(super) struct Dialled {
    pub(super) front: Front,
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
    /// The node at whose address it is.
    pub(super) node: Option<String>,
}

/// What a client must get now.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Expected {
    /// Those that must serve it; without any, none may.
    identities: Vec<String>,
    /// Whether one of them is enough: under session affinity, and where which of them is left to implementations.
    is_one_enough: bool,
}

impl Dialled {
    /// As the harness dials it, to decide an axis.
    pub(super) fn destination(&self, axis: &str, expected: Expected) -> Destination {
        let (name, identities) = (self.front.to_string(), expected.identities);
        let (transport, address) = (self.transport, self.address);
        if identities.is_empty() {
            Destination::none(axis, &name, transport, address)
        } else if expected.is_one_enough {
            Destination::serves_one_of(axis, &name, transport, address, identities)
        } else {
            Destination::serves(axis, &name, transport, address, identities)
        }
    }

    pub(super) fn is_for_outside(&self) -> bool {
        !matches!(self.front, Front::ClusterIp(_))
    }
}

impl<'a> Staged<'a> {
    /// Creates backends, Services and slices: the first state of the world, in one of the cluster's families by the seed.
    pub(super) async fn create(cx: &'a Context, seed: u64) -> Result<Self, Halt> {
        let family = shapes::family(&cx.families(), seed)
            .ok_or_else(|| Halt::Harness("the cluster has no address family".to_owned()))?;
        let prefixes = cx.namespace().await?;
        let namespaces = BTreeMap::from([
            (Namespace::First, cx.namespace_ending(0, "first").await?),
            (Namespace::Second, cx.namespace_ending(0, "second").await?),
            (Namespace::Prefixes, prefixes.clone()),
        ]);
        let ports = [TARGETS, TARGETS + 1];
        let nodes = cx.nodes();
        let pod = |number: u8| {
            let name = words::backend(number);
            let node = &nodes[usize::from(number) % nodes.len()];
            let args = serve(&name, &prefixes, &ports, &ports);
            json!({ "name": name, "namespace": prefixes, "node": node, "args": args })
        };
        let pods: Vec<Value> = (0..BACKENDS).map(pod).collect();
        let backends = cx.backends(&pods).await?;
        let endpoints = backends.iter().map(|backend| backend.endpoint(family, true));
        let capabilities = &cx.cluster().describe().capabilities;
        let mut staged = Self {
            cx,
            shapes: Shapes {
                family,
                namespaces,
                cluster_ips: BTreeMap::new(),
                node_ports: Vec::new(),
                is_balanced: capabilities.contains(&Capability::LoadBalancerAddresses),
                balancer: None,
                endpoints: endpoints.collect::<Result<_, Halt>>()?,
            },
            backends,
            worlds: Vec::new(),
        };
        for call in World::first().creations() {
            staged.call(&call).await?;
        }
        staged.shapes.balancer = staged.balanced().await?;
        // What came before the control is history.
        staged.worlds.drain(..staged.worlds.len().saturating_sub(1));
        Ok(staged)
    }

    /// The state of the API now.
    pub(super) fn world(&self) -> World {
        self.worlds
            .last()
            .map_or_else(World::default, |last| last.world.clone())
    }

    /// The address that a load balancer controller gives.
    async fn balanced(&self) -> Result<Option<IpAddr>, Halt> {
        if !self.shapes.is_balanced {
            return Ok(None);
        }
        let key = self.shapes.service_key(BALANCED);
        let within = Within::from_now(self.cx.limits().service);
        eventually(
            "the Service has the address of a load balancer",
            within,
            async || {
                let service = self.cx.objects().get(&key).await?;
                Ok(balancers(&service, self.shapes.family).first().copied())
            },
        )
        .await
        .map(Some)
    }

    /// Makes a call, and notes what it changes.
    pub(super) async fn call(&mut self, call: &Call) -> Result<(), Halt> {
        let sent_us = now_us();
        let at = self.send(call).await?;
        // The own watch has been waited for since.
        let since = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let done_us = now_us().saturating_sub(since).max(sent_us);
        self.worlds.push(Written {
            sent_us,
            done_us,
            by: call.to_string(),
            world: self.world().after(call),
        });
        Ok(())
    }

    /// Sends a call, and notes what the API gives. Returns how long ago its answer came.
    async fn send(&mut self, call: &Call) -> Result<Duration, Halt> {
        let written = send(self.cx.objects(), &self.shapes, &self.world(), call).await?;
        if let Call::Service {
            service,
            to,
            is_new: true,
        } = call
        {
            let text = written.object["spec"]["clusterIP"].as_str().unwrap_or_default();
            let address = text
                .parse()
                .map_err(|_| Halt::Harness(format!("{} has no cluster IP but {text:?}", written.key)))?;
            self.shapes.cluster_ips.insert(*service, address);
            if let Some(port) = to.node_port
                && self.shapes.node_ports.len() <= usize::from(port)
            {
                let assigned = written.object["spec"]["ports"][0]["nodePort"].as_u64();
                let assigned = assigned.and_then(|port| u16::try_from(port).ok());
                self.shapes.node_ports.push(
                    assigned.ok_or_else(|| Halt::Harness(format!("{} has no node port", written.key)))?,
                );
            }
        }
        Ok(written.at.elapsed())
    }

    /// Everything that clients dial.
    pub(super) fn dialled(&self) -> Vec<Dialled> {
        let mut all = Vec::new();
        let mut add = |front, ip: IpAddr, port, node: Option<&String>| {
            all.extend(TRANSPORTS.map(|transport| Dialled {
                front,
                transport,
                address: SocketAddr::new(ip, port),
                node: node.cloned(),
            }));
        };
        for (service, ip) in &self.shapes.cluster_ips {
            add(Front::ClusterIp(*service), *ip, PORT, None);
        }
        for (number, port) in (0..NODE_PORTS).zip(&self.shapes.node_ports) {
            for (node, ip) in node_addresses(self.cx, self.shapes.family) {
                add(Front::NodePort(number), ip, *port, Some(&node));
            }
        }
        if let Some(ip) = self.shapes.balancer {
            add(Front::LoadBalancer(BALANCED), ip, PORT, None);
        }
        all
    }

    /// What a client must get now; `None` if it is left to implementations.
    pub(super) fn expected(&self, dialled: &Dialled, client: &Client) -> Option<Expected> {
        let world = self.world();
        let served = self.served(&world, dialled, client);
        let service = world.owner(dialled.front);
        let is_bound = service.is_some_and(|service| world.services[&service].affinity);
        (!served.terms.may_fail).then(|| Expected {
            identities: self.named(&served, dialled.transport).collect(),
            is_one_enough: is_bound || served.is_disputed,
        })
    }

    /// What a frontend is to a client.
    fn served(&self, world: &World, dialled: &Dialled, client: &Client) -> Served {
        let number = |name: &str| {
            let at = self.cx.nodes().iter().position(|node| node == name);
            at.and_then(|at| u8::try_from(at).ok())
        };
        let place = match (number(&client.node), &client.place) {
            (None, _) => world::Client::Outside,
            (Some(node), Place::Host { .. }) => world::Client::Host(node),
            (Some(node), _) => world::Client::Pod(node),
        };
        let nodes = u8::try_from(self.cx.nodes().len()).unwrap_or(u8::MAX);
        let at = dialled.node.as_deref().and_then(number);
        world.served(dialled.front, place, at, nodes)
    }

    fn named<'s>(&'s self, served: &'s Served, transport: Transport) -> impl Iterator<Item = String> + 's {
        served.by.iter().map(move |one| self.identity(*one, transport))
    }

    /// What the oracle has to know of all that clients dial: each frontend once for all clients that it is the same to.
    pub(super) fn frontends(&self, clients: &[Client], target: impl Fn(&Dialled) -> String) -> Vec<Frontend> {
        let mut all = Vec::new();
        for dialled in self.dialled() {
            let mut same: Vec<(Vec<State>, BTreeSet<String>)> = Vec::new();
            for client in clients {
                let states = self.states(&dialled, client);
                match same.iter_mut().find(|(other, _)| *other == states) {
                    Some((_, names)) => drop(names.insert(client.name.clone())),
                    None => same.push((states, BTreeSet::from([client.name.clone()]))),
                }
            }
            all.extend(same.into_iter().map(|(states, clients)| Frontend {
                states,
                target: target(&dialled),
                transport: dialled.transport,
                kind: dialled.front.kind().to_owned(),
                node: dialled.node.clone(),
                clients,
            }));
        }
        all
    }

    /// The states of a frontend to a client.
    fn states(&self, dialled: &Dialled, client: &Client) -> Vec<State> {
        let mut states: Vec<State> = Vec::new();
        for written in &self.worlds {
            let served = self.served(&written.world, dialled, client);
            let serves = self.named(&served, dialled.transport).collect();
            let owner = written.world.owner(dialled.front);
            let owner = owner.map_or_else(String::new, words::service);
            if states.last().is_some_and(|last| {
                last.serves == serves && last.terms == served.terms && last.owner == owner
            }) {
                continue;
            }
            states.push(State {
                sent_us: written.sent_us,
                done_us: written.done_us,
                by: written.by.clone(),
                owner,
                serves,
                terms: served.terms,
            });
        }
        states
    }

    /// When each endpoint of each Service was listed, as one that may get connections.
    pub(super) fn endpoints(&self) -> BTreeMap<String, BTreeMap<String, Vec<Listed>>> {
        let mut all: BTreeMap<String, BTreeMap<String, Vec<Listed>>> = BTreeMap::new();
        let mut before = BTreeSet::new();
        for written in &self.worlds {
            let now = written.world.listed();
            for one in now.difference(&before) {
                for listed in self.listed(&mut all, *one) {
                    listed.push(Listed {
                        from_us: written.sent_us,
                        until_us: u64::MAX,
                    });
                }
            }
            for one in before.difference(&now) {
                let last = self.listed(&mut all, *one).into_iter();
                last.filter_map(|listed| listed.last_mut())
                    .for_each(|last| last.until_us = written.done_us);
            }
            before = now;
        }
        all
    }

    /// The notes on an endpoint, one for each transport.
    fn listed<'n>(
        &self,
        all: &'n mut BTreeMap<String, BTreeMap<String, Vec<Listed>>>,
        endpoint: (u8, u8),
    ) -> Vec<&'n mut Vec<Listed>> {
        let of_service = all.entry(words::service(endpoint.0)).or_default();
        let names = TRANSPORTS.map(|transport| self.identity(endpoint, transport));
        for name in &names {
            of_service.entry(name.clone()).or_default();
        }
        let notes = of_service.iter_mut().filter(|(name, _)| names.contains(name));
        notes.map(|(_, listed)| listed).collect()
    }

    fn identity(&self, (service, backend): (u8, u8), transport: Transport) -> String {
        self.backends[usize::from(backend)].identity(transport, target(service))
    }
}
