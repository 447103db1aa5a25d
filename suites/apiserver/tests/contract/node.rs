//! A kubelet to ask: it runs programs on this host, and has the logs and ports that a test gives it.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use lab_apiserver::kubelet::{
    Connection, Container, ExecRequest, Kubelet, KubeletError, Log, LogLine, PodOnNode, Process,
};
use tokio::net::TcpStream;

/// What the one node of a test has.
#[derive(Clone, Default)]
pub(crate) struct Node {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    written: VecDeque<LogLine>,
    followers: Vec<mpsc::UnboundedSender<LogLine>>,
    /// Where every port of every pod is.
    listens: Option<SocketAddr>,
    asked: Vec<Container>,
}

impl Node {
    /// A container writes a line, so many seconds ago.
    pub(crate) fn write(&self, seconds_ago: i64, text: &str) {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds_ago);
        let line = LogLine {
            at,
            text: Bytes::from(format!("{text}\n")),
        };
        let mut shared = self.shared.lock().expect("no panic");
        shared
            .followers
            .retain(|follower| follower.unbounded_send(line.clone()).is_ok());
        shared.written.push_back(line);
    }

    /// The container ends, and so do its followers.
    pub(crate) fn end_logs(&self) {
        self.shared.lock().expect("no panic").followers.clear();
    }

    pub(crate) fn followers(&self) -> usize {
        self.shared.lock().expect("no panic").followers.len()
    }

    pub(crate) fn listen(&self, address: SocketAddr) {
        self.shared.lock().expect("no panic").listens = Some(address);
    }

    /// The containers that were asked for, oldest first.
    pub(crate) fn asked(&self) -> Vec<Container> {
        self.shared.lock().expect("no panic").asked.clone()
    }
}

#[async_trait]
impl Kubelet for Node {
    async fn log(&self, container: &Container, previous: bool, follow: bool) -> Result<Log, KubeletError> {
        if previous {
            return Err(KubeletError::NoPreviousRun);
        }
        if container.name == "waits" {
            let state = "waiting to start: ContainerCreating".to_owned();
            return Err(KubeletError::NotRunning { state });
        }
        let mut shared = self.shared.lock().expect("no panic");
        shared.asked.push(container.clone());
        let following = follow.then(|| {
            let (sender, receiver) = mpsc::unbounded();
            shared.followers.push(sender);
            receiver.boxed()
        });
        Ok(Log {
            written: shared.written.clone(),
            following,
        })
    }

    async fn exec(&self, container: &Container, request: &ExecRequest) -> Result<Process, KubeletError> {
        self.shared
            .lock()
            .expect("no panic")
            .asked
            .push(container.clone());
        let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
        let spawned = tokio::process::Command::new(&request.command[0])
            .args(&request.command[1..])
            .stdin(pipe(request.stdin))
            .stdout(pipe(request.stdout))
            .stderr(pipe(request.stderr))
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| KubeletError::Exec {
            why: error.to_string(),
        })?;
        Ok(Process {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as _),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as _),
            ended: Box::pin(async move {
                let status = child.wait().await;
                let status = status.map_err(|error| KubeletError::Exec {
                    why: error.to_string(),
                })?;
                Ok(status.code().expect("no test kills it"))
            }),
        })
    }

    async fn connect(&self, _pod: &PodOnNode, port: u16) -> Result<Box<dyn Connection>, KubeletError> {
        let listens = self.shared.lock().expect("no panic").listens;
        let address = listens
            .filter(|_| port == 8080)
            .ok_or_else(|| KubeletError::Connect {
                why: format!("dial tcp 10.1.1.1:{port}: connect: connection refused"),
            })?;
        let stream = TcpStream::connect(address).await.expect("the test listens");
        Ok(Box::new(stream))
    }
}
