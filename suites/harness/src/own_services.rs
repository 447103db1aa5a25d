//! The suite's own Services beside those under test, of one backend: the signals, which fences change, one of each family, and control
//! Services, which no case changes.
//!
//! They have a namespace, a backend and ports of their own, and their names share no prefix with those under test (`p…`).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use cluster::{Description, Family};
use oracle::history::Transport;
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, OnceCell};

use crate::{
    names::Key,
    objects::{Objects, Written},
    pods::{Backend, Ports, pod, slice_of},
    verdict::Halt,
};

/// Of the Services that fences change: the first, and how the others begin.
const SIGNAL: &str = "signal";
/// Ports on which the backend listens where pods have a network of their own.
const TARGETS: [u16; 2] = [7001, 7002];
/// The signals' port is this plus the number of the fence.
const FIRST_PORT: u16 = 20_000;
/// The port of control Services: none that a case's Service has.
const CONTROL_PORT: u16 = FIRST_PORT;

/// The backend and the Services of a case.
pub(crate) struct OwnServices {
    namespace: String,
    backend: Backend,
    /// Ports on which the backend listens: the signals' slices switch between them.
    targets: [u16; 2],
    signals: Vec<Signal>,
    /// Of the last fence.
    number: tokio::sync::Mutex<u16>,
    /// Nodes on which a change of the signals was seen.
    seen: Mutex<BTreeSet<String>>,
    connected: OnceCell<Vec<ControlService>>,
}

/// A Service that fences change.
struct Signal {
    name: String,
    cluster_ip: IpAddr,
}

/// A change of the signals. There is no other one while this is held.
pub(crate) struct Change<'a> {
    /// Its number.
    pub(crate) number: u16,
    /// What is dialled, of each family.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What answers there from then on.
    pub(crate) identity: String,
    /// When the first of its writes was sent.
    pub(crate) began: Instant,
    /// When the last of its writes was acknowledged.
    pub(crate) written: Instant,
    _only: MutexGuard<'a, u16>,
}

/// A Service of one family that no case changes.
pub(crate) struct ControlService {
    family: Family,
    cluster_ip: IpAddr,
    /// For each of its protocols.
    node_ports: Vec<u16>,
}

/// The pod of the backend, and its ports, for [`OwnServices::create`] when it is ready.
pub(crate) fn backend_pod(namespace: &str, node: &str, ports: &Ports) -> (Value, [u16; 2]) {
    let targets = TARGETS.map(|port| ports.port(port));
    (pod(namespace, SIGNAL, node, &targets), targets)
}

impl OwnServices {
    /// Creates the signals: an implementation may handle each family by itself, in an order of its own.
    pub(crate) async fn create(
        objects: &Objects,
        families: &[Family],
        namespace: String,
        backend: Backend,
        targets: [u16; 2],
    ) -> Result<Self, Halt> {
        let mut signals = Vec::new();
        for family in families {
            let name = match signals.len() {
                0 => SIGNAL.to_owned(),
                _ => format!("{SIGNAL}-{family}").to_lowercase(),
            };
            let spec = json!({ "ipFamilies": [family.to_string()], "ports": service_ports(0, targets) });
            let ports = slice_ports(0, targets);
            let written = create(objects, &namespace, &name, spec, &backend, *family, &ports).await?;
            let cluster_ip = written.cluster_ip()?;
            signals.push(Signal { name, cluster_ip });
        }
        Ok(Self {
            namespace,
            backend,
            targets,
            signals,
            number: tokio::sync::Mutex::new(0),
            seen: Mutex::default(),
            connected: OnceCell::new(),
        })
    }

    /// The backend of all of them.
    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// What answers by a transport, of control Services.
    pub(crate) fn identity(&self, transport: Transport) -> String {
        self.backend.identity(transport, self.targets[0])
    }

