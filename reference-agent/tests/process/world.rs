//! The objects of the API, and the servers that clients may therefore reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use serde_json::{Value, json};

/// A server: it is at one address of each family, and answers with its number.
pub(crate) type Server = u8;

/// TCP port of every server, and of every Service.
pub(crate) const TCP: (u16, u16) = (8080, 80);
/// The same for UDP.
pub(crate) const UDP: (u16, u16) = (5353, 53);

/// Where a server is: in IPv4, in IPv6.
pub(crate) fn addresses(server: Server) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 0, 0, server).into(),
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, server.into()).into(),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// Where clients turn to.
pub(crate) type Target = (Protocol, SocketAddr);

/// A Service of both families with both ports, and its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    name: &'static str,
    number: u8,
    servers: BTreeSet<Server>,
}

/// All Services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct World(Vec<Entry>);

impl World {
    /// Of each Service: its name, the number of its cluster IPs, its servers.
    pub(crate) fn new(entries: &[(&'static str, u8, &[Server])]) -> Self {
        let entry = |&(name, number, servers): &(&'static str, u8, &[Server])| Entry {
            name,
            number,
            servers: servers.iter().copied().collect(),
        };
        Self(entries.iter().map(entry).collect())
    }

    /// All numbers of servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = Server> {
        self.0.iter().flat_map(|entry| entry.servers.iter().copied())
    }

    /// The servers that clients reach, by Service.
    pub(crate) fn served(&self) -> BTreeMap<Target, (&'static str, BTreeSet<Server>)> {
        let mut served = BTreeMap::new();
        for entry in &self.0 {
            for address in cluster_ips(entry.number) {
                for (protocol, (_, port)) in [(Protocol::Tcp, TCP), (Protocol::Udp, UDP)] {
                    let target = (protocol, SocketAddr::new(address, port));
                    served.insert(target, (entry.name, entry.servers.clone()));
                }
            }
        }
        served
    }

    /// The Services as API objects, by name.
    pub(crate) fn services(&self) -> BTreeMap<String, Value> {
        self.0
            .iter()
            .map(|entry| (entry.name.to_owned(), service(entry)))
            .collect()
    }

    /// The slices as API objects, by name.
    pub(crate) fn slices(&self) -> BTreeMap<String, Value> {
        let slices = self.0.iter().flat_map(|entry| [slice(entry, 4), slice(entry, 6)]);
        slices.collect()
    }
}

fn cluster_ips(number: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 96, 1, number).into(),
        Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 1, number.into()).into(),
    ]
}

fn service(entry: &Entry) -> Value {
    let ips = cluster_ips(entry.number);
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": entry.name, "namespace": "default"},
        "spec": {
            "clusterIP": ips[0], "clusterIPs": ips,
            "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
            "ports": [
                {"name": "tcp", "port": TCP.1, "targetPort": TCP.0},
                {"name": "udp", "port": UDP.1, "targetPort": UDP.0, "protocol": "UDP"},
            ],
        },
    })
}

fn slice(entry: &Entry, family: u8) -> (String, Value) {
    let name = format!("{}-{family}", entry.name);
    let endpoints: Vec<Value> = entry
        .servers
        .iter()
        .map(|server| {
            let [v4, v6] = addresses(*server);
            json!({"addresses": [if family == 4 { v4 } else { v6 }]})
        })
        .collect();
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": entry.name},
        },
        "addressType": format!("IPv{family}"),
        "ports": [{"name": "tcp", "port": TCP.0}, {"name": "udp", "port": UDP.0, "protocol": "UDP"}],
        "endpoints": endpoints,
    });
    (name, object)
}
