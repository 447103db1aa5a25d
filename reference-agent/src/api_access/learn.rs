//! Services of API servers, and their endpoints.

use std::{collections::BTreeSet, net::SocketAddr};

use super::ApiServers;
use crate::{endpoint_address::Protocol, model::Service, names::ObjectName, plan::ServicePlan};

/// Whether it is `default/kubernetes`, the Service of the API servers in every cluster.
fn is_kubernetes(name: &ObjectName) -> bool {
    (&*name.namespace, &*name.name) == ("default", "kubernetes")
}

impl ApiServers {
    /// Whether the agent may reach API servers through a Service: it is `default/kubernetes`, or has one of the
    /// configured addresses, or a node port of that number.
    pub fn may_serve_api(&self, service: &Service) -> bool {
        if is_kubernetes(&service.name) {
            return true;
        }
        self.addresses().iter().any(|(address, port)| {
            let addresses = service
                .cluster_ips
                .iter()
                .chain(&service.external_ips)
                .chain(&service.load_balancer_ips);
            let has = |number: u16| service.ports.iter().any(|port| port.port == number);
            let node_port = service.ports.iter().any(|one| one.node_port == Some(*port));
            node_port || (addresses.into_iter().any(|one| one == address) && has(*port))
        })
    }

    /// Learns those endpoints of a Service that are API servers.
    pub fn learn_from(&self, name: &ObjectName, plan: &ServicePlan) {
        let ports = plan.ports.values();
        let leads = ports.filter(|port| port.keep || is_kubernetes(name));
        let backends = leads.flat_map(|port| &port.cluster);
        let endpoints: BTreeSet<SocketAddr> = backends
            .filter(|backend| backend.address.protocol == Protocol::Tcp)
            .map(|backend| SocketAddr::new(backend.address.address, backend.address.port))
            .collect();
        self.learn(endpoints);
    }
}
