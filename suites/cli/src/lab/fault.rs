//! `plumbline lab fault`: a fault of the API servers of a lab or of a kind cluster, for as long as this program runs.

use std::{net::IpAddr, process::ExitCode, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use cluster::{ApiFault, Clients, ClusterError, Fault, LONGEST, Refusal, Stop};
use jiff::SignedDuration;
use lab::DEFAULT_NAME;
use tokio::signal::unix::{SignalKind, signal};

use crate::{cluster::ClusterRef, plural::seconds};

/// The text after `--help`.
const HELP: &str = "\
Users of the API servers, for --user:
  system:node:NODE                 the agent of a node, and `plumbline lab exec NODE -- kubectl …`
  outside                          the client outside the cluster
  system:kube-controller-manager   EndpointSlices, load balancers, scheduling
The administrator (`plumbline lab kubeconfig`) and the kubelets use a server of their own, which has no faults.
On kind, certificates identify these users; certificates or tokens identify others. system:node:NODE is any pod of the node,
its agent too; every other user has its own name, such as system:serviceaccount:NAMESPACE:NAME.

Examples:
  plumbline lab fault stop --server 1            default/kubernetes loses it at once
  plumbline lab fault stop --server 1 --kill     … or when its lease has run out, after 15 s
  plumbline lab fault drop-events --for 20s      watches stay open and send nothing, then get 410
  plumbline lab fault refuse 429 --retry-after 1 --user system:node:node1
  plumbline lab fault lag --server 2             one of them shows an old state
  plumbline lab status                           shows the current faults
";

/// Options of every fault.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct FaultArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME, global = true)]
    name: String,
    /// A kind cluster that a run has made with --apiservers 2, instead of a lab
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "name")]
    kind: Option<String>,
    /// Longest duration, such as 30s or 2m; Ctrl-C ends the fault earlier
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", global = true)]
    lasts: SignedDuration,
    /// Number of the API server; all by default
    #[arg(long, value_name = "NUMBER", global = true)]
    server: Option<u8>,
    /// Only requests of this user; see below
    #[arg(long, global = true, conflicts_with = "source")]
    user: Option<String>,
    /// Only requests from this address
    #[arg(long, value_name = "ADDRESS", global = true)]
    source: Option<IpAddr>,
    #[command(subcommand)]
    what: What,
}

/// The faults.
#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Stop one API server: --server says which
    Stop {
        /// Stop it as by SIGKILL: its lease stays until it expires
        #[arg(long)]
        kill: bool,
    },
    /// Close watches in the middle
    CutWatches {
        /// Lifetime of each watch
        #[arg(long, value_name = "DURATION", default_value = "0s")]
        after: SignedDuration,
    },
    /// Delay watch events
    DelayEvents {
        /// The delay, such as 500ms
        by: SignedDuration,
    },
    /// Lose watch events; at the end, every watch that lost one gets 410 Gone, and its client lists again
    DropEvents,
    /// Answer every watch with 410 Gone
    Expire,
    /// Serve watches and lists from the cache from the state at the beginning of the fault
    Lag,
    /// Refuse requests
    Refuse {
        /// Status code: 429, 500, 503 or 504
        #[arg(value_parser = refusal)]
        status: Refusal,
        /// Seconds in the Retry-After header
        #[arg(long, value_name = "SECONDS")]
        retry_after: Option<u32>,
    },
    /// Send answers slowly
    Slow {
        /// Bytes per second
        bytes_per_second: u32,
    },
    /// Cut answers off
    Truncate {
        /// Bytes before the cut
        after: usize,
    },
    /// Restart all API servers so that they advertise the address of a load balancer in front of them
    SharedAddress,
    /// No API server reconciles default/kubernetes: it stays as written by others until the end
    Unreconciled,
    /// Increase the resourceVersion once and permanently
    JumpVersions {
        /// Size of the increase
        by: u32,
    },
}

fn refusal(text: &str) -> Result<Refusal, String> {
    let all = [
        Refusal::TooManyRequests,
        Refusal::InternalError,
        Refusal::Unavailable,
        Refusal::Timeout,
    ];
    let found = all.into_iter().find(|one| one.code().to_string() == text);
    found.ok_or_else(|| "expected 429, 500, 503 or 504".to_owned())
}

