//! The frontends that a Service asks for, each once.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use super::objects::Service;
use crate::transport::{Family, Protocol, TransportAddress};

/// Frontends that one Service can have. More could be written for few Services only, and a Service of the largest
/// size that the API takes (1.5 MB) could ask for a thousand million: each of its addresses with each of its ports.
pub const FRONTENDS: usize = 4096;

/// Why an address is a frontend's. In the order of precedence: of one Service that has it for several reasons, the
/// first counts; of several Services, the one with the first has it. Nobody takes a cluster IP from its owner
/// (CVE-2020-8554).
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
    /// Where clients connect to.
    pub address: TransportAddress,
    /// Why.
    pub exposure: Exposure,
    /// Index into [`Service::ports`].
    pub port: usize,
}

/// What a Service asks for, and how many more than [`FRONTENDS`] it would be: by port, and for each in the order of
/// [`Exposure`].
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

/// Where load balancers may ask for a Service's health by their own addresses, as those do that leave the destination of
/// packets as it is. None if it has a port of that number.
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

/// The addresses of a Service, each with the first reason that there is for it.
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
