//! Keepers of faults of kind's API servers: a process for each fault, at the other end of a lease's connection.
//!
//! A keeper heals its fault when the connection is closed or the time is over, and ends. The user of the fault
//! therefore has nothing to undo.

use std::{
    fs::OpenOptions,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
        unix::{fs::OpenOptionsExt as _, net::UnixStream as StdUnixStream},
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use cluster::{ApiFault, Clients, ClusterError, Fault, FaultLease, LONGEST, Stop, hold};
use lab::LIMITS;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use super::{ApiServers, Down, Server, balancer, response_faults::BalancerFault, unreconciled::Denied};
use crate::{KindError, containers, error::io_error, state::Folder, tools::Tools};

/// Limit of a fault's begin and end, as in the lab.
const ANSWER: Duration = LIMITS
    .control
    .saturating_add(LIMITS.agent_stop)
    .saturating_add(LIMITS.api_serves);

/// The order that a keeper reads from stdin, a socket.
#[derive(Debug, Serialize, Deserialize)]
struct KeeperOrder {
    fault: ApiFault,
    lasts: Duration,
}

/// State that a keeper has to undo.
enum Begun {
    Down(Down),
    Denied(Denied),
    Wrong(BalancerFault),
    /// The servers share an address anyway: nothing to undo.
    Shared,
}

/// Begins a fault; it is active when this returns. `plumbline` is the keeper's program.
pub(crate) async fn begin(
    plumbline: &Path,
    folder: &Folder,
    fault: &ApiFault,
    lasts: Duration,
) -> Result<FaultLease, ClusterError> {
    let what = "begin a fault of the API servers";
    let failed = |why: String| ClusterError::Failed {
        what: what.to_owned(),
        why,
    };
    let mut stream = start(plumbline, folder).map_err(|error| failed(error.to_string()))?;
    let order = KeeperOrder {
        fault: fault.clone(),
        lasts,
    };
    let mut line = serde_json::to_vec(&order).map_err(|error| failed(error.to_string()))?;
    line.push(b'\n');
    stream
        .write_all(&line)
        .await
        .map_err(|error| failed(error.to_string()))?;
    FaultLease::begun(stream, ANSWER).await
}

/// Starts a keeper; returns this end of its connection.
fn start(plumbline: &Path, folder: &Folder) -> Result<UnixStream, KindError> {
    let what = || "start the keeper of a fault";
    let (lease_end, keeper_end) = StdUnixStream::pair().map_err(io_error(what()))?;
    lease_end.set_nonblocking(true).map_err(io_error(what()))?;
    let log = folder.path().join("api-faults.log");
    let mut options = OpenOptions::new();
    let log = options.create(true).append(true).mode(0o600).open(&log);
    let mut command = Command::new(plumbline);
    command
        .args(["hold-api-fault", folder.name()])
        .stdin(Stdio::from(OwnedFd::from(keeper_end)))
        .stdout(Stdio::null())
        .stderr(log.map_err(io_error(what()))?)
        // Ctrl-C reaches only the user of the fault, whose end closes the connection.
        .process_group(0);
    let mut child = command.spawn().map_err(io_error(what()))?;
    // The keeper ends by itself, and has to be waited for.
    std::thread::spawn(move || drop(child.wait()));
    UnixStream::from_std(lease_end).map_err(io_error(what()))
}

/// Runs a keeper: reads an order from stdin, and keeps the fault active until stdin ends.
///
/// # Errors
/// The cluster does not exist; stdin is no socket.
pub async fn keep(cluster: &str) -> Result<(), KindError> {
    let what = "keep a fault of the API servers";
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let stream = StdUnixStream::from(stdin.map_err(io_error(what))?);
    stream.set_nonblocking(true).map_err(io_error(what))?;
    let mut stream = BufReader::new(UnixStream::from_std(stream).map_err(io_error(what))?);
    let mut line = Vec::new();
    let mut limited = (&mut stream).take(LIMITS.control_bytes);
    limited
        .read_until(b'\n', &mut line)
        .await
        .map_err(io_error(what))?;
    let unexpected = |why: String| KindError::Unexpected {
        what: what.to_owned(),
        why,
    };
    let KeeperOrder { fault, lasts } =
        serde_json::from_slice(&line).map_err(|error| unexpected(error.to_string()))?;
    let folder = Folder::new(cluster)?;
    let tools = Tools::find().await?;
    let nodes = containers::nodes(&tools, cluster).await?;
    let servers = ApiServers::of(&folder, &nodes)?;
    let heal = async |begun| match begun {
        Begun::Shared => Ok(()),
        Begun::Down(down) => servers
            .start(down)
            .await
            .map_err(|error| ClusterError::failed("start an API server again", &error)),
        Begun::Denied(denied) => servers
            .allow(denied)
            .await
            .map_err(|error| ClusterError::failed("let API servers write default/kubernetes again", &error)),
        Begun::Wrong(kept) => kept
            .end()
            .await
            .map_err(|error| ClusterError::failed("let API servers answer rightly again", &error)),
    };
    hold(stream, &fault, lasts, make(&tools, &servers, &fault, lasts), heal)
        .await
        .map_err(io_error(what))
}

async fn make(
    tools: &Tools,
    servers: &ApiServers,
    fault: &ApiFault,
    lasts: Duration,
) -> Result<Begun, ClusterError> {
    let failed =
        |why: &dyn ToString| ClusterError::failed("begin a fault of the API servers", why.to_string());
    if lasts > LONGEST {
        let why = format!("expected one that lasts at most {LONGEST:?}, found {lasts:?}");
        return Err(failed(&why));
    }
    match fault {
        ApiFault::SharedAddress | ApiFault::Down { .. } if !servers.are_several() => {
            Err(failed(&"there is only one, and no other would answer without it"))
        }
        ApiFault::SharedAddress => Ok(Begun::Shared),
        ApiFault::Down { server, how } => down(servers, *server, *how).await,
        ApiFault::Unreconciled => servers
            .deny()
            .await
            .map(Begun::Denied)
            .map_err(|error| failed(&error)),
        ApiFault::Answers { .. } if !servers.are_several() => Err(failed(
            &"there is only one, and nothing in front of it; `--apiservers 2` makes a cluster with a balancer",
        )),
        ApiFault::Answers {
            server,
            clients,
            fault,
        } => wrong(tools, servers, *server, (clients, fault), lasts).await,
    }
}

async fn wrong(
    tools: &Tools,
    servers: &ApiServers,
    number: Option<u8>,
    what: (&Clients, &Fault),
    lasts: Duration,
) -> Result<Begun, ClusterError> {
    let met: Vec<&Server> = match number {
        Some(number) => vec![named(servers, number)?],
        None => servers.servers.iter().collect(),
    };
    let begun = async {
        let process = balancer::process(tools, servers.folder.name()).await?;
        BalancerFault::begin(process, &servers.servers, &met, what, lasts).await
    };
    let begun = begun.await;
    begun
        .map(Begun::Wrong)
        .map_err(|error| ClusterError::failed("begin a fault of the API servers", &error))
}

fn named(servers: &ApiServers, number: u8) -> Result<&Server, ClusterError> {
    servers
        .server(number)
        .ok_or_else(|| ClusterError::not_found("API server", number.to_string()))
}

async fn down(servers: &ApiServers, number: u8, how: Stop) -> Result<Begun, ClusterError> {
    let failed =
        |why: &dyn ToString| ClusterError::failed("begin a fault of the API servers", why.to_string());
    let server = named(servers, number)?;
    let ended = servers.end(server, how).await.map_err(|error| failed(&error))?;
    let down = ended.ok_or_else(|| failed(&format!("API server {number} is down already")))?;
    Ok(Begun::Down(down))
}
