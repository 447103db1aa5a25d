//! The supervisor process of a lab: it holds the namespaces, runs the control plane and the kubelets, and keeps the
//! agents running.
//!
//! ```text
//!  start: {config} line on stdin ─▶ host ─▶ lock ─▶ leftovers ─▶ cgroups ─▶ underlay ─▶ API server ─▶ nodes ─▶ agents
//!  end:   SIGTERM, `down`, or stdin at its end (unless the line "detach" came) ─▶ teardown
//! ```
//!
//! The supervisor is crash-only: its children and namespaces end with it. A SIGKILL leaves a folder and empty
//! cgroups, which the next `up` or `down` removes.

use std::{
    io,
    os::fd::AsFd,
    pin::pin,
    process::{self, ExitCode},
};

use cluster::ClusterError;
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::dup2_stderr,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    net::{UnixStream, unix::pipe},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::timeout,
};

use super::{
    LIMITS, LabConfig, LabError,
    cgroup::Cgroup,
    control,
    dir::{self, LabDir, Lock},
    error::io_error,
    host,
    lab::Lab,
    leftovers,
    protocol::{Reply, StartEvent},
    start_events,
};

/// After this line on stdin, the lab survives the end of stdin.
pub(super) const DETACH: &str = "detach";

/// Runs the lab whose configuration is a JSON line on stdin; returns when it is down.
///
/// Both stdin and stdout must be pipes. Errors are sent to the parent on stdout and logged; the exit code only
/// indicates failure.
///
/// # Errors
/// Stdin is no pipe, so there is no parent to report to.
pub async fn supervise() -> Result<ExitCode, LabError> {
    let mut starter = Starter::new()?;
    match start_and_run(&mut starter).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            starter.send(&StartEvent::from(&error));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn start_and_run(starter: &mut Starter) -> Result<(), LabError> {
    let config = starter.config().await?;
    config.check()?;
    let hierarchy = host::check(config.families)?;
    for note in host::also_used(config.nodes, config.families, &config.name).await? {
        starter.send(&StartEvent::Step(note));
    }
    let dir = LabDir::new(&config.name);
    let lock = leftovers::claim(&hierarchy, &dir).await?;
    for gone in leftovers::remove_others(&hierarchy, &config.name)? {
        starter.send(&StartEvent::Step(format!(
            "removed what the dead lab {gone:?} left"
        )));
    }
    let resources = LabResources {
        home: Cgroup::own(&hierarchy)?,
        tree: Cgroup::of_lab(&hierarchy, &config.name),
        dir,
        lock,
    };
    let result = resources.run(config, starter).await;
    match &result {
        Ok(_) => tracing::info!("taking the lab down"),
        Err(error) => tracing::error!(%error, "taking the lab down"),
    }
    let removed = resources.remove();
    let requester = result?;
    if let Some(mut requester) = requester {
        let reply = match &removed {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Refused(ClusterError::failed("take the lab down", error)),
        };
        if let Err(error) = control::send(&mut requester, &reply).await {
            tracing::warn!(%error, "the client of the down request is gone");
        }
    }
    removed
}

/// Resources that survive the lab's processes and namespaces.
struct LabResources {
    home: Cgroup,
    tree: Cgroup,
    dir: LabDir,
    lock: Lock,
}

impl LabResources {
    /// Returns when the lab has to end, with the connection of the `down` request.
    async fn run(&self, config: LabConfig, starter: &mut Starter) -> Result<Option<UnixStream>, LabError> {
        self.tree.remove()?;
        self.dir.empty()?;
        log_to(&self.dir)?;
        raise_descriptor_limit()?;
        self.tree.control().create()?;
        self.tree.control().enter()?;
        let listener = control::listen(&self.dir.socket())?;
        let (down, mut requester) = mpsc::channel(1);
        let name = config.name.clone();
        let (steps, mut steps_begun) = start_events::steps();
        let limit = config.up_limit();
        let starting = timeout(limit, Lab::start(config, &self.tree, &self.dir, down, steps));
        let lab = {
            let mut starting = pin!(starting);
            let mut unwanted = pin!(control::down_requested(&listener));
            loop {
                tokio::select! {
                    Some(step) = steps_begun.recv() => starter.send(&StartEvent::Step(step)),
                    lab = &mut starting => break lab,
                    requester = &mut unwanted => {
                        starter.send(&StartEvent::Failed("another process took it down while it was starting".to_owned()));
                        return Ok(Some(requester));
                    }
                    () = starter.end_requested() => {
                        return Err(LabError::Start { name, why: "its starter has ended".to_owned() });
                    }
                }
            }
        };
        let mut lab = lab.map_err(|_| LabError::Limit {
            what: format!("the start of lab {name:?}"),
            limit,
            hint: dir::tail(&self.dir.supervisor_log()),
        })??;
        while let Ok(step) = steps_begun.try_recv() {
            starter.send(&StartEvent::Step(step));
        }
        lab.serve(|shared| control::serve(listener, shared));
        starter.send(&StartEvent::Up);
        tracing::info!(name, "the lab is up");
        let requester = tokio::select! {
            () = starter.end_requested() => Ok(None),
            requester = requester.recv() => Ok(requester),
            broken = lab.broken() => Err(broken),
        };
        lab.end().await;
        requester
    }

    /// Ends all processes of the lab, and removes the rest when the namespaces are gone.
    fn remove(self) -> Result<(), LabError> {
        // Leaves the subtree before it is killed.
        self.home.enter()?;
        self.tree.remove()?;
        self.dir.remove(self.lock)
    }
}

/// The process that has started this supervisor.
struct Starter {
    input: Lines<BufReader<tokio::io::Take<pipe::Receiver>>>,
    detached: bool,
    terminate: Signal,
    interrupt: Signal,
}

impl Starter {
    fn new() -> Result<Self, LabError> {
        let failed = || io_error("read the lab's configuration from stdin, which must be a pipe");
        let stdin = io::stdin();
        let owned = stdin.as_fd().try_clone_to_owned().map_err(failed())?;
        let input = pipe::Receiver::from_owned_fd(owned).map_err(failed())?;
        let register = |kind| signal(kind).map_err(io_error("register for SIGTERM and SIGINT"));
        Ok(Self {
            input: BufReader::new(input.take(LIMITS.control_bytes)).lines(),
            detached: false,
            terminate: register(SignalKind::terminate())?,
            interrupt: register(SignalKind::interrupt())?,
        })
    }

    async fn config(&mut self) -> Result<LabConfig, LabError> {
        let wrong = |why: String| LabError::Start {
            name: String::new(),
            why,
        };
        let line = timeout(LIMITS.control, self.input.next_line()).await;
        let line = line
            .map_err(|_| wrong("no configuration came on stdin".to_owned()))?
            .map_err(io_error("read the lab's configuration"))?
            .ok_or_else(|| wrong("stdin ended before the configuration".to_owned()))?;
        serde_json::from_str(&line).map_err(|error| wrong(format!("its configuration is wrong: {error}")))
    }

    /// Sends an event; the end of stdin shows that the parent is gone.
    fn send(&self, event: &StartEvent) {
        start_events::line(event);
    }

    /// Returns when the lab has to end: SIGTERM, SIGINT, or the end of stdin without detaching.
    async fn end_requested(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                line = self.input.next_line(), if !self.detached => match line {
                    Ok(Some(line)) => self.detached = line == DETACH,
                    Ok(None) | Err(_) => return,
                },
            }
        }
    }
}

/// Raises the soft limit, usually 1024, to the hard limit: each pod needs a few descriptors.
fn raise_descriptor_limit() -> Result<(), LabError> {
    let (_, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| io_error("read a limit")(errno.into()))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        .map_err(|errno| io_error("raise the limit of open descriptors")(errno.into()))
}

/// Redirects the log into the lab's folder.
fn log_to(dir: &LabDir) -> Result<(), LabError> {
    let path = dir.supervisor_log();
    let log = std::fs::File::create(&path).map_err(io_error(format!("make {}", path.display())))?;
    dup2_stderr(log).map_err(|errno| io_error("redirect stderr")(errno.into()))?;
    tracing::info!(pid = process::id(), "the supervisor is starting");
    Ok(())
}