    /// Moves the signals to another port and their backend to another target.
    pub(crate) async fn change_signal(&self, objects: &Objects) -> Result<Change<'_>, Halt> {
        let mut only = self.number.lock().await;
        *only += 1;
        let number = *only;
        let began = Instant::now();
        for Signal { name, .. } in &self.signals {
            let service = Key::service(&self.namespace, name);
            let change = json!({ "spec": { "ports": service_ports(number, self.targets) } });
            objects.patch(&service, change).await?;
            let slice = Key::slice(&self.namespace, name);
            let change = json!({ "ports": slice_ports(number, self.targets) });
            objects.patch(&slice, change).await?;
        }
        let at = |signal: &Signal| SocketAddr::new(signal.cluster_ip, FIRST_PORT + number);
        Ok(Change {
            number,
            addresses: self.signals.iter().map(at).collect(),
            identity: self
                .backend
                .identity(Transport::Tcp, target(number, self.targets)),
            began,
            written: Instant::now(),
            _only: only,
        })
    }

    /// Whether a change of the signals was seen on a node before; notes whether this one was.
    pub(crate) fn was_seen_before(&self, node: &str, is_seen: bool) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.contains(node);
        if is_seen {
            seen.insert(node.to_owned());
        }
        before
    }

    /// Creates a control Service with a port of each of these protocols.
    pub(crate) async fn create_control(
        &self,
        objects: &Objects,
        name: &str,
        family: Family,
        protocols: &[&str],
    ) -> Result<ControlService, Halt> {
        let target = self.targets[0];
        let ports = |port: u16| -> Value {
            let port = |protocol: &&str| {
                let name = protocol.to_lowercase();
                json!({ "name": name, "protocol": protocol, "port": port })
            };
            protocols.iter().map(port).collect()
        };
        let mut of_service = ports(CONTROL_PORT);
        for port in of_service.as_array_mut().into_iter().flatten() {
            port["targetPort"] = target.into();
        }
        let spec = json!({ "type": "NodePort", "ipFamilies": [family.to_string()], "ports": of_service });
        let (namespace, backend) = (&self.namespace, &self.backend);
        let written = create(objects, namespace, name, spec, backend, family, &ports(target)).await?;
        let listed = written.object["spec"]["ports"].as_array().into_iter().flatten();
        let node_ports: Vec<u16> = listed
            .filter_map(|port| u16::try_from(port["nodePort"].as_u64()?).ok())
            .collect();
        if node_ports.len() != protocols.len() {
            return Err(Halt::Harness(format!("{} has no node ports", written.key)));
        }
        Ok(ControlService {
            family,
            cluster_ip: written.cluster_ip()?,
            node_ports,
        })
    }

    /// Control Services to which connections are kept through recoveries: made once, by the first of them.
    pub(crate) fn connected(&self) -> &OnceCell<Vec<ControlService>> {
        &self.connected
    }
}

impl ControlService {
    /// Its family.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Its ClusterIP, with the port of each of its protocols.
    pub(crate) fn at_cluster_ip(&self) -> SocketAddr {
        SocketAddr::new(self.cluster_ip, CONTROL_PORT)
    }

    /// Its node ports on every node that has an address of its family, one for each of its protocols.
    pub(crate) fn at_nodes(&self, cluster: &Description) -> Vec<(String, Vec<SocketAddr>)> {
        let at = |address: IpAddr| {
            let ports = self.node_ports.iter();
            ports.map(|port| SocketAddr::new(address, *port)).collect()
        };
        let nodes = cluster.nodes_of(self.family).into_iter();
        nodes.map(|(node, address)| (node, at(address))).collect()
    }
}

/// Creates a Service and its slice, and returns the Service.
async fn create(
    objects: &Objects,
    namespace: &str,
    name: &str,
    spec: Value,
    backend: &Backend,
    family: Family,
    ports: &Value,
) -> Result<Written, Halt> {
    let metadata = json!({ "name": name, "namespace": namespace });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
    let written = objects.create(&service).await?;
    let slice = slice_of(name, namespace, backend, family, ports)?;
    objects.create(&slice).await?;
    Ok(written)
}

fn target(number: u16, targets: [u16; 2]) -> u16 {
    targets[usize::from(number) % targets.len()]
}

fn service_ports(number: u16, targets: [u16; 2]) -> Value {
    json!([{
        "name": SIGNAL, "protocol": "TCP", "port": FIRST_PORT + number, "targetPort": target(number, targets),
    }])
}

fn slice_ports(number: u16, targets: [u16; 2]) -> Value {
    json!([{ "name": SIGNAL, "protocol": "TCP", "port": target(number, targets) }])
}
