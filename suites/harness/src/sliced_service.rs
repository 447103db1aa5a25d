//! A Service without selector whose endpoints, and their conditions, are those of one hand-written EndpointSlice.

use std::net::IpAddr;

use cluster::Family;
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use crate::{
    client::Client,
    conditions::Condition,
    context::Context,
    destination::Destination,
    frontends::{Frontends, Vantage, node_addresses},
    names::Key,
    objects::Written,
    pods::Backend,
    probing::identities,
    vantages::Vantages,
    verdict::Halt,
};

/// Port of every such Service, of TCP and UDP.
pub const PORT: u16 = 7480;
/// By what it is dialled.
pub const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// What clients may see of it.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// Exactly these backends.
    All(&'a [Backend]),
    /// These backends, or some of them.
    OneOf(&'a [Backend]),
    /// No backend.
    Nothing,
}

impl Seen<'_> {
    fn permitted(self, transport: Transport, target: u16) -> Permitted {
        let by = |backends| identities(backends, transport, target);
        match self {
            Self::All(backends) => Permitted::Serves(by(backends)),
            Self::OneOf(backends) => Permitted::ServesOneOf(by(backends)),
            Self::Nothing => Permitted::None,
        }
    }
}

/// The Service, of one family and one axis.
#[derive(Clone, Debug)]
pub struct SlicedService {
    axis: String,
    frontends: Frontends,
    /// Port of its backends.
    target: u16,
}

impl SlicedService {
    /// Creates the manifest's objects named `${service}`: the Service, and an EndpointSlice of its name that lists
    /// these. `values` has its namespace, `service`, and `target`, the port of its backends.
    pub async fn create<'a>(
        cx: &Context,
        axis: &str,
        family: Family,
        mut values: Value,
        listed: impl IntoIterator<Item = (&'a Backend, Condition)>,
    ) -> Result<Self, Halt> {
        let missing = || Halt::Harness(format!("a Service of the axis {axis} has no target port"));
        let target = values["target"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        let target = target.ok_or_else(missing)?;
        values["port"] = json!(PORT);
        values["endpoints"] = endpoints(listed, family)?;
        let frontends = Frontends::create(cx, family, values).await?;
        let axis = axis.to_owned();
        Ok(Self {
            axis,
            frontends,
            target,
        })
    }

    /// One in each family for each of these shapes of a case, by its name, that runs; all of them list these backends as
    /// ready. A shape has a backend port of its own, of `targets`, so that no backend of one is another's. `values` makes
    /// those of [`Self::create`] for a shape's name, a family and a port.
    pub async fn create_shapes<T: Copy>(
        cx: &Context,
        shapes: &[(&str, T)],
        targets: &[u16],
        ready: &[Backend],
        values: impl Fn(&str, Family, u16) -> Value,
    ) -> Result<Vec<(Self, T)>, Halt> {
        let shapes = cx.axes().choose(shapes.to_vec(), |(name, _)| (*name).to_owned());
        let mut services = Vec::new();
        for family in cx.families() {
            for ((name, shape), target) in shapes.iter().zip(targets) {
                let values = values(name, family, *target);
                let listed = all_in(ready, Condition::Ready);
                let made = Self::create(cx, &format!("{family}, {name}"), family, values, listed).await?;
                services.push((made, *shape));
            }
        }
        Ok(services)
    }

    /// Its axis.
    #[must_use]
    pub fn axis(&self) -> &str {
        &self.axis
    }

    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        self.frontends.family
    }

