//! Result of one exchange, in names that are the same in both clusters.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use oracle::{
    check::{is_cut, is_refusal},
    finding,
    history::{Attempt, Outcome as Ended, Stage},
    observations,
};

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A server answered.
    Answered,
    /// Refused by a packet, or by the socket call.
    Refused,
    /// No answer.
    Silent,
    /// An existing connection ended.
    Cut,
    /// The source port was not available.
    NotBound,
    /// Anything else.
    Odd,
}

/// The source address of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The address that the client dialled.
    Dialled,
    /// The address of the server itself.
    Backend,
    /// A third address.
    Other(SocketAddr),
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// How it ended.
    pub outcome: Outcome,
    /// The outcome as text, with the failed system call.
    pub words: String,
    /// The server: `b1:8082`.
    pub by: Option<String>,
    /// The client's address as the server saw it, as a machine's name.
    pub source: Option<String>,
    /// The server's address as the client saw it.
    pub peer: Option<Peer>,
}

/// Names of the addresses and servers of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(crate) addresses: BTreeMap<IpAddr, String>,
    /// Suffix of server names in pods: the namespace, which differs between the clusters.
    pub(crate) namespace: String,
}

impl Names {
    fn address(&self, address: IpAddr) -> String {
        let known = self.addresses.get(&address).cloned();
        known.unwrap_or_else(|| address.to_string())
    }

    /// `b1.NAMESPACE/TCP/8082` is `b1:8082`.
    fn server(&self, identity: &str) -> String {
        let mut parts = identity.split('/');
        let name = parts.next().unwrap_or_default();
        let name = name
            .strip_suffix(&self.namespace)
            .and_then(|name| name.strip_suffix('.'))
            .unwrap_or(name);
        let port = parts.next_back().unwrap_or_default();
        format!("{name}:{port}")
    }

    /// The result of an attempt.
    #[must_use]
    pub fn seen(&self, attempt: &Attempt) -> Observation {
        let mut seen = Observation {
            outcome: Outcome::Answered,
            words: finding::outcome(&attempt.outcome),
            by: None,
            source: None,
            peer: None,
        };
        match &attempt.outcome {
            Ended::Answered { answer, peer } => {
                let by = self.server(&answer.identity);
                seen.words = format!("answered by {by}");
                seen.by = Some(by);
                seen.source = Some(self.address(answer.source.ip()));
                seen.peer = Some(match observations::peer(attempt) {
                    Some(observations::Peer::Frontend) => Peer::Dialled,
                    Some(observations::Peer::Backend) => Peer::Backend,
                    Some(observations::Peer::Other) | None => Peer::Other(*peer),
                });
            }
            Ended::Failed { stage, errno } => {
                let is_taken = ["EADDRINUSE", "EADDRNOTAVAIL"].contains(&errno.as_str());
                seen.outcome = match stage {
                    Stage::Socket => Outcome::NotBound,
                    _ if is_taken => Outcome::NotBound,
                    _ if is_refusal(&attempt.outcome) => Outcome::Refused,
                    _ if is_cut(&attempt.outcome) => Outcome::Cut,
                    // A RST in answer to the first packet of a connection whose tuple was used before.
                    Stage::Handshake if errno == "ECONNRESET" => Outcome::Refused,
                    _ => Outcome::Odd,
                };
            }
            Ended::Timeout { .. } => seen.outcome = Outcome::Silent,
            Ended::Garbled { .. } => {
                seen.outcome = if is_cut(&attempt.outcome) {
                    Outcome::Cut
                } else {
                    Outcome::Odd
                };
            }
        }
        seen
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Silent => "silent",
            Self::Cut => "cut",
            Self::NotBound => "not bound",
            Self::Odd => "odd",
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dialled => f.write_str("the address dialled"),
            Self::Backend => f.write_str("the backend's address"),
            Self::Other(address) => address.fmt(f),
        }
    }
}
