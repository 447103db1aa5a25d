//! Command line of `probe`, and of `plumbline probe`.

use std::{
    io::{self, BufRead, Read, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
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
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    MAX_TRANSFER,
    client::{
        self, MAX_PLAN, Transfer,
        control::{self, Request},
    },
    load::{self, Answering, Work},
    packets::{Sent, capture, send},
    serve::{Mode, READY, ServeConfig, Server},
    wire,
};

/// The client and server that run in pods.
#[derive(Debug, Subcommand)]
pub enum ProbeArgs {
    /// Answer on ports with the server's identity, and log each answer to stdout as a JSON line.
    Serve(Box<ServeArgs>),
    /// Read a plan (one JSON line) from stdin and write every attempt to stdout as a JSON line.
    ///
    /// Ends when the plan is done. SIGTERM or SIGINT ends it early, after what is written by then.
    #[command(after_long_help = PLANS)]
    Client(ClientArgs),
    /// Keep sockets open, and read rounds (one JSON line each) from stdin: a round is one exchange on each socket, and
    /// every exchange is written to stdout as a JSON line before the next round begins.
    ///
    /// Ends with stdin, or with SIGTERM or SIGINT; its sockets are closed then.
    #[command(after_long_help = ROUNDS)]
    Sockets(SocketsArgs),
    /// Write the attempts of a client that was started with --control SOCKET to stdout, until its plan has ended.
    ///
    /// A reader may end at any time: the client continues, and the next reader starts at any offset.
    Attach(AttachArgs),
    /// Write the packets from and to some addresses on one device to stdout, each as a JSON line, until stdin ends. As
    /// root.
    ///
    /// An empty line comes first: what is sent after it is seen.
    Capture(CaptureArgs),
    /// Send packets that are none of TCP or UDP, from a raw socket. As root.
    Send(SendArgs),
    /// Send and receive many bytes over one TCP connection, and write the attempt to stdout as a JSON line: answered if
    /// all of them arrived as they were sent. The server logs the nonce when it has received all.
    Transfer(TransferArgs),
    /// Answer load on four ports, with this server's name. For benchmarks.
    Answer(AnswerArgs),
    /// Make the same exchange again and again in one thread or several, and write how often it was answered, and how long that
    /// took, to stdout as a JSON line; or connect until another server answers. For benchmarks.
    Load(LoadArgs),
}

const PLANS: &str = r#"A plan has entries, which run concurrently; times are in milliseconds:

  {"client": "c1", "entries": [
    {"target": "web", "transport": "TCP", "address": "10.96.0.10", "port": 80,
     "count": 100, "interval_ms": 50, "limit_ms": 3000}
  ]}

  transport     TCP, HTTP, SCTP: a new connection for each attempt;
                UDP: a new socket, sendto and recvfrom;
                UDP-CONNECTED: a new socket, connect, send and recv
  count         largest number of attempts, for each flow if there are flows
  interval_ms   from the start of one attempt to that of the next, whatever its result;
                0: each starts when the last has ended
  limit_ms      of one attempt
  until         {"identity": "b1/TCP/8080"} or "refused": ends the entry with the first
                such attempt
  flows         number of sockets that stay open (HTTP: keep-alive), instead of one for
                each attempt; their attempts have an exchange: number of the flow, of the
                socket in it, and of the exchange, without gaps
  source_ports  [first, last]: source ports, taken in turn

An attempt has its times (microseconds since 1970, on one monotonic clock), the socket's
own address, a nonce, and its result: answered (the backend's identity, the addresses it
saw, and the socket's peer), failed (in which call, and the error by name), timeout
(waiting in which call), or garbled (the beginning of another answer)."#;

const ROUNDS: &str = r#"A round sends from the sockets to one destination, the next one to another:

  {"target": "web", "transport": "UDP", "address": "10.96.0.10", "port": 80,
   "sockets": 100, "limit_ms": 3000}

  transport  UDP: sendto and recvfrom; UDP-CONNECTED: connect (again), send, recv;
             TCP: a connection, which keeps its first destination, and is not replaced
             once it has failed. Each transport and address family has its own sockets
  sockets    number of sockets: the oldest ones, and new ones if there are too few
  anew       true: they are closed first, and others are opened on their ports
  stay       true: open sockets are not connected again
  source_port  port of the sockets that are opened; 0: the kernel chooses
  fragments  [2, 0, 1]: the request as three fragments, the last of them first. Only UDP,
             as root
  bytes      size of request and answer, whose bytes the receiver checks: 1024 to 4096.
             UDP and UDP-CONNECTED
  watched    true: exchanges show the fragments that were sent and received on the client's
             devices. UDP and UDP-CONNECTED, as root
  limit_ms   of one exchange

An exchange is written like an attempt of `probe client`; its flow is the number of the
socket."#;

/// As [`ClientArgs::private_cgroups`] is written.
const PRIVATE_CGROUPS: &str = "--private-cgroups";

/// Arguments of `probe client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Continue without the process that started it and without readers: keep the attempts for `probe attach SOCKET`
    /// instead of writing them to stdout. Ends when the plan has ended and a reader has read them all, or none has for
    /// ten minutes.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Also write the attempts to this file, which is replaced, up to 512 MiB. The newest 64 MiB are in memory.
    #[arg(long, value_name = "FILE", requires = "control")]
    history: Option<PathBuf>,
    /// Run in a cgroup namespace of its own, as most containers do, with its own cgroup as the root.
    #[arg(long)]
    private_cgroups: bool,
    /// End when stdin ends, too: the process that holds it open has ended.
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
    /// Number of attempts to leave out, from the first one of the client.
    #[arg(long, default_value_t = 0, value_name = "OFFSET")]
    from: u64,
    /// End the client's plan now, and write nothing.
    #[arg(long)]
    stop: bool,
}

/// Arguments of `probe capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// An address of the device.
    #[arg(long, value_name = "ADDRESS")]
    device_of: IpAddr,
    /// From and to which address; may be repeated.
    #[arg(long, value_name = "ADDRESS", required = true)]
    address: Vec<IpAddr>,
}

