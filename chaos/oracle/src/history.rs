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
    /// One new connection over TCP, and HTTPS on it. The server is no probe server, so the client itself fills in the
    /// [`Answer`]: its identity is the names in the certificate, which is not verified.
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
    /// `socket`, `bind`: an error of the client itself.
    Socket,
    /// `connect` itself, before any packet or without one.
    Connect,
    /// A TCP `connect` under way: a packet ends it, or the lack of one.
    Handshake,
    /// The TLS handshake on an open connection.
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
    /// Name of the client (`--client`).
    pub client: String,
    /// Label of the plan's entry.
    pub target: String,
    /// Transport.
    pub transport: Transport,
    /// What was dialled.
    pub destination: SocketAddr,
    /// The client's own address, if the socket got one.
    pub local: Option<SocketAddr>,
    /// Unique for the attempt; in the backend's log if it arrived.
    pub nonce: String,
    /// Which exchange of an established flow it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// The fragments that a watched round has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<Fragments>,
    /// How it ended.
    pub outcome: Outcome,
}

/// One exchange on an established flow: a request that goes out on a socket that has been used before, and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Exchange {
    /// Number of the flow in its entry, from 0.
    pub flow: u32,
    /// Number of the socket in its flow, from 0: each that fails is followed by another.
    pub socket: u32,
    /// Number of the exchange in its flow, from 0, without gaps: a missing one was not recorded.
    pub sequence: u32,
}

/// Fragments of one exchange on the client's devices: after they left its IP stack, and before they enter it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragments {
    /// Offsets of the request's fragments in their datagram, in bytes, in the order in which they were sent.
    pub sent: Vec<u16>,
    /// Their destinations.
    pub to: BTreeSet<IpAddr>,
    /// How many fragments of answers arrived.
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
    /// The answer is not a probe server's.
    Garbled {
        /// The beginning of the answer.
        said: String,
    },
}

/// What a backend answers, and writes to its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// `NAME/TRANSPORT/PORT`, such as `b1/TCP/8080`: per backend *and* listening port, so that misdelivery shows. With
    /// TLS, the DNS names of the certificate, joined by commas, take the place of the name, and the port is the dialled
    /// one.
    pub identity: String,
    /// The client's address as the backend saw it.
    pub source: SocketAddr,
    /// The destination as the backend saw it.
    pub destination: SocketAddr,
    /// The attempt's nonce.
    pub nonce: String,
    /// The pod that it runs in, if its command line names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodIdentity>>,
}

/// Identity of a pod. Fields that its command line does not set are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Its uid, which a later pod of the same name does not have.
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
    /// Its answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What a client does: its entries run concurrently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name for [`Attempt::client`].
    pub client: String,
    /// What to dial.
    pub entries: Vec<PlanEntry>,
}

/// How many attempts of a client may be under way while answers are late. More would wait in the same queue until the
/// first of them time out.
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
    /// Largest number of attempts, for each flow if there are flows; at least 1.
    pub count: u32,
    /// From the start of one attempt to that of the next, in milliseconds; 0: each starts when the last has ended.
    pub interval_ms: u64,
    /// Limit of one attempt in milliseconds.
    pub limit_ms: u64,
    /// End early with the first attempt that is answered by this identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Number of sockets that live as long as the entry, in place of a fresh one for each attempt. Each makes `count`
    /// exchanges ([`Exchange`]), one every `interval_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// First and last source port; attempts, or flows, take them in turn. Otherwise the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<[u16; 2]>,
    /// Largest number of attempts under way, at least 1; the next starts late, when one ends. Otherwise the client's
    /// own limit holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// Requests ask for no answer: the server only logs them, and each ends with the limit. Only with flows of
    /// [`Transport::Udp`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
}

impl PlanEntry {
    /// Source port of the attempt or flow with this number; 0: the kernel chooses.
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

/// A command to a client that keeps its sockets: one exchange on each of them.
///
/// Each transport and address family has sockets of its own. The result of an exchange is an [`Attempt`], whose
/// [`Exchange`] has the number of the socket as `flow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Label for [`Attempt::target`].
    pub target: String,
    /// [`Transport::Udp`]; [`Transport::UdpConnected`], which connects each socket again, to this destination; or
    /// [`Transport::Tcp`], which keeps open connections, whatever their destination, and does not replace failed ones.
    pub transport: Transport,
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Number of sockets, at least 1: the oldest ones, and new ones if there are too few.
    pub sockets: u32,
    /// Closes them first, and opens others on the same ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// Does not connect open sockets again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stay: bool,
    /// Source port of the sockets that this round opens, whatever the ports of former ones; 0: the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Order in which the fragments of each request are sent; 0 is the first part. Only with [`Transport::Udp`]. Empty:
    /// the kernel fragments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<u8>,
    /// Size of request and answer in bytes, all of which the receiver checks. Only with UDP. 0: as long as their text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u16,
    /// Records the fragments on the client's devices, see [`Attempt::fragments`]. Only with UDP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// Limit of one exchange in milliseconds.
    pub limit_ms: u64,
}

fn is_zero(bytes: &u16) -> bool {
    *bytes == 0
}

impl Round {
    /// Exchanges of a round that are under way together: fewer than a server's receive buffer holds.
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
