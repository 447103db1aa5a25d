//! One pod from its assignment to this node until it is removed.

use std::{
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    container::{Container, LogFiles},
    sandbox::{Pool, Sandbox},
    spec::{self, PodSpec, Problem, Restart},
    status::{self, End, Facts, State},
    table::Table,
};
use crate::{LIMITS, LabError, backoff::Backoff, dir::LabDir, error::io_error, underlay::Node};

/// The desired state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodGoal {
    /// The pod runs.
    Run,
    /// The pod ends within this time, and is then removed from the API.
    End(Duration),
    /// The pod ends now: it was removed from the API.
    Gone,
}

impl PodGoal {
    /// The desired state, from the pod's object.
    pub(super) fn of(pod: &Pod) -> Self {
        spec::grace(pod).map_or(Self::Run, Self::End)
    }
}

/// What the workers of all pods of a node share.
pub(super) struct PodContext {
    pub(super) node: Arc<Node>,
    pub(super) client: kube::Client,
    pub(super) plumbline: PathBuf,
    pub(super) dir: LabDir,
    pub(super) pool: Arc<Pool>,
    pub(super) table: Arc<Table>,
}

/// The task of one pod.
pub(super) struct Worker {
    context: Arc<PodContext>,
    pod: Pod,
    wanted: watch::Receiver<PodGoal>,
    facts: Facts,
    facts_sender: watch::Sender<Option<Facts>>,
}

impl Worker {
    /// Runs a pod until nothing of it is left.
    pub(super) async fn run(context: Arc<PodContext>, pod: Pod, wanted: watch::Receiver<PodGoal>) {
        let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
        let (facts_sender, facts_receiver) = watch::channel(None);
        let writer = tokio::spawn(status::write(api.clone(), pod.clone(), facts_receiver));
        let facts = first_facts(&context, &pod);
        let mut worker = Self {
            context,
            pod,
            wanted,
            facts,
            facts_sender,
        };
        worker.context.table.enter(&worker.pod);
        worker.live().await;
        worker.context.table.leave(&worker.pod);
        let Self {
            pod,
            wanted,
            facts_sender,
            ..
        } = worker;
        drop(facts_sender);
        writer.abort();
        forget(&api, &pod, wanted).await;
    }

    async fn live(&mut self) {
        let spec = match spec::parse(&self.pod) {
            Ok(spec) => spec,
            Err(problem) => {
                self.wait_for_end(State::Waiting(problem)).await;
                return;
            }
        };
        let Some((sandbox, logs)) = self.prepare(&spec).await else {
            return;
        };
        self.facts.addresses = sandbox.addresses();
        self.context
            .table
            .place(&self.pod, sandbox.addresses(), sandbox.place());
        self.containers(&spec, &sandbox, &logs).await;
        self.context.table.displace(&self.pod);
        if let Err(error) = sandbox.remove().await {
            tracing::error!(pod = self.pod.name_any(), %error, "what the pod left could not be removed");
        }
    }

    /// Creates log files and sandbox, with retries, while the pod is wanted.
    async fn prepare(&mut self, spec: &PodSpec) -> Option<(Sandbox, LogFiles)> {
        self.set(State::Waiting(Problem {
            reason: "ContainerCreating",
            message: String::new(),
        }));
        let mut backoff = Backoff::restarts();
        while *self.wanted.borrow() == PodGoal::Run {
            match self.try_prepare(spec).await {
                Ok(made) => return Some(made),
                Err(error) => {
                    let message = error.to_string();
                    self.set(State::Waiting(Problem {
                        reason: "FailedCreatePodSandBox",
                        message,
                    }));
                    self.pause(backoff.wait()).await;
                }
            }
        }
        None
    }

