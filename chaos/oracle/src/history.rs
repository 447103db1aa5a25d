//! What clients and backends saw: one JSON line each.
//!
//! The probe writes them, the harness collects them, the checkers read nothing else.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

/// Transport of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// One new connection.
    Tcp,
    /// One new association.
    Sctp,
    /// One new connection over TCP, and HTTP/1.1 on it.
    Http,
    /// One new connection over TCP, and HTTPS on it. The server is no probe server, so the client itself writes down who
    /// answered ([`Answer`]): the names that the certificate is valid for. Nobody's authority is asked.
    Tls,
    /// One datagram from a fresh socket: unconnected, `sendto`/`recvfrom`.
    Udp,
    /// One datagram from a fresh socket after `connect`.
    #[serde(rename = "UDP-CONNECTED")]
    UdpConnected,
}

/// Which call an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// `socket`, `bind`: the client's own trouble.
    Socket,
    /// `connect` itself: nothing was sent, or nothing needs to be.
    Connect,
    /// A TCP `connect` that was under way: what ends it is a packet, or none.
    Handshake,
    /// The handshake of TLS on a connection that is there.
    Tls,
    /// `send`, `sendto`.
    Send,
    /// `recv`, `recvfrom`.
    Receive,
}

/// One attempt of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Microseconds since the Unix epoch, when it began.
    pub start_us: u64,
    /// Microseconds since the Unix epoch, when it ended.
    pub end_us: u64,
    /// Who: the client's name as it was told (`--client`).
    pub client: String,
    /// Label of the plan's entry.
    pub target: String,
    /// Transport.
    pub transport: Transport,
    /// What was dialled.
    pub destination: SocketAddr,
    /// The client's own address, as far as the socket got.
    pub local: Option<SocketAddr>,
    /// Unique for the attempt; in the backend's log if it arrived.
    pub nonce: String,
    /// Of an exchange on an established flow: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// Of a round that is watched: the fragments that were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
    /// What came of it.
    pub outcome: Outcome,
}

/// One exchange on an established flow: a request that goes out on a socket that has been used before, and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Exchange {
    /// Number of the flow in its entry, from 0.
    pub flow: u32,
    /// Number of the socket in its flow, from 0: each that fails is followed by another.
    pub socket: u32,
    /// Number of the exchange in its flow, from 0, without gaps: one that is missing was not written down.
    pub sequence: u32,
}

/// Fragments of one exchange at the client's own devices: what has left its stack, and what has not entered it yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragments {
    /// Offsets of the request's fragments in their datagram, in bytes, in the order in which they went out.
    pub sent: Vec<u16>,
    /// Their destinations.
    pub to: BTreeSet<IpAddr>,
    /// How many fragments of answers came in.
    pub received: usize,
    /// Their sources.
    pub from: BTreeSet<IpAddr>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Outcome {
    /// A backend answered.
    Answered {
        /// The backend's answer.
        answer: Answer,
        /// TCP and connected UDP: `getpeername`; UDP: where the reply came from.
        peer: SocketAddr,
    },
    /// A call failed.
    Failed {
        /// Which.
        stage: Stage,
        /// Its symbol, such as ECONNREFUSED.
        errno: String,
    },
    /// Nothing within the limit.
    Timeout {
        /// Waiting in which call.
        stage: Stage,
    },
    /// Something answered that is no probe server.
    Garbled {
        /// The beginning of what it said.
        said: String,
    },
}

/// What a backend answers, and writes to its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// Who: the server's name as it was told, a slash, the transport, a slash, the listening port:
    /// `b1/TCP/8080`. Per backend *and* port, so that misdelivery shows. With TLS, the DNS names of the certificate in
    /// their order, with commas, in the place of the name, and the port that was dialled.
    pub identity: String,
    /// The client's address as the backend saw it.
    pub source: SocketAddr,
    /// The destination as the backend saw it.
    pub destination: SocketAddr,
    /// The attempt's nonce.
    pub nonce: String,
    /// The pod that it runs in, if it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodIdentity>>,
}