/// Arguments of `probe send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Where to.
    #[arg(long, value_name = "ADDRESS")]
    to: IpAddr,
    /// What.
    #[arg(long)]
    what: Sent,
    /// How many.
    #[arg(long, default_value_t = 1)]
    count: u16,
}

/// Arguments of `probe transfer`.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The client's name in the attempt.
    #[arg(long, value_name = "NAME")]
    client: String,
    /// Label of the target in the attempt.
    #[arg(long, value_name = "LABEL")]
    target: String,
    /// What is dialled.
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// The own address; by default the kernel chooses.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Bytes to the server, at most 16 MiB.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_TRANSFER)))]
    upload: u32,
    /// Bytes from the server, at most 16 MiB.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_TRANSFER)))]
    download: u32,
    /// Limit of all in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// Arguments of `probe answer`.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// What it answers: at most 63 bytes.
    #[arg(long)]
    name: String,
    /// The first of its ports: one connection for a request, and datagrams. Requests on a connection are answered on the next
    /// port, streams are received on the one after it.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// How many connections of one request, and how many datagrams, are answered at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    threads: usize,
}

/// Most threads of a client or a server of load: more than most machines have processors.
const MOST_THREADS: usize = 256;

fn threads(text: &str) -> Result<usize, String> {
    let found = text.parse().ok();
    found
        .filter(|found| (1..=MOST_THREADS).contains(found))
        .ok_or_else(|| format!("expected 1 to {MOST_THREADS}, found {text:?}"))
}

/// Arguments of `probe load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Where the server's port for this exchange is reached; with --until also several, which are asked one after the other.
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    to: Vec<SocketAddr>,
    /// How many threads make exchanges at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads, conflicts_with = "until")]
    threads: usize,
    /// How long.
    #[arg(long = "for", value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    lasts: u64,
    #[command(flatten)]
    what: LoadWhat,
}

/// What `probe load` does.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct LoadWhat {
    /// The exchange: connect (a connection with one request), request (on one connection), udp-flow (a datagram on one
    /// socket), udp-new (on a new one), stream (64 KiB on one connection).
    #[arg(long)]
    work: Option<Work>,
    /// Connect every millisecond until the server of this name answers (or of another, if repeated), at most as long as
    /// that, and write when the connection began: the last one, of several destinations.
    #[arg(long, value_name = "NAME")]
    until: Vec<String>,
}

/// Arguments of `probe serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// First part of the identities it answers with: NAME/TCP/PORT.
    #[arg(long)]
    name: String,
    /// A TCP port to serve; may be repeated.
    /// It also answers HTTP: `curl http://ADDRESS:PORT/` prints the identity, and /readyz whether it is ready.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["udp", "sctp"])]
    tcp: Vec<u16>,
    /// A UDP port to serve; may be repeated.
    #[arg(long, value_name = "PORT")]
    udp: Vec<u16>,
    /// An SCTP port to serve; may be repeated. An error where the kernel does not have SCTP.
    #[arg(long, value_name = "PORT")]
    sctp: Vec<u16>,
    /// The address to serve on; by default all addresses of both families.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Behaviour with connections and datagrams: prompt, slow=MILLISECONDS (to answer), refuse (reset after accept),
    /// half-close. With refuse and half-close, datagrams are received and not answered.
    #[arg(long, default_value = "prompt", value_name = "MODE")]
    mode: Mode,
    /// Serve, and report that it is not ready.
    #[arg(long)]
    not_ready: bool,
    /// After SIGTERM, keep serving for this many milliseconds, not ready.
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    linger: u64,
    #[command(flatten)]
    pod: PodArgs,
}

/// The pod that it runs in, repeated in its answers. The downward API of Kubernetes sets it.
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
    /// `None` if no field is set.
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

/// Runs a subcommand to its end, in one thread: probes are many processes at once.
///
/// The runtime is made here, not by callers: what polls a future is compiled with the crate that hands it over, and this
/// one is optimised in every profile.
///
/// # Errors
/// What prevented its start, or ended it.
pub fn run(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(carry_out(args))
}

