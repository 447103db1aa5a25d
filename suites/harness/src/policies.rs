//! The traffic policies of a Service: which of its backends a client must reach, by the frontend that it dials and by
//! where it is.
//!
//! | frontend | client | what counts | under `Local` there are |
//! |---|---|---|---|
//! | cluster IP | a pod, a host | the internal policy | backends of the client's node |
//! | node port of a node | outside, a pod of another node | the external policy | backends of the node dialled |
//! | load balancer's address, routed to a node | outside | the external policy | backends of that node |
//! | load balancer's address | a pod, a host | no policy | all |
//!
//! Implementations may choose what a host gets from a node port under `Local`, and a pod from that of its own node
//! (kubernetes#108526).

use std::collections::BTreeSet;

use cluster::Place;
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

use crate::{client::Client, pods::Backend, probing::identities};

/// One of the two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All backends.
    Cluster,
    /// Those of one node.
    Local,
}

/// Both policies of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// `internalTrafficPolicy`.
    pub internal: Policy,
    /// `externalTrafficPolicy`.
    pub external: Policy,
}

/// A frontend of a Service, and the node to which packets for it come from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Its cluster IP.
    ClusterIp,
    /// Its node port of this node.
    NodePort(String),
    /// An address of its load balancer, routed to this node.
    LoadBalancer(String),
}

impl Policies {
    /// The defaults of the API.
    pub const CLUSTER: Self = Self {
        internal: Policy::Cluster,
        external: Policy::Cluster,
    };
    /// Only the internal one is `Local`.
    pub const INTERNAL: Self = Self {
        internal: Policy::Local,
        ..Self::CLUSTER
    };
    /// Only the external one is `Local`.
    pub const EXTERNAL: Self = Self {
        external: Policy::Local,
        ..Self::CLUSTER
    };

    /// As fields of a Service's `spec`.
    #[must_use]
    pub fn fields(self) -> Value {
        let name = |policy| match policy {
            Policy::Cluster => "Cluster",
            Policy::Local => "Local",
        };
        json!({ "internalTrafficPolicy": name(self.internal), "externalTrafficPolicy": name(self.external) })
    }

    /// What a client may meet at a port of these backends: it reaches exactly those that the policies leave, and where
    /// they leave none it reaches no backend. `None`: implementations may choose.
    #[must_use]
    pub fn permit(
        self,
        at: &At,
        client: &Client,
        backends: &[Backend],
        (transport, port): (Transport, u16),
    ) -> Option<Permitted> {
        let (policy, node) = match (at, &client.place) {
            (At::ClusterIp, Place::Outside) => return None,
            (At::ClusterIp, _) => (self.internal, &client.node),
            (At::NodePort(node) | At::LoadBalancer(node), Place::Outside) => (self.external, node),
            (At::NodePort(node), Place::Pod { .. }) if *node != client.node => (self.external, node),
            (At::NodePort(node), _) if self.external == Policy::Cluster => (Policy::Cluster, node),
            (At::NodePort(_), _) => return None,
            (At::LoadBalancer(node), _) => (Policy::Cluster, node),
        };
        let left = backends
            .iter()
            .filter(|backend| policy == Policy::Cluster || backend.node == *node);
        let left: BTreeSet<String> = identities(left, transport, port);
        Some(if left.is_empty() {
            Permitted::None
        } else {
            Permitted::Serves(left)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(place: Place, node: &str) -> Client {
        Client {
            name: String::new(),
            node: node.to_owned(),
            place,
            private_cgroups: false,
        }
    }

    fn backend(name: &str, node: &str) -> Backend {
        Backend {
            namespace: "p5a01c2-000".to_owned(),
            in_api: format!("p5a01c2-000-{name}"),
            node: node.to_owned(),
            addresses: Vec::new(),
        }
    }

    /// Nodes of the backends that a client must reach, joined; `-`: none; `?`: implementations may choose.
    fn reached(policies: Policies, at: &At, client: &Client) -> String {
        let backends = [backend("b1", "n1"), backend("b2", "n2")];
        match policies.permit(at, client, &backends, (Transport::Tcp, 80)) {
            None => "?".to_owned(),
            Some(Permitted::None) => "-".to_owned(),
            Some(Permitted::Serves(identities)) => {
                let of = |backend: &&Backend| identities.contains(&backend.identity(Transport::Tcp, 80));
                backends.iter().filter(of).map(|backend| &*backend.node).collect()
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_frontend_has_its_policy_and_each_client_its_node() {
        let pod = |node: &str| {
            let (namespace, name) = ("a".to_owned(), "c".to_owned());
            client(Place::Pod { namespace, name }, node)
        };
        let host = |node: &str| {
            let node = node.to_owned();
            client(Place::Host { node: node.clone() }, &node)
        };
        let outside = client(Place::Outside, "");
        let node_port = |node: &str| At::NodePort(node.to_owned());
        let balancer = |node: &str| At::LoadBalancer(node.to_owned());
        // With both policies Cluster, the internal one Local, the external one Local.
        let rows = [
            (At::ClusterIp, pod("n1"), ["n1n2", "n1", "n1n2"]),
            (At::ClusterIp, host("n2"), ["n1n2", "n2", "n1n2"]),
            (At::ClusterIp, pod("n3"), ["n1n2", "-", "n1n2"]),
            (At::ClusterIp, outside.clone(), ["?"; 3]),
            (node_port("n2"), outside.clone(), ["n1n2", "n1n2", "n2"]),
            (node_port("n3"), outside.clone(), ["n1n2", "n1n2", "-"]),
            (node_port("n2"), pod("n1"), ["n1n2", "n1n2", "n2"]),
            (node_port("n3"), pod("n1"), ["n1n2", "n1n2", "-"]),
            (node_port("n2"), pod("n2"), ["n1n2", "n1n2", "?"]),
            (node_port("n2"), host("n1"), ["n1n2", "n1n2", "?"]),
            (balancer("n2"), outside.clone(), ["n1n2", "n1n2", "n2"]),
            (balancer("n3"), outside, ["n1n2", "n1n2", "-"]),
            (balancer("n3"), pod("n3"), ["n1n2"; 3]),
            (balancer("n3"), host("n1"), ["n1n2"; 3]),
        ];
        for (at, client, expected) in rows {
            let found = [Policies::CLUSTER, Policies::INTERNAL, Policies::EXTERNAL]
                .map(|policies| reached(policies, &at, &client));
            assert_eq!(found, expected, "{at:?} from {:?}", client.place);
        }
    }

    #[test]
    fn fields_are_those_of_the_api() {
        let fields = json!({ "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Cluster" });
        assert_eq!(Policies::INTERNAL.fields(), fields);
    }
}
