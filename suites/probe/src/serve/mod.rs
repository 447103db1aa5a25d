//! The server: answers with its identity on every configured port: `tcp` (and SCTP), `udp`. `mode`: right and
//! faulty behaviours; `log`: each request, before its answer.

mod log;
mod mode;
mod tcp;
mod udp;

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use oracle::history::{Answer, PodIdentity};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use log::Log;
pub use mode::Mode;

use crate::stream::Protocol;

/// Concurrent connections over all ports; more wait in the listeners' backlogs.
pub const CONNECTIONS: usize = 1024;
/// Datagrams that a slow server has received and not answered yet; more are lost.
pub const DELAYED: usize = 4096;
/// Time limit from a connection's acceptance to its request; a slower one is closed. Longer than a client waits on a
/// slow machine: otherwise an early close would look like a missing answer.
pub const CONNECTION_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// Time limit between requests on a connection that is kept; longer than the faults that flows should survive.
pub const KEEP_LIMIT: std::time::Duration = std::time::Duration::from_secs(180);
/// Bytes of log that one process writes. A server that cannot log must not answer, so it ends here.
pub const LOG_LIMIT: u64 = 256 << 20;
/// Start of the line on stderr when every port is bound and the server is ready.
pub const READY: &str = "ready: ";
/// Start of the line when every port is bound and served, but the server is not ready: it was started so, or it is
/// ending.
pub const NOT_READY: &str = "not ready: ";

/// Identity and ports of a server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// First part of its identities.
    pub name: String,
    /// Addresses of its sockets, each on every port. `::` accepts IPv4 too, unless there is an IPv4 address beside it.
    pub addresses: Vec<IpAddr>,
    /// TCP ports; 0 is one that the kernel chooses.
    pub tcp: Vec<u16>,
    /// UDP ports; 0 is one that the kernel chooses.
    pub udp: Vec<u16>,
    /// SCTP ports, where the kernel has it; 0 is one that the kernel chooses.
    pub sctp: Vec<u16>,
    /// The pod that it runs in, for its answers.
    pub pod: Option<PodIdentity>,
    /// Its behaviour.
    pub mode: Mode,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nothing to serve.
    #[error("no port to serve on; expected at least one --tcp PORT, --udp PORT or --sctp PORT")]
    NoPorts,
    /// A port cannot be bound.
    #[error("failed to listen on {address}/{transport}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `TCP`, `UDP` or `SCTP`.
        transport: &'static str,
        /// The error.
        error: io::Error,
    },
    /// The kernel has no SCTP, which is configured.
    #[error(
        "failed to serve SCTP: this kernel does not have it; expected the module sctp (`modprobe sctp`), or no --sctp"
    )]
    NoSctp,
    /// The log cannot be written.
    #[error("failed to write the log, and a backend that can't log must not answer: {0}")]
    Log(io::Error),
    /// [`LOG_LIMIT`].
    #[error(
        "the log has reached its limit of {LOG_LIMIT} bytes, and a backend that can't log must not answer"
    )]
    LogFull,
}

/// A server with all its ports bound.
#[derive(Debug)]
pub struct Server {
    /// The sockets of each port, one for each address.
    tcp: Vec<Vec<tcp::Port>>,
    sctp: Vec<Vec<tcp::Port>>,
    udp: Vec<Vec<udp::Port>>,
    shared: Arc<Shared>,
}

/// State that all ports of a server share.
#[derive(Debug)]
struct Shared {
    name: String,
    pod: Option<PodIdentity>,
    mode: Mode,
    log: Log,
    stop: CancellationToken,
    connections: Arc<tokio::sync::Semaphore>,
    /// Datagrams that a slow server answers later.
    delayed: Arc<tokio::sync::Semaphore>,
    is_ready: AtomicBool,
}

impl Shared {
    /// Logs the answer to a request, then returns it; `None` if it cannot be logged.
    fn answer(
        &self,
        transport: &str,
        port: u16,
        source: SocketAddr,
        destination: SocketAddr,
        nonce: String,
    ) -> Option<Answer> {
        let identity = format!("{}/{transport}/{port}", self.name);
        let answer = Answer {
            identity,
            source: canonical(source),
            destination: canonical(destination),
            nonce,
            pod: self.pod.clone().map(Box::new),
        };
        if self.log.served(&answer) {
            Some(answer)
        } else {
            self.stop.cancel();
            None
        }
    }
}