pub(super) async fn run(args: FaultArgs) -> anyhow::Result<ExitCode> {
    let named = match &args.kind {
        Some(name) => ClusterRef::Kind(name.clone()),
        None => ClusterRef::Lab(args.name.clone()),
    };
    let cluster = named.attach().await?;
    if let What::JumpVersions { by } = args.what {
        cluster.control_plane()?.jump_versions(by).await?;
        println!("the resourceVersion is {by} higher");
        return Ok(ExitCode::SUCCESS);
    }
    let lasts = duration(args.lasts)?;
    ensure!(
        lasts <= LONGEST,
        "expected --for of at most {}, found {}",
        seconds(LONGEST),
        seconds(lasts)
    );
    let fault = fault(&args)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let held = cluster.control_plane()?.begin(&fault, lasts).await?;
    println!("{fault}, for {} or until Ctrl-C", seconds(lasts));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = tokio::time::sleep(lasts) => {}
    }
    match held.end().await {
        // The lab's time limit may expire slightly earlier than this program's.
        Ok(()) | Err(ClusterError::FaultLapsed) => {}
        Err(error) => return Err(error.into()),
    }
    println!("over");
    Ok(ExitCode::SUCCESS)
}

fn fault(args: &FaultArgs) -> anyhow::Result<ApiFault> {
    let fault = match args.what.clone() {
        What::Stop { kill } => {
            let server = args
                .server
                .context("which one? Say --server NUMBER; `plumbline lab status` lists them")?;
            ensure!(
                args.user.is_none() && args.source.is_none(),
                "a server stops for everybody: leave out --user and --source"
            );
            let how = if kill { Stop::Kill } else { Stop::Term };
            return Ok(ApiFault::Down { server, how });
        }
        What::SharedAddress | What::Unreconciled => {
            ensure!(
                args.server.is_none() && args.user.is_none() && args.source.is_none(),
                "default/kubernetes is everybody's: leave out --server, --user and --source"
            );
            return Ok(match args.what {
                What::SharedAddress => ApiFault::SharedAddress,
                _ => ApiFault::Unreconciled,
            });
        }
        What::CutWatches { after } => Fault::CutWatches {
            after: duration(after)?,
        },
        What::DelayEvents { by } => Fault::DelayEvents { by: duration(by)? },
        What::DropEvents => Fault::DropEvents,
        What::Expire => Fault::Expire,
        What::Lag => Fault::Lag,
        What::Refuse { status, retry_after } => Fault::Refuse {
            refusal: status,
            retry_after,
        },
        What::Slow { bytes_per_second } => Fault::SlowBodies { bytes_per_second },
        What::Truncate { after } => Fault::TruncateBodies { after },
        What::JumpVersions { .. } => anyhow::bail!("a jump is no fault that lasts"),
    };
    let clients = match (&args.user, args.source) {
        (Some(user), _) => Clients::User(user.clone()),
        (None, Some(source)) => Clients::Source(source),
        (None, None) => Clients::All,
    };
    Ok(ApiFault::Answers {
        server: args.server,
        clients,
        fault,
    })
}

fn duration(found: SignedDuration) -> anyhow::Result<Duration> {
    Duration::try_from(found)
        .with_context(|| format!("expected a duration that is not negative, found {found:#}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FaultArgs,
    }

    fn read(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(["fault"].into_iter().chain(line.split(' ')));
        let args = line.map_err(|error| error.to_string())?.args;
        fault(&args)
            .map(|fault| fault.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_line_is_a_fault() {
        let rows = [
            ("stop --server 2 --kill", "API server 2 is killed"),
            ("drop-events", "every API server drops events"),
            (
                "delay-events 500ms --server 1 --user outside",
                "API server 1 delays events by 500ms, for outside",
            ),
            (
                "refuse 503 --source 10.0.0.1",
                "every API server refuses with 503, for 10.0.0.1",
            ),
            ("shared-address", "all API servers advertise one address"),
            ("unreconciled", "no API server reconciles default/kubernetes"),
            (
                "slow 1000",
                "every API server answers slowly, 1000 bytes a second",
            ),
        ];
        for (line, expected) in rows {
            assert_eq!(read(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_no_fault_is_said() {
        let rows = [
            ("stop", "Say --server NUMBER"),
            ("stop --server 1 --user outside", "leave out --user"),
            ("unreconciled --server 1", "leave out --server"),
            ("refuse 404", "expected 429, 500, 503 or 504"),
            ("drop-events --user a --source 10.0.0.1", "cannot be used with"),
            ("delay-events -5s", "unexpected argument"),
        ];
        for (line, part) in rows {
            let error = read(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
