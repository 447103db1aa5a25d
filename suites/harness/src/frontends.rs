//! What leads to a Service: its cluster IP, its node ports, addresses of load balancers and external IPs; and which clients dial which.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use crate::{
    client::Client,
    context::Context,
    destination::Destination,
    names::Key,
    pods::{Backend, serve},
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

/// Ranges of [`Frontends::balancer_address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// 198.18.0.0/16, 2001:db8:5101::/64.
    First,
    /// 198.19.0.0/16, 2001:db8:5102::/64.
    Second,
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

    /// An address for its load balancer that no machine has and no other Service gets: the last bits of its cluster IP,
    /// in one of two ranges for benchmarks (RFC 2544) or documentation (RFC 3849).
    #[must_use]
    pub fn balancer_address(&self, range: Range) -> IpAddr {
        match self.cluster_ip {
            IpAddr::V4(own) => {
                let [_, _, high, low] = own.octets();
                let second = if range == Range::First { 18 } else { 19 };
                [198, second, high, low].into()
            }
            IpAddr::V6(own) => {
                let [_, _, _, _, a, b, c, d] = own.segments();
                let third = if range == Range::First { 0x5101 } else { 0x5102 };
                [0x2001, 0xdb8, third, 0, a, b, c, d].into()
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Key;

    #[test]
    fn addresses_for_load_balancers_are_as_many_as_cluster_ips_in_each_range() {
        let of = |cluster_ip: &str| {
            let made = Frontends {
                service: Key::service("p5a01c2-000", "t"),
                family: Family::IPv4,
                cluster_ip: cluster_ip.parse().unwrap(),
                object: Value::Null,
            };
            [Range::First, Range::Second].map(|range| made.balancer_address(range).to_string())
        };
        assert_eq!(of("10.96.3.7"), ["198.18.3.7", "198.19.3.7"]);
        assert_eq!(of("fd00:96::1:a"), ["2001:db8:5101::1:a", "2001:db8:5102::1:a"]);
    }
}
