//! The API servers of a cluster as a case sees them, and the faults that it can inject.

use std::{fmt, net::SocketAddr};

pub use lab_apiserver::faults::{Clients, Fault, LONGEST, Refusal};
use serde::{Deserialize, Serialize};

use super::Stop;

/// One API server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiServer {
    /// Number of the server, from 1.
    pub number: u8,
    /// Listen address, as nodes reach it.
    pub address: SocketAddr,
    /// Whether the server runs.
    pub running: bool,
}

/// The API endpoint that an agent is configured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    /// The server in the agent's kubeconfig.
    pub server: SocketAddr,
    /// Further addresses that the agent may try, configured as its target documents ([`ApiEndpoints::further`]).
    pub further: Vec<SocketAddr>,
}

/// Which API endpoints a target documents, and which its agents are configured with at their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoints {
    /// The kubeconfig may name an address of a Service that the target serves itself.
    pub service: bool,
    /// Further addresses beside the configured one are supported.
    pub further: bool,
    /// From the start, agents know only the address that all API servers share.
    #[serde(default)]
    pub shared: bool,
}

/// The DNS name that only the certificate of this API server is valid for.
#[must_use]
pub fn api_server_name(number: u8) -> String {
    format!("apiserver-{number}")
}

/// A fault of the API servers, which lasts for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiFault {
    /// One server is stopped; the end of the fault starts it again. `default/kubernetes` follows as the lease
    /// reconciler of kube-apiserver writes it: at once with [`Stop::Term`], when the server's lease has expired with
    /// [`Stop::Kill`].
    Down {
        /// Number of the server.
        server: u8,
        /// How the server is stopped.
        how: Stop,
    },
    /// Responses are wrong, late or refused.
    Answers {
        /// Number of the faulty server; `None`: all servers.
        server: Option<u8>,
        /// Whose requests are affected. User names are in [`users`].
        clients: Clients,
        /// What is wrong with the responses.
        fault: Fault,
    },
    /// All servers advertise the address of a load balancer in front of them. `default/kubernetes` then has a single
    /// endpoint, which each server that stops removes for all. Beginning and ending this fault restart the servers.
    SharedAddress,
    /// No server writes `default/kubernetes` (as with `--endpoint-reconciler-type=none`), so only the case changes
    /// it. The end of the fault restores the correct contents, whatever the case has left there.
    Unreconciled,
}

/// User names of a cluster, for [`Clients::User`].
pub mod users {
    /// Users of the administrator's kubeconfig, the harness among them. No fault affects them: in the lab they use a
    /// server of their own that never stops, on kind their certificate identifies them.
    pub const ADMIN: &str = "admin";
    /// The outside client.
    pub const OUTSIDE: &str = "outside";
    /// The controllers for EndpointSlices, load balancers and scheduling.
    pub const CONTROLLERS: &str = "system:kube-controller-manager";

    /// The agent of a node, and processes that cases start on it. On kind these are pods of the node, by the node in
    /// their bound tokens; the kubelet and users of its certificate are not included.
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
