//! The objects of a run in the API, and the times of the calls that change them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::Capability;
use harness::{
    context::Context,
    destination::Destination,
    frontends::{balancers, node_addresses},
    history::now_us,
    objects::annotation,
    pods::{Backend, serve},
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::{
    chaos::{Frontend, State},
    history::Transport,
};
use serde_json::{Value, json};

use super::{
    schedule::{BACKENDS, NODE_PORTS, Namespace},
    shapes::{PORT, Shapes, TARGETS, TRANSPORTS, target},
    words,
    world::{BALANCED, Call, Front, World},
};

/// The objects, and the states that frontends have had.
pub(super) struct Staged<'a> {
    cx: &'a Context,
    shapes: Shapes,
    backends: Vec<Backend>,
    world: World,
    /// States of each frontend so far.
    states: BTreeMap<Front, Vec<Times>>,
}

/// A state of a frontend, with the backends that it serves.
struct Times {
    sent_us: u64,
    done_us: u64,
    by: String,
    serves: Vec<(u8, u8)>,
}

/// A place that clients dial.
pub(super) struct Dialled {
    pub(super) front: Front,
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
    /// The node at whose address it is.
    pub(super) node: Option<String>,
}

impl Dialled {
    /// As the harness dials it, to decide an axis. `identities`: those that must serve it; without any, none may.
    pub(super) fn destination(&self, axis: &str, identities: Vec<String>) -> Destination {
        let name = self.front.to_string();
        if identities.is_empty() {
            return Destination::none(axis, &name, self.transport, self.address);
        }
        Destination::serves(axis, &name, self.transport, self.address, identities)
    }

    pub(super) fn is_for_outside(&self) -> bool {
        !matches!(self.front, Front::ClusterIp(_))
    }
}

impl<'a> Staged<'a> {
    /// Creates backends, Services and slices: the first state of the world.
    pub(super) async fn create(cx: &'a Context) -> Result<Self, Halt> {
        let family = *cx
            .families()
            .first()
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
            world: World::default(),
            states: BTreeMap::new(),
        };
        for call in World::first().creations() {
            staged.call(&call).await?;
        }
        staged.shapes.balancer = staged.balanced().await?;
        // What came before the control is history.
        for states in staged.states.values_mut() {
            states.drain(..states.len() - 1);
        }
        Ok(staged)
    }

    /// The state of the API now.
    pub(super) fn world(&self) -> &World {
        &self.world
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
        let next = self.world.after(call);
        for front in World::fronts(self.shapes.is_balanced) {
            let serves: Vec<(u8, u8)> = next.serves(front).into_iter().collect();
            let states = self.states.entry(front).or_default();
            if states.last().is_none_or(|last| last.serves != serves) {
                let by = call.to_string();
                states.push(Times {
                    sent_us,
                    done_us,
                    by,
                    serves,
                });
            }
        }
        self.world = next;
        Ok(())
    }

    /// Sends a call. Returns how long ago its answer came.
    async fn send(&mut self, call: &Call) -> Result<Duration, Halt> {
        let objects = self.cx.objects();
        let written = match call {
            Call::Service {
                service,
                to,
                is_new: true,
            } => {
                let written = objects.create(&self.shapes.service(*service, to)).await?;
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
                written
            }
            Call::Service { service, to, .. } => {
                let mut spec = self.shapes.service(*service, to)["spec"].take();
                // Immutable, and the same.
                if let Some(fields) = spec.as_object_mut() {
                    fields.remove("clusterIP");
                }
                objects
                    .patch(&self.shapes.service_key(*service), json!({ "spec": spec }))
                    .await?
            }
            Call::Annotate(service) => {
                let at = now_us().to_string();
                objects
                    .patch(
                        &self.shapes.service_key(*service),
                        annotation("plumbline/chaos", &at),
                    )
                    .await?
            }
            Call::DeleteService(service) => objects.delete(&self.shapes.service_key(*service)).await?,
            Call::Slice {
                slice,
                to,
                is_new: true,
            } => objects.create(&self.shapes.slice(*slice, to)).await?,
            Call::Slice { slice, to, .. } => {
                let object = self.shapes.slice(*slice, to);
                let key = self.shapes.slice_key(*slice);
                let moves = self
                    .world
                    .slices
                    .get(slice)
                    .is_some_and(|before| before.of != to.of);
                let (endpoints, ports) = (&object["endpoints"], &object["ports"]);
                if moves {
                    let labels = &object["metadata"]["labels"];
                    let patch =
                        json!({ "metadata": { "labels": labels }, "endpoints": endpoints, "ports": ports });
                    objects.patch(&key, patch).await?
                } else {
                    // Not a patch, in which null means that the field goes.
                    objects
                        .replace_fields(&key, &json!({ "endpoints": endpoints, "ports": ports }))
                        .await?
                }
            }
            Call::DeleteSlice(slice) => objects.delete(&self.shapes.slice_key(*slice)).await?,
        };
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

    /// Identities that a frontend serves now.
    pub(super) fn identities(&self, dialled: &Dialled) -> Vec<String> {
        let serves = self.world.serves(dialled.front);
        serves
            .iter()
            .map(|one| self.identity(*one, dialled.transport))
            .collect()
    }

    fn identity(&self, (service, backend): (u8, u8), transport: Transport) -> String {
        self.backends[usize::from(backend)].identity(transport, target(service))
    }

    /// What the oracle has to know of all that is dialled.
    pub(super) fn frontends(&self, target: impl Fn(&Dialled) -> String) -> Vec<Frontend> {
        let of = |dialled: Dialled| {
            let states = self.states.get(&dialled.front).into_iter().flatten();
            let state = |times: &Times| State {
                sent_us: times.sent_us,
                done_us: times.done_us,
                by: times.by.clone(),
                serves: times
                    .serves
                    .iter()
                    .map(|one| self.identity(*one, dialled.transport))
                    .collect(),
            };
            Frontend {
                states: states.map(state).collect(),
                target: target(&dialled),
                transport: dialled.transport,
                node: dialled.node,
            }
        };
        self.dialled().into_iter().map(of).collect()
    }
}
