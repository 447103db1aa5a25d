//! Steps as data: writes, and actions of clients. They name machines and Services, never addresses that a cluster
//! assigns.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::chaos::schedule::Action;

/// Steps, and the seed from which they were generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The generator's seed. It does not decide choices during the play, such as a backend or a fragment's id.
    pub seed: u64,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// One step, played in both clusters at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Writes Services in turn, with nothing in between. Then all open sockets send again.
    Write(Vec<Change>),
    /// Exchanges of fresh sockets.
    Dial(Dial),
    /// Opens a kept socket, with its first exchange.
    Open(Open),
    /// Another exchange of a kept socket; a UDP socket may change its destination.
    Send(Send),
    /// Closes a kept socket.
    Close {
        /// Number of the socket.
        socket: u8,
    },
    /// A node's own server begins to listen at the node's address, TCP and UDP.
    Serve {
        /// 1 or 2.
        node: u8,
        /// Its port.
        port: u16,
    },
    /// The server ends.
    EndServing {
        /// 1 or 2.
        node: u8,
        /// Its port.
        port: u16,
    },
    /// A part of a schedule of chaos, whose times count from its beginning: writes of its Services and slices, with nothing in between
    /// except those times, and faults. Once all faults are healed, all open sockets send again.
    Chaos(Vec<Action>),
}

/// The new state of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Number of the Service.
    pub service: u8,
    /// The state; `None`: it is deleted.
    pub to: Option<Service>,
}

/// Type of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A cluster IP alone, and external IPs if it has any.
    ClusterIP,
    /// Node ports.
    NodePort,
    /// Addresses in its status.
    LoadBalancer,
}

/// A Service and its EndpointSlice. It has one port, for TCP and for UDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Type of the Service.
    pub kind: Kind,
    /// Port at all addresses except nodes' own.
    pub port: u16,
    /// Node port, for both protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
    /// `spec.externalIPs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_ips: Vec<Address>,
    /// `status.loadBalancer.ingress`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer: Vec<Address>,
    /// `externalTrafficPolicy: Local`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub external_local: bool,
    /// `internalTrafficPolicy: Local`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal_local: bool,
    /// `sessionAffinity: ClientIP`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub affinity: bool,
    /// Endpoints in the EndpointSlice.
    pub endpoints: BTreeMap<Backend, Condition>,
}

/// Conditions of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Ready and serving.
    Ready,
    /// Neither.
    Unready,
    /// Terminating, and serving.
    Terminating,
}

/// A pod that serves every Service's port, each under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// On node 1.
    B1,
    /// On node 2.
    B2,
    /// On node 1.
    B3,
    /// On node 2.
    B4,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 4] = [Self::B1, Self::B2, Self::B3, Self::B4];

    /// Number of the backend's node.
    #[must_use]
    pub fn node(self) -> u8 {
        match self {
            Self::B1 | Self::B3 => 1,
            Self::B2 | Self::B4 => 2,
        }
    }

    /// Vantage in the backend's pod.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::B1 => "b1",
            Self::B2 => "b2",
            Self::B3 => "b3",
            Self::B4 => "b4",
        }
    }
}

/// An address of a machine, or one that is routed to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Address {
    /// Node 1's own.
    Node1,
    /// Node 2's own.
    Node2,
    /// The outside client's.
    Outside,
    /// No machine's; the network routes it to node 1.
    Routed1,
    /// No machine's; the network routes it to node 2.
    Routed2,
}

impl Address {
    /// All addresses.
    pub const ALL: [Self; 5] = [
        Self::Node1,
        Self::Node2,
        Self::Outside,
        Self::Routed1,
        Self::Routed2,
    ];

    /// Whether a machine has the address, and answers at ports without a Service.
    #[must_use]
    pub fn is_machine(self) -> bool {
        matches!(self, Self::Node1 | Self::Node2 | Self::Outside)
    }

    /// The address of a node by its number.
    #[must_use]
    pub fn of_node(node: u8) -> Self {
        if node == 1 { Self::Node1 } else { Self::Node2 }
    }

    /// The node that gets the packets: the owner, or the one that the address is routed to.
    #[must_use]
    pub fn node(self) -> Option<u8> {
        match self {
            Self::Node1 | Self::Routed1 => Some(1),
            Self::Node2 | Self::Routed2 => Some(2),
            Self::Outside => None,
        }
    }
}

/// Location of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vantage {
    /// A pod that is no backend, on node 1.
    Pod1,
    /// A pod that is no backend, on node 2.
    Pod2,
    /// In the pod of a backend on node 1, which may reach itself.
    B1,
    /// In the pod of a backend on node 2.
    B2,
    /// A process of node 1 itself.
    Host1,
    /// A process of node 2 itself.
    Host2,
    /// Outside the cluster.
    Outside,
}

impl Vantage {
    /// All vantages.
    pub const ALL: [Self; 7] = [
        Self::Pod1,
        Self::Pod2,
        Self::B1,
        Self::B2,
        Self::Host1,
        Self::Host2,
        Self::Outside,
    ];

    /// Number of the client's node.
    #[must_use]
    pub fn node(self) -> Option<u8> {
        match self {
            Self::Pod1 | Self::B1 | Self::Host1 => Some(1),
            Self::Pod2 | Self::B2 | Self::Host2 => Some(2),
            Self::Outside => None,
        }
    }

    /// Whether the client is a process of a node itself.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host1 | Self::Host2)
    }

    /// Whether the client is in a pod.
    #[must_use]
    pub fn is_pod(self) -> bool {
        !self.is_host() && self != Self::Outside
    }

    /// The backend in whose pod the client is.
    #[must_use]
    pub fn backend(self) -> Option<Backend> {
        match self {
            Self::B1 => Some(Backend::B1),
            Self::B2 => Some(Backend::B2),
            _ => None,
        }
    }

    /// Name in text and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod1 => "pod1",
            Self::Pod2 => "pod2",
            Self::B1 => "b1",
            Self::B2 => "b2",
            Self::Host1 => "host1",
            Self::Host2 => "host2",
            Self::Outside => "outside",
        }
    }
}

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// The cluster IP of a Service, at its port.
    ClusterIp {
        /// Number of the Service.
        service: u8,
    },
    /// A port of an address.
    At {
        /// The address.
        address: Address,
        /// The port.
        port: u16,
    },
    /// A port of 127.0.0.1.
    Loopback {
        /// The port.
        port: u16,
    },
}

/// Kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// `sendto` and `recvfrom`.
    Udp,
    /// `connect`, `send` and `recv`.
    UdpConnected,
}

/// Exchanges of fresh sockets, one of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dial {
    /// The client.
    pub from: Vantage,
    /// Its sockets.
    pub protocol: Protocol,
    /// The destination.
    pub to: To,
    /// Source port, for one socket. Otherwise there are several, and the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The fragments of the request, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<u8>,
}

/// A kept socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Number of the socket.
    pub socket: u8,
    /// The client.
    pub from: Vantage,
    /// Kind of the socket.
    pub protocol: Protocol,
    /// Its first destination.
    pub to: To,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
}

/// An exchange of a kept socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Number of the socket.
    pub socket: u8,
    /// The destination; a connection keeps its own.
    pub to: To,
    /// The fragments of the request, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<u8>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node1 => "node1",
            Self::Node2 => "node2",
            Self::Outside => "outside",
            Self::Routed1 => "routed1",
            Self::Routed2 => "routed2",
        })
    }
}
