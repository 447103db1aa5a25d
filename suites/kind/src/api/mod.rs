//! Two API servers that advertise one address, that of a balancer in front of both; and their faults.
//!
//! ```text
//!  administrator, agents, kubelets ─▶ balancer (a container) ─┬─▶ 1: kube-apiserver of the control plane's node ─┐
//!                                      ▲                      └─▶ 2: kube-apiserver of a worker ─────────────────┴▶ etcd
//!  default/kubernetes lists only this ─┘
//! ```
//!
//! Both are static pods, as kubeadm makes them: kubelet stops one when its manifest is removed, and starts it when
//! that is restored. So the first outage is reproduced as it happened: the server that stops removes the only
//! endpoint of `default/kubernetes`, and the other one restores it at its next reconciliation
//! (`--endpoint-reconciler-type=lease`, every 10 s).
//!
//! A single API server advertises its own address, and can't be stopped, as no other would answer. Keeping it from
//! writing `default/kubernetes` uses admission, which works with one server, too (`unreconciled`).
//!
//! Each fault is held by a process of its own (`keeper`), which restores the manifest when the fault's user is gone.
//! If the keeper was killed as well, the manifest is still on its node, or the policy in the API:
//! [`ApiServers::repair`] finds them.
//!
//! Response faults are made by the balancer (`response_faults`), which otherwise forwards connections unchanged.
//!
//! Files: this one; `initial_servers` (API servers at the begin of a run), `second_server` (creates the second one), `balancer`,
//! `response_faults` (response faults in the balancer), `manifest` (changes of kubeadm's manifest), `keeper`, `unreconciled`
//! (`default/kubernetes` is not written), `policy` (the admission policy for that).

mod balancer;
mod initial_servers;
mod keeper;
mod manifest;
mod policy;
mod response_faults;
mod second_server;
mod unreconciled;

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use cluster::{ApiServer, Stop};
use kube::Client;
use lab::{api_is_ready, kube_client_at};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

pub use self::{balancer::balance, keeper::keep};
pub(super) use self::{
    balancer::name as balancer_name,
    initial_servers::{answering, of_cluster},
    keeper::begin,
    manifest::asking,
    unreconciled::is_known as policies_are_known,
};
use super::{
    KindError, LIMITS,
    containers::Container,
    error::{io_error, listed},
    process_lookup,
    state::{Folder, Lock},
};

/// Port of the API servers and of the balancer.
pub(super) const PORT: u16 = 6443;
/// Process name of kube-apiserver, as in `/proc/PID/comm`.
const PROCESS: &str = "kube-apiserver";
/// Path of the static pod manifest on nodes that kubeadm has made.
pub(super) const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
/// Folder of manifests of stopped API servers, and of temporary files.
const ASIDE: &str = "/etc/kubernetes/plumbline";
/// Name of the manifest there.
const NAME: &str = "kube-apiserver.yaml";
/// File of [`SharedEndpoint`] in the cluster's folder.
pub(super) const SHARED: &str = "api.json";

/// The shared endpoint of several API servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedEndpoint {
    /// Address of the balancer, which all of them advertise.
    pub(super) front: SocketAddr,
    /// Their nodes, by number from 1.
    nodes: Vec<String>,
    /// Whether some clients may not be configured with the balancer yet.
    #[serde(default)]
    unfinished: bool,
}

/// The API servers of a cluster.
#[derive(Clone, Debug)]
pub(super) struct ApiServers {
    /// Advertised address: the balancer's, or that of the only server.
    advertised: SocketAddr,
    /// Servers by number.
    servers: Vec<Server>,
    folder: Folder,
}

/// One API server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    number: u8,
    node: Container,
    address: SocketAddr,
}

/// A stopped API server, which this process alone may start as long as this lives.
#[derive(Debug)]
pub(super) struct Down {
    server: Server,
    _lock: Lock,
}

