//! Keeps the agent of one node running until a request stops it.

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
    error::io_error,
    health,
    kernel_writes::Watch,
    mounts::{BPFFS, CGROUPS},
    process_end::{describe, stop},
    redirection::Redirection,
    underlay::Node,
};

/// Requests in the queue; each is answered before the next is taken.
const ORDERS: usize = 16;

/// The agent of one node, as the control socket uses it. Clones are of the same agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    node: Arc<Node>,
    command: AgentCommand,
    files: Files,
    redirection: Redirection,
    watch: Watch,
    orders: mpsc::Sender<Order>,
    process_state: watch::Receiver<ProcessState>,
}

/// Files of an agent.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Kubeconfig with the node's usual API endpoint.
    pub(super) kubeconfig: PathBuf,
    /// Kubeconfig with another endpoint, while a case redirects the agent.
    pub(super) redirected: PathBuf,
    /// The agent's log.
    pub(super) log: PathBuf,
    /// The agent's state directory, kept between its runs.
    pub(super) state: PathBuf,
}

/// State of the agent's process.
#[derive(Clone, Debug, Default)]
struct ProcessState {
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
    /// Creates the agent. The returned future starts it and keeps it running, and has to be spawned.
    pub(super) fn new(
        node: Arc<Node>,
        command: AgentCommand,
        files: Files,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (orders, taken) = mpsc::channel(ORDERS);
        let (sender, process_state) = watch::channel(ProcessState::default());
        let (redirection, watch) = (Redirection::default(), Watch::default());
        let task = AgentTask {
            node: node.clone(),
            command: command.clone(),
            files: files.clone(),
            redirection: redirection.clone(),
            watch: watch.clone(),
            orders: taken,
            process_state: sender,
        };
        (
            Self {
                node,
                command,
                files,
                redirection,
                watch,
                orders,
                process_state,
            },
            task.run(),
        )
    }

    /// Waits until the first start has succeeded or failed.
    pub(super) async fn started(&self) -> Result<(), LabError> {
        let mut process_state = self.process_state.clone();
        let first = process_state
            .wait_for(|process_state| process_state.starts > 0 || process_state.last_exit.is_some())
            .await;
        match first.map(|process_state| (process_state.starts, process_state.last_exit.clone())) {
            Ok((0, why)) => Err(LabError::Host {
                what: format!("start the agent `{}`", command_line(&self.command.argv)),
                why: why.unwrap_or_default(),
                remedy: "Check the path and that it is executable",
            }),
            _ => Ok(()),
        }
    }

    /// State of the agent, with the result of its readiness endpoint if it runs.
    pub(super) async fn state(&self) -> AgentState {
        let process_state = self.process_state.borrow().clone();
        let ready = match process_state.pid {
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
            pid: process_state.pid,
            starts: process_state.starts,
            ready,
            last_exit: process_state.last_exit,
            way: self.redirection.endpoint(),
            variant: process_state.variant,
        }
    }

    /// Name of its node.
    pub(super) fn node(&self) -> &str {
        &self.node.name
    }

    /// Whether writes of its next starts can fail, and of this one if it was started since.
    pub(super) const fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Sets the API endpoint for the next starts; the agent must be stopped.
    pub(super) fn set_api_endpoint(&self, to: Option<ApiEndpoint>) -> Result<(), String> {
        self.must_be_stopped()?;
        self.redirection
            .set(&self.files.kubeconfig, &self.files.redirected, to)
    }

    fn must_be_stopped(&self) -> Result<(), String> {
        if self.process_state.borrow().stopped {
            return Ok(());
        }
        let node = &self.node.name;
        Err(format!("the agent of {node} is not stopped; stop it first"))
    }

    /// Stops the agent until it is started again.
    pub(super) async fn stop(&self, how: Stop) -> Result<(), String> {
        let (sender, done) = oneshot::channel();
        self.order(Order::Stop(how, sender)).await?;
        done.await.map_err(|_| "the lab is going down".to_owned())
    }

    /// Starts the agent, if it does not run in this configuration; `None`: the target's default.
    pub(super) async fn start(&self, variant: Option<Variant>) -> Result<(), String> {
        let known = self.command.program.configurations();
        if let Some(unknown) = variant.filter(|variant| !known.contains(variant)) {
            return Err(format!("its target has no variant {unknown}"));
        }
        let (sender, done) = oneshot::channel();
        self.order(Order::Start(variant, sender)).await?;
        done.await.map_err(|_| "the lab is going down".to_owned())?
    }

    /// Runs the target's documented clean-up; the agent must be stopped.
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
    // `LabConfig::check` has refused an empty command.
    let program = agent.argv.first().map_or("", String::as_str);
    let mut command = Command::new(program);
    command.args(agent.argv.iter().skip(1));
    command
}

