//! Runs the agent.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use futures::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Bpffs, Cgroup, ConfigFile,
    log::LogFlags,
    plan_options::NodeFlags,
    source::{Source, SourceFlags},
};
use crate::{
    agent,
    api_access::{ApiAccessFlags, ApiServers, StateAccess},
    control::{DesiredState, Planner},
    datapath::{Datapath, KernelDatapath},
    events,
    host::{self, HostFlags},
    model::Event,
    plan::Perspective,
    pod_network::{self, PodNetworkFlags},
    probe::{ProbeFlags, Prober},
    reports::Reports,
};

/// The agent's options.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    config: ConfigFile,
    /// Print the resulting options with their sources, as a configuration file; do nothing else
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten, next_help_heading = "Source of objects")]
    source: SourceFlags,
    #[command(flatten, next_help_heading = "The agent's own way to the API server")]
    own: ApiAccessFlags,
    #[command(flatten, next_help_heading = "Addresses and devices of this node")]
    host: HostFlags,
    #[command(flatten, next_help_heading = "The network of pods")]
    pod_network: PodNetworkFlags,
    #[command(flatten)]
    probe: ProbeFlags,
    #[command(flatten, next_help_heading = "Where programs and maps are")]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
    /// Whether processes of this node reach Services by programs at their sockets
    ///
    /// off: their packets are translated one by one, as those of clients outside are, and programs that an earlier start
    /// has attached to the cgroup are detached. Node ports are served at the node's own addresses, not at loopback, and
    /// other processes can bind them. The agent does not probe itself, and for its own connections to the API server no
    /// backends are kept: it also dials the endpoints of API servers that it has seen last.
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t = SocketLb::On)]
    socket_lb: SocketLb,
    #[command(flatten, next_help_heading = "What the agent says")]
    log: LogFlags,
    /// Where /healthz, /readyz, /metrics, /findings, /dump and /plan are served
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9440")]
    listen: SocketAddr,
    /// Seconds in which all maps are compared with what was written, and what differs is repaired. Behind a difference, the next
    /// comparison follows at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    audit_interval: u32,
}

/// The parts of the agent that `chaos/mutants` decorates with bugs.
pub struct Seams<B, D> {
    /// Makes plans of events.
    pub desired: B,
    /// Maps and programs.
    pub datapath: D,
    /// The source of objects.
    pub source: Source,
}

/// Whether socket programs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SocketLb {
    On,
    Off,
}

#[tokio::main]
pub(super) async fn run<B, D>(
    run: &Run,
    compose: impl FnOnce(Seams<Planner, KernelDatapath>) -> Seams<B, D>,
) -> anyhow::Result<()>
where
    B: DesiredState + 'static,
    D: Datapath + 'static,
{
    run.log.start()?;
    tracing::info!(
        node = run.node.node,
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    // Errors of the configuration are found before the datapath is changed.
    let source = run.source.open(&run.own, StateAccess::ReadWrite).await?;
    let service_ranges = run.source.service_ranges()?;
    let shutdown = CancellationToken::new();
    end_on_signal(shutdown.clone()).context("failed to wait for signals")?;
    let mut options = lb_loader::Options::new(&run.bpffs.bpffs, &run.cgroup.cgroup);
    options.sockets = run.socket_lb == SocketLb::On;
    options.node.snat_ports = Some(run.host.snat_ports());
    options.flows = run.host.flows();
    let (notices, noticed) = mpsc::channel(events::QUEUE);
    let reports = Reports::new(matches!(source, Source::Api { .. }).then_some(notices));
    let mut workers = Vec::new();
    let mut api_servers = None;
    let mut planner = Planner::new(Perspective {
        node: run.node.node.clone(),
        selection: run.node.backend_selection,
        ..Perspective::default()
    });
    let ranges_given = service_ranges.is_some();
    if let Some(ranges) = service_ranges {
        planner.apply(ranges);
    }
    if let Source::Api { servers, client } = &source {
        options.node.own_cgroup = run.own.cgroup();
        // Before any list, so that backends that an earlier start has kept stay.
        planner.apply(Event::ApiServers(servers.addresses()));
        api_servers = Some(servers.clone());
        workers.push(servers.clone().watch(reports.clone()).boxed());
        workers.push(events::post(client.clone(), run.node.node.clone(), noticed, reports.clone()).boxed());
    }
    let listener = agent::listen(run.listen).await?;
    let datapath = KernelDatapath::open(&options)?;
    tracing::info!(adopted = datapath.adopted(), "the datapath is open");
    let Seams {
        desired,
        datapath,
        source,
    } = compose(Seams {
        desired: planner,
        datapath,
        source,
    });
    let mut feeds = source.feeds(!ranges_given, &reports);
    let prober = match run.socket_lb {
        SocketLb::On => run.probe.prober(&run.cgroup.cgroup, &reports.readiness).await,
        SocketLb::Off => Ok(None),
    };
    let prober = prober.context("failed to listen for the agent's own probe")?;
    let probe = prober.as_ref().map(Prober::plan).transpose()?;
    workers.extend(prober.map(|prober| prober.run(reports.clone()).boxed()));
    feeds.extend(api_servers.clone().map(ApiServers::feed));
    let (feed, host) = host::feed(run.node.node.clone(), run.host.options(), probe);
    feeds.push(feed);
    let (worker, pod_network) = pod_network::worker(&run.pod_network, &host, &reports);
    workers.push(worker);
    let parts = agent::Parts {
        desired,
        datapath,
        feeds,
        servers: api_servers,
        host: Some(host),
        pod_network,
        workers,
        reports,
        listener,
        maps_at: run.bpffs.bpffs.display().to_string(),
        audit_interval: Duration::from_secs(run.audit_interval.into()),
    };
    agent::run(parts, shutdown).await?;
    tracing::info!("ended; programs and maps stay as they are");
    Ok(())
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
