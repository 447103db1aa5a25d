//! The frontends that a Service asks for, each once.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use super::objects::Service;
use crate::endpoint_address::{Family, Protocol, TransportAddress};

/// Most frontends of one Service. A Service of the largest size that the API takes (1.5 MB) could ask for a thousand
/// million: each of its addresses with each of its ports.
pub const FRONTENDS: usize = 4096;

/// The field of a Service that asks for a frontend, in the order of precedence. Among several fields of one Service the
/// first one counts. Among several Services the one with the first field is the owner, so that no Service takes a
/// cluster IP from another (CVE-2020-8554).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exposure {
    /// A cluster IP.
    ClusterIp,
    /// A node port, at the unspecified address.
    NodePort,
    /// An address of a load balancer.
    LoadBalancer,
    /// An external IP.
    ExternalIp,
    /// A health check node port, at an address of a load balancer.
    HealthCheck,
    /// The agent's own probe.
    Probe,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIp => "spec.clusterIPs",
            Self::NodePort => "spec.ports[].nodePort",
            Self::LoadBalancer => "status.loadBalancer.ingress",
            Self::ExternalIp => "spec.externalIPs",
            Self::HealthCheck => "spec.healthCheckNodePort",
            Self::Probe => "the agent's own probe",
        })
    }
}

/// A frontend that a Service asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// The address that clients connect to.
    pub address: TransportAddress,
    /// The field that asks for it.
    pub exposure: Exposure,
    /// Index into [`Service::ports`].
    pub port: usize,
}

/// The frontends that a Service asks for, by port and [`Exposure`], and how many are left out beyond [`FRONTENDS`].
pub fn frontends(service: &Service) -> (Vec<Frontend>, usize) {
    let addresses = addresses(service);
    let families: BTreeSet<_> = service.cluster_ips.iter().map(|ip| Family::of(*ip)).collect();
    let mut node_ports = BTreeSet::new();
    let mut all = Vec::new();
    let mut wanted = 0;
    for (index, port) in service.ports.iter().enumerate() {
        let node_port = port
            .node_port
            .filter(|number| node_ports.insert((*number, port.protocol)));
        let at_nodes = node_port.into_iter().flat_map(|number| {
            let unspecified = families.iter().map(|family| family.unspecified());
            unspecified.map(move |address| (address, number, Exposure::NodePort))
        });
        let at_addresses = addresses
            .iter()
            .map(|&(address, exposure)| (address, port.port, exposure));
        for (address, number, exposure) in at_nodes.chain(at_addresses) {
            wanted += 1;
            if all.len() < FRONTENDS {
                let address = TransportAddress {
                    protocol: port.protocol,
                    address,
                    port: number,
                };
                all.push(Frontend {
                    address,
                    exposure,
                    port: index,
                });
            }
        }
    }
    let left_out = wanted - all.len();
    (all, left_out)
}

/// The addresses at which load balancers that leave the destination of packets unchanged send their health checks. None
/// if the Service has a port of that number.
pub fn health_checks(service: &Service) -> impl Iterator<Item = TransportAddress> {
    let taken = |number| {
        let mut ports = service.ports.iter();
        ports.any(|port| port.port == number && port.protocol == Protocol::Tcp)
    };
    let port = service.health_check_port.filter(|&number| !taken(number));
    let addresses: BTreeSet<_> = service.load_balancer_ips.iter().copied().collect();
    port.into_iter().flat_map(move |port| {
        addresses
            .clone()
            .into_iter()
            .map(move |address| TransportAddress {
                protocol: Protocol::Tcp,
                address,
                port,
            })
    })
}

/// The addresses of a Service, each with the first field that has it.
fn addresses(service: &Service) -> Vec<(IpAddr, Exposure)> {
    let kinds = [
        (&service.cluster_ips, Exposure::ClusterIp),
        (&service.load_balancer_ips, Exposure::LoadBalancer),
        (&service.external_ips, Exposure::ExternalIp),
    ];
    let mut seen = BTreeSet::new();
    let all = kinds
        .into_iter()
        .flat_map(|(ips, exposure)| ips.iter().map(move |ip| (*ip, exposure)));
    all.filter(|(ip, _)| seen.insert(*ip)).collect()
}
