//! Keeps the agent of one node running, until somebody wants it stopped.

use std::{
    fs::OpenOptions,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use cluster::{AgentState, ApiEndpoint, Stop, Variant, command_line, spawn, target::program::Values};
use tokio::{
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    AgentCommand, LIMITS, LabError,
    backoff::Backoff,
    ending::{describe, stop},
    error::io_error,
    health,
    mounts::{BPFFS, CGROUPS},
    node::Node,
    redirection::Redirection,
};

/// Orders that wait; each is answered before the next is taken.
const ORDERS: usize = 16;

/// The agent of one node, as the control socket sees it.
#[derive(Debug)]
pub(super) struct Agent {
    node: Arc<Node>,
    command: AgentCommand,
    files: Files,
    redirection: Redirection,
    orders: mpsc::Sender<Order>,
    seen: watch::Receiver<Seen>,
}

/// Files of an agent.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// That leads to the API server from its node.
    pub(super) kubeconfig: PathBuf,
    /// The same with another endpoint, while a case redirects it there.
    pub(super) redirected: PathBuf,
    /// What it says.
    pub(super) log: PathBuf,
    /// What it keeps between its runs.
    pub(super) state: PathBuf,
}

/// What is known of its process.
#[derive(Clone, Debug, Default)]
struct Seen {
    pid: Option<u32>,
    starts: u32,
    last_exit: Option<String>,
    stopped: bool,
    variant: Option<Variant>,
}

enum Order {
    Stop(Stop, oneshot::Sender<()>),
    Start(Option<Variant>, oneshot::Sender<Result<(), String>>),
}

impl Agent {
    /// Starts it; the returned future keeps it running and is to be spawned.
    pub(super) fn new(
        node: Arc<Node>,
        command: AgentCommand,
        files: Files,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (orders, taken) = mpsc::channel(ORDERS);
        let (tell, seen) = watch::channel(Seen::default());
        let redirection = Redirection::default();
        let keeper = Keeper {
            node: node.clone(),
            command: command.clone(),
            files: files.clone(),
            redirection: redirection.clone(),
            orders: taken,
            seen: tell,
        };
        (
            Self {
                node,
                command,
                files,
                redirection,
                orders,
                seen,
            },
            keeper.run(),
        )
    }

    /// Waits until it has been started once, or could not be.
    pub(super) async fn started(&self) -> Result<(), LabError> {
        let mut seen = self.seen.clone();
        let first = seen
            .wait_for(|seen| seen.starts > 0 || seen.last_exit.is_some())
            .await;
        match first.map(|seen| (seen.starts, seen.last_exit.clone())) {
            Ok((0, why)) => Err(LabError::Host {
                what: format!("start the agent `{}`", command_line(&self.command.argv)),
                why: why.unwrap_or_default(),
                remedy: "Check the path and that it is executable",
            }),
            _ => Ok(()),
        }
    }

    /// How it is, asking whether it is ready if it runs.
    pub(super) async fn state(&self) -> AgentState {
        let seen = self.seen.borrow().clone();
        let ready = match seen.pid {
            Some(_) => timeout(
                LIMITS.agent_ready,
                health::ready(&self.node.net, &self.command.program.ready),
            )
            .await
            .ok()
            .and_then(Result::ok),
            None => None,
        };
        AgentState {
            pid: seen.pid,
            starts: seen.starts,
            ready,
            last_exit: seen.last_exit,
            way: self.redirection.told(),
            variant: seen.variant,
        }
    }

    /// How it is told to reach the API from its next start on; it must be stopped.
    pub(super) fn set_api_endpoint(&self, to: Option<ApiEndpoint>) -> Result<(), String> {
        self.must_be_stopped()?;
        self.redirection
            .set(&self.files.kubeconfig, &self.files.redirected, to)
    }

    fn must_be_stopped(&self) -> Result<(), String> {
        if self.seen.borrow().stopped {
            return Ok(());
        }
        let node = &self.node.name;
        Err(format!("the agent of {node} is not stopped; stop it first"))
    }

    /// Ends it and keeps it ended.
    pub(super) async fn stop(&self, how: Stop) -> Result<(), String> {
        let (tell, told) = oneshot::channel();
        self.order(Order::Stop(how, tell)).await?;
        told.await.map_err(|_| "the lab is going down".to_owned())
    }

    /// Starts it, if it does not run in this configuration; `None`: its target's own.
    pub(super) async fn start(&self, variant: Option<Variant>) -> Result<(), String> {
        if let Some(unknown) = variant.filter(|variant| !self.command.program.variants.contains_key(variant))
        {
            return Err(format!("its target has no variant {unknown}"));
        }
        let (tell, told) = oneshot::channel();
        self.order(Order::Start(variant, tell)).await?;
        told.await.map_err(|_| "the lab is going down".to_owned())?
    }

    /// Runs its documented clean-up; the agent must be stopped.
    pub(super) async fn clean_up(&self) -> Result<(), String> {
        self.must_be_stopped()?;
        let mut command = base(&self.command);
        let values = values(&self.node, &self.files);
        command.args(values.fill(&self.command.program.cleanup));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let placement = self
            .node
            .placement(&self.node.agent_cgroup())
            .map_err(|error| error.to_string())?;
        let child = spawn::spawn(command, placement)
            .await
            .map_err(|error| error.to_string())?;
        let output = timeout(LIMITS.agent_cleanup, child.wait_with_output()).await;
        let output = output
            .map_err(|_| format!("its clean-up did not end within {:?}", LIMITS.agent_cleanup))?
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!(
            "its clean-up ended with {}: {}",
            describe(output.status),
            said.trim_end()
        ))
    }

    async fn order(&self, order: Order) -> Result<(), String> {
        self.orders
            .send(order)
            .await
            .map_err(|_| "the lab is going down".to_owned())
    }
}