async fn carry_out(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    match args {
        ProbeArgs::Serve(args) => serve(*args).await?,
        ProbeArgs::Client(args) => client(args).await?,
        ProbeArgs::Sockets(args) => sockets(args).await?,
        ProbeArgs::Attach(args) => attach(args).await?,
        ProbeArgs::Capture(args) => {
            capture(args.device_of, &args.address, io::stdout().lock()).context("failed to watch packets")?;
        }
        ProbeArgs::Transfer(args) => transfer(args).await?,
        ProbeArgs::Answer(args) => answer(&args).await?,
        ProbeArgs::Load(args) => load(&args)?,
        ProbeArgs::Send(args) => send(args.to, args.what, args.count)
            .with_context(|| format!("failed to send packets to {}", args.to))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn answer(args: &AnswerArgs) -> anyhow::Result<()> {
    // The last one takes IPv4 too.
    let address = everywhere().pop().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let server = Answering::bind(&args.name, address, args.port)
        .with_context(|| format!("failed to listen on port {} and the two after it", args.port))?;
    let ended = CancellationToken::new();
    cancel_on_signals(&ended)?;
    eprintln!("{READY}port {}", server.port());
    server.start(args.threads);
    ended.cancelled().await;
    Ok(())
}

/// Between connections of `--until`.
const PAUSE: Duration = Duration::from_millis(1);

fn load(args: &LoadArgs) -> anyhow::Result<()> {
    let lasts = Duration::from_millis(args.lasts);
    let line = match (&args.what.work, args.what.until.as_slice()) {
        (Some(work), _) => {
            let [to] = *args.to.as_slice() else {
                anyhow::bail!("expected one --to for --work, found {}", args.to.len());
            };
            let measured = load::measure(*work, to, lasts, args.threads);
            wire::line(&measured.with_context(|| format!("failed to reach {to}"))?)
        }
        (None, names) => {
            let to: Vec<String> = args.to.iter().map(ToString::to_string).collect();
            let to = to.join(", ");
            // Its reader writes the change when this one watches.
            eprintln!("{READY}it watches {to}");
            let seen = load::watch(&args.to, names, PAUSE, lasts);
            let names = names.join(" or ");
            wire::line(&seen.with_context(|| format!("{names} was not reached at {to} within {lasts:?}"))?)
        }
    };
    Ok(io::stdout().write_all(&line)?)
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

/// Creates a cgroup namespace and executes this program in it: existing threads would stay outside.
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
    // It outlives the process that started it, and its terminal.
    set_pdeathsig(None).context("failed to detach from the process that started this")?;
    let _ignored = signal(SignalKind::hangup()).context("failed to register for SIGHUP")?;
    Ok(client::run_kept(plan, &socket, args.history.as_deref(), stop).await?)
}

async fn transfer(args: TransferArgs) -> anyhow::Result<()> {
    let TransferArgs {
        client,
        target,
        to,
        from,
        upload,
        download,
        limit,
    } = args;
    let attempt = client::transfer(&Transfer {
        client,
        target,
        to,
        from,
        upload,
        download,
        limit: Duration::from_millis(limit),
    })
    .await;
    let mut line = serde_json::to_vec(&attempt).context("failed to write the attempt")?;
    line.push(b'\n');
    tokio::io::stdout()
        .write_all(&line)
        .await
        .context("failed to write to stdout")?;
    tokio::io::stdout()
        .flush()
        .await
        .context("failed to write to stdout")
}

async fn sockets(args: SocketsArgs) -> anyhow::Result<()> {
    // As many as permitted: attempts beyond show the error.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("failed to read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("failed to raise the limit of open files")?;
    let stop = CancellationToken::new();
    cancel_on_signals(&stop)?;
    let input = BufReader::new(tokio::io::stdin());
    Ok(client::persistent_sockets::keep(&args.client, input, io::stdout(), stop).await?)
}

async fn attach(args: AttachArgs) -> anyhow::Result<()> {
    let AttachArgs { socket, from, stop } = args;
    let request = if stop {
        Request::Stop
    } else {
        Request::Read { from }
    };
    let response = control::send(&socket, request).await;
    let (status, mut attempts) = response.with_context(|| {
        let socket = socket.display();
        format!(
            "failed to connect to {socket}; expected the socket of a running `probe client --control {socket}`"
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

/// Time limit of a client after the end of its stdin: the reader of its output may have ended, too.
const ENDS: Duration = Duration::from_secs(5);

/// The end of stdin ends it, and the process if that is not enough.
fn cancel_with_stdin(stop: CancellationToken) {
    // A thread of its own: the runtime would wait for it before it lets the process end.
    std::thread::spawn(move || {
        // An error counts as the end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.cancel();
        std::thread::sleep(ENDS);
        std::process::exit(1);
    });
}

/// SIGTERM and SIGINT end it: the first process of a pod ends on them only if it handles them.
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
