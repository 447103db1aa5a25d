//! Steps as data: what is written, and what clients do. They name machines and Services, never an address that a cluster gives.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// Steps, and the seed that they came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The generator's seed. What is chosen while the steps are played (a backend, a fragment's number) is not by it.
    pub seed: u64,
    /// In their order.
    pub steps: Vec<Step>,
}

/// One step, played in both clusters at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Services are written one after the other, with nothing in between. Then all open sockets go on.
    Write(Vec<Change>),
    /// Fresh sockets.
    Dial(Dial),
    /// A socket that is kept, with its first exchange.
    Open(Open),
    /// Another exchange of a kept socket. One of UDP may be led elsewhere by it.
    Send(Send),
    /// A kept socket ends.
    Close {
        /// Which.
        socket: u8,
    },
    /// A server of a node's own begins to listen at the node's address, TCP and UDP.
    Serve {
        /// 1 or 2.
        node: u8,
        /// At which port.
        port: u16,
    },
    /// It ends.
    EndServing {
        /// 1 or 2.
        node: u8,
        /// Its port.
        port: u16,
    },
}

/// What a Service is from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Number of the Service.
    pub service: u8,
    /// None: it is deleted.
    pub to: Option<Service>,
}

/// Of which type a Service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A cluster IP alone, and external IPs where it has any.
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
    /// Its type.
    pub kind: Kind,
    /// Its port at all addresses but those of nodes.
    pub port: u16,
    /// The same for both protocols.
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
    /// What its slice lists.
    pub endpoints: BTreeMap<Backend, Condition>,
}

/// What a slice says of an endpoint.
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
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::B1, Self::B2, Self::B3];

    /// The number of its node.
    #[must_use]
    pub fn node(self) -> u8 {
        match self {
            Self::B1 | Self::B3 => 1,
            Self::B2 => 2,
        }
    }

    /// Its pod.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::B1 => "b1",
            Self::B2 => "b2",
            Self::B3 => "b3",
        }
    }
}

/// An address of a machine, or one that is led to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Address {
    /// Node 1's own.
    Node1,
    /// Node 2's own.
    Node2,
    /// That of the client outside.
    Outside,
    /// No machine's; the network leads it to node 1.
    Routed1,
    /// No machine's; the network leads it to node 2.
    Routed2,
}

impl Address {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Node1,
        Self::Node2,
        Self::Outside,
        Self::Routed1,
        Self::Routed2,
    ];

    /// A machine has it, which answers at ports that are no Service's.
    #[must_use]
    pub fn is_machine(self) -> bool {
        matches!(self, Self::Node1 | Self::Node2 | Self::Outside)
    }

    /// The address of a node by its number.
    #[must_use]
    pub fn of_node(node: u8) -> Self {
        if node == 1 { Self::Node1 } else { Self::Node2 }
    }

    /// The node that meets its packets: whose it is, or to which it is led.
    #[must_use]
    pub fn node(self) -> Option<u8> {
        match self {
            Self::Node1 | Self::Routed1 => Some(1),
            Self::Node2 | Self::Routed2 => Some(2),
            Self::Outside => None,
        }
    }
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vantage {
    /// A pod that is no backend, on node 1.
    Pod1,
    /// The same on node 2.
    Pod2,
    /// In the pod of a backend: it may meet itself.
    B1,
    /// The same on node 2.
    B2,
    /// A process of node 1 itself.
    Host1,
    /// A process of node 2 itself.
    Host2,
    /// Outside the cluster.
    Outside,
}

impl Vantage {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pod1,
        Self::Pod2,
        Self::B1,
        Self::B2,
        Self::Host1,
        Self::Host2,
        Self::Outside,
    ];

    /// The number of its node.
    #[must_use]
    pub fn node(self) -> Option<u8> {
        match self {
            Self::Pod1 | Self::B1 | Self::Host1 => Some(1),
            Self::Pod2 | Self::B2 | Self::Host2 => Some(2),
            Self::Outside => None,
        }
    }

    /// It is a process of a node itself.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host1 | Self::Host2)
    }

    /// It is in a pod.
    #[must_use]
    pub fn is_pod(self) -> bool {
        !self.is_host() && self != Self::Outside
    }

    /// The backend in whose pod it is.
    #[must_use]
    pub fn backend(self) -> Option<Backend> {
        match self {
            Self::B1 => Some(Backend::B1),
            Self::B2 => Some(Backend::B2),
            _ => None,
        }
    }

    /// Its name in words and files.
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

/// What is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// The cluster IP of a Service, at its port.
    ClusterIp {
        /// Its number.
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

/// How a socket speaks.
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
    /// Of one socket: where it is bound. Otherwise there are several, and the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The request goes out in so many fragments, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<u8>,
}

/// A socket that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Its number.
    pub socket: u8,
    /// The client.
    pub from: Vantage,
    /// How it speaks.
    pub protocol: Protocol,
    /// Its first destination.
    pub to: To,
    /// Where it is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
}

/// An exchange of a kept socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Which.
    pub socket: u8,
    /// Where it is led; a connection stays where it leads.
    pub to: To,
    /// The request goes out in so many fragments, in this order.
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
