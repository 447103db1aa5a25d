//! What leads to a Service: its cluster IP, its node ports, addresses of load balancers and external IPs; and which clients dial which.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::future::try_join_all;
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use crate::{
    background::Background,
    client::Client,
    context::Context,
    destination::Destination,
    names::Key,
    objects::Written,
    pods::{Backend, serve},
    probing,
    verdict::Halt,
    waiting::{Within, eventually},
};
use cluster::Family;

/// A Service that a case has made, of one family.
#[derive(Clone, Debug)]
pub struct Frontends {
    /// Which.
    pub service: Key,
    /// Its family.
    pub family: Family,
    /// Its cluster IP.
    pub cluster_ip: IpAddr,
    /// As the API server has made it.
    object: Value,
}

/// Clients and what they dial.
pub type Vantage = (Vec<Client>, Vec<Destination>);

impl Frontends {
    /// Creates the manifest's objects named `${service}`, a Service among them.
    pub async fn create(cx: &Context, family: Family, mut values: Value) -> Result<Self, Halt> {
        values["family"] = json!(family.to_string());
        let none = || Halt::Harness("the manifest has no Service named ${service}".to_owned());
        let written = cx.apply_all("${service}", &values).await?.ok_or_else(none)?;
        Ok(Self {
            cluster_ip: written.cluster_ip()?,
            service: written.key,
            family,
            object: written.object,
        })
    }

    /// Creates the manifest's objects named `${service}`, among them a Service of both families: that of each, the first one first.
    pub async fn create_dual(cx: &Context, values: &Value) -> Result<Vec<Self>, Halt> {
        let none = || Halt::Harness("the manifest has no Service named ${service}".to_owned());
        let written = cx.apply_all("${service}", values).await?.ok_or_else(none)?;
        Self::of_each_family(&written)
    }

    /// Those of a Service that was written, in the order of its families.
    ///
    /// # Errors
    /// If it has no cluster IP.
    pub fn of_each_family(written: &Written) -> Result<Vec<Self>, Halt> {
        let none = || Halt::Harness(format!("{} has no cluster IPs", written.key));
        let listed = written.object["spec"]["clusterIPs"].as_array().ok_or_else(none)?;
        let of = |address: &Value| {
            let cluster_ip: IpAddr = address.as_str()?.parse().ok()?;
            let family = if cluster_ip.is_ipv4() {
                Family::IPv4
            } else {
                Family::IPv6
            };
            Some(Self {
                service: written.key.clone(),
                family,
                cluster_ip,
                object: written.object.clone(),
            })
        };
        listed
            .iter()
            .map(|address| of(address).ok_or_else(none))
            .collect()
    }

    /// The node port of its port of a transport.
    pub fn node_port(&self, transport: Transport) -> Result<u16, Halt> {
        let protocol = match transport {
            Transport::UdpConnected => "UDP",
            other => oracle::finding::transport(other),
        };
        node_port(&self.object, protocol)
            .ok_or_else(|| Halt::Harness(format!("{} has no node port of {protocol}", self.service)))
    }

    /// Its node ports, in the order of its ports.
    pub fn node_ports(&self) -> Vec<u16> {
        let ports = self.object["spec"]["ports"].as_array().into_iter().flatten();
        ports
            .filter_map(|port| u16::try_from(port["nodePort"].as_u64()?).ok())
            .collect()
    }

    /// Its cluster IP at a port, which backends of these identities must serve.
    pub fn at_cluster_ip(
        &self,
        axis: &str,
        transport: Transport,
        port: u16,
        identities: &BTreeSet<String>,
    ) -> Destination {
        self.at(axis, "cip", transport, (self.cluster_ip, port).into(), identities)
    }

    /// Its node port of a transport on every node, which backends of these identities must serve.
    pub fn at_nodes(
        &self,
        cx: &Context,
        axis: &str,
        transport: Transport,
        identities: &BTreeSet<String>,
    ) -> Result<Vec<Destination>, Halt> {
        let port = self.node_port(transport)?;
        let nodes = node_addresses(cx, self.family).into_iter();
        let at = |(node, address): (String, IpAddr)| {
            self.at(axis, &node, transport, (address, port).into(), identities)
        };
        Ok(nodes.map(at).collect())
    }

