//! EndpointSlices that a case writes itself: several of one Service, with entries in any condition, which come, move
//! and go; and what clients meet at that Service.
//!
//! Its manifest has a Service named `${service}` with the places `family` and `ports`, and an EndpointSlice named
//! `${slice}` with the places `labels`, `type`, `endpoints` and `ports`.

use cluster::Family;
use oracle::{check::Permitted, history::Transport};
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    destination::Destination,
    dialled::Dialled,
    frontends::{Frontends, node_addresses},
    names::{Key, OF_SERVICE},
    objects::{MANAGER, Written},
    pods::Backend,
    probing::identities,
    verdict::Halt,
};

/// The label with the name of the program that writes a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// A port of a Service or of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    name: String,
    transport: Transport,
    number: u16,
    target: Option<String>,
}

impl Port {
    /// A port; without a name, if that is empty.
    #[must_use]
    pub fn new(name: &str, transport: Transport, number: u16) -> Self {
        Self {
            name: name.to_owned(),
            transport,
            number,
            target: None,
        }
    }

    /// One port for TCP, of this name, and one for UDP, as ports of one object have different names.
    #[must_use]
    pub fn both(name: &str, number: u16) -> [Self; 2] {
        let udp = format!("{name}-udp");
        [
            Self::new(name, Transport::Tcp, number),
            Self::new(&udp, Transport::Udp, number),
        ]
    }

    /// The same, of a Service whose target port is a name.
    #[must_use]
    pub fn to(self, target: &str) -> Self {
        let target = Some(target.to_owned());
        Self { target, ..self }
    }

    fn json(&self) -> Value {
        let protocol = oracle::finding::transport(self.transport);
        let mut port = json!({ "port": self.number, "protocol": protocol });
        if !self.name.is_empty() {
            port["name"] = self.name.as_str().into();
        }
        if let Some(target) = &self.target {
            port["targetPort"] = target.as_str().into();
        }
        port
    }
}

fn list(ports: &[Port]) -> Value {
    ports.iter().map(Port::json).collect()
}

/// A slice that a case writes.
#[derive(Clone, Debug)]
pub struct Slice {
    key: Key,
    labels: Map<String, Value>,
    kind: String,
    ports: Value,
}

impl Slice {
    /// Of this name, for the Service `service` of its namespace, with these ports.
    #[must_use]
    pub fn new(namespace: &str, name: &str, service: &str, family: Family, ports: &[Port]) -> Self {
        let labels = [(OF_SERVICE, service), (MANAGED_BY, MANAGER)];
        Self {
            key: Key::slice(namespace, name),
            labels: labels
                .map(|(label, value)| (label.to_owned(), value.into()))
                .into_iter()
                .collect(),
            kind: family.to_string(),
            ports: list(ports),
        }
    }

    /// The same with another value of a label.
    #[must_use]
    pub fn labelled(mut self, label: &str, value: &str) -> Self {
        self.labels.insert(label.to_owned(), value.into());
        self
    }

    /// The same without a label.
    #[must_use]
    pub fn without(mut self, label: &str) -> Self {
        self.labels.remove(label);
        self
    }

    /// The same with `ports: null`.
    #[must_use]
    pub fn without_ports(self) -> Self {
        let ports = Value::Null;
        Self { ports, ..self }
    }

    /// The same of host names, `addressType: FQDN`.
    #[must_use]
    pub fn of_host_names(self) -> Self {
        let kind = "FQDN".to_owned();
        Self { kind, ..self }
    }

    /// Which.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Creates it with these entries ([`Backend::endpoint`], [`entry`]).
    ///
    /// # Errors
    /// The API says no.
    pub async fn create(&self, cx: &Context, entries: Value) -> Result<(), Halt> {
        let values = json!({
            "namespace": self.key.namespace, "slice": self.key.plain(), "labels": self.labels,
            "type": self.kind, "endpoints": entries, "ports": self.ports,
        });
        cx.apply("${slice}", &values).await?;
        Ok(())
    }

    /// Makes it list these entries.
    ///
    /// # Errors
    /// The API says no.
    pub async fn list(&self, cx: &Context, entries: Value) -> Result<Written, Halt> {
        cx.objects()
            .patch(&self.key, json!({ "endpoints": entries }))
            .await
    }

    /// Gives it other ports.
    ///
    /// # Errors
    /// The API says no.
    pub async fn change_ports(&self, cx: &Context, ports: &[Port]) -> Result<Written, Halt> {
        cx.objects()
            .patch(&self.key, json!({ "ports": list(ports) }))
            .await
    }

    /// Deletes it.
    ///
    /// # Errors
    /// The API says no.
    pub async fn delete(&self, cx: &Context) -> Result<Written, Halt> {
        cx.objects().delete(&self.key).await
    }
}

/// An entry for a backend with exactly these conditions.
///
/// # Errors
/// The backend has no address of the family.
pub fn entry(backend: &Backend, family: Family, conditions: Value) -> Result<Value, Halt> {
    let mut entry = backend.endpoint(family, true)?;
    entry["conditions"] = conditions;
    Ok(entry)
}

/// The entry of a pod of this name.
#[must_use]
pub fn of_pod(mut entry: Value, namespace: &str, pod: &str) -> Value {
    entry["targetRef"] = json!({ "kind": "Pod", "namespace": namespace, "name": pod });
    entry
}

/// A Service in one axis, whose slices the case writes.
#[derive(Clone, Debug)]
pub struct Service {
    axis: String,
    made: Frontends,
    ports: Vec<Port>,
}

