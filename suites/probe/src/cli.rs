//! Command line of `probe`, and of `plumbline probe`.

use std::{
    io::{self, BufRead, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl::set_pdeathsig,
        resource::{Resource, getrlimit, setrlimit},
    },
};
use oracle::history::PodIdentity;
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    client::{
        self, MAX_PLAN,
        control::{self, Request},
    },
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
    #[command(after_long_help = PLANS)]
    Client(ClientArgs),
    /// Keep sockets, and read from stdin what is to be done with them: a round (one JSON line) is one exchange on each, and
    /// every one is written to stdout as a JSON line before the next round begins.
    ///
    /// Ends with stdin, or with SIGTERM or SIGINT; the sockets end with it.
    #[command(after_long_help = ROUNDS)]
    Sockets(SocketsArgs),
    /// Write the attempts of a client that was started with --control SOCKET to stdout, until its plan has ended.
    ///
    /// Whoever attaches may end at any time: the client goes on, and the next one reads from where it likes.
    Attach(AttachArgs),
}

const PLANS: &str = r#"A plan has entries, which run side by side; times are in milliseconds:

  {"client": "c1", "entries": [
    {"target": "web", "transport": "TCP", "address": "10.96.0.10", "port": 80,
     "count": 100, "interval_ms": 50, "limit_ms": 3000}
  ]}

  transport     TCP, HTTP, SCTP: a new connection for each attempt;
                UDP: a new socket, sendto and recvfrom;
                UDP-CONNECTED: a new socket, connect, send and recv
  count         attempts, at most; of each flow, if there are flows
  interval_ms   from the beginning of one attempt to that of the next, whatever becomes
                of it; 0: each begins when the last has ended
  limit_ms      of one attempt
  until         {"identity": "b1/TCP/8080"} or "refused": ends the entry with the first
                such attempt
  flows         so many sockets that live (HTTP: keep-alive) instead of a fresh one for
                each attempt; their attempts have an exchange: number of the flow, of the
                socket in it, and of the exchange, without gaps
  source_ports  [first, last]: dial from these ports, in turn

An attempt has its times (microseconds since 1970, on one monotonic clock), the socket's
own address, a nonce, and its result: answered (who answered, which addresses it saw, and
the peer as the socket sees it), failed (in which call, and the error by name), timeout
(waiting in which call), or garbled (what was said instead)."#;

const ROUNDS: &str = r#"A round leads the sockets to one destination, the next one to another:

  {"target": "web", "transport": "UDP", "address": "10.96.0.10", "port": 80,
   "sockets": 100, "limit_ms": 3000}

  transport  UDP: sendto and recvfrom; UDP-CONNECTED: connect (again, if it is), send, recv;
             TCP: a connection, which leads where it did first, and stays as it is once it
             has failed. Sockets of each, and of each address family, are kept by themselves
  sockets    on so many of them, the oldest; those that are missing are opened
  anew       true: these are closed first, and others are opened at their ports
  stay       true: those that are there are not connected anew
  source_port  those that are opened are bound to it; 0: the kernel chooses
  fragments  [2, 0, 1]: the request as three fragments, the last of them first. UDP alone,
             as root
  bytes      request and answer are datagrams of so many bytes, all of which are checked at
             the other end: 1024 to 4096. UDP and UDP-CONNECTED
  watched    true: exchanges show the fragments that went out and came in at the client's
             devices. UDP and UDP-CONNECTED, as root
  limit_ms   of one exchange

An exchange is written like an attempt of `probe client`; its flow is the number of the
socket."#;

/// As [`ClientArgs::private_cgroups`] is written.
const PRIVATE_CGROUPS: &str = "--private-cgroups";

/// Arguments of `probe client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Go on whoever starts, reads or ends: keep the attempts for `probe attach SOCKET` instead of writing them to stdout.
    /// Ends when the plan has ended and somebody has read them to the end, or nobody has for ten minutes.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Write the attempts to this file, too; it is made anew, and full at 512 MiB. In memory are the newest 64 MiB.
    #[arg(long, value_name = "FILE", requires = "control")]
    history: Option<PathBuf>,
    /// Run in a cgroup namespace of its own, as most containers do: it sees its own cgroup as the root.
    #[arg(long)]
    private_cgroups: bool,
    /// End when stdin ends, too: whoever started it and holds it open is gone.
    #[arg(long, conflicts_with = "control")]
    while_stdin: bool,
}

/// Arguments of `probe sockets`.
#[derive(Debug, Args)]
pub struct SocketsArgs {
    /// The client's name in its attempts.
    #[arg(long, value_name = "NAME")]
    client: String,
}

/// Arguments of `probe attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The client's socket.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Leave out so many attempts, from the first one that was made.
    #[arg(long, default_value_t = 0, value_name = "OFFSET")]
    from: u64,
    /// End the client's plan now, and write nothing.
    #[arg(long)]
    stop: bool,
}

