//! The server: answers who it is, on every port it was told to.

mod log;
mod mode;
mod tcp;
mod udp;

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use oracle::history::{Answer, PodIdentity};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use log::Log;
pub use mode::Mode;

/// Connections served at once, over all ports; more wait in the listeners' backlogs.
pub const CONNECTIONS: usize = 1024;
/// From a connection's acceptance to its request; a slower one is closed.
pub const CONNECTION_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
/// From one request of a connection that is kept to the next; longer than faults that flows should live through.
pub const KEEP_LIMIT: std::time::Duration = std::time::Duration::from_secs(180);
/// Bytes of log that one process writes. A server that can't log must not answer, so it ends here.
pub const LOG_LIMIT: u64 = 256 << 20;
/// How a line on stderr begins that says that every port is bound, and the server ready.
pub const READY: &str = "ready: ";
/// How one begins that says that every port is bound and served, but the server is not ready: one that was told so, or
/// that ends.
pub const NOT_READY: &str = "not ready: ";

/// Who a server is and where it listens.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// First part of its identities.
    pub name: String,
    /// Addresses of its sockets, each on every port. `::` takes IPv4 too, unless an IPv4 address is there beside it.
    pub addresses: Vec<IpAddr>,
    /// TCP ports; 0 is one that the kernel chooses.
    pub tcp: Vec<u16>,
    /// UDP ports; 0 is one that the kernel chooses.
    pub udp: Vec<u16>,
    /// The pod that it runs in, for its answers.
    pub pod: Option<PodIdentity>,
    /// How it behaves.
    pub mode: Mode,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nothing to serve.
    #[error("no port to serve on; expected at least one --tcp PORT or --udp PORT")]
    NoPorts,
    /// A port can't be had.
    #[error("failed to listen on {address}/{transport}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        transport: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The log can't be written.
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
    udp: Vec<Vec<udp::Port>>,
    shared: Arc<Shared>,
}

/// What every port of a server needs.
#[derive(Debug)]
struct Shared {
    name: String,
    pod: Option<PodIdentity>,
    mode: Mode,
    log: Log,
    stop: CancellationToken,
    connections: Arc<tokio::sync::Semaphore>,
}

impl Shared {
    /// Logs the answer to a request, then returns it; nothing if it can't be logged.
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

/// An IPv4 client of a dual-stack socket is an IPv4 client.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Server {
    /// Binds every port; [`Served`](oracle::history::Served) lines will go to `log`.
    ///
    /// # Errors
    /// [`ServeError::NoPorts`]; [`ServeError::Listen`] for the first port that can't be had.
    pub fn bind(config: &ServeConfig, log: impl Write + Send + 'static) -> Result<Self, ServeError> {
        if config.tcp.is_empty() && config.udp.is_empty() {
            return Err(ServeError::NoPorts);
        }
        let tcp = bind_all(config, &config.tcp, "TCP", tcp::Port::bind, tcp::Port::number)?;
        let udp = bind_all(config, &config.udp, "UDP", udp::Port::bind, udp::Port::number)?;
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            pod: config.pod.clone(),
            mode: config.mode,
            log: Log::new(log),
            stop: CancellationToken::new(),
            connections: Arc::new(tokio::sync::Semaphore::new(CONNECTIONS)),
        });
        Ok(Self { tcp, udp, shared })
    }

    /// TCP ports in the order of [`ServeConfig::tcp`].
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        numbers(&self.tcp, tcp::Port::number)
    }

    /// UDP ports in the order of [`ServeConfig::udp`].
    pub fn udp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        numbers(&self.udp, udp::Port::number)
    }

    /// The line that says that it serves, and whether it is ready.
    #[must_use]
    pub fn ready_line(&self, is_ready: bool) -> String {
        let tcp = self.tcp_ports().map(|port| format!(" TCP/{port}"));
        let udp = self.udp_ports().map(|port| format!(" UDP/{port}"));
        let ports: String = tcp.chain(udp).collect();
        let begin = if is_ready { READY } else { NOT_READY };
        format!("{begin}{} serves{ports}", self.shared.name)
    }

    /// Cancelling it ends [`Server::run`].
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    /// Serves until [`Server::stop`] is cancelled; connections that are open then are closed.
    ///
    /// # Errors
    /// The log can't be written any more.
    pub async fn run(self) -> Result<(), ServeError> {
        let tasks = TaskTracker::new();
        for port in self.tcp.into_iter().flatten() {
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

/// Binds every port at every address. A port that the kernel chooses is the same at all of them.
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
