//! Requests of the API servers to the kubelets: logs, exec, port forwarding.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
};

use async_trait::async_trait;
use cluster::{NODE_FOLDER, spawn};
use futures::StreamExt;
use lab_apiserver::kubelet::{
    Connection, Container, ExecRequest, Kubelet, KubeletError, Log, PodOnNode, Process,
};
use tokio::net::TcpSocket;

use super::{
    container::exit_code,
    pod::environment,
    table::{PodSnapshot, Table},
    tail::Tail,
};
use crate::{LIMITS, underlay::Node};

/// The kubelets of all nodes.
pub(crate) struct Kubelets {
    nodes: BTreeMap<String, (Arc<Node>, Arc<Table>)>,
    plumbline: PathBuf,
}

impl Kubelets {
    /// All nodes with their pods; `plumbline` is the program that `probe` and `plumbline` stand for.
    pub(crate) fn new(nodes: impl Iterator<Item = (Arc<Node>, Arc<Table>)>, plumbline: PathBuf) -> Self {
        Self {
            nodes: nodes.map(|both| (both.0.name.clone(), both)).collect(),
            plumbline,
        }
    }

    fn pod(&self, pod: &PodOnNode) -> Result<(&Arc<Node>, Arc<Table>, PodSnapshot), KubeletError> {
        let (node, table) = self
            .nodes
            .get(&pod.node)
            .ok_or_else(|| KubeletError::Unreachable {
                node: pod.node.clone(),
                why: "the lab has no such node".to_owned(),
            })?;
        let snapshot = table.snapshot(pod).ok_or_else(waiting)?;
        Ok((node, table.clone(), snapshot))
    }
}

fn waiting() -> KubeletError {
    KubeletError::NotRunning {
        state: "waiting to start: ContainerCreating".to_owned(),
    }
}

#[async_trait]
impl Kubelet for Kubelets {
    async fn log(&self, container: &Container, previous: bool, follow: bool) -> Result<Log, KubeletError> {
        let (_, table, snapshot) = self.pod(&container.pod)?;
        let mut run = snapshot.run.ok_or_else(waiting)?;
        let mut to = None;
        if previous {
            to = Some(run.begin);
            run.begin = run.previous.ok_or(KubeletError::NoPreviousRun)?;
        }
        let mut tail = Tail::of(&run);
        let written = tail.read(to).await.map_err(|error| KubeletError::Exec {
            why: format!("failed to read {}: {error}", run.stdout.display()),
        })?;
        let pod = container.pod.clone();
        let following = (follow && !previous).then(|| tail.follow(table, pod).boxed());
        Ok(Log { written, following })
    }

    async fn exec(&self, container: &Container, request: &ExecRequest) -> Result<Process, KubeletError> {
        let failed = |why: String| KubeletError::Exec { why };
        let (node, _, snapshot) = self.pod(&container.pod)?;
        let place = snapshot.place.filter(|_| snapshot.running).ok_or_else(waiting)?;
        let mut command =
            spawn::program(&self.plumbline, &request.command).map_err(|error| failed(error.to_string()))?;
        let pod = &container.pod;
        command.envs(environment(node, pod.uid.clone(), pod.name.clone()));
        command.envs(place.host.iter().map(|folder| (NODE_FOLDER, folder)));
        let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
        command
            .stdin(pipe(request.stdin))
            .stdout(pipe(request.stdout))
            .stderr(pipe(request.stderr));
        let placement = place.placement().map_err(|error| failed(error.to_string()))?;
        let program = request.command.first().cloned().unwrap_or_default();
        let mut child = spawn::spawn(command, placement)
            .await
            .map_err(|error| failed(format!("failed to start {program:?}: {error}")))?;
        Ok(Process {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as _),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as _),
            // Dropping this future kills the child.
            ended: Box::pin(async move {
                let status = child.wait().await.map_err(|error| failed(error.to_string()))?;
                Ok(exit_code(status))
            }),
        })
    }

    async fn connect(&self, pod: &PodOnNode, port: u16) -> Result<Box<dyn Connection>, KubeletError> {
        let (node, _, snapshot) = self.pod(pod)?;
        let address: IpAddr = *snapshot.addresses.first().ok_or_else(waiting)?;
        let target = SocketAddr::new(address, port);
        let connect = async {
            let socket = node.net.inside(|| match address {
                IpAddr::V4(_) => TcpSocket::new_v4(),
                IpAddr::V6(_) => TcpSocket::new_v6(),
            })?;
            socket.connect(target).await
        };
        let connected = tokio::time::timeout(LIMITS.control, connect).await;
        let why = |why: &dyn ToString| KubeletError::Connect {
            why: format!("dial tcp {target}: {}", why.to_string()),
        };
        match connected {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(why(&error)),
            Err(_) => Err(why(&format!("no answer within {:?}", LIMITS.control))),
        }
    }
}
