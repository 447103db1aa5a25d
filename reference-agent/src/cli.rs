//! The command line, for the agent and for its mutants.

use std::{io::IsTerminal, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use futures::FutureExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    agent,
    control::{Brain, Planner},
    datapath::{Datapath, KernelDatapath},
    dump,
    host::{self, HostFlags},
    maps::kernel,
    own::OwnFlags,
    plan::{Perspective, Selection},
    reports::Reports,
};

/// What follows the options in `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, or ended by SIGTERM or SIGINT with everything left in place; \
1 failed, with the reason on stderr; 2 wrong arguments.";

/// What the agent does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve Services on this node until SIGTERM or SIGINT.
    ///
    /// Watches Services and EndpointSlices and keeps the eBPF maps as they say. Programs and maps are pinned:
    /// when the agent ends, they go on serving what they last knew, and the next start takes them over without
    /// a gap. To take the datapath away, end the agent and run `cleanup`.
    ///
    /// Needs CAP_SYS_ADMIN, CAP_NET_ADMIN, a mounted bpffs and cgroup v2. One agent per node.
    Run(Run),
    /// Print what the pinned maps say: every frontend with its backends, then addresses, then defects, if any.
    ///
    /// What is no frontend at one of the addresses is refused. A frontend by Maglev shows the size of its table and
    /// a digest of it, which is the same on every node.
    ///
    /// Reads beside a running agent or after it. Sorted and without ids, so that two nodes can be compared with
    /// diff.
    Dump(Dump),
    /// Detach every program of this agent, of any start, and remove its pins; programs of others stay.
    ///
    /// Connections that were translated stay as they are; new ones to Services are not translated any more. No
    /// agent may be running. Nothing there is no error.
    Cleanup(Cleanup),
}

/// Where things are on this node.
#[derive(Debug, Args)]
pub struct Run {
    /// How to reach the API server; without it: $KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node in the API: endpoints that name it are local
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,
    /// How a backend is chosen for a new connection
    ///
    /// random is right where the packets of a connection always come in by the same node. It costs one slot of a map
    /// for each backend of each service port.
    ///
    /// maglev is for clusters where they may not (ECMP, or load balancers in front of the nodes): all nodes choose
    /// the same backend for the same connection, and few connections change backends when others come or go. It
    /// costs 251 slots for a service port of 2 backends, 1021 for up to 10, 4093 for up to 40, 16381 for up to 163,
    /// and so on; of 262144 in all; twice while one set of backends is switched to the next; and as many writes for
    /// each change. A service port that doesn't fit is named by /readyz, and the others go on. All nodes must have
    /// the same. Sockets of the node itself, whose source is not known yet when they connect, take any slot.
    ///
    /// Connections go on when it is changed.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Selection::Random)]
    backend_selection: Selection,
    #[command(flatten)]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    own: OwnFlags,
    /// Where /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9440")]
    listen: SocketAddr,
}

/// Which maps to print.
#[derive(Debug, Args)]
pub struct Dump {
    #[command(flatten)]
    bpffs: Bpffs,
}

/// What to clean.
#[derive(Debug, Args)]
pub struct Cleanup {
    #[command(flatten)]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
}

#[derive(Debug, Args)]
struct Cgroup {
    /// Root of the cgroup v2 hierarchy: all processes of the node are in it or below it
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    cgroup: PathBuf,
}

#[derive(Debug, Args)]
struct Bpffs {
    /// A mounted bpffs; pins go below its folder `plumbline`
    #[arg(long, value_name = "FOLDER", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
}

/// Does what the command line says. `compose` gives the agent its parts: the production agent takes the planner and
/// the kernel's datapath as they are, a mutant decorates one of them.
pub fn execute<B, D>(command: &Command, compose: impl FnOnce(Planner, KernelDatapath) -> (B, D)) -> ExitCode
where
    B: Brain + 'static,
    D: Datapath + 'static,
{
    let result = match command {
        Command::Run(run) => start(run, compose),
        Command::Dump(dump) => print(&dump.bpffs),
        Command::Cleanup(cleanup) => clean(cleanup),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn start<B, D>(run: &Run, compose: impl FnOnce(Planner, KernelDatapath) -> (B, D)) -> anyhow::Result<()>
where
    B: Brain + 'static,
    D: Datapath + 'static,
{
    log();
    tracing::info!(node = run.node, version = env!("CARGO_PKG_VERSION"), "starting");
    // All that can be wrong with the configuration is found before the datapath is touched.
    let config = config(run.kubeconfig.as_deref()).await?;
    let servers = run.own.servers(&config).await?;
    let client = servers.client(&config)?;
    let shutdown = CancellationToken::new();
    end_on_signal(shutdown.clone())?;
    let mut options = lb_loader::Options::new(&run.bpffs.bpffs, &run.cgroup.cgroup);
    options.node.own_cgroup = run.own.cgroup();
    let planner = Planner::new(Perspective {
        node: run.node.clone(),
        selection: run.backend_selection,
        api_servers: servers.addresses(),
    });
    let datapath = KernelDatapath::open(&options)?;
    tracing::info!(adopted = datapath.adopted(), "the datapath is open");
    let (brain, datapath) = compose(planner, datapath);
    let reports = Reports::new(None);
    let mut feeds = crate::reflect::feeds(&client, &reports);
    let (feed, host) = host::feed(run.node.clone(), run.host.options(), None);
    feeds.push(feed);
    let parts = agent::Parts {
        brain,
        datapath,
        feeds,
        host: Some(host),
        workers: vec![servers.watch(reports.board.clone()).boxed()],
        reports,
        listen: run.listen,
    };
    agent::run(parts, shutdown).await?;
    tracing::info!("ended; programs and maps stay as they are");
    Ok(())
}

/// To stderr; $RUST_LOG says what. By default without kube's own lines on failed requests: the watches name those,
/// with what follows from them.
fn log() {
    let default = "info,kube_client::client::builder=off";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let stderr = std::io::stderr;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
}

async fn config(kubeconfig: Option<&std::path::Path>) -> anyhow::Result<kube::Config> {
    let Some(path) = kubeconfig else {
        return Ok(kube::Config::infer().await?);
    };
    let wrong =
        |error| anyhow::Error::new(error).context(format!("failed to use the kubeconfig {}", path.display()));
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(wrong)
}

fn end_on_signal(shutdown: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("SIGINT"),
        }
        shutdown.cancel();
    });
    Ok(())
}

fn print(Bpffs { bpffs }: &Bpffs) -> anyhow::Result<()> {
    let contents = kernel::pinned_contents(&lb_loader::read_pinned(bpffs)?)?;
    print!("{}", dump::dump(&contents));
    Ok(())
}

fn clean(
    Cleanup {
        cgroup: Cgroup { cgroup },
        bpffs: Bpffs { bpffs },
    }: &Cleanup,
) -> anyhow::Result<()> {
    let lb_loader::Cleanup {
        detached,
        devices,
        unpinned,
    } = lb_loader::cleanup(bpffs, cgroup)?;
    for attachment in &detached {
        println!(
            "detached program {} from {}",
            attachment.program_id, attachment.hook
        );
    }
    for lb_loader::DeviceAttachment {
        program_id,
        direction,
        device,
        ..
    } in &devices
    {
        println!("detached program {program_id} from {direction} of {device}");
    }
    for path in &unpinned {
        println!("removed {}", path.display());
    }
    if detached.is_empty() && devices.is_empty() && unpinned.is_empty() {
        println!("nothing to clean");
    }
    Ok(())
}
