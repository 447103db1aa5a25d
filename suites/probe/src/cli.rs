//! Command line of `probe`, and of `plumbline probe`.

use std::{
    io::{self, BufRead, Read},
    net::{IpAddr, Ipv4Addr},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{self, MAX_PLAN},
    serve::{ServeConfig, Server},
};

/// The client and server that run in pods.
#[derive(Debug, Subcommand)]
pub enum ProbeArgs {
    /// Answer on ports with who answers, and log each answer to stdout as a JSON line.
    Serve(ServeArgs),
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
    /// The address to serve on; `::` is both families.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    address: IpAddr,
}

/// Runs a subcommand to its end.
///
/// # Errors
/// What kept it from starting, or ended it.
pub async fn run(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    match args {
        ProbeArgs::Serve(args) => serve(args).await?,
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
    } = args;
    let server = Server::bind(
        &ServeConfig {
            name,
            address,
            tcp,
            udp,
        },
        io::stdout(),
    )?;
    cancel_on_signals(&server.stop())?;
    eprintln!("{}", server.ready_line());
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