/// The IPv4 address of an IPv4-mapped one, as dual-stack sockets show it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Server {
    /// Binds every port; [`Served`](oracle::history::Served) lines will go to `log`.
    ///
    /// # Errors
    /// [`ServeError::NoPorts`]; [`ServeError::Listen`] for the first port that cannot be bound.
    pub fn bind(config: &ServeConfig, log: impl Write + Send + 'static) -> Result<Self, ServeError> {
        if config.tcp.is_empty() && config.udp.is_empty() && config.sctp.is_empty() {
            return Err(ServeError::NoPorts);
        }
        let streams = |ports: &[u16], protocol: Protocol| {
            let bind = |address, only_ipv6| tcp::Port::bind(protocol, address, only_ipv6);
            bind_all(config, ports, protocol.name(), bind, tcp::Port::number)
        };
        let tcp = streams(&config.tcp, Protocol::Tcp)?;
        let sctp = streams(&config.sctp, Protocol::Sctp).map_err(|error| match error {
            ServeError::Listen { error, .. } if error.raw_os_error() == Some(nix::libc::EPROTONOSUPPORT) => {
                ServeError::NoSctp
            }
            other => other,
        })?;
        let udp = bind_all(config, &config.udp, "UDP", udp::Port::bind, udp::Port::number)?;
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            pod: config.pod.clone(),
            mode: config.mode,
            log: Log::new(log),
            stop: CancellationToken::new(),
            connections: Arc::new(tokio::sync::Semaphore::new(CONNECTIONS)),
            delayed: Arc::new(tokio::sync::Semaphore::new(DELAYED)),
            is_ready: AtomicBool::new(true),
        });
        Ok(Self {
            tcp,
            udp,
            sctp,
            shared,
        })
    }

    /// TCP ports in the order of [`ServeConfig::tcp`].
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        numbers(&self.tcp, tcp::Port::number)
    }

    /// UDP ports in the order of [`ServeConfig::udp`].
    pub fn udp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        numbers(&self.udp, udp::Port::number)
    }

    /// SCTP ports in the order of [`ServeConfig::sctp`].
    pub fn sctp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        numbers(&self.sctp, tcp::Port::number)
    }

    /// Its readiness, which can be set at any time.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let tcp = self.tcp_ports().map(|port| format!(" TCP/{port}"));
        let udp = self.udp_ports().map(|port| format!(" UDP/{port}"));
        let sctp = self.sctp_ports().map(|port| format!(" SCTP/{port}"));
        let ports: String = tcp.chain(udp).chain(sctp).collect();
        Readiness {
            serves: format!("{} serves{ports}", self.shared.name),
            shared: self.shared.clone(),
        }
    }

    /// Cancelling it ends [`Server::run`].
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    /// Serves until [`Server::stop`] is cancelled, which closes open connections.
    ///
    /// # Errors
    /// The log cannot be written any more.
    pub async fn run(self) -> Result<(), ServeError> {
        let tasks = TaskTracker::new();
        for port in self.tcp.into_iter().chain(self.sctp).flatten() {
            tasks.spawn(port.serve(self.shared.clone()));
        }
        for port in self.udp.into_iter().flatten() {
            tasks.spawn(port.serve(self.shared.clone()));
        }
        tasks.close();
        tasks.wait().await;
        self.shared.log.end()
    }
}

/// Readiness of a server, which `/readyz` and its lines on stderr show. It serves in any case.
#[derive(Debug)]
pub struct Readiness {
    serves: String,
    shared: Arc<Shared>,
}

impl Readiness {
    /// Sets whether it is ready. Returns the line that reports it.
    #[must_use]
    pub fn set(&self, is_ready: bool) -> String {
        self.shared.is_ready.store(is_ready, Ordering::Relaxed);
        let begin = if is_ready { READY } else { NOT_READY };
        format!("{begin}{}", self.serves)
    }
}

/// Binds every port on every address. A port that the kernel chooses is the same on all of them.
fn bind_all<P>(
    config: &ServeConfig,
    ports: &[u16],
    transport: &'static str,
    bind: impl Fn(SocketAddr, bool) -> io::Result<P>,
    number: impl Fn(&P) -> u16,
) -> Result<Vec<Vec<P>>, ServeError> {
    let beside_ipv4 = config.addresses.iter().any(IpAddr::is_ipv4);
    let mut all = Vec::new();
    for &port in ports {
        let mut bound: Vec<P> = Vec::new();
        for &address in &config.addresses {
            let address = SocketAddr::new(address, bound.first().map_or(port, &number));
            let socket = bind(address, beside_ipv4).map_err(|error| ServeError::Listen {
                address,
                transport,
                error,
            })?;
            bound.push(socket);
        }
        all.push(bound);
    }
    Ok(all)
}

fn numbers<P>(ports: &[Vec<P>], number: impl Fn(&P) -> u16) -> impl Iterator<Item = u16> {
    ports.iter().filter_map(move |port| port.first().map(&number))
}
