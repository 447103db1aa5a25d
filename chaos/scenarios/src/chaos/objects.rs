//! The objects of a run in the API, and the times of the calls that change them.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::{Capability, Family};
use harness::{
    context::Context,
    destination::Destination,
    frontends::{balancers, node_addresses},
    history::now_us,
    names::Key,
    objects::{MANAGER, annotation},
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
    schedule::{BACKENDS, Condition, HOMES, NODE_PORTS, Namespace, Service, Slice, home},
    words,
    world::{BALANCED, Call, Front, World},
};

/// Port of every Service.
const PORT: u16 = 7480;
/// The first port of backends: see [`target`].
const TARGETS: u16 = 8001;
/// The transports by which every frontend is dialled.
pub(super) const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Where backends listen for a Service. Those whose names are the beginnings of each other share a port, and so do those whose names are
/// equal: what is released, or found, by such a name then takes an endpoint of another.
fn target(service: u8) -> u16 {
    match HOMES[usize::from(service)].0 {
        Namespace::Prefixes => TARGETS,
        Namespace::First | Namespace::Second => TARGETS + 1,
    }
}

/// The objects, and the states that frontends have had.
pub(super) struct Staged<'a> {
    cx: &'a Context,
    family: Family,
    namespaces: BTreeMap<Namespace, String>,
    backends: Vec<Backend>,
    world: World,
    /// Cluster IPs by Service: those that are created again get theirs back.
    cluster_ips: BTreeMap<u8, IpAddr>,
    node_ports: Vec<u16>,
    balancer: Option<IpAddr>,
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
        let mut staged = Self {
            cx,
            family,
            namespaces,
            backends: cx.backends(&pods).await?,
            world: World::default(),
            cluster_ips: BTreeMap::new(),
            node_ports: Vec::new(),
            balancer: None,
            states: BTreeMap::new(),
        };
        let first = World::first();
        let services = first.services.iter().map(|(service, to)| Call::Service {
            service: *service,
            to: *to,
            is_new: true,
        });
        let slices = first.slices.iter().map(|(slice, to)| Call::Slice {
            slice: *slice,
            to: to.clone(),
            is_new: true,
        });
        for call in services.chain(slices) {
            staged.call(&call).await?;
        }
        staged.balancer = staged.balanced().await?;
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
        if !self.is_balanced() {
            return Ok(None);
        }
        let key = self.service_key(BALANCED);
        let within = Within::from_now(self.cx.limits().service);
        eventually(
            "the Service has the address of a load balancer",
            within,
            async || {
                let service = self.cx.objects().get(&key).await?;
                Ok(balancers(&service, self.family).first().copied())
            },
        )
        .await
        .map(Some)
    }

    fn is_balanced(&self) -> bool {
        let capabilities = &self.cx.cluster().describe().capabilities;
        capabilities.contains(&Capability::LoadBalancerAddresses)
    }

    /// Makes a call, and notes what it changes.
    pub(super) async fn call(&mut self, call: &Call) -> Result<(), Halt> {
        let sent_us = now_us();
        let at = self.send(call).await?;
        // The own watch has been waited for since.
        let since = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let done_us = now_us().saturating_sub(since).max(sent_us);
        let next = self.world.after(call);
        for front in World::fronts(self.is_balanced()) {
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
                let written = objects.create(&self.service(*service, to)).await?;
                let text = written.object["spec"]["clusterIP"].as_str().unwrap_or_default();
                let address = text
                    .parse()
                    .map_err(|_| Halt::Harness(format!("{} has no cluster IP but {text:?}", written.key)))?;
                self.cluster_ips.insert(*service, address);
                if let Some(port) = to.node_port
                    && self.node_ports.len() <= usize::from(port)
                {
                    let assigned = written.object["spec"]["ports"][0]["nodePort"].as_u64();
                    let assigned = assigned.and_then(|port| u16::try_from(port).ok());
                    self.node_ports.push(
                        assigned.ok_or_else(|| Halt::Harness(format!("{} has no node port", written.key)))?,
                    );
                }
                written
            }
            Call::Service { service, to, .. } => {
                let mut spec = self.service(*service, to)["spec"].take();
                // Immutable, and the same.
                if let Some(fields) = spec.as_object_mut() {
                    fields.remove("clusterIP");
                }
                objects
                    .patch(&self.service_key(*service), json!({ "spec": spec }))
                    .await?
            }
            Call::Annotate(service) => {
                let at = now_us().to_string();
                objects
                    .patch(&self.service_key(*service), annotation("plumbline/chaos", &at))
                    .await?
            }
            Call::DeleteService(service) => objects.delete(&self.service_key(*service)).await?,
            Call::Slice {
                slice,
                to,
                is_new: true,
            } => objects.create(&self.slice(*slice, to)?).await?,
            Call::Slice { slice, to, .. } => {
                let object = self.slice(*slice, to)?;
                let key = self.slice_key(*slice);
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
            Call::DeleteSlice(slice) => objects.delete(&self.slice_key(*slice)).await?,
        };
        Ok(written.at.elapsed())
    }

    fn namespace(&self, namespace: Namespace) -> &str {
        &self.namespaces[&namespace]
    }

    fn service_key(&self, service: u8) -> Key {
        let (namespace, name) = HOMES[usize::from(service)];
        Key::service(self.namespace(namespace), name)
    }

    fn slice_key(&self, slice: u8) -> Key {
        Key::slice(self.namespace(home(slice).0), &words::slice_name(slice))
    }

    fn service(&self, number: u8, service: &Service) -> Value {
        let (namespace, name) = HOMES[usize::from(number)];
        let node_port = service
            .node_port
            .and_then(|port| self.node_ports.get(usize::from(port)));
        let is_balanced = number == BALANCED && self.is_balanced();
        let kind = match service.node_port {
            _ if is_balanced => "LoadBalancer",
            Some(_) => "NodePort",
            None => "ClusterIP",
        };
        let port = |transport: Transport| {
            let protocol = oracle::finding::transport(transport);
            json!({
                "name": protocol.to_lowercase(), "protocol": protocol, "port": PORT,
                "targetPort": target(number), "nodePort": node_port,
            })
        };
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": self.namespace(namespace) },
            "spec": {
                "type": kind,
                "clusterIP": self.cluster_ips.get(&number),
                "ipFamilies": [self.family.to_string()],
                "ports": TRANSPORTS.map(port),
                "allocateLoadBalancerNodePorts": is_balanced.then_some(false),
                "loadBalancerIP": self.balancer.filter(|_| is_balanced),
            },
        })
    }

    fn slice(&self, number: u8, slice: &Slice) -> Result<Value, Halt> {
        let (namespace, _) = home(number);
        let labels = json!({
            "kubernetes.io/service-name": HOMES[usize::from(slice.of)].1,
            "endpointslice.kubernetes.io/managed-by": MANAGER,
        });
        let port = |transport: Transport| {
            let protocol = oracle::finding::transport(transport);
            json!({
                "name": protocol.to_lowercase(), "protocol": protocol, "port": target(slice.of),
            })
        };
        let endpoints = match &slice.endpoints {
            None => Value::Null,
            Some(all) => {
                let mut listed = Vec::new();
                for endpoint in all {
                    let is_ready = endpoint.condition == Condition::Ready;
                    let mut one =
                        self.backends[usize::from(endpoint.backend)].endpoint(self.family, is_ready)?;
                    if endpoint.condition == Condition::Terminating {
                        one["conditions"] = json!({ "ready": false, "serving": true, "terminating": true });
                    }
                    listed.push(one);
                }
                listed.into()
            }
        };
        Ok(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": self.family.to_string(),
            "metadata": {
                "name": words::slice_name(number), "namespace": self.namespace(namespace), "labels": labels,
            },
            "endpoints": endpoints, "ports": TRANSPORTS.map(port),
        }))
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
        for (service, ip) in &self.cluster_ips {
            add(Front::ClusterIp(*service), *ip, PORT, None);
        }
        for (number, port) in (0..NODE_PORTS).zip(&self.node_ports) {
            for (node, ip) in node_addresses(self.cx, self.family) {
                add(Front::NodePort(number), ip, *port, Some(&node));
            }
        }
        if let Some(ip) = self.balancer {
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
