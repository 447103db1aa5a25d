//! The balancer in front of the API servers: a container in the network of the nodes, of the probe's image.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{Client, Config};
use tokio::time::{sleep, timeout};

use super::{
    PORT,
    answers::{self, Answers},
};
use crate::{
    embedded::{Front, LabError, api_is_ready},
    kind::{
        KindError, LIMITS,
        outside::{self, LABEL, NETWORK},
        tools::Tools,
    },
};

/// Starts it anew; returns its address, of the servers' family.
pub(super) async fn start(
    tools: &Tools,
    cluster: &str,
    image: &str,
    servers: &[SocketAddr],
) -> Result<IpAddr, KindError> {
    let what = "start the balancer in front of the API servers";
    let name = name(cluster);
    outside::remove_one(tools, &name).await?;
    let mut arguments: Vec<String> = ["run", "--detach", "--name", &name, "--label"]
        .map(str::to_owned)
        .to_vec();
    arguments.push(format!("{LABEL}={cluster}"));
    arguments.extend(
        [
            "--network",
            NETWORK,
            "--entrypoint",
            "/plumbline",
            image,
            "balance",
        ]
        .map(str::to_owned),
    );
    arguments.extend(servers.iter().map(ToString::to_string));
    tools.docker(what, arguments).await?;
    let wants_ipv6 = servers.iter().any(SocketAddr::is_ipv6);
    let addresses = outside::addresses(tools, &name).await?;
    let found = addresses.iter().find(|address| address.is_ipv6() == wants_ipv6);
    found.copied().ok_or_else(|| KindError::Unexpected {
        what: what.to_owned(),
        why: format!("the container {name} has {addresses:?}: `docker logs {name}` says why"),
    })
}

/// Its process, as this host sees it.
pub(super) async fn process(tools: &Tools, cluster: &str) -> Result<u32, KindError> {
    outside::process_of(
        tools,
        &name(cluster),
        "find the balancer in front of the API servers",
    )
    .await
}

/// Name of its container.
pub(in crate::kind) fn name(cluster: &str) -> String {
    format!("{cluster}-balancer")
}

/// What runs in it: each connection goes to the next of the servers that are ready, or else that takes it. Never returns but for an error.
///
/// # Errors
/// The port of API servers can't be listened on, or the socket for faults.
pub async fn balance(servers: Vec<SocketAddr>) -> Result<(), LabError> {
    let any: IpAddr = match servers.first() {
        Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let listener = TcpListener::bind((any, PORT)).map_err(|error| LabError::Io {
        what: format!("listen on port {PORT}"),
        error,
    })?;
    let ready: Arc<[AtomicBool]> = servers.iter().map(|_| AtomicBool::new(false)).collect();
    for (number, server) in servers.iter().copied().enumerate() {
        tokio::spawn(look(server, ready.clone(), number));
    }
    let answers = Arc::new(Answers::default());
    let front = Front::new(listener, Arc::from(servers), None)?;
    let front = front.preferring(ready).through(answers.through());
    let listening = answers.listen(answers::socket());
    tokio::spawn(listening.map_err(|error| LabError::Io {
        what: "listen for faults".to_owned(),
        error,
    })?);
    front.run().await;
    Ok(())
}

/// Looks again and again whether a server is ready, which everybody may ask (`system:public-info-viewer`).
async fn look(server: SocketAddr, ready: Arc<[AtomicBool]>, number: usize) {
    let Ok(address) = format!("https://{server}").parse() else {
        return;
    };
    let mut config = Config::new(address);
    // Nothing is told it, and what it says decides no more than who is tried first.
    config.accept_invalid_certs = true;
    let client = match Client::try_from(config) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%server, %error, "nobody looks whether an API server is ready");
            return;
        }
    };
    loop {
        let asked = timeout(LIMITS.balancer_answer, api_is_ready(&client)).await;
        if let Some(ready) = ready.get(number) {
            ready.store(asked.unwrap_or(false), Ordering::Relaxed);
        }
        sleep(LIMITS.balancer_look).await;
    }
}
