//! The agent's own probe: one connection through the programs, every few seconds.
//!
//! A frontend that nobody else has, [`FRONTEND`], leads to a listener of the agent on loopback. Who connects to it by the
//! socket programs gets there, and is answered with what only this agent knows; who is not translated, or is translated
//! by a program of another load, is not. So it is known whether the programs that run are those that read the maps which
//! this agent writes, whatever is attached where, and whatever the agent believes.

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
    api_access, model,
    readiness::{Component, Readiness},
    reports::Reports,
    transport::{Protocol, TransportAddress},
};

/// Where the probe goes, unless another address is given: of the range that no router forwards (RFC 3927), and which no
/// Service has.
pub const FRONTEND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 94, 40)), 9441);
/// From one probe to the next.
pub const PERIOD: Duration = Duration::from_secs(3);
/// A probe that takes longer has failed. On loopback it takes less than a millisecond.
pub const LIMIT: Duration = Duration::from_secs(2);
/// So many failures in a row are told: one may be a busy machine's.
pub const FAILURES: u32 = 2;

/// From one look to the next whether it is time for the first probe.
const READY_POLL: Duration = Duration::from_millis(50);
/// Bytes of what only this agent knows.
const SECRET: usize = 16;

/// Whether and where the agent probes.
#[derive(Clone, Debug, Args)]
pub struct ProbeFlags {
    /// Where the agent's own probe goes, an address and port that nobody else has; off: nowhere
    ///
    /// Every three seconds the agent connects to it by its own programs, and expects itself; otherwise /readyz says so.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = Target(Some(FRONTEND)))]
    probe: Target,
}

impl ProbeFlags {
    /// Where the probe goes, if there is one.
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
    /// The probe of an agent whose programs are attached to `cgroup`; `None`: it was switched off, or the agent's own
    /// sockets are not seen by the programs there, which is said.
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
    /// What the listener says to everybody.
    secret: [u8; SECRET],
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("no answer in {LIMIT:?}")]
    Late,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer came from another server, {0}")]
    Stranger(SocketAddr),
    #[error("the socket shows {0} instead of the frontend")]
    Shown(SocketAddr),
}

impl Prober {
    /// Listens on loopback, at a port of the kernel's choice. Until the first probe has been served, the board says so.
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

    /// What the plan needs to know of it.
    ///
    /// # Errors
    /// The listener has no address any more.
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

    /// Probes, once everything else is ready, and tells the readiness. For ever.
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
                // Before programs and maps are there it has nothing to say, and the others say that. What lasts
                // elsewhere (an object that does not fit, an API server that is away) must not keep it from looking.
                if !reports
                    .readiness
                    .are_ready(&[Component::Programs, Component::Lists])
                {
                    continue;
                }
                pause = PERIOD;
                let probed = timeout(LIMIT, probe(frontend, secret)).await;
                let failed = probed.unwrap_or(Err(Failed::Late)).err();
                let outcome = if failed.is_none() { "served" } else { "failed" };
                reports.metrics.probes.at([outcome]).inc();
                failures = if failed.is_none() {
                    0
                } else {
                    failures.saturating_add(1)
                };
                let told = failed.filter(|_| failures >= FAILURES).map(|why| {
                    format!(
                        "the agent's own probe to {frontend} is not served, so Services may not be: {why}; \
                         `plumbline doctor explain {frontend}` shows which program decides"
                    )
                });
                if failures < FAILURES && failures > 0 {
                    // Not twice in a row yet: what was said before stays.
                    continue;
                }
                reports
                    .readiness
                    .set_reasons(Component::Probe, told.into_iter().collect());
            }
        };
        tokio::join!(answer(listener, secret), probing);
    }
}

/// Says the secret to everybody. Loopback is this machine's alone.
async fn answer(listener: TcpListener, secret: [u8; SECRET]) {
    loop {
        match listener.accept().await {
            // Short enough for any socket's buffer, so nobody can hold it up; one that is gone wants no answer.
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

async fn probe(frontend: SocketAddr, secret: [u8; SECRET]) -> Result<(), Failed> {
    let mut stream = TcpStream::connect(frontend).await?;
    let mut said = [0; SECRET];
    let peer = stream.peer_addr()?;
    match stream.read_exact(&mut said).await {
        Ok(_) if said == secret => {}
        Ok(_) => return Err(Failed::Stranger(peer)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Failed::Stranger(peer)),
        Err(error) => return Err(error.into()),
    }
    if peer == frontend {
        Ok(())
    } else {
        Err(Failed::Shown(peer))
    }
}
