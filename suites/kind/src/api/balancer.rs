//! The balancer in front of the API servers: a container in the nodes' network, with the probe's image.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{Client, Config};
use lab::{Front, LabError, api_is_ready};
use tokio::time::{sleep, timeout};

use super::{
    PORT,
    response_faults::{self, Answers},
};
use crate::{
    KindError, LIMITS,
    error::listed,
    outside::{self, LABEL, ROOT},
    tools::Tools,
};

/// Starts a new balancer; returns its address, of the servers' family.
pub(super) async fn start(
    tools: &Tools,
    cluster: &str,
    (image, network): (&str, &str),
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
            // A kept cluster has its balancer after a restart of Docker, as it has its nodes.
            "--restart",
            "unless-stopped",
            "--network",
            network,
            "--user",
            ROOT,
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
        why: format!(
            "expected an {} address of the container {name}, found {}: `docker logs {name}` says why",
            if wants_ipv6 { "IPv6" } else { "IPv4" },
            listed(&addresses)
        ),
    })
}

/// Starts the existing balancer, if it is stopped. `false`: it is gone, or addresses have changed, as Docker may
/// assign new ones at each start.
pub(super) async fn resume(
    tools: &Tools,
    cluster: &str,
    front: IpAddr,
    servers: &[SocketAddr],
) -> Result<bool, KindError> {
    let what = "start the balancer in front of the API servers again";
    let name = name(cluster);
    let by_name = format!("name=^/?{name}$");
    let listed = ["ps", "--all", "--quiet", "--filter", &by_name];
    if tools.docker(what, listed).await?.trim().is_empty() {
        return Ok(false);
    }
    // A running container is not changed.
    tools.docker(what, ["start", &name]).await?;
    let command = ["inspect", "--format", "{{join .Config.Cmd \" \"}}", &name];
    let command = tools.docker(what, command).await?;
    let balances = command
        .split_whitespace()
        .skip(1)
        .eq(servers.iter().map(ToString::to_string));
    Ok(balances && outside::addresses(tools, &name).await?.contains(&front))
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
pub(crate) fn name(cluster: &str) -> String {
    format!("{cluster}-balancer")
}

/// The balancer's program: each connection goes to the next ready server, or else to one that accepts it. Returns
/// only with an error.
///
/// # Errors
/// The port of API servers or the socket for faults can't be listened on; no client can be made.
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
        tokio::spawn(look(client(server)?, ready.clone(), number));
    }
    let answers = Arc::new(Answers::default());
    let front = Front::new(listener, Arc::from(servers), None)?;
    let front = front.preferring(ready).through(answers.through());
    let listening = answers.listen(response_faults::socket());
    tokio::spawn(listening.map_err(|error| LabError::Io {
        what: "listen for faults".to_owned(),
        error,
    })?);
    front.run().await;
    Ok(())
}

/// A client for the readiness of a server, which every user may read (`system:public-info-viewer`).
fn client(server: SocketAddr) -> Result<Client, LabError> {
    let failed = |why: String| LabError::Host {
        what: format!("ask {server} whether it is ready"),
        why,
        remedy: "Report it: the balancer's program can't look",
    };
    let address = format!("https://{server}");
    let mut config = Config::new(
        address
            .parse()
            .map_err(|error| failed(format!("{address}: {error}")))?,
    );
    // No secret is sent, and the response only decides the order of servers. The container has no system
    // certificates, which would be loaded otherwise.
    config.accept_invalid_certs = true;
    config.root_cert = Some(Vec::new());
    Client::try_from(config).map_err(|error| failed(error.to_string()))
}

/// Checks the readiness of a server again and again.
async fn look(client: Client, ready: Arc<[AtomicBool]>, number: usize) {
    let mut readiness = ServerReadiness::default();
    loop {
        let asked = timeout(LIMITS.balancer_answer, api_is_ready(&client)).await;
        readiness.next(asked.ok());
        if let Some(ready) = ready.get(number) {
            ready.store(readiness.ready, Ordering::Relaxed);
        }
        sleep(LIMITS.balancer_look).await;
    }
}