    async fn try_prepare(&self, spec: &PodSpec) -> Result<(Sandbox, LogFiles), LabError> {
        let PodContext { node, dir, pool, .. } = &*self.context;
        let (namespace, name) = (self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        let uid = self.pod.uid().unwrap_or_default();
        let logs = LogFiles::create(
            &dir.logs(),
            &namespace,
            &name,
            &uid,
            &dir.pod_log(&namespace, &name),
        )
        .map_err(io_error(format!("make the log of {namespace}/{name}")))?;
        let sandbox = if spec.host_network {
            Sandbox::of_node(
                node,
                &uid,
                spec.host_processes.then(|| dir.node_folder(&node.name)),
            )?
        } else {
            Sandbox::create(node, &uid, pool).await?
        };
        Ok((sandbox, logs))
    }

    /// Runs the container until the pod is not wanted any more.
    async fn containers(&mut self, spec: &PodSpec, sandbox: &Sandbox, logs: &LogFiles) {
        let mut backoff = Backoff::restarts();
        while *self.wanted.borrow() == PodGoal::Run {
            let begin = Instant::now();
            let end = match self.once(spec, sandbox, logs).await {
                Ok(Some(end)) => end,
                Ok(None) => return,
                Err(error) => {
                    let now = Timestamp::now();
                    End {
                        code: 128,
                        signal: None,
                        begin: now,
                        end: now,
                        message: error.to_string(),
                    }
                }
            };
            // Processes that were started in the container end with it.
            if let Err(error) = sandbox.kill() {
                tracing::warn!(pod = self.pod.name_any(), %error, "processes of the pod could not be ended");
            }
            let again = match spec.restart {
                Restart::Always => true,
                Restart::OnFailure => end.code != 0,
                Restart::Never => false,
            };
            if !again {
                self.wait_for_end(State::Ended(end)).await;
                return;
            }
            let wait = backoff.wait_after_run(begin);
            let message = format!(
                "back-off {wait:?} restarting the container, which ended: {}",
                end.message
            );
            self.facts.last_end = Some(end);
            self.set(State::Waiting(Problem {
                reason: "CrashLoopBackOff",
                message,
            }));
            self.pause(wait).await;
            self.facts.restarts += 1;
        }
    }

    /// One run of the container. Returns `None` if it was ended because the pod is not wanted.
    async fn once(
        &mut self,
        spec: &PodSpec,
        sandbox: &Sandbox,
        logs: &LogFiles,
    ) -> Result<Option<End>, LabError> {
        self.context.table.run(&self.pod, &logs.stdout, Timestamp::now());
        let mut container = Container::start(
            &self.context.plumbline,
            &spec.args,
            &self.environment(),
            sandbox,
            logs,
        )
        .await?;
        let since = container.begin();
        self.set(State::Running { since, ready: false });
        let mut readiness = container.readiness();
        let mut slow = pin!(sleep(LIMITS.container_ready));
        let mut reported = None;
        let mut wanted = self.wanted.clone();
        loop {
            tokio::select! {
                end = container.wait() => return Ok(Some(end)),
                ready = readiness.other_than(reported) => {
                    reported = Some(ready);
                    self.set(State::Running { since, ready });
                }
                () = &mut slow, if reported.is_none() => {
                    sandbox.kill()?;
                    let mut end = container.wait().await;
                    let limit = LIMITS.container_ready;
                    end.message = format!("it did not serve within {limit:?} and was killed: {}", end.message);
                    return Ok(Some(end));
                }
                () = not_wanted(&mut wanted) => {
                    self.end(&mut container, sandbox, spec.pre_stop).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// The time of its hook, SIGTERM, SIGKILL at the end of the grace period, which begins with the hook; a pod that was removed from
    /// the API meanwhile has no grace period left.
    async fn end(
        &mut self,
        container: &mut Container,
        sandbox: &Sandbox,
        pre_stop: Duration,
    ) -> Result<(), LabError> {
        let mut is_hooked = matches!(*self.wanted.borrow(), PodGoal::End(grace) if !grace.is_zero());
        let (begin, since) = (Instant::now(), container.begin());
        let mut readiness = container.readiness();
        loop {
            let grace = match *self.wanted.borrow_and_update() {
                PodGoal::End(grace) => grace,
                PodGoal::Run | PodGoal::Gone => Duration::ZERO,
            };
            let left = grace.saturating_sub(begin.elapsed());
            tokio::select! {
                ended = timeout(left, container.wait()) => {
                    if ended.is_err() {
                        sandbox.kill()?;
                        container.wait().await;
                    }
                    return Ok(());
                }
                () = sleep(pre_stop.saturating_sub(begin.elapsed())), if is_hooked => {
                    is_hooked = false;
                    container.terminate();
                }
                // The container serves until its end, but is not ready any more.
                _ = readiness.other_than(Some(true)), if self.facts.ready() => {
                    self.set(State::Running { since, ready: false });
                }
                // A second deletion may shorten the grace.
                Ok(()) = self.wanted.changed() => {}
            }
        }
    }

    /// Identity of the pod, for its probe's answers: the lab's replacement of the downward API.
    fn environment(&self) -> [(&'static str, String); 4] {
        let uid = self.pod.uid().unwrap_or_default();
        environment(&self.context.node, uid, self.pod.name_any())
    }

    /// Reports a state until the pod is not wanted any more.
    async fn wait_for_end(&mut self, state: State) {
        self.set(state);
        not_wanted(&mut self.wanted).await;
    }

    /// Waits, unless the pod is not wanted any more.
    async fn pause(&mut self, wait: Duration) {
        drop(timeout(wait, not_wanted(&mut self.wanted)).await);
    }

    fn set(&mut self, state: State) {
        let was_ready = self.facts.ready();
        self.facts.state = state;
        if self.facts.ready() != was_ready {
            self.facts.ready_since = Timestamp::now();
        }
        self.context.table.show(&self.pod, &self.facts);
        self.facts_sender.send_replace(Some(self.facts.clone()));
    }
}

/// Waits until a pod is not wanted any more, or the lab goes down.
async fn not_wanted(wanted: &mut watch::Receiver<PodGoal>) {
    drop(wanted.wait_for(|wanted| *wanted != PodGoal::Run).await);
}

fn first_facts(context: &PodContext, pod: &Pod) -> Facts {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let taken = Timestamp::now();
    Facts {
        taken,
        hosts: context.node.addresses.internal(),
        addresses: Vec::new(),
        container: container
            .map(|container| container.name.clone())
            .unwrap_or_default(),
        image: container
            .and_then(|container| container.image.clone())
            .unwrap_or_default(),
        restarts: 0,
        state: State::Waiting(Problem {
            reason: "ContainerCreating",
            message: String::new(),
        }),
        ready_since: taken,
        last_end: None,
    }
}

/// Removes a pod that has ended from the API, with retries.
async fn forget(api: &Api<Pod>, pod: &Pod, wanted: watch::Receiver<PodGoal>) {
    let mut backoff = Backoff::writes();
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    while *wanted.borrow() != PodGoal::Gone {
        match api.delete(&pod.name_any(), &params).await {
            Ok(_) => return,
            // The pod is gone, or another pod has its name.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => return,
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), %error, "the pod that has ended could not be deleted");
                sleep(backoff.wait()).await;
            }
        }
    }
}
/// Environment of processes in a pod: its container, and processes that are started in it later.
pub(super) fn environment(node: &Node, uid: String, name: String) -> [(&'static str, String); 4] {
    [
        ("POD_UID", uid),
        ("POD_NAME", name),
        ("NODE_NAME", node.name.clone()),
        ("NODE_ZONE", node.addresses.zone().to_owned()),
    ]
}