impl ApiServers {
    /// The API servers of a cluster.
    pub(super) fn of(folder: &Folder, nodes: &[Container]) -> Result<Self, KindError> {
        let Some(shared) = folder.read::<SharedEndpoint>(SHARED)? else {
            return Self::alone(folder, nodes);
        };
        if shared.unfinished {
            return Err(KindError::NotWhole {
                name: folder.name().to_owned(),
            });
        }
        let server = |(number, name): (u8, &String)| {
            let node = nodes.iter().find(|node| node.name == *name);
            let node = node.ok_or_else(|| KindError::Unexpected {
                what: format!("find API server {number}"),
                why: format!("its node {name} does not run"),
            })?;
            Ok(Server {
                number,
                address: (address(node, shared.front.is_ipv6())?, PORT).into(),
                node: node.clone(),
            })
        };
        let servers = (1..).zip(&shared.nodes).map(server);
        Ok(Self {
            servers: servers.collect::<Result<_, KindError>>()?,
            advertised: shared.front,
            folder: folder.clone(),
        })
    }

    /// The only API server of a cluster.
    fn alone(folder: &Folder, nodes: &[Container]) -> Result<Self, KindError> {
        let node = nodes.iter().find(|node| node.is_control_plane);
        let node = node.ok_or_else(|| KindError::Unexpected {
            what: format!("find the API server of {}", folder.name()),
            why: "no node of it has the role of a control plane".to_owned(),
        })?;
        let address = (
            second_server::advertised(&second_server::read_manifest(node)?)?,
            PORT,
        )
            .into();
        Ok(Self {
            servers: vec![Server {
                number: 1,
                node: node.clone(),
                address,
            }],
            advertised: address,
            folder: folder.clone(),
        })
    }

    /// The shared address of several servers.
    pub(super) fn front(&self) -> Option<SocketAddr> {
        self.are_several().then_some(self.advertised)
    }

    /// Whether there are several, so that one can be stopped.
    pub(super) fn are_several(&self) -> bool {
        self.servers.len() > 1
    }

    /// All servers by number.
    pub(super) fn list(&self) -> Vec<ApiServer> {
        let shown = |server: &Server| ApiServer {
            number: server.number,
            address: server.address,
            running: !server.processes().is_empty(),
        };
        self.servers.iter().map(shown).collect()
    }

    /// A server by its number.
    pub(super) fn server(&self, number: u8) -> Option<&Server> {
        self.servers.iter().find(|server| server.number == number)
    }

    /// Stops a server until it is started again; it has no process when this returns. `None`: it is stopped already.
    pub(super) async fn end(&self, server: &Server, how: Stop) -> Result<Option<Down>, KindError> {
        let Some(lock) = self.folder.hold(&lock_of(server.number))? else {
            return Ok(None);
        };
        let processes = server.processes();
        if processes.is_empty() {
            return Ok(None);
        }
        server.take_away()?;
        if how == Stop::Kill {
            // Before kubelet reacts.
            process_lookup::signal(&processes, Signal::SIGKILL);
        }
        let down = Down {
            server: server.clone(),
            _lock: lock,
        };
        if let Err(error) = server.gone().await {
            server.put_back()?;
            return Err(error);
        }
        Ok(Some(down))
    }

    /// Starts a server; it is ready when this returns.
    pub(super) async fn start(&self, down: Down) -> Result<(), KindError> {
        down.server.put_back()?;
        down.server.serves(&self.folder.kubeconfig()).await
    }

    /// Starts servers that a dead process has left stopped, and removes such policies against writing
    /// `default/kubernetes`; returns what was done. Faults of living processes stay.
    pub(super) async fn repair(&self) -> Result<Vec<String>, KindError> {
        let mut repaired = self.start_left().await?;
        repaired.extend(self.allow_left().await?);
        Ok(repaired)
    }

    async fn start_left(&self) -> Result<Vec<String>, KindError> {
        let mut repaired = Vec::new();
        for server in &self.servers {
            if !server.is_away() {
                continue;
            }
            let Some(lock) = self.folder.hold(&lock_of(server.number))? else {
                continue;
            };
            let server = server.clone();
            repaired.push(format!(
                "API server {} on {} was down, and runs again",
                server.number, server.node.name
            ));
            self.start(Down { server, _lock: lock }).await?;
        }
        Ok(repaired)
    }

