//! The process that is a lab: it holds the namespaces, is the control plane and the kubelets, and keeps the
//! agents running.
//!
//! ```text
//!  start: {config} line on stdin ─▶ host ─▶ lock ─▶ leftovers ─▶ cgroups ─▶ underlay ─▶ API server ─▶ nodes ─▶ agents
//!  end:   SIGTERM, `down`, or stdin at its end (unless the line "detach" came) ─▶ teardown
//! ```
//!
//! It is crash-only: however it ends, its children end with it and its namespaces with them. What a SIGKILL
//! leaves is a folder and empty cgroups, which the next `up` or `down` removes.

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
    leftovers, output,
    protocol::{Reply, StartEvent},
};

/// The line on stdin after which its end is not the lab's.
pub(super) const DETACH: &str = "detach";

/// Is the lab whose configuration comes as a JSON line on stdin; returns when it is down.
///
/// Both stdin and stdout must be pipes. What goes wrong is told to the starter on stdout and said in the log; the
/// exit code says only that it did.
///
/// # Errors
/// Stdin is no pipe, so that there is no starter.
pub async fn supervise() -> Result<ExitCode, LabError> {
    let mut starter = Starter::new()?;
    match start_and_run(&mut starter).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            starter.tell(&StartEvent::from(&error));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn start_and_run(starter: &mut Starter) -> Result<(), LabError> {
    let config = starter.config().await?;
    config.check()?;
    let hierarchy = host::check(config.families)?;
    for note in host::also_used(config.nodes, config.families, &config.name).await? {
        starter.tell(&StartEvent::Step(note));
    }
    let dir = LabDir::new(&config.name);
    let lock = leftovers::claim(&hierarchy, &dir).await?;
    for gone in leftovers::remove_others(&hierarchy, &config.name)? {
        starter.tell(&StartEvent::Step(format!(
            "removed what the dead lab {gone:?} left"
        )));
    }
    let held = Held {
        home: Cgroup::own(&hierarchy)?,
        tree: Cgroup::of_lab(&hierarchy, &config.name),
        dir,
        lock,
    };
    let result = held.run(config, starter).await;
    match &result {
        Ok(_) => tracing::info!("taking the lab down"),
        Err(error) => tracing::error!(%error, "taking the lab down"),
    }
    let removed = held.remove();
    let asked = result?;
    if let Some(mut asked) = asked {
        let reply = match &removed {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Refused(ClusterError::failed("take the lab down", error)),
        };
        if let Err(error) = control::send(&mut asked, &reply).await {
            tracing::warn!(%error, "whoever asked is gone");
        }
    }
    removed
}

/// What outlives the lab's processes and namespaces.
struct Held {
    home: Cgroup,
    tree: Cgroup,
    dir: LabDir,
    lock: Lock,
}

impl Held {
    /// Returns when the lab is to end; the connection is that of whoever asked for it.
    async fn run(&self, config: LabConfig, starter: &mut Starter) -> Result<Option<UnixStream>, LabError> {
        self.tree.remove()?;
        self.dir.empty()?;
        log_to(&self.dir)?;
        raise_descriptor_limit()?;
        self.tree.control().create()?;
        self.tree.control().enter()?;
        let listener = control::listen(&self.dir.socket())?;
        let (down, mut asked) = mpsc::channel(1);
        let name = config.name.clone();
        let (steps, mut told) = output::steps();
        let limit = config.up_limit();
        let starting = timeout(limit, Lab::start(config, &self.tree, &self.dir, down, steps));
        let lab = {
            let mut starting = pin!(starting);
            let mut unwanted = pin!(control::wanted_down(&listener));
            loop {
                tokio::select! {
                    Some(step) = told.recv() => starter.tell(&StartEvent::Step(step)),
                    lab = &mut starting => break lab,
                    asked = &mut unwanted => {
                        starter.tell(&StartEvent::Failed("somebody took it down while it was starting".to_owned()));
                        return Ok(Some(asked));
                    }
                    () = starter.wants_the_end() => {
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
        while let Ok(step) = told.try_recv() {
            starter.tell(&StartEvent::Step(step));
        }
        lab.serve(|shared| control::serve(listener, shared));
        starter.tell(&StartEvent::Up);
        tracing::info!(name, "the lab is up");
        let asked = tokio::select! {
            () = starter.wants_the_end() => Ok(None),
            asked = asked.recv() => Ok(asked),
            broken = lab.broken() => Err(broken),
        };
        lab.end().await;
        asked
    }

    /// Ends all processes of the lab, and removes what is left when the namespaces are gone.
    fn remove(self) -> Result<(), LabError> {
        // Out of the subtree that is about to be killed.
        self.home.enter()?;
        self.tree.remove()?;
        self.dir.remove(self.lock)
    }
}

/// Whoever started this process.
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

    /// Tells it something; a starter that is gone is noticed at stdin.
    fn tell(&self, event: &StartEvent) {
        output::line(event);
    }

    /// Returns when the lab is to end: SIGTERM, SIGINT, or stdin ends before it was detached.
    async fn wants_the_end(&mut self) {
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

/// As many descriptors as are allowed: a few for each pod, and the usual soft limit is 1024.
fn raise_descriptor_limit() -> Result<(), LabError> {
    let (_, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| io_error("read a limit")(errno.into()))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        .map_err(|errno| io_error("raise the limit of open descriptors")(errno.into()))
}

/// From here on, what this process has to say is in the lab's folder.
fn log_to(dir: &LabDir) -> Result<(), LabError> {
    let path = dir.supervisor_log();
    let log = std::fs::File::create(&path).map_err(io_error(format!("make {}", path.display())))?;
    dup2_stderr(log).map_err(|errno| io_error("redirect stderr")(errno.into()))?;
    tracing::info!(pid = process::id(), "the supervisor is starting");
    Ok(())
}
