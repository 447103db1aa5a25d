//! The kubelet's part of `log`, `exec` and `proxy`.
//!
//! Upstream's API server connects to the kubelet's server. Here, the program that runs the pods implements [`Kubelet`] and gives
//! it to the [`Store`](crate::Store). Selecting log lines, kubectl's protocols, and refusals by API objects are done by the API
//! server itself.

use std::{collections::VecDeque, fmt};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

/// Runs the pods of a cluster.
///
/// A call is about a pod that the API has and that is assigned to a node, and about a container in its spec; whether it
/// runs, only the node knows. Calls come at once, from any number of clients.
#[async_trait]
pub trait Kubelet: Send + Sync {
    /// What a container wrote.
    ///
    /// `previous`: that of the run before the last restart. `follow`: also what it will write.
    ///
    /// # Errors
    /// [`KubeletError`]: the node is not there, the container has not begun, or there is no earlier run.
    async fn log(&self, container: &Container, previous: bool, follow: bool) -> Result<Log, KubeletError>;

    /// Starts a program in a container.
    ///
    /// # Errors
    /// [`KubeletError`]: the node is not there, the container does not run, or the program can't be started.
    async fn exec(&self, container: &Container, request: &ExecRequest) -> Result<Process, KubeletError>;

    /// Connects to a TCP port of a pod's address, as the node it runs on would.
    ///
    /// # Errors
    /// [`KubeletError`]: the node is absent, or nothing listens on the port.
    async fn connect(&self, pod: &PodOnNode, port: u16) -> Result<Box<dyn Connection>, KubeletError>;
}

/// A pod, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOnNode {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Distinguishes it from an earlier pod of the same name.
    pub uid: String,
    /// The node that it is assigned to.
    pub node: String,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its pod.
    pub pod: PodOnNode,
    /// Its name in the pod's spec.
    pub name: String,
}

/// One line that a container wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// What, with its newline if it had one.
    pub text: Bytes,
}

/// A container's log.
pub struct Log {
    /// What it has written, oldest first; how much of it is kept is the implementation's to bound.
    pub written: VecDeque<LogLine>,
    /// What it writes from then on, until it ends, if it is followed.
    pub following: Option<BoxStream<'static, LogLine>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let following = self.following.is_some();
        f.debug_struct("Log")
            .field("written", &self.written)
            .field("following", &following)
            .finish()
    }
}

/// A program to start in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
    /// It gets a standard input from the client, else an empty one.
    pub stdin: bool,
    /// The client wants its standard output.
    pub stdout: bool,
    /// The client wants its standard error.
    pub stderr: bool,
}

/// A program that was started. Dropping it must end the program.
pub struct Process {
    /// Its standard input, if requested. Dropping this closes it.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output, if requested.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error, if requested.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its exit code, once it has ended; of one that a signal ended, 128 and the signal's number.
    pub ended: BoxFuture<'static, Result<i32, KubeletError>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

/// A connection to a pod.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Errors of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// Its kubelet does not answer.
    #[error("expected the kubelet of node {node:?} to answer: {why}")]
    Unreachable {
        /// The node.
        node: String,
        /// What was found.
        why: String,
    },
    /// The container has not begun, or has ended.
    #[error("{state}")]
    NotRunning {
        /// Its state, such as `waiting to start: ContainerCreating`.
        state: String,
    },
    /// The container was never restarted.
    #[error("no earlier run of the container")]
    NoPreviousRun,
    /// Nothing listens on the port, or the connection broke.
    #[error("{why}")]
    Connect {
        /// What the connection ended with.
        why: String,
    },
    /// The program could not be started or watched.
    #[error("{why}")]
    Exec {
        /// What the node ran into.
        why: String,
    },
}
