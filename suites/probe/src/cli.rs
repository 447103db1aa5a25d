//! Command line of `probe`, and of `plumbline probe`.

use std::{
    io::{self, BufRead, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use oracle::history::PodIdentity;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{self, MAX_PLAN},
    serve::{Mode, ServeConfig, Server},
};

/// The client and server that run in pods.
#[derive(Debug, Subcommand)]
pub enum ProbeArgs {
    /// Answer on ports with who answers, and log each answer to stdout as a JSON line.
    Serve(Box<ServeArgs>),
    /// Read a plan (one JSON line) from stdin and write every attempt to stdout as a JSON line.
    ///
    /// Ends when the plan is done; SIGTERM or SIGINT ends it early, with what is written by then.
    Client,
}

/// Arguments of `probe serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// First part of the identities it answers with: NAME/TCP/PORT.
    #[arg(long)]
    name: String,
    /// A TCP port to serve; may be repeated.
    #[arg(long, value_name = "PORT", required_unless_present = "udp")]
    tcp: Vec<u16>,
    /// A UDP port to serve; may be repeated.
    #[arg(long, value_name = "PORT")]
    udp: Vec<u16>,
    /// The address to serve on; all addresses of both families are the default.
    #[arg(long)]
    address: Option<IpAddr>,
    /// What it does with TCP connections: prompt, slow=MILLISECONDS (to answer), refuse (reset after accept), half-close
    #[arg(long, default_value = "prompt", value_name = "MODE")]
    mode: Mode,
    /// Serve, and say that it is not ready.
    #[arg(long)]
    not_ready: bool,
    /// After SIGTERM, serve on for so many milliseconds, not ready.
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    linger: u64,
    #[command(flatten)]
    pod: PodArgs,
}

/// The pod that it runs in: repeated in its answers. In Kubernetes, the downward API gives it.
#[derive(Debug, Args)]
struct PodArgs {
    /// The pod's uid.
    #[arg(long, env = "POD_UID", value_name = "UID", default_value = "")]
    pod_uid: String,
    /// The pod's name.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "")]
    pod_name: String,
    /// The pod's node.
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "")]
    node: String,
    /// The node's zone.
    #[arg(long, env = "NODE_ZONE", value_name = "ZONE", default_value = "")]
    zone: String,
}

impl PodArgs {
    /// Nothing if nothing was told.
    fn identity(self) -> Option<PodIdentity> {
        let identity = PodIdentity {
            uid: self.pod_uid,
            name: self.pod_name,
            node: self.node,
            zone: self.zone,
        };
        (identity != PodIdentity::default()).then_some(identity)
    }
}

/// All addresses, of IPv6 too where the kernel has it.
fn everywhere() -> Vec<IpAddr> {
    let mut all = vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if Path::new("/proc/net/if_inet6").exists() {
        all.push(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }
    all
}

/// Runs a subcommand to its end.
///
/// # Errors
/// What kept it from starting, or ended it.
pub async fn run(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    match args {
        ProbeArgs::Serve(args) => serve(*args).await?,
        ProbeArgs::Client => client().await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let ServeArgs {
        name,
        tcp,
        udp,
        address,
        mode,
        not_ready,
        linger,
        pod,
    } = args;
    let server = Server::bind(
        &ServeConfig {
            name,
            addresses: address.map_or_else(everywhere, |address| vec![address]),
            tcp,
            udp,
            pod: pod.identity(),
            mode,
        },
        io::stdout(),
    )?;
    let (ended, stop) = (CancellationToken::new(), server.stop());
    cancel_on_signals(&ended)?;
    eprintln!("{}", server.ready_line(!not_ready));
    let last = server.ready_line(false);
    tokio::spawn(async move {
        ended.cancelled().await;
        if linger > 0 {
            eprintln!("{last}");
            tokio::time::sleep(Duration::from_millis(linger)).await;
        }
        stop.cancel();
    });
    Ok(server.run().await?)
}

async fn client() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .take(MAX_PLAN)
        .read_line(&mut line)
        .context("failed to read the plan from stdin")?;
    let plan = client::parse(&line)?;
    let stop = CancellationToken::new();
    cancel_on_signals(&stop)?;
    Ok(client::run(plan, io::stdout(), stop).await?)
}

/// SIGTERM and SIGINT end it: a process that is the first of a pod is not ended by them unless it asks.
fn cancel_on_signals(stop: &CancellationToken) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).context("failed to register for SIGTERM and SIGINT")?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(())
}