    /// The Service in the API.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.frontends.service
    }

    /// Makes its EndpointSlice list these.
    pub async fn list<'a>(
        &self,
        cx: &Context,
        listed: impl IntoIterator<Item = (&'a Backend, Condition)>,
    ) -> Result<Written, Halt> {
        let endpoints = endpoints(listed, self.frontends.family)?;
        self.write(cx, json!({ "endpoints": endpoints })).await
    }

    /// Changes its EndpointSlice by a merge patch.
    pub async fn write(&self, cx: &Context, patch: Value) -> Result<Written, Halt> {
        let service = &self.frontends.service;
        let slice = Key::slice(&service.namespace, &service.name);
        cx.objects().patch(&slice, patch).await
    }

    /// What clients of a node dial, and the one outside at this node: for policies by which nodes differ.
    pub fn at_node(&self, cx: &Context, node: &str, seen: Seen<'_>) -> Result<Vec<Vantage>, Halt> {
        self.dialled(cx, cx.clients().on(node), &[node.to_owned()], seen)
    }

    /// What these clients inside dial, its cluster IP, and the client outside, its node ports on these nodes.
    pub fn dialled(
        &self,
        cx: &Context,
        inside: Vec<Client>,
        outside_at: &[String],
        seen: Seen<'_>,
    ) -> Result<Vec<Vantage>, Halt> {
        let (mut at_cluster_ip, mut at_nodes) = (Vec::new(), Vec::new());
        for transport in TRANSPORTS {
            let to = |place: &str, address: IpAddr, port: u16| Destination {
                axis: self.axis.clone(),
                name: format!("{} {place}", self.key().plain()),
                transport,
                address: (address, port).into(),
                permitted: seen.permitted(transport, self.target),
            };
            at_cluster_ip.push(to("cip", self.frontends.cluster_ip, PORT));
            let port = self.frontends.node_port(transport)?;
            let nodes = node_addresses(cx, self.frontends.family).into_iter();
            let dialled = nodes.filter(|(node, _)| outside_at.contains(node));
            at_nodes.extend(dialled.map(|(node, address)| to(&node, address, port)));
        }
        let outside = cx.clients().outside().map(|client| (vec![client], at_nodes));
        Ok([(inside, at_cluster_ip)].into_iter().chain(outside).collect())
    }
}

/// What all clients dial of these Services: their cluster IPs, and from outside their node ports on every node.
pub fn everywhere<'a>(
    cx: &Context,
    services: impl IntoIterator<Item = &'a SlicedService>,
    seen: Seen<'_>,
) -> Result<Vantages, Halt> {
    let dialled = |service: &SlicedService| service.dialled(cx, cx.clients().to_vec(), &cx.nodes(), seen);
    let all: Result<Vec<_>, Halt> = services.into_iter().map(dialled).collect();
    Ok(all?.into_iter().flatten().collect())
}

/// All of these in one condition.
pub fn all_in(backends: &[Backend], condition: Condition) -> impl Iterator<Item = (&Backend, Condition)> {
    backends.iter().map(move |backend| (backend, condition))
}

fn endpoints<'a>(
    listed: impl IntoIterator<Item = (&'a Backend, Condition)>,
    family: Family,
) -> Result<Value, Halt> {
    let endpoint = |(backend, condition): (&Backend, Condition)| condition.endpoint(backend, family);
    listed.into_iter().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_seen_by_its_identity_of_the_transport_and_port() {
        let backends = [Backend {
            namespace: "ns".to_owned(),
            in_api: "b".to_owned(),
            node: "node1".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
        }];
        let of = |seen: Seen<'_>, transport| seen.permitted(transport, 8080);
        let identity = |transport| [backends[0].identity(transport, 8080)].into();
        assert_eq!(
            of(Seen::All(&backends), Transport::Tcp),
            Permitted::Serves(identity(Transport::Tcp))
        );
        assert_eq!(
            of(Seen::OneOf(&backends), Transport::Udp),
            Permitted::ServesOneOf(identity(Transport::Udp))
        );
        assert_eq!(of(Seen::Nothing, Transport::Tcp), Permitted::None);
        let listed = endpoints(all_in(&backends, Condition::Draining), Family::IPv4).unwrap();
        assert_eq!(listed[0]["conditions"]["terminating"], json!(true));
    }
}