    /// The addresses of its load balancers at a port, once a controller has given it some, which backends of these identities
    /// must serve.
    pub async fn at_balancers(
        &self,
        cx: &Context,
        axis: &str,
        transport: Transport,
        port: u16,
        identities: &BTreeSet<String>,
    ) -> Result<Vec<Destination>, Halt> {
        let within = Within::from_now(cx.limits().service);
        let what = format!("{} has an address of a load balancer", self.service);
        let addresses = eventually(&what, within, async || {
            let addresses = balancers(&cx.objects().get(&self.service).await?, self.family);
            Ok((!addresses.is_empty()).then_some(addresses))
        });
        let at = |address: IpAddr| self.at(axis, "lb", transport, (address, port).into(), identities);
        Ok(addresses.await?.into_iter().map(at).collect())
    }

    /// What leads to it elsewhere, which backends of these identities must serve.
    pub fn at(
        &self,
        axis: &str,
        place: &str,
        transport: Transport,
        address: SocketAddr,
        identities: &BTreeSet<String>,
    ) -> Destination {
        let name = format!("{} {place}", self.service.plain());
        Destination::serves(axis, &name, transport, address, identities.iter().cloned())
    }
}

/// The same targets, of which this is permitted.
#[must_use]
pub fn permitting(targets: &[Destination], permitted: &Permitted) -> Vec<Destination> {
    let with = |target: &Destination| Destination {
        permitted: permitted.clone(),
        ..target.clone()
    };
    targets.iter().map(with).collect()
}

/// The node port of a Service's port of a protocol.
#[must_use]
pub fn node_port(service: &Value, protocol: &str) -> Option<u16> {
    let mut ports = service["spec"]["ports"].as_array()?.iter();
    let port = ports.find(|port| port["protocol"].as_str().unwrap_or("TCP") == protocol)?;
    u16::try_from(port["nodePort"].as_u64()?).ok()
}

/// The addresses of a Service's load balancers.
#[must_use]
pub fn balancers(service: &Value, family: Family) -> Vec<IpAddr> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let addresses = ingress
        .into_iter()
        .flatten()
        .filter_map(|one| one["ip"].as_str()?.parse().ok());
    addresses.filter(|address| family.has(address)).collect()
}

/// Creates backends of these names, which serve these ports, on all nodes in turn.
pub async fn serving(
    cx: &Context,
    namespace: &str,
    names: &[&str],
    tcp: &[u16],
    udp: &[u16],
) -> Result<Vec<Backend>, Halt> {
    let nodes = cx.nodes();
    let pod = |(name, node): (&&str, &String)| {
        let args = serve(name, namespace, tcp, udp);
        json!({ "name": name, "namespace": namespace, "node": node, "args": args })
    };
    let pods: Vec<Value> = names.iter().zip(nodes.iter().cycle()).map(pod).collect();
    cx.backends(&pods).await
}

/// Names and InternalIPs of the nodes.
#[must_use]
pub fn node_addresses(cx: &Context, family: Family) -> Vec<(String, IpAddr)> {
    cx.cluster().describe().nodes_of(family)
}

/// Which clients dial what: all clients inside the first targets, and the client outside, where there is one, the others.
#[must_use]
pub fn vantages(cx: &Context, inside: Vec<Destination>, outside: Vec<Destination>) -> Vec<Vantage> {
    let beyond = cx.clients().outside().map(|client| (vec![client], outside));
    [(cx.clients().to_vec(), inside)]
        .into_iter()
        .chain(beyond)
        .collect()
}

/// The same, with all targets of one vantage's clients together: they are dialled at the same time.
#[must_use]
pub fn joined<'a>(vantages: impl IntoIterator<Item = &'a Vantage>) -> Vec<Vantage> {
    let mut joined: Vec<Vantage> = Vec::new();
    for (clients, targets) in vantages {
        match joined.iter_mut().find(|(known, _)| known == clients) {
            Some((_, known)) => known.extend_from_slice(targets),
            None => joined.push((clients.clone(), targets.clone())),
        }
    }
    joined
}