/// Values of the names in a target's arguments.
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
struct AgentTask {
    node: Arc<Node>,
    command: AgentCommand,
    files: Files,
    redirection: Redirection,
    watch: Watch,
    orders: mpsc::Receiver<Order>,
    process_state: watch::Sender<ProcessState>,
}

enum Phase {
    Start,
    Running(Child, Instant),
    Waiting(std::time::Duration),
    Stopped,
}

impl AgentTask {
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
                            Some(Order::Start(variant, sender)) if variant == self.variant() => {
                                drop(sender.send(Ok(())));
                                Phase::Running(child, begin)
                            }
                            Some(Order::Start(variant, sender)) => {
                                let end = stop(&mut child, Stop::Term).await;
                                self.ended(&end);
                                self.start_as(variant, sender).await
                            }
                            Some(Order::Stop(how, sender)) => {
                                let end = stop(&mut child, how).await;
                                self.stopped(Some(end), sender);
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

    /// Waits for a request while no agent runs.
    async fn idle(&mut self, order: Option<Order>) -> Option<Phase> {
        match order? {
            Order::Stop(_, sender) => {
                self.stopped(None, sender);
                Some(Phase::Stopped)
            }
            Order::Start(variant, sender) => Some(self.start_as(variant, sender).await),
        }
    }

    /// Starts the agent in a configuration, which lasts until the next request.
    async fn start_as(
        &mut self,
        variant: Option<Variant>,
        sender: oneshot::Sender<Result<(), String>>,
    ) -> Phase {
        self.process_state
            .send_modify(|process_state| process_state.variant = variant);
        match self.start().await {
            Ok(child) => {
                drop(sender.send(Ok(())));
                Phase::Running(child, Instant::now())
            }
            Err(error) => {
                self.ended(&format!("could not be started: {error}"));
                drop(sender.send(Err(error.to_string())));
                Phase::Waiting(LIMITS.restart_first)
            }
        }
    }

    fn variant(&self) -> Option<Variant> {
        self.process_state.borrow().variant
    }

    async fn start(&mut self) -> Result<Child, LabError> {
        let mut options = OpenOptions::new();
        let opened = options.create(true).append(true).open(&self.files.log);
        let mut log = opened.map_err(io_error(format!("open {}", self.files.log.display())))?;
        let start = self.process_state.borrow().starts + 1;
        let failed = || io_error(format!("write {}", self.files.log.display()));
        writeln!(log, "--- start {start} of the agent on {} ---", self.node.name).map_err(failed())?;
        let variant = self.variant();
        let (mut command, run) = match &self.command.other_release {
            Some(other) if variant == Some(Variant::OtherRelease) => {
                let own = self.command.program.other_release.as_ref();
                (Command::new(other), own.and_then(|own| own.run.as_ref()))
            }
            _ => (base(&self.command), None),
        };
        let way = self.redirection.endpoint();
        let mut values = values(&self.node, &self.files);
        if way.is_some() {
            values.kubeconfig = &self.files.redirected;
        }
        let program = &self.command.program;
        command.args(values.fill(run.unwrap_or(&program.run)));
        let added = variant.and_then(|variant| program.variants.get(&variant));
        command.args(values.fill(added.map_or(&[], Vec::as_slice)));
        command.args(way.map_or_else(Vec::new, |way| program.api.further(&way.further)));
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed())?).stderr(log);
        let placement = self.node.placement(&self.node.agent_cgroup())?;
        let child = match self.watch.writes() {
            Some(writes) => writes.spawn(command, placement).await,
            None => spawn::spawn(command, placement).await,
        };
        let child = child.map_err(io_error("start it"))?;
        self.process_state.send_modify(|process_state| {
            process_state.pid = child.id();
            process_state.starts = start;
            process_state.stopped = false;
        });
        Ok(child)
    }

    /// Records the end of the process, and kills its descendants, as a container runtime does.
    fn ended(&self, how: &str) {
        tracing::info!(node = self.node.name, how, "the agent ended");
        if let Err(error) = self.node.agent_cgroup().kill() {
            tracing::warn!(node = self.node.name, %error, "what the agent left running could not be ended");
        }
        self.process_state.send_modify(|process_state| {
            process_state.pid = None;
            process_state.last_exit = Some(how.to_owned());
        });
    }

    fn stopped(&self, end: Option<String>, sender: oneshot::Sender<()>) {
        if let Some(end) = end {
            self.ended(&end);
        }
        self.process_state
            .send_modify(|process_state| process_state.stopped = true);
        sender.send(()).ok();
    }
}