/// Who a pod is, from its start to its end. What it was not told is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Its uid: no later pod of its name has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The node's zone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
}

/// One line of a backend's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Microseconds since the Unix epoch.
    pub time_us: u64,
    /// What it answered.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What a client does: entries run side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name for [`Attempt::client`].
    pub client: String,
    /// What to dial.
    pub entries: Vec<PlanEntry>,
}

/// Of all entries of a client, attempts that begin while answers are late and are under way at once. More would wait in the same
/// queue, until the first of them are silent for their client.
pub const WHILE_LATE: usize = 16;

/// One destination and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    /// Label for [`Attempt::target`].
    pub target: String,
    /// Transport.
    pub transport: Transport,
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// How many attempts at most, of each flow if there are flows; at least 1.
    pub count: u32,
    /// From the beginning of one attempt to that of the next, in milliseconds; 0: each when the last has ended.
    pub interval_ms: u64,
    /// Limit of one attempt in milliseconds.
    pub limit_ms: u64,
    /// End early with the first attempt that is answered by this identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Instead of a fresh socket for each attempt, so many sockets that live as long as the entry: each attempt is an
    /// [`Exchange`] on one of them, and each of them makes `count` of them, one every `interval_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// The first and the last port to dial from, in turn by attempt, or by flow; otherwise the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<[u16; 2]>,
    /// So many attempts are under way at most, at least 1; the next begins late when one ends. Otherwise the client's own
    /// bound holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
}

impl PlanEntry {
    /// The port that an attempt or a flow of this number dials from; 0: the kernel chooses.
    #[must_use]
    pub fn source_port(&self, number: u32) -> u16 {
        let Some([first, last]) = self.source_ports else {
            return 0;
        };
        let count = u32::from(last.saturating_sub(first)) + 1;
        // Less than the number of ports.
        first + u16::try_from(number % count).unwrap_or_default()
    }
}

/// What a client that keeps its sockets is told, again and again: one exchange on each of them, and then the next.
///
/// Sockets of each transport and address family are kept by themselves. What an exchange shows is an [`Attempt`]; its
/// [`Exchange`] has the number of the socket as `flow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Label for [`Attempt::target`].
    pub target: String,
    /// [`Transport::Udp`]; [`Transport::UdpConnected`]: then each is connected anew, as it is, to this destination; or
    /// [`Transport::Tcp`]: a connection that is there goes on, wherever it leads, and one that has failed stays so.
    pub transport: Transport,
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// On so many of them, the oldest; those that are missing are opened. At least 1.
    pub sockets: u32,
    /// All of these are closed first, and others are opened at their ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Sockets that are there are led nowhere: one that is connected is not connected anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stay: bool,
    /// Sockets that this round opens are bound to this port, whichever others had; 0: the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Each request is a datagram in so many fragments, which go out in this order; 0 is the first part. Of
    /// [`Transport::Udp`] alone. Empty: the kernel sends it, as it sends all datagrams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<u8>,
    /// Request and answer are datagrams of so many bytes, all of which the other side checks. Of UDP alone. 0: they are as
    /// long as what they say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u16,
    /// Fragments at the client's devices are watched, see [`Attempt::fragments`]. Of UDP alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// Limit of one exchange in milliseconds.
    pub limit_ms: u64,
}

fn is_zero(bytes: &u16) -> bool {
    *bytes == 0
}

impl Round {
    /// Exchanges of a round that are under way at once: fewer than a server's receive buffer holds.
    pub const AT_ONCE: u32 = 64;
}

/// When a plan's entry may end early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// Answered by exactly this identity.
    Identity(String),
    /// Refused: ECONNREFUSED, EHOSTUNREACH, ENETUNREACH or EPERM from any call.
    Refused,
}
