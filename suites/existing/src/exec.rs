//! Runs a program in a pod, with its pipes bridged to those of this process.
//!
//! [`Cluster::exec`](cluster::Cluster::exec) promises a local process with pipes, which ends with the program. That
//! is `plumbline exec-in-pod`: it bridges stdin, stdout and stderr to a WebSocket (`pods/exec`) and exits with the
//! program's code. When it is killed its connection closes, which closes the program's stdin: all programs that the
//! suite starts in pods end with their stdin.
//!
//! Only version 5 of the protocol can close stdin alone (Kubernetes 1.30 and later); with earlier API servers the
//! whole connection is closed instead.

use std::str::FromStr;

use cluster::command_line;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{Status, StatusCause},
};
use kube::{
    Api,
    api::{AttachParams, AttachedProcess},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncWriteExt as _, copy},
    time::timeout,
};

use super::{Connection, KubernetesError, LIMITS, error::api};

/// Exit code for a program whose own does not fit into a byte, which no Unix program has.
const STRANGE: u8 = 255;

/// A program and its pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecArguments {
    /// The API endpoint.
    pub connection: Connection,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

impl ExecArguments {
    /// The only argument of `plumbline exec-in-pod`.
    ///
    /// # Errors
    /// The kubeconfig's path is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Parses the argument of `plumbline exec-in-pod`.
impl FromStr for ExecArguments {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// Runs a program in the only container of a pod until it ends, with this process's stdin, stdout and stderr, and
/// returns its exit code.
///
/// # Errors
/// The program can't be started, or the connection is lost.
pub async fn exec_in_pod(arguments: &ExecArguments) -> Result<u8, KubernetesError> {
    let ExecArguments {
        connection,
        namespace,
        pod,
        argv,
    } = arguments;
    let client = connection.client().await?;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let params = AttachParams::default()
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .max_stdin_buf_size(LIMITS.pipe_bytes)
        .max_stdout_buf_size(LIMITS.pipe_bytes)
        .max_stderr_buf_size(LIMITS.pipe_bytes);
    let line = command_line(argv);
    let what = format!("start `{line}` in the pod {namespace}/{pod}");
    let process = timeout(LIMITS.request, pods.exec(pod, argv, &params))
        .await
        .map_err(|_| KubernetesError::Late {
            what: what.clone(),
            limit: LIMITS.request,
        })?
        .map_err(api(&what))?;
    let status = bridge(process).await;
    let lost = |why: &str| KubernetesError::Api {
        what: format!("follow `{line}` in the pod {namespace}/{pod}"),
        why: why.to_owned(),
    };
    let status = status.ok_or_else(|| lost("the connection to it broke before it ended"))?;
    code(&status).map_err(|why| KubernetesError::Api { what, why })
}

/// Copies until the program has ended and its output is complete; `None` without an exit status.
async fn bridge(mut process: AttachedProcess) -> Option<Status> {
    let status = process.take_status();
    let feed = process.stdin().map(|mut theirs| {
        tokio::spawn(async move {
            // A program that has ended reads no more, which is no error.
            let _ = copy(&mut tokio::io::stdin(), &mut theirs).await;
            let _ = theirs.shutdown().await;
        })
    });
    let (out, err) = (process.stdout(), process.stderr());
    let out = async {
        if let Some(mut theirs) = out {
            // The reader may be gone; then the write ends this process.
            let mut own = tokio::io::stdout();
            let _ = copy(&mut theirs, &mut own).await;
            let _ = own.flush().await;
        }
    };
    let err = async {
        if let Some(mut theirs) = err {
            let mut own = tokio::io::stderr();
            let _ = copy(&mut theirs, &mut own).await;
            let _ = own.flush().await;
        }
    };
    let ended = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let ((), (), status) = tokio::join!(out, err, ended);
    if let Some(feed) = feed {
        feed.abort();
    }
    status
}

/// The exit code in a status of `pods/exec`.
pub(super) fn code(status: &Status) -> Result<u8, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let is_code = |cause: &&StatusCause| cause.reason.as_deref() == Some("ExitCode");
    let details = status.details.as_ref();
    let causes = details
        .and_then(|details| details.causes.as_deref())
        .unwrap_or_default();
    let code = causes
        .iter()
        .find(is_code)
        .and_then(|cause| cause.message.as_deref());
    match code {
        Some(code) => Ok(code.parse().unwrap_or(STRANGE)),
        None => Err(status
            .message
            .clone()
            .unwrap_or_else(|| "no reason was given".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: Value) -> Result<u8, String> {
        code(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn how_a_program_ended_is_read_from_the_status() {
        assert_eq!(of(json!({"status": "Success"})), Ok(0));
        let failed = json!({"status": "Failure", "reason": "NonZeroExitCode", "message": "m",
                            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}});
        assert_eq!(of(failed), Ok(7));
        let never_started = json!({"status": "Failure", "message": "no such file"});
        assert_eq!(of(never_started), Err("no such file".to_owned()));
    }

    #[test]
    fn the_bridge_is_told_everything() {
        let arguments = ExecArguments {
            connection: Connection {
                kubeconfig: Some("/k".into()),
                context: Some("c".to_owned()),
            },
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            argv: vec!["probe".to_owned(), "a b".to_owned()],
        };
        assert_eq!(
            arguments.to_json().unwrap().parse::<ExecArguments>().unwrap(),
            arguments
        );
    }
}