/// Verdict of all vantages at the same time, each as of [`probing::judge_briefly`].
pub async fn judge_all_briefly(cx: &Context, vantages: &[Vantage], within: Within) -> Result<(), Halt> {
    let each = vantages.iter();
    let each = each.map(|(clients, targets)| probing::judge_briefly(cx, clients, targets, within));
    try_join_all(each).await?;
    Ok(())
}

/// Returns when all vantages have come to be what is permitted, or the limit has passed: what has not settled shows in the probes
/// that follow ([`begin_all`]).
pub async fn settle_all(cx: &Context, vantages: &[Vantage], within: Within) -> Result<(), Halt> {
    let each = vantages.iter();
    let each = each.map(|(clients, targets)| probing::settle(cx, clients, targets, within));
    for settled in try_join_all(each).await? {
        probing::record_settled(cx, &settled);
    }
    Ok(())
}

/// Verdict of all vantages at the same time, each as of [`probing::judge`].
pub async fn judge_all(cx: &Context, vantages: &[Vantage], within: Within) -> Result<(), Halt> {
    let each = vantages.iter();
    let each = each.map(|(clients, targets)| probing::judge(cx, clients, targets, within));
    try_join_all(each).await?;
    Ok(())
}

/// Probes of all vantages that have begun, N within a window from each.
pub async fn begin_all(
    cx: &Context,
    vantages: &[Vantage],
    window: Duration,
) -> Result<Vec<Background>, Halt> {
    let each = vantages.iter();
    let each = each.map(|(clients, targets)| Background::start(cx, clients, targets, window));
    try_join_all(each).await
}

/// Verdict: through their window from now, all of these probes were inside.
pub async fn hold_all(cx: &Context, begun: Vec<Background>) -> Result<(), Halt> {
    try_join_all(begun.into_iter().map(|window| window.hold(cx))).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use cluster::Place;

    use super::*;

    #[test]
    fn a_service_has_frontends_of_each_of_its_families() {
        let written = |cluster_ips: Value| Written {
            key: Key::service("p5a01c2-000", "t"),
            resource_version: String::new(),
            at: std::time::Instant::now(),
            object: json!({ "spec": { "clusterIPs": cluster_ips } }),
        };
        let made = Frontends::of_each_family(&written(json!(["fd00:96::1", "10.96.0.1"]))).unwrap();
        let found: Vec<(Family, String)> = made
            .iter()
            .map(|one| (one.family, one.cluster_ip.to_string()))
            .collect();
        assert_eq!(
            found,
            [
                (Family::IPv6, "fd00:96::1".to_owned()),
                (Family::IPv4, "10.96.0.1".to_owned())
            ]
        );
        assert!(Frontends::of_each_family(&written(json!(["None"]))).is_err());
    }

    #[test]
    fn clients_that_are_the_same_dial_all_their_targets_at_once() {
        let client = |name: &str| Client {
            name: name.to_owned(),
            node: String::new(),
            place: Place::Outside,
            private_cgroups: false,
        };
        let target = |name| Destination::none("a", name, Transport::Tcp, "10.0.0.1:80".parse().unwrap());
        let vantage = |clients: &[&str], name| -> Vantage {
            (
                clients.iter().map(|name| client(name)).collect(),
                vec![target(name)],
            )
        };
        let vantages = [
            vantage(&["a"], "one"),
            vantage(&["a", "b"], "two"),
            vantage(&["a"], "three"),
        ];
        let joined: Vec<(usize, Vec<String>)> = joined(&vantages)
            .into_iter()
            .map(|(clients, targets)| {
                (
                    clients.len(),
                    targets.into_iter().map(|target| target.name).collect(),
                )
            })
            .collect();
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        assert_eq!(joined, [(1, names(&["one", "three"])), (2, names(&["two"]))]);
    }
}
