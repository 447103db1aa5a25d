//! `plumbline lab fault`: something is wrong with the API servers of a lab, or of a cluster of kind, as long as this program
//! runs.

use std::{net::IpAddr, process::ExitCode, time::Duration};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use cluster::{ApiFault, Clients, ClusterError, Fault, LONGEST, Refusal, Stop};
use jiff::SignedDuration;
use lab::DEFAULT_NAME;
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::ClusterRef;

/// What `--help` ends with.
const HELP: &str = "\
Who asks the API servers, for --user:
  system:node:NODE                 the agent of a node, and `plumbline lab exec NODE -- kubectl …`
  outside                          the client outside the cluster
  system:kube-controller-manager   EndpointSlices, load balancers, scheduling
The administrator (`plumbline lab kubeconfig`) and the kubelets ask a server of their own, which no fault meets.
On kind these are known by their certificates, and others by theirs or by their tokens: system:node:NODE is any pod of the
node (its agent is one), and every other user has its own name, such as system:serviceaccount:NAMESPACE:NAME.

Examples:
  plumbline lab fault stop --server 1            default/kubernetes loses it at once
  plumbline lab fault stop --server 1 --kill     … or when its lease has run out, after 15 s
  plumbline lab fault drop-events --for 20s      watches stay open and say nothing; then they are told 410
  plumbline lab fault refuse 429 --retry-after 1 --user system:node:node1
  plumbline lab fault lag --server 2             one of them shows an old state
  plumbline lab status                           what is wrong just now
";

/// Options of every fault.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct FaultArgs {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME, global = true)]
    name: String,
    /// A cluster of kind that a run has made with --apiservers 2, instead of a lab
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "name")]
    kind: Option<String>,
    /// How long at most, such as 30s or 2m; Ctrl-C ends it earlier
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", global = true)]
    lasts: SignedDuration,
    /// The number of the API server; without it, all
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

/// What goes wrong.
#[derive(Clone, Debug, Subcommand)]
enum What {
    /// One does not run: --server says which
    Stop {
        /// As by SIGKILL: its lease stays until it runs out
        #[arg(long)]
        kill: bool,
    },
    /// Watches break in the middle
    CutWatches {
        /// How long each lives
        #[arg(long, value_name = "DURATION", default_value = "0s")]
        after: SignedDuration,
    },
    /// Watch events come late
    DelayEvents {
        /// How late, such as 500ms
        by: SignedDuration,
    },
    /// Watch events are lost; at the end, whoever lost one is told 410 and lists again
    DropEvents,
    /// Every watch is told 410 Gone
    Expire,
    /// Watches and lists from the cache show the state of the moment in which the fault began
    Lag,
    /// Requests are refused
    Refuse {
        /// The answer: 429, 500, 503 or 504
        #[arg(value_parser = refusal)]
        status: Refusal,
        /// Seconds after which to ask again
        #[arg(long, value_name = "SECONDS")]
        retry_after: Option<u32>,
    },
    /// Answers come slowly
    Slow {
        /// At this rate
        bytes_per_second: u32,
    },
    /// Answers break off
    Truncate {
        /// After so many bytes
        after: usize,
    },
    /// All API servers advertise the address of a load balancer in front of them: they are started again with it
    SharedAddress,
    /// No API server writes default/kubernetes: it stays as somebody writes it, until the end
    Unreconciled,
    /// The resourceVersion jumps ahead, once and for good
    JumpVersions {
        /// How far
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
        "expected --for of at most {LONGEST:?}, found {lasts:?}"
    );
    let fault = fault(&args)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let held = cluster.control_plane()?.begin(&fault, lasts).await?;
    println!("{fault}, for {lasts:?} or until Ctrl-C");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = tokio::time::sleep(lasts) => {}
    }
    match held.end().await {
        // Its time may be over there a moment before it is here.
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