/// Readiness of a server.
#[derive(Debug, Default)]
struct ServerReadiness {
    ready: bool,
    /// Consecutive checks without a response.
    silent: u32,
}

impl ServerReadiness {
    /// A slow server that was ready (another one is starting and uses the CPU) is better than one that has just begun
    /// to listen. A negative response, or a refused connection, counts at once.
    fn next(&mut self, answer: Option<bool>) {
        (self.ready, self.silent) = match answer {
            Some(ready) => (ready, 0),
            None => (
                self.ready && self.silent + 1 < LIMITS.balancer_silences,
                self.silent.saturating_add(1),
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use nix::mount::{MsFlags, mount};
    use testing::isolation::Own;

    use super::*;

    #[test]
    fn a_server_that_is_slow_is_still_ready_and_one_that_says_no_is_not() {
        let ready = |answers: &[Option<bool>]| {
            let mut readiness = ServerReadiness::default();
            answers.iter().for_each(|answer| readiness.next(*answer));
            readiness.ready
        };
        let (yes, no, silence) = (Some(true), Some(false), None);
        assert!(ready(&[yes, silence, silence, yes, silence, silence]));
        assert!(!ready(&[yes, silence, silence, silence]));
        assert!(!ready(&[yes, silence, no]));
        assert!(!ready(&[no, silence]));
        assert!(!ready(&[silence]));
        assert!(ready(&[silence, silence, silence, yes]));
    }

    #[tokio::test]
    async fn one_that_is_stopped_starts_again_and_serves_if_addresses_are_as_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let docker = folder.path().join("docker");
        let script = "#!/bin/sh
            case \"$*\" in
                ps*c-balancer*) echo 0123 ;;
                ps*) ;;
                start*) echo \"$@\" >> $0.calls ;;
                *Cmd*) echo balance 172.18.0.2:6443 172.18.0.3:6443 ;;
                inspect*) echo 172.18.0.9 ;;
                *) exit 1 ;;
            esac";
        fs::write(&docker, script).expect("a program");
        fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).expect("so");
        let tools = Tools::at(docker, "kind".into());
        let asked = async |cluster: &str, front: u8, second: u8| {
            let server = |last| SocketAddr::from(([172, 18, 0, last], PORT));
            let servers = [server(2), server(second)];
            let resumed = resume(&tools, cluster, [172, 18, 0, front].into(), &servers).await;
            resumed.expect("Docker answers")
        };
        assert!(asked("c", 9, 3).await);
        assert!(!asked("c", 8, 3).await, "another address of its own");
        assert!(!asked("c", 9, 4).await, "another one of a server");
        assert!(!asked("other", 9, 3).await, "none");
        let calls = fs::read_to_string(folder.path().join("docker.calls")).expect("calls");
        assert_eq!(calls, "start c-balancer\n".repeat(3));
    }

    /// The image of a balancer contains nothing but its program.
    #[tokio::test]
    async fn servers_can_be_asked_where_no_authorities_are_installed() {
        if Own::of(&testing::current()).is_none() {
            return;
        }
        let none = None::<&str>;
        for folder in [
            "/etc/ssl",
            "/etc/pki",
            "/usr/lib/ssl",
            "/usr/local/share",
            "/var/ssl",
        ] {
            if Path::new(folder).exists() {
                mount(none, folder, Some("tmpfs"), MsFlags::empty(), none).expect("an empty folder");
            }
        }
        let server: SocketAddr = (Ipv4Addr::LOCALHOST, PORT).into();
        let mut default_config = Config::new(format!("https://{server}").parse().expect("an address"));
        default_config.accept_invalid_certs = true;
        assert!(Client::try_from(default_config).is_err(), "no authorities");
        client(server).expect("a client");
    }
}
