//! What a case can see of the API servers, and what it can do to them.

use std::{fmt, net::SocketAddr};

pub use lab_apiserver::faults::{Clients, Fault, LONGEST, Refusal};
use serde::{Deserialize, Serialize};

use super::Stop;

/// One API server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiServer {
    /// Its number, from 1.
    pub number: u8,
    /// Where it listens, as nodes see it.
    pub address: SocketAddr,
    /// Whether it runs.
    pub running: bool,
}

/// How an agent is told to reach the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    /// What its configuration names as the server.
    pub server: SocketAddr,
    /// Further addresses that it may try, in the way that its target documents ([`ApiEndpoints::further`]).
    pub further: Vec<SocketAddr>,
}

/// ApiEndpoints to the API: those that a target documents, and how its agents were told to reach it at their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoints {
    /// An address of a Service that it serves itself.
    pub service: bool,
    /// Further addresses beside the configured one.
    pub further: bool,
    /// All agents know no other address than the one that the API servers share, from the start.
    #[serde(default)]
    pub shared: bool,
}

/// The name that only the certificate of the API server of this number is valid for.
#[must_use]
pub fn api_server_name(number: u8) -> String {
    format!("apiserver-{number}")
}

/// Something that is wrong with API servers for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiFault {
    /// One does not run; the end of the fault starts it again. `default/kubernetes` follows as upstream's lease
    /// reconciler writes it: at once with [`Stop::Term`], when the lease has run out with [`Stop::Kill`].
    Down {
        /// Its number.
        server: u8,
        /// How it ends.
        how: Stop,
    },
    /// What they answer goes wrong.
    Answers {
        /// The number of the one that does; `None`: all.
        server: Option<u8>,
        /// Whom it meets. Users are named in [`users`].
        clients: Clients,
        /// What goes wrong.
        fault: Fault,
    },
    /// All advertise the address of a load balancer in front of them, so that `default/kubernetes` has one endpoint, which
    /// whoever stops takes away from all. They are started again with it, and at the end with their own.
    SharedAddress,
    /// None of them writes `default/kubernetes` (as with `--endpoint-reconciler-type=none`), so that a case is alone with it.
    /// The end of the fault writes what is true, whatever the case has left there.
    Unreconciled,
}

/// Names of the users of a cluster, for [`Clients::User`].
pub mod users {
    /// Users of the administrator's kubeconfig, the harness among them. No fault meets them: in the embedded lab they ask a
    /// server of their own, which never stops, and on kind they are known by their certificate.
    pub const ADMIN: &str = "admin";
    /// The outside client.
    pub const OUTSIDE: &str = "outside";
    /// The controllers for EndpointSlices, load balancers and scheduling.
    pub const CONTROLLERS: &str = "system:kube-controller-manager";

    /// The agent of a node, and processes that somebody starts on it. On kind: pods of the node, by the node that their
    /// tokens are bound to; not its kubelet, nor who has that one's certificate.
    #[must_use]
    pub fn node(name: &str) -> String {
        format!("system:node:{name}")
    }
}

impl fmt::Display for ApiFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedAddress => formatter.write_str("all API servers advertise one address"),
            Self::Unreconciled => formatter.write_str("no API server reconciles default/kubernetes"),
            Self::Down { server, how } => {
                let how = match how {
                    Stop::Term => "stopped",
                    Stop::Kill => "killed",
                };
                write!(formatter, "API server {server} is {how}")
            }
            Self::Answers {
                server,
                clients,
                fault,
            } => {
                match server {
                    Some(number) => write!(formatter, "API server {number}")?,
                    None => formatter.write_str("every API server")?,
                }
                formatter.write_str(match fault {
                    Fault::CutWatches { .. } => " breaks watches",
                    Fault::DelayEvents { .. } => " delays events",
                    Fault::DropEvents => " drops events",
                    Fault::Expire => " says 410 Gone",
                    Fault::Lag => " shows an old state",
                    Fault::Refuse { .. } => " refuses",
                    Fault::SlowBodies { .. } => " answers slowly",
                    Fault::TruncateBodies { .. } => " breaks answers off",
                })?;
                match fault {
                    Fault::CutWatches { after } => write!(formatter, " after {after:?}")?,
                    Fault::DelayEvents { by } => write!(formatter, " by {by:?}")?,
                    Fault::DropEvents | Fault::Expire | Fault::Lag => {}
                    Fault::Refuse { refusal, retry_after } => {
                        write!(formatter, " with {}", refusal.code())?;
                        if let Some(seconds) = retry_after {
                            write!(formatter, ", to be asked again after {seconds} s")?;
                        }
                    }
                    Fault::SlowBodies { bytes_per_second } => {
                        write!(formatter, ", {bytes_per_second} bytes a second")?;
                    }
                    Fault::TruncateBodies { after } => write!(formatter, " after {after} bytes")?,
                }
                match clients {
                    Clients::All => Ok(()),
                    Clients::User(user) => write!(formatter, ", for {user}"),
                    Clients::Source(source) => write!(formatter, ", for {source}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fault_is_said_in_words() {
        let answers = |server, clients, fault| ApiFault::Answers {
            server,
            clients,
            fault,
        };
        let refuse = Fault::Refuse {
            refusal: Refusal::TooManyRequests,
            retry_after: Some(2),
        };
        let cut = Fault::CutWatches {
            after: Duration::from_millis(1500),
        };
        let rows = [
            (
                ApiFault::Down {
                    server: 2,
                    how: Stop::Kill,
                },
                "API server 2 is killed",
            ),
            (
                answers(None, Clients::All, Fault::DropEvents),
                "every API server drops events",
            ),
            (
                answers(Some(1), Clients::User(users::node("node1")), refuse),
                "API server 1 refuses with 429, to be asked again after 2 s, for system:node:node1",
            ),
            (
                answers(None, Clients::Source([10, 0, 0, 1].into()), cut),
                "every API server breaks watches after 1.5s, for 10.0.0.1",
            ),
        ];
        for (fault, expected) in rows {
            assert_eq!(fault.to_string(), expected);
        }
    }
}
