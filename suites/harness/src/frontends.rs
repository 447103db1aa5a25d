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
    context::Context,
    destination::Destination,
    names::{self, Key, Kind},
    objects::Written,
    pods::{Backend, serve},
    probing::{self, identities},
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

/// A load balancer class without a controller: the case writes the status itself.
pub const WRITTEN_BY_HAND: &str = "plumbline.example/written-by-hand";

/// An address and port that lead to a port of a Service, by its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// What the case calls the Service.
    pub service: String,
    /// What the case calls the Service's port.
    pub port: String,
    /// What it is, in a few letters: `cip`, `lb`, `eip`; of a node port, the node.
    pub place: String,
    /// How it is dialled.
    pub transport: Transport,
    /// What is dialled.
    pub address: SocketAddr,
    /// The target port.
    pub target: u16,
}

impl Frontend {
    /// Whether it is the ClusterIP, which clients outside do not dial.
    #[must_use]
    pub fn is_cluster_ip(&self) -> bool {
        self.place == CLUSTER_IP
    }

    /// It must be served by these backends at its target port.
    #[must_use]
    pub fn serves(&self, axis: &str, backends: &[Backend]) -> Destination {
        let by = identities(backends, self.transport, self.target);
        Destination::serves(axis, &self.name(), self.transport, self.address, by)
    }

    /// It must be delivered nowhere.
    #[must_use]
    pub fn none(&self, axis: &str) -> Destination {
        Destination::none(axis, &self.name(), self.transport, self.address)
    }

    fn name(&self) -> String {
        let Self {
            service, port, place, ..
        } = self;
        format!("{service}:{port} {place}")
    }
}

const CLUSTER_IP: &str = "cip";

/// All that leads to a Service in a family, as its object has it.
#[must_use]
pub fn leading_to(cx: &Context, service: &Value, family: Family) -> Vec<Frontend> {
    of_object(service, family, &node_addresses(cx, family))
}

fn of_object(service: &Value, family: Family, nodes: &[(String, IpAddr)]) -> Vec<Frontend> {
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Vec::new();
    }
    let listed = |field: &str| {
        let all = spec[field].as_array().into_iter().flatten();
        let addresses = all.filter_map(|one| one.as_str()?.parse::<IpAddr>().ok());
        addresses
            .filter(|address| family.has(address))
            .collect::<Vec<IpAddr>>()
    };
    let places = [
        (CLUSTER_IP, listed("clusterIPs")),
        ("lb", balancers(service, family)),
        ("eip", listed("externalIPs")),
    ];
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
    let key = Key::seen(Kind::Service, text("namespace"), text("name"));
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let mut all = Vec::new();
    for port in spec["ports"].as_array().into_iter().flatten() {
        let transport = match port["protocol"].as_str() {
            Some("UDP") => Transport::Udp,
            Some("SCTP") => Transport::Sctp,
            _ => Transport::Tcp,
        };
        let named = port["name"].as_str().unwrap_or_default();
        let at = |place: &str, address: IpAddr, of_frontend: u16| Frontend {
            service: key.plain().to_owned(),
            port: names::plain(&key.namespace, named).to_owned(),
            place: place.to_owned(),
            transport,
            address: (address, of_frontend).into(),
            target: number(&port["targetPort"]).unwrap_or(of_frontend),
        };
        if let Some(own) = number(&port["port"]) {
            let each = places.iter();
            all.extend(
                each.flat_map(|(place, addresses)| addresses.iter().map(|address| at(place, *address, own))),
            );
        }
        if let Some(node_port) = number(&port["nodePort"]) {
            all.extend(nodes.iter().map(|(node, address)| at(node, *address, node_port)));
        }
    }
    all
}

/// Ranges of [`Frontends::balancer_address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// 198.18.0.0/16, 2001:db8:5101::/64.
    First,
    /// 198.19.0.0/16, 2001:db8:5102::/64.
    Second,
}

pub use crate::destination::Vantage;

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

    /// As the API server has made it.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
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

/// The addresses of a Service's load balancers, but those that proxies have for themselves (KEP-1860).
#[must_use]
pub fn balancers(service: &Value, family: Family) -> Vec<IpAddr> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let addresses = ingress
        .into_iter()
        .flatten()
        .filter(|one| one["ipMode"] != "Proxy")
        .filter_map(|one| one["ip"].as_str()?.parse().ok());
    addresses.filter(|address| family.has(address)).collect()
}