fn base(agent: &AgentCommand) -> Command {
    // The configuration's check has seen that it is not empty.
    let program = agent.argv.first().map_or("", String::as_str);
    let mut command = Command::new(program);
    command.args(agent.argv.iter().skip(1));
    command
}

/// What the names in a target's arguments stand for.
fn values<'a>(node: &'a Node, files: &'a Files) -> Values<'a> {
    Values {
        kubeconfig: &files.kubeconfig,
        node: &node.name,
        cgroup: CGROUPS,
        bpffs: BPFFS,
        state: &files.state,
    }
}

/// The task that owns the process.
struct Keeper {
    node: Arc<Node>,
    command: AgentCommand,
    files: Files,
    redirection: Redirection,
    orders: mpsc::Receiver<Order>,
    seen: watch::Sender<Seen>,
}

enum Phase {
    Start,
    Running(Child, Instant),
    Waiting(std::time::Duration),
    Stopped,
}

impl Keeper {
    async fn run(mut self) {
        let mut backoff = Backoff::restarts();
        let mut phase = Phase::Start;
        loop {
            phase = match phase {
                Phase::Start => match self.start().await {
                    Ok(child) => Phase::Running(child, Instant::now()),
                    Err(error) => {
                        self.ended(&format!("could not be started: {error}"));
                        Phase::Waiting(backoff.wait())
                    }
                },
                Phase::Running(mut child, begin) => {
                    tokio::select! {
                        status = child.wait() => {
                            self.ended(&status.map_or_else(|error| error.to_string(), describe));
                            Phase::Waiting(backoff.wait_after_run(begin))
                        }
                        order = self.orders.recv() => match order {
                            None => return,
                            Some(Order::Start(variant, tell)) if variant == self.variant() => {
                                drop(tell.send(Ok(())));
                                Phase::Running(child, begin)
                            }
                            Some(Order::Start(variant, tell)) => {
                                let end = stop(&mut child, Stop::Term).await;
                                self.ended(&end);
                                self.start_as(variant, tell).await
                            }
                            Some(Order::Stop(how, tell)) => {
                                let end = stop(&mut child, how).await;
                                self.stopped(Some(end), tell);
                                Phase::Stopped
                            }
                        },
                    }
                }
                Phase::Waiting(wait) => tokio::select! {
                    () = sleep(wait) => Phase::Start,
                    order = self.orders.recv() => match self.idle(order).await {
                        None => return,
                        Some(next) => next,
                    },
                },
                Phase::Stopped => {
                    let order = self.orders.recv().await;
                    match self.idle(order).await {
                        None => return,
                        Some(next) => next,
                    }
                }
            };
        }
    }

    /// An order while nothing runs.
    async fn idle(&mut self, order: Option<Order>) -> Option<Phase> {
        match order? {
            Order::Stop(_, tell) => {
                self.stopped(None, tell);
                Some(Phase::Stopped)
            }
            Order::Start(variant, tell) => Some(self.start_as(variant, tell).await),
        }
    }

    /// Starts it in a configuration, which lasts until the next order.
    async fn start_as(
        &mut self,
        variant: Option<Variant>,
        tell: oneshot::Sender<Result<(), String>>,
    ) -> Phase {
        self.seen.send_modify(|seen| seen.variant = variant);
        match self.start().await {
            Ok(child) => {
                drop(tell.send(Ok(())));
                Phase::Running(child, Instant::now())
            }
            Err(error) => {
                self.ended(&format!("could not be started: {error}"));
                drop(tell.send(Err(error.to_string())));
                Phase::Waiting(LIMITS.restart_first)
            }
        }
    }

    fn variant(&self) -> Option<Variant> {
        self.seen.borrow().variant
    }

    async fn start(&mut self) -> Result<Child, LabError> {
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).open(&self.files.log);
        let mut log = opened.map_err(io_error(format!("open {}", self.files.log.display())))?;
        let start = self.seen.borrow().starts + 1;
        let failed = || io_error(format!("write {}", self.files.log.display()));
        writeln!(log, "--- start {start} of the agent on {} ---", self.node.name).map_err(failed())?;
        let mut command = base(&self.command);
        let way = self.redirection.told();
        let mut values = values(&self.node, &self.files);
        if way.is_some() {
            values.kubeconfig = &self.files.redirected;
        }
        let program = &self.command.program;
        command.args(values.fill(&program.run));
        let added = self.variant().and_then(|variant| program.variants.get(&variant));
        command.args(values.fill(added.map_or(&[], Vec::as_slice)));
        command.args(way.map_or_else(Vec::new, |way| program.api.further(&way.further)));
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed())?).stderr(log);
        let placement = self.node.placement(&self.node.agent_cgroup())?;
        let child = spawn::spawn(command, placement)
            .await
            .map_err(io_error("start it"))?;
        self.seen.send_modify(|seen| {
            seen.pid = child.id();
            seen.starts = start;
            seen.stopped = false;
        });
        Ok(child)
    }

    /// Its process has ended; whatever that had started ends too, as in a container.
    fn ended(&self, how: &str) {
        tracing::info!(node = self.node.name, how, "the agent ended");
        if let Err(error) = self.node.agent_cgroup().kill() {
            tracing::warn!(node = self.node.name, %error, "what the agent left running could not be ended");
        }
        self.seen.send_modify(|seen| {
            seen.pid = None;
            seen.last_exit = Some(how.to_owned());
        });
    }

    fn stopped(&self, end: Option<String>, tell: oneshot::Sender<()>) {
        if let Some(end) = end {
            self.ended(&end);
        }
        self.seen.send_modify(|seen| seen.stopped = true);
        tell.send(()).ok();
    }
}
