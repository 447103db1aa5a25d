//! The agent's own probe: one connection through the programs, every few seconds.
//!
//! A frontend of the agent alone, [`FRONTEND`], leads to its listener on loopback, which answers with a secret. A connection
//! gets this answer only if the programs that run for it read the maps that this agent writes, independently of what the
//! agent knows about attachments.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    str::FromStr,
    time::Duration,
};

use clap::Args;
use rand::Rng as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    api_access,
    endpoint_address::{Protocol, TransportAddress},
    model,
    readiness::{Component, Readiness},
    reports::Reports,
};

/// The default frontend, of the range that no router forwards (RFC 3927) and that no Service has.
pub const FRONTEND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 94, 40)), 9441);
/// Time between two probes.
pub const PERIOD: Duration = Duration::from_secs(3);
/// A probe that takes longer has failed. On loopback it takes less than a millisecond.
pub const LIMIT: Duration = Duration::from_secs(2);
/// Failures in a row that are reported: a single one may come from a busy machine.
pub const FAILURES: u32 = 2;

/// Interval at which the probe waits for the programs and lists.
const READY_POLL: Duration = Duration::from_millis(50);
/// Bytes of the secret.
const SECRET: usize = 16;

/// The frontend of the probe, or none.
#[derive(Clone, Debug, Args)]
pub struct ProbeFlags {
    /// Address and port of the agent's own probe, which must be unused; off: no probe
    ///
    /// Every three seconds the agent connects to it through its own programs, and must reach itself; otherwise the node is
    /// not ready.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = Target(Some(FRONTEND)))]
    probe: Target,
}

impl ProbeFlags {
    /// The frontend of the probe, if there is one.
    pub(crate) const fn frontend(&self) -> Option<SocketAddr> {
        self.probe.0
    }
}

/// `off`, or an address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target(Option<SocketAddr>);

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let at: Result<SocketAddr, _> = text.parse();
        at.map(|at| Self(Some(at)))
            .map_err(|_| format!("expected off, or an address and a port, found {text:?}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => at.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl ProbeFlags {
    /// The probe of an agent whose programs are attached to `cgroup`; `None`: it is off, or the programs there do not run
    /// for the agent's own sockets, which is logged.
    ///
    /// # Errors
    /// The kernel's error about the listener.
    pub async fn prober(&self, cgroup: &Path, readiness: &Readiness) -> io::Result<Option<Prober>> {
        let Some(frontend) = self.probe.0 else {
            return Ok(None);
        };
        match api_access::cgroup::covers(cgroup) {
            Ok(true) => Prober::new(frontend, readiness).await.map(Some),
            Ok(false) => {
                tracing::warn!(
                    cgroup = %cgroup.display(),
                    "the agent runs outside of this cgroup: it can't probe whether the programs there serve"
                );
                Ok(None)
            }
            Err(error) => {
                tracing::warn!(%error, "the agent can't probe whether the programs serve");
                Ok(None)
            }
        }
    }
}

/// The probe of one agent.
#[derive(Debug)]
pub struct Prober {
    frontend: SocketAddr,
    listener: TcpListener,
    /// The listener's answer.
    secret: [u8; SECRET],
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("no answer in {LIMIT:?}")]
    Timeout,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer came from another server, {0}")]
    OtherServer(SocketAddr),
    #[error("the socket shows {0} instead of the frontend")]
    WrongPeer(SocketAddr),
}

impl Prober {
    /// Listens on loopback, at a port of the kernel's choice. Until the first probe is served, the node is not ready.
    ///
    /// # Errors
    /// The kernel's error.
    pub async fn new(frontend: SocketAddr, readiness: &Readiness) -> io::Result<Self> {
        readiness.set_reasons(
            Component::Probe,
            vec!["the agent's own probe has not been served yet".to_owned()],
        );
        let loopback = match frontend {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        Ok(Self {
            frontend,
            listener: TcpListener::bind((loopback, 0)).await?,
            secret: rand::rng().random(),
        })
    }

    /// Frontend and backend, for the plan.
    ///
    /// # Errors
    /// The listener's address can't be read.
    pub fn plan(&self) -> io::Result<model::Probe> {
        let at = |socket: SocketAddr| TransportAddress {
            protocol: Protocol::Tcp,
            address: socket.ip(),
            port: socket.port(),
        };
        Ok(model::Probe {
            frontend: at(self.frontend),
            backend: at(self.listener.local_addr()?),
        })
    }

    /// Probes without end, once the programs are attached and everything is listed, and reports failures.
    pub async fn run(self, reports: Reports) {
        let Self {
            frontend,
            listener,
            secret,
        } = self;
        let probing = async {
            let (mut failures, mut pause) = (FAILURES, READY_POLL);
            loop {
                sleep(pause).await;
                // Before that a probe can't be served. Reasons of other components (an object that does not fit, an API
                // server that is away) must not stop it.
                if !reports
                    .readiness
                    .are_ready(&[Component::Programs, Component::Lists])
                {
                    continue;
                }
                pause = PERIOD;
                let probed = timeout(LIMIT, probe(frontend, secret)).await;
                let failed = probed.unwrap_or(Err(ProbeError::Timeout)).err();
                let outcome = if failed.is_none() { "served" } else { "failed" };
                reports.metrics.probes.at([outcome]).inc();
                failures = if failed.is_none() {
                    0
                } else {
                    failures.saturating_add(1)
                };
                let reason = failed.filter(|_| failures >= FAILURES).map(|why| {
                    format!(
                        "the agent's own probe to {frontend} is not served, so Services may not be: {why}; \
                         `plumbline doctor explain {frontend}` shows which program decides"
                    )
                });
                if failures < FAILURES && failures > 0 {
                    // Not twice in a row yet: the reasons stay.
                    continue;
                }
                reports
                    .readiness
                    .set_reasons(Component::Probe, reason.into_iter().collect());
            }
        };
        tokio::join!(answer(listener, secret), probing);
    }
}

/// Answers every connection with the secret. Loopback can't be reached from outside.
async fn answer(listener: TcpListener, secret: [u8; SECRET]) {
    loop {
        match listener.accept().await {
            // The secret fits into any socket's buffer, so that a client can't delay it; errors are the client's.
            Ok((mut stream, _)) => {
                let _ = timeout(LIMIT, stream.write_all(&secret)).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the probe's listener");
                sleep(PERIOD).await;
            }
        }
    }
}

async fn probe(frontend: SocketAddr, secret: [u8; SECRET]) -> Result<(), ProbeError> {
    let mut stream = TcpStream::connect(frontend).await?;
    let mut answer = [0; SECRET];
    let peer = stream.peer_addr()?;
    match stream.read_exact(&mut answer).await {
        Ok(_) if answer == secret => {}
        Ok(_) => return Err(ProbeError::OtherServer(peer)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(ProbeError::OtherServer(peer));
        }
        Err(error) => return Err(error.into()),
    }
    if peer == frontend {
        Ok(())
    } else {
        Err(ProbeError::WrongPeer(peer))
    }
}
