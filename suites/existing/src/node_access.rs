//! Access to nodes, through the run's privileged pods.

use cluster::{Node, command_line};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{AttachParams, AttachedProcess},
};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

use super::{
    Host, KubernetesError, LIMITS, Options,
    error::words,
    exec::code,
    labels::CONTAINER,
    options::{host_pod, on_host},
};

/// Reads the facts that all nodes have in common.
///
/// # Errors
/// A node can't be entered, has no cgroup v2, or has it at another path than the others.
pub(super) async fn look(
    client: &Client,
    options: &Options,
    nodes: &[Node],
) -> Result<Host, KubernetesError> {
    let mut first: Option<Host> = None;
    for Node { name, .. } in nodes {
        let host: Host = ask(client, options, name, &["host"]).await?;
        match &first {
            None => first = Some(host),
            Some(first) if *first == host => {}
            Some(first) => {
                return Err(KubernetesError::Hosts {
                    node: name.clone(),
                    found: host.cgroup,
                    expected: first.cgroup.clone(),
                });
            }
        }
    }
    first.ok_or_else(|| KubernetesError::NoNodes {
        why: "it has no nodes".to_owned(),
    })
}

/// JSON output of `plumbline node …` on a node.
///
/// # Errors
/// [`KubernetesError::Host`]: the program can't be run there, or fails.
pub(super) async fn ask<T: DeserializeOwned>(
    client: &Client,
    options: &Options,
    node: &str,
    words: &[&str],
) -> Result<T, KubernetesError> {
    let failed = |why: String| KubernetesError::Host {
        node: node.to_owned(),
        why,
    };
    let argv: Vec<String> = ["plumbline", "node"]
        .iter()
        .chain(words)
        .map(|&word| word.to_owned())
        .collect();
    let line = command_line(&argv);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    let output = timeout(
        LIMITS.request,
        run(&pods, &host_pod(node), &on_host(&options.program, &argv)),
    )
    .await
    .map_err(|_| failed(format!("`{line}`: no answer within {:?}", LIMITS.request)))?
    .map_err(|why| failed(format!("`{line}`: {why}")))?;
    serde_json::from_slice(&output).map_err(|error| {
        failed(format!(
            "`{line}` said {:?}: {error}",
            String::from_utf8_lossy(&output)
        ))
    })
}

/// Stdout of a program in a pod, if it ends with code 0.
async fn run(pods: &Api<Pod>, pod: &str, argv: &[String]) -> Result<Vec<u8>, String> {
    let params = AttachParams::default()
        .container(CONTAINER)
        .stdin(false)
        .stdout(true)
        .stderr(true);
    let mut process = pods
        .exec(pod, argv, &params)
        .await
        .map_err(|error| words(&error))?;
    let status = process.take_status();
    let (out, err) = pipes(&mut process);
    let (out, err) = tokio::join!(read(out), read(err));
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    let status = status.ok_or_else(|| "the connection to it broke before it ended".to_owned())?;
    match code(&status)? {
        0 => Ok(out),
        code => Err(format!(
            "it ended with code {code}: {}",
            String::from_utf8_lossy(&err).trim_end()
        )),
    }
}

type Pipe = Option<Box<dyn AsyncRead + Unpin + Send>>;

fn pipes(process: &mut AttachedProcess) -> (Pipe, Pipe) {
    (
        process.stdout().map(|pipe| Box::new(pipe) as _),
        process.stderr().map(|pipe| Box::new(pipe) as _),
    )
}

async fn read(pipe: Pipe) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        // Truncated output is invalid JSON, or a shorter explanation.
        let _ = pipe.take(LIMITS.dump_bytes).read_to_end(&mut text).await;
    }
    text
}