impl Service {
    /// Creates one of type NodePort with these ports.
    ///
    /// # Errors
    /// The API says no.
    pub async fn create(
        cx: &Context,
        axis: &str,
        namespace: &str,
        name: &str,
        family: Family,
        ports: &[Port],
    ) -> Result<Self, Halt> {
        let values = json!({ "namespace": namespace, "service": name, "ports": list(ports) });
        Ok(Self {
            axis: axis.to_owned(),
            made: Frontends::create(cx, family, values).await?,
            ports: ports.to_vec(),
        })
    }

    /// Which.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.made.service
    }

    /// A slice for it, in its namespace.
    #[must_use]
    pub fn slice(&self, name: &str, ports: &[Port]) -> Slice {
        let Key { namespace, .. } = self.key();
        Slice::new(namespace, name, self.key().plain(), self.made.family, ports)
    }

    /// Its ports of this number are served by exactly these backends, each at a port of its own; by none, they are
    /// NONE.
    ///
    /// # Errors
    /// It has no node port.
    pub fn meets(&self, cx: &Context, number: u16, by: &[(&Backend, u16)]) -> Result<Dialled, Halt> {
        self.meets_by(cx, &[Transport::Tcp, Transport::Udp], number, by)
    }

    /// As [`Service::meets`], by these transports.
    ///
    /// # Errors
    /// The same.
    pub fn meets_by(
        &self,
        cx: &Context,
        transports: &[Transport],
        number: u16,
        by: &[(&Backend, u16)],
    ) -> Result<Dialled, Halt> {
        let node_ports = self.made.node_ports();
        if node_ports.len() != self.ports.len() {
            let service = self.key();
            return Err(Halt::Harness(format!(
                "expected {} node ports of {service}, found {node_ports:?}",
                self.ports.len()
            )));
        }
        let (mut at_cluster_ip, mut at_nodes) = (Vec::new(), Vec::new());
        let dialled = self
            .ports
            .iter()
            .zip(node_ports)
            .filter(|(port, _)| port.number == number && transports.contains(&port.transport));
        for (port, node_port) in dialled {
            let listed = by
                .iter()
                .flat_map(|(backend, target)| identities([*backend], port.transport, *target));
            let permitted = match by {
                [] => Permitted::None,
                _ => Permitted::Serves(listed.collect()),
            };
            let to = |place: &str, address| Destination {
                axis: self.axis.clone(),
                name: format!("{}:{number} {place}", self.key().plain()),
                transport: port.transport,
                address,
                permitted: permitted.clone(),
            };
            at_cluster_ip.push(to("cip", (self.made.cluster_ip, number).into()));
            let nodes = node_addresses(cx, self.made.family).into_iter();
            at_nodes.extend(nodes.map(|(node, address)| to(&node, (address, node_port).into())));
        }
        Ok(Dialled::new(at_cluster_ip, at_nodes))
    }
}

/// Every one of these backends at its own address and port of both transports, whatever the Services: what a control
/// dials.
///
/// # Errors
/// One has no address of the family.
pub fn themselves(
    axis: &str,
    family: Family,
    backends: &[(&Backend, u16)],
) -> Result<Vec<Destination>, Halt> {
    let mut all = Vec::new();
    for (backend, port) in backends {
        for transport in [Transport::Tcp, Transport::Udp] {
            let name = format!("{} itself", backend.plain());
            let address = (backend.address(family)?, *port).into();
            let by = identities([*backend], transport, *port);
            all.push(Destination::serves(axis, &name, transport, address, by));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> Backend {
        Backend {
            namespace: "n".to_owned(),
            in_api: "b".to_owned(),
            node: "node1".to_owned(),
            addresses: vec!["10.1.0.1".parse().unwrap()],
        }
    }

    #[test]
    fn a_port_without_a_name_has_none_in_the_api_and_a_named_target_is_one_of_services() {
        let unnamed = Port::new("", Transport::Tcp, 80);
        assert_eq!(unnamed.json(), json!({ "port": 80, "protocol": "TCP" }));
        let [tcp, udp] = Port::both("web", 80);
        let expected = json!({ "name": "web", "port": 80, "protocol": "TCP", "targetPort": "http" });
        assert_eq!(tcp.to("http").json(), expected);
        assert_eq!(
            udp.json(),
            json!({ "name": "web-udp", "port": 80, "protocol": "UDP" })
        );
    }

    #[test]
    fn a_slice_names_its_service_and_its_writer_until_that_is_changed() {
        let slice = Slice::new("n", "t-1", "t", Family::IPv4, &Port::both("web", 8080));
        let labels = |slice: &Slice| Value::from(slice.labels.clone());
        assert_eq!(labels(&slice), json!({ OF_SERVICE: "t", MANAGED_BY: MANAGER }));
        let other = slice.clone().without(MANAGED_BY).labelled(OF_SERVICE, "u");
        assert_eq!(labels(&other), json!({ OF_SERVICE: "u" }));
        assert_eq!(slice.clone().without_ports().ports, Value::Null);
        assert_eq!(slice.of_host_names().kind, "FQDN");
    }

    #[test]
    fn an_entry_has_the_conditions_that_are_given_and_no_others() {
        let conditions = json!({ "serving": false });
        let entry = entry(&backend(), Family::IPv4, conditions.clone()).unwrap();
        assert_eq!(entry["conditions"], conditions);
        assert_eq!(entry["addresses"], json!(["10.1.0.1"]));
        let of_pod = of_pod(entry, "n", "ghost");
        assert_eq!(
            of_pod["targetRef"],
            json!({ "kind": "Pod", "namespace": "n", "name": "ghost" })
        );
    }
}
