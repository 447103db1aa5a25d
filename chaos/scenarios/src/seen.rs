//! What one exchange showed, in names that both clusters share.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use oracle::{
    check::{is_cut, is_refusal},
    finding,
    history::{Attempt, Outcome as Ended, Stage},
    record,
};

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// By a server.
    Answered,
    /// By packet, or from the socket call.
    Refused,
    /// Nothing came.
    Silent,
    /// A connection that was there ended.
    Cut,
    /// The port was not to be had.
    NotBound,
    /// Anything else.
    Odd,
}

/// As whom a client sees the one that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The address that it sent to.
    Dialled,
    /// The address at which the server was reached.
    Backend,
    /// A third one.
    Other(SocketAddr),
}

/// One exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How it ended.
    pub outcome: Outcome,
    /// The same in the words of the call that failed.
    pub words: String,
    /// Who answered: `b1:8082`.
    pub by: Option<String>,
    /// The client's address as the server saw it: a machine's name.
    pub source: Option<String>,
    /// Whom the client saw.
    pub peer: Option<Peer>,
}

/// Names of the addresses and servers of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(crate) addresses: BTreeMap<IpAddr, String>,
    /// Ends of the names of servers that are no machine's: the namespace, which is another one in each cluster.
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

    /// What an attempt showed.
    #[must_use]
    pub fn seen(&self, attempt: &Attempt) -> Seen {
        let mut seen = Seen {
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
                seen.peer = Some(match record::peer(attempt) {
                    Some(record::Peer::Frontend) => Peer::Dialled,
                    Some(record::Peer::Backend) => Peer::Backend,
                    Some(record::Peer::Other) | None => Peer::Other(*peer),
                });
            }
            Ended::Failed { stage, errno } => {
                let is_taken = ["EADDRINUSE", "EADDRNOTAVAIL"].contains(&errno.as_str());
                seen.outcome = match stage {
                    Stage::Socket => Outcome::NotBound,
                    _ if is_taken => Outcome::NotBound,
                    _ if is_refusal(&attempt.outcome) => Outcome::Refused,
                    _ if is_cut(&attempt.outcome) => Outcome::Cut,
                    // A RST in answer to the first packet of a connection that somebody else has had.
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