/// Addresses of load balancers that are routed to nodes: a controller has given them to a Service of this name, which has no
/// endpoints and no port that another Service of a case has.
pub async fn assigned_balancers(
    cx: &Context,
    namespace: &str,
    family: Family,
    name: &str,
) -> Result<Vec<IpAddr>, Halt> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "type": "LoadBalancer", "ipFamilies": [family.to_string()],
            "ports": [{ "name": "held", "port": HELD, "protocol": "TCP" }],
        },
    });
    let written = cx.objects().create(&service).await?;
    let holder = Frontends {
        cluster_ip: written.cluster_ip()?,
        service: written.key,
        family,
        object: written.object,
    };
    let given = holder
        .at_balancers(cx, name, Transport::Tcp, HELD, &BTreeSet::new())
        .await?;
    Ok(given.into_iter().map(|one| one.address.ip()).collect())
}

/// The port of Services that only have an address.
const HELD: u16 = 7489;

/// Writes the addresses of a Service's load balancers into its status, where no controller does ([`WRITTEN_BY_HAND`]).
pub async fn give_balancers(cx: &Context, service: &Key, addresses: &[IpAddr]) -> Result<Written, Halt> {
    let ingress: Vec<Value> = addresses.iter().map(|address| json!({ "ip": address })).collect();
    let status = json!({ "loadBalancer": { "ingress": ingress } });
    cx.objects().patch_status(service, status).await
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
    let placed: Vec<(&str, &str)> = names
        .iter()
        .zip(nodes.iter().cycle())
        .map(|(name, node)| (*name, node.as_str()))
        .collect();
    serving_on(cx, namespace, &placed, tcp, udp).await
}

/// Creates backends, by name and node, which serve these ports.
pub async fn serving_on(
    cx: &Context,
    namespace: &str,
    placed: &[(&str, &str)],
    tcp: &[u16],
    udp: &[u16],
) -> Result<Vec<Backend>, Halt> {
    let pod = |(name, node): &(&str, &str)| {
        let args = serve(name, namespace, tcp, udp);
        json!({ "name": name, "namespace": namespace, "node": node, "args": args })
    };
    let pods: Vec<Value> = placed.iter().map(pod).collect();
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

/// As [`vantages`], of frontends with their axes: no ClusterIP from outside.
#[must_use]
pub fn dialled(
    cx: &Context,
    all: &[(String, Frontend)],
    as_target: impl Fn(&str, &Frontend) -> Destination,
) -> Vec<Vantage> {
    let target = |(axis, frontend): &(String, Frontend)| as_target(axis, frontend);
    let outside = all.iter().filter(|(_, frontend)| !frontend.is_cluster_ip());
    vantages(
        cx,
        all.iter().map(target).collect(),
        outside.map(target).collect(),
    )
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

    use crate::client::Client;

    use super::*;

    fn places(service: &Value, family: Family) -> Vec<String> {
        let nodes = [("n1".to_owned(), "172.30.0.101".parse().unwrap())];
        let all = of_object(service, family, &nodes);
        let words = |one: &Frontend| {
            format!(
                "{} {:?} {} {}",
                one.name(),
                one.transport,
                one.address,
                one.target
            )
        };
        all.iter().map(words).collect()
    }

    #[test]
    fn what_leads_to_a_service_is_what_its_object_has() {
        let mut service = json!({
            "metadata": { "namespace": "p5a01c2-000", "name": "p5a01c2-000-shop" },
            "spec": {
                "type": "LoadBalancer", "clusterIPs": ["10.96.0.7", "fd00:96::7"], "externalIPs": ["192.0.2.1"],
                "ports": [
                    { "name": "p5a01c2-000-tcp", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30000 },
                    { "protocol": "UDP", "port": 53 },
                ],
            },
            "status": { "loadBalancer": { "ingress": [
                { "ip": "198.51.100.1", "ipMode": "VIP" }, { "ip": "198.51.100.2", "ipMode": "Proxy" },
            ] } },
        });
        assert_eq!(
            places(&service, Family::IPv4),
            [
                "shop:tcp cip Tcp 10.96.0.7:80 8080",
                "shop:tcp lb Tcp 198.51.100.1:80 8080",
                "shop:tcp eip Tcp 192.0.2.1:80 8080",
                "shop:tcp n1 Tcp 172.30.0.101:30000 8080",
                "shop: cip Udp 10.96.0.7:53 53",
                "shop: lb Udp 198.51.100.1:53 53",
                "shop: eip Udp 192.0.2.1:53 53",
            ]
        );
        service["spec"]["type"] = "ExternalName".into();
        assert_eq!(places(&service, Family::IPv4), [""; 0]);
    }

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