    /// Waits until all servers are ready and reconcile, as keepers notice soon that the user of their fault is dead.
    /// Heals faults without a keeper, and returns what was done.
    pub(super) async fn settle(&self) -> Result<Vec<String>, KindError> {
        let mut repaired = self.start_left().await?;
        let begin = Instant::now();
        for server in &self.servers {
            while server.is_away() {
                server.in_time(begin, "start")?;
                sleep(LIMITS.look).await;
                repaired.extend(self.start_left().await?);
            }
            server.serves(&self.folder.kubeconfig()).await?;
        }
        repaired.extend(self.none_denied().await?);
        Ok(repaired)
    }
}

impl Server {
    /// Its processes, as this host sees them.
    fn processes(&self) -> Vec<u32> {
        process_lookup::named(&self.node, PROCESS)
    }

    fn aside(&self) -> PathBuf {
        self.node.path(&Path::new(ASIDE).join(NAME))
    }

    /// Whether its manifest is removed.
    fn is_away(&self) -> bool {
        self.aside().exists()
    }

    /// Removes its manifest: kubelet stops it.
    fn take_away(&self) -> Result<(), KindError> {
        let what = || format!("take the manifest of API server {} away", self.number);
        let folder = self.node.path(Path::new(ASIDE));
        fs::create_dir_all(folder).map_err(io_error(what()))?;
        fs::rename(self.node.path(Path::new(MANIFEST)), self.aside()).map_err(io_error(what()))
    }

    /// Restores its manifest, if that was removed: kubelet starts it.
    fn put_back(&self) -> Result<(), KindError> {
        if let Ok(text) = fs::read_to_string(self.aside()) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default().as_nanos().to_string();
            if let Some(anew) = manifest::anew(&text, &now) {
                // Renamed at the end, so that it is never incomplete.
                let new = format!("{ASIDE}/{NAME}.new");
                second_server::write(&self.node, &new, &anew)?;
                let what = format!("write the manifest of API server {}", self.number);
                fs::rename(self.node.path(Path::new(&new)), self.aside()).map_err(io_error(what))?;
            }
        }
        match fs::rename(self.aside(), self.node.path(Path::new(MANIFEST))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("put the manifest of API server {} back", self.number);
                Err(io_error(what)(error))
            }
            _ => Ok(()),
        }
    }

    /// Waits until no process of it is left.
    async fn gone(&self) -> Result<(), KindError> {
        let begin = Instant::now();
        while !self.processes().is_empty() {
            self.in_time(begin, "end")?;
            sleep(LIMITS.look).await;
        }
        Ok(())
    }

    /// Waits until it is ready for the administrator of a kubeconfig.
    async fn serves(&self, kubeconfig: &Path) -> Result<(), KindError> {
        let what = || format!("ask API server {}", self.number);
        let client: Client =
            kube_client_at(kubeconfig, self.address)
                .await
                .map_err(|error| KindError::Unexpected {
                    what: what(),
                    why: error.to_string(),
                })?;
        let begin = Instant::now();
        while !api_is_ready(&client).await {
            self.in_time(begin, "start")?;
            sleep(LIMITS.look).await;
        }
        Ok(())
    }

    /// An error when the limit of a wait is exceeded.
    fn in_time(&self, begin: Instant, what: &str) -> Result<(), KindError> {
        if begin.elapsed() < LIMITS.api_server {
            return Ok(());
        }
        Err(KindError::Unexpected {
            what: format!("{what} API server {}", self.number),
            why: format!(
                "it had not happened after {:?}: `docker exec {} crictl logs` of its container says why",
                LIMITS.api_server, self.node.name
            ),
        })
    }
}

fn lock_of(number: u8) -> String {
    format!("api-server-{number}.lock")
}

/// A node's address of a family.
fn address(node: &Container, ipv6: bool) -> Result<IpAddr, KindError> {
    let found = node.addresses.iter().find(|address| address.is_ipv6() == ipv6);
    found.copied().ok_or_else(|| KindError::Unexpected {
        what: format!("find the address of {}", node.name),
        why: format!(
            "expected one of the API servers' family, found {}",
            listed(&node.addresses)
        ),
    })
}
