//! Objects in one line.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use crate::{
    endpoint_address::{Backend, Protocol, TransportAddress},
    model::{Endpoint, Service, ServicePort, Slice, SlicePort},
    names::ObjectName,
};

/// `namespace/name`.
pub fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    ObjectName::new(namespace, name)
}

/// `TCP 1.1.1.1:80`.
pub fn address(text: &str) -> TransportAddress {
    let (protocol, socket) = text.split_once(' ').expect("protocol address:port");
    let socket: std::net::SocketAddr = socket.parse().expect("address:port");
    TransportAddress {
        protocol: protocol_of(protocol),
        address: socket.ip(),
        port: socket.port(),
    }
}

/// Not local.
pub fn backend(text: &str) -> Backend {
    Backend {
        address: address(text),
        local: false,
    }
}

/// A set of [`address`]es.
pub fn addresses(texts: &[&str]) -> BTreeSet<TransportAddress> {
    texts.iter().map(|text| address(text)).collect()
}

/// `TCP 80`, `TCP 80 http` or `TCP 80 http @30080`, which is its node port.
fn port(text: &str) -> ServicePort {
    let mut parts = text.split(' ');
    let protocol = protocol_of(parts.next().expect("a protocol"));
    let port = parts.next().expect("a port").parse().expect("a port");
    let name = parts.next().unwrap_or_default().into();
    let node_port = parts.next().map(|part| {
        let number = part.strip_prefix('@').expect("@ and a node port");
        number.parse().expect("a port")
    });
    ServicePort {
        name,
        port,
        protocol,
        node_port,
        target_port: Some(port),
    }
}

fn protocol_of(text: &str) -> Protocol {
    match text {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => panic!("{other} is no protocol"),
    }
}

/// A Service of age 0. Its ClusterIP, several with commas, or none: what is no address.
pub fn service(name_: &str, cluster_ip: &str, ports: &[&str]) -> Service {
    let ips = cluster_ip.split(',').flat_map(str::parse::<IpAddr>).collect();
    Service {
        created: Some(0),
        cluster_ips: ips,
        ports: ports.iter().map(|text| port(text)).collect(),
        ..Service::new(name(name_))
    }
}

/// A slice; endpoints that begin with `!` are not ready, those that end with `@NODE` are on that node.
pub fn slice(name_: &str, service: &str, ports: &[&str], endpoints: &[&str]) -> Slice {
    let ports = ports.iter().map(|text| {
        let ServicePort {
            name, port, protocol, ..
        } = port(text);
        SlicePort { name, port, protocol }
    });
    let endpoints = endpoints.iter().map(|text| {
        let (address, node) = text
            .split_once('@')
            .map_or((*text, None), |(address, node)| (address, Some(node)));
        let ready = !text.starts_with('!');
        Endpoint {
            ready,
            serving: ready,
            node: node.map(Arc::from),
            ..Endpoint::new(address.trim_start_matches('!').parse().expect("an address"))
        }
    });
    let service = (!service.is_empty()).then(|| service.into());
    Slice {
        name: name(name_),
        service,
        ports: ports.collect(),
        endpoints: endpoints.collect(),
    }
}