/// Arguments of `probe serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// First part of the identities it answers with: NAME/TCP/PORT.
    #[arg(long)]
    name: String,
    /// A TCP port to serve; may be repeated.
    /// HTTP is answered there as well: `curl http://ADDRESS:PORT/` says who answers, and /readyz whether it is ready.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["udp", "sctp"])]
    tcp: Vec<u16>,
    /// A UDP port to serve; may be repeated.
    #[arg(long, value_name = "PORT")]
    udp: Vec<u16>,
    /// An SCTP port to serve; may be repeated. An error where the kernel does not have SCTP.
    #[arg(long, value_name = "PORT")]
    sctp: Vec<u16>,
    /// The address to serve on; all addresses of both families are the default.
    #[arg(long)]
    address: Option<IpAddr>,
    /// What it does with connections and datagrams: prompt, slow=MILLISECONDS (to answer), refuse (reset after accept),
    /// half-close. With refuse and half-close, datagrams are taken and not answered.
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
        ProbeArgs::Client(args) => client(args).await?,
        ProbeArgs::Sockets(args) => sockets(args).await?,
        ProbeArgs::Attach(args) => attach(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let ServeArgs {
        name,
        tcp,
        udp,
        sctp,
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
            sctp,
            pod: pod.identity(),
            mode,
        },
        io::stdout(),
    )?;
    let (ended, stop) = (CancellationToken::new(), server.stop());
    cancel_on_signals(&ended)?;
    let readiness = server.readiness();
    eprintln!("{}", readiness.set(!not_ready));
    tokio::spawn(async move {
        ended.cancelled().await;
        if linger > 0 {
            eprintln!("{}", readiness.set(false));
            tokio::time::sleep(Duration::from_millis(linger)).await;
        }
        stop.cancel();
    });
    Ok(server.run().await?)
}

/// Makes a cgroup namespace, and becomes this program in it: threads that are there already would stay outside.
fn become_private() -> anyhow::Error {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWCGROUP) {
        return anyhow::Error::new(errno).context("failed to make a cgroup namespace");
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "probe".into());
    let error = std::process::Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments.filter(|argument| argument != PRIVATE_CGROUPS))
        .exec();
    anyhow::Error::new(error).context("failed to start in a cgroup namespace")
}

async fn client(args: ClientArgs) -> anyhow::Result<()> {
    if args.private_cgroups {
        return Err(become_private());
    }
    let mut line = String::new();
    io::stdin()
        .lock()
        .take(MAX_PLAN)
        .read_line(&mut line)
        .context("failed to read the plan from stdin")?;
    let plan = client::parse(&line)?;
    let stop = CancellationToken::new();
    cancel_on_signals(&stop)?;
    if args.while_stdin {
        cancel_with_stdin(stop.clone());
    }
    let Some(socket) = args.control else {
        return Ok(client::run(plan, io::stdout(), stop).await?);
    };
    // Neither the end of whoever started it nor that of his terminal is its own.
    set_pdeathsig(None).context("failed to outlive whoever started this")?;
    let _ignored = signal(SignalKind::hangup()).context("failed to register for SIGHUP")?;
    Ok(client::run_kept(plan, &socket, args.history.as_deref(), stop).await?)
}

async fn sockets(args: SocketsArgs) -> anyhow::Result<()> {
    // As many as it may have: what is too many then shows in attempts.
    let (_, most) =
        getrlimit(Resource::RLIMIT_NOFILE).context("failed to ask for the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("failed to raise the limit of open files")?;
    let stop = CancellationToken::new();
    cancel_on_signals(&stop)?;
    let input = BufReader::new(tokio::io::stdin());
    Ok(client::sockets::keep(&args.client, input, io::stdout(), stop).await?)
}

async fn attach(args: AttachArgs) -> anyhow::Result<()> {
    let AttachArgs { socket, from, stop } = args;
    let request = if stop {
        Request::Stop
    } else {
        Request::Read { from }
    };
    let asked = control::ask(&socket, request).await;
    let (status, mut attempts) = asked.with_context(|| {
        let socket = socket.display();
        format!(
            "failed to ask at {socket}; expected the socket of a running `probe client --control {socket}`"
        )
    })?;
    eprintln!(
        "{} attempts so far, of which the first {} are no longer in memory",
        status.next, status.dropped
    );
    let copied = tokio::io::copy_buf(&mut attempts, &mut tokio::io::stdout()).await;
    copied.context("failed to copy the attempts to stdout")?;
    tokio::io::stdout()
        .flush()
        .await
        .context("failed to write to stdout")
}

/// What a client may take to end after its stdin has: whoever reads what it writes may be gone, too.
const ENDS: Duration = Duration::from_secs(5);

/// The end of stdin ends it, and the process if that does not.
fn cancel_with_stdin(stop: CancellationToken) {
    // A thread of its own: the runtime would wait for its end before it lets the process go.
    std::thread::spawn(move || {
        // An error is an end, too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.cancel();
        std::thread::sleep(ENDS);
        std::process::exit(1);
    });
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
