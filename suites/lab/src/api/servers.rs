//! The API servers: the lab's own replicas over one store, or kube-apiserver over etcd.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, OnceLock},
};

use cluster::{ApiServer, Stop, users};
use kube::Client;
use lab_apiserver::{
    Auth, Config, Faults, Replica, ReplicaConfig, RestingReconciler, Store, kubelet::Kubelet,
};
use tokio::{
    process::Child,
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    access::{Access, failed, kube_client_at},
    faults::ActiveFaults,
    front::Front,
    programs::{self, Programs},
};
use crate::{
    Advertise, LIMITS, LabConfig, LabError,
    cgroup::Cgroup,
    dir::LabDir,
    error::io_error,
    netns::NetNs,
    topology::{API_SERVER_PORT, NodeAddresses},
    underlay::Underlay,
};

/// Why an operation is not supported with Kubernetes' own programs.
pub(super) const NOT_OURS: &str =
    "Kubernetes' own API servers can only be stopped; leave out --control-plane";

/// All API servers. Dropping the value kills them.
pub(crate) struct ApiServers {
    pub(super) servers: Vec<Server>,
    pub(super) active_faults: ActiveFaults,
    plane: Plane,
    /// Whether all servers advertise the front: permanently, or while a fault needs it.
    shared: Mutex<bool>,
    /// Numbers of the servers that have to restart because `shared` has changed.
    outdated: Mutex<BTreeSet<u8>>,
    front: Option<SocketAddr>,
    net: Arc<NetNs>,
    admin: SocketAddr,
}

/// One of them.
pub(super) struct Server {
    pub(super) number: u8,
    pub(super) faults: Faults,
    address: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    running: Mutex<Option<Running>>,
    /// A client of this server alone, through a front of its own; set for kube-apiserver.
    own: OnceLock<Client>,
}

/// Implementation of the servers.
enum Plane {
    Ours {
        store: Store,
        /// Certificate of the administrator's server, which never stops.
        tls: Arc<rustls::ServerConfig>,
        auth: Arc<Auth>,
    },
    Programs(Programs),
}

enum Running {
    Replica(Replica),
    Program(Child),
}

impl std::fmt::Debug for ApiServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApiServers").finish_non_exhaustive()
    }
}

impl ApiServers {
    /// Starts the servers and writes all kubeconfigs.
    pub(crate) async fn start(
        config: &LabConfig,
        nodes: &[NodeAddresses],
        underlay: &Underlay,
        tree: &Cgroup,
        dir: &LabDir,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, LabError> {
        let (families, plane) = (config.families, &config.control_plane);
        let numbers = 1..=plane.servers;
        let all = numbers
            .clone()
            .flat_map(|number| families.api_server(number))
            .chain(families.api_front());
        let net = underlay.control_plane(&all.collect::<Vec<_>>(), nodes).await?;
        let net = Arc::new(net);
        // `default/kubernetes` has one family, and so have the endpoints.
        let primary = |addresses: Vec<std::net::IpAddr>| {
            let primary = addresses.into_iter().next();
            primary.map(|address| SocketAddr::new(address, API_SERVER_PORT))
        };
        let addresses: Vec<SocketAddr> = numbers
            .clone()
            .filter_map(|number| primary(families.api_server(number)))
            .collect();
        let front: Vec<SocketAddr> = primary(families.api_front()).into_iter().collect();
        let shared = plane.advertise == Advertise::Shared;
        // The endpoints of agents.
        let advertised = if shared { front.clone() } else { addresses.clone() };

        let names: Vec<String> = nodes.iter().map(|node| node.name()).collect();
        let access = Access::new(families, &names)?;
        let plane = match &plane.programs {
            None => {
                let config = Config::new(families.services(), Vec::new(), API_SERVER_PORT);
                Plane::Ours {
                    store: Store::new(config).map_err(failed("configure"))?,
                    tls: access.tls(None)?,
                    auth: access.auth(),
                }
            }
            Some(folder) => {
                let cgroup = tree.child("control-plane");
                let programs = Programs::start(folder, families, net.clone(), cgroup, dir, &access, tasks);
                Plane::Programs(programs.await?)
            }
        };
        let [eyes, controllers] = [loopback()?, loopback()?];
        let (admin, behind) = (address_of(&eyes)?, address_of(&controllers)?);
        let servers: Vec<Server> = numbers
            .zip(&addresses)
            .map(|(number, address)| {
                Ok(Server {
                    number,
                    faults: Faults::new(),
                    address: *address,
                    tls: access.tls(Some(number))?,
                    running: Mutex::default(),
                    own: OnceLock::new(),
                })
            })
            .collect::<Result<_, LabError>>()?;
        let these = Self {
            servers,
            active_faults: ActiveFaults::default(),
            plane,
            shared: Mutex::new(shared),
            outdated: Mutex::default(),
            front: front.first().copied(),
            net,
            admin,
        };
        for server in &these.servers {
            these.run(server).await?;
        }
        let behind_front: Arc<[SocketAddr]> = addresses.into();
        let mut fronts = vec![controllers];
        fronts.extend(these.start_admin(eyes, tasks));
        for address in &front {
            fronts.push(these.net.listen(*address)?);
        }
        for listener in fronts {
            let front = Front::new(listener, behind_front.clone(), Some(these.net.clone()))?;
            tasks.spawn(front.run());
        }

        access.write(&dir.kubeconfig(), admin, users::ADMIN)?;
        access.write(&dir.controllers_kubeconfig(), behind, users::CONTROLLERS)?;
        for address in &front {
            access.write(&dir.outside_kubeconfig(), *address, users::OUTSIDE)?;
        }
        for (name, server) in names.iter().zip(advertised.iter().cycle()) {
            access.write(&dir.node_kubeconfig(name), *server, &users::node(name))?;
        }
        if let Plane::Programs(programs) = &these.plane {
            for server in &these.servers {
                these.ask_alone(server, dir, tasks).await?;
                these.serves(server).await?;
            }
            for server in &front {
                programs.controllers(*server, &access, tasks).await?;
            }
        }
        Ok(these)
    }

    /// Gives a server a client that connects only to it.
    async fn ask_alone(
        &self,
        server: &Server,
        dir: &LabDir,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), LabError> {
        let listener = loopback()?;
        let address = address_of(&listener)?;
        tasks.spawn(Front::new(listener, [server.address].into(), Some(self.net.clone()))?.run());
        let client = kube_client_at(&dir.kubeconfig(), address).await?;
        server.own.get_or_init(|| client);
        Ok(())
    }

    /// Waits until a started server is ready, as the lab's own is at once. A server that ends meanwhile is an error.
    pub(super) async fn serves(&self, server: &Server) -> Result<(), LabError> {
        let (Plane::Programs(programs), Some(client)) = (&self.plane, server.own.get()) else {
            return Ok(());
        };
        let ready = async {
            while !programs::is_ready(client).await {
                if !server.runs().await {
                    return Err(programs.ended(server.number));
                }
                sleep(LIMITS.restart_first).await;
            }
            Ok(())
        };
        timeout(LIMITS.api_serves, ready)
            .await
            .map_err(|_| LabError::Limit {
                what: format!("the readiness of API server {}", server.number),
                limit: LIMITS.api_serves,
                hint: programs.log(server.number),
            })?
    }

    /// The administrator's endpoint on this host's loopback.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// All servers by number.
    pub(crate) async fn list(&self) -> Vec<ApiServer> {
        let mut all = Vec::new();
        for server in &self.servers {
            all.push(ApiServer {
                number: server.number,
                address: server.address,
                running: server.runs().await,
            });
        }
        all
    }

    /// Connects the servers with the kubelets, for logs, exec and port forwarding. kube-apiserver would use the
    /// kubelets' HTTPS endpoint, which the lab does not have.
    pub(crate) fn set_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        if let Plane::Ours { store, .. } = &self.plane {
            store.set_kubelet(kubelet);
        }
    }

    /// Whether the servers are the lab's own, which support response faults.
    pub(crate) fn are_ours(&self) -> bool {
        matches!(self.plane, Plane::Ours { .. })
    }

    /// Increases the resourceVersion by a jump.
    pub(crate) fn jump_versions(&self, by: u32) -> Result<(), &'static str> {
        match &self.plane {
            Plane::Ours { store, .. } => {
                store.jump_versions(by);
                Ok(())
            }
            Plane::Programs(_) => Err(NOT_OURS),
        }
    }

    /// Makes all servers advertise the front, or each its own address, and restarts those that differ. Returns
    /// whether anything has changed. After an error, the same call goes on with the remaining servers.
    pub(super) async fn share(&self, shared: bool) -> Result<bool, LabError> {
        let mut outdated = self.outdated.lock().await;
        let changed = std::mem::replace(&mut *self.shared.lock().await, shared) != shared;
        for server in &self.servers {
            if changed && server.runs().await {
                outdated.insert(server.number);
            }
        }
        for server in &self.servers {
            if outdated.contains(&server.number) {
                self.end(server, Stop::Term).await?;
                self.run(server).await?;
                outdated.remove(&server.number);
            }
        }
        Ok(changed)
    }

    /// Whether all advertise the front.
    pub(super) async fn is_shared(&self) -> bool {
        *self.shared.lock().await
    }

    /// Keeps all servers from writing `default/kubernetes` as long as the value lives.
    pub(super) fn rest_reconciler(&self) -> Result<RestingReconciler, &'static str> {
        match &self.plane {
            Plane::Ours { store, .. } => Ok(store.rest_reconciler()),
            Plane::Programs(_) => Err(NOT_OURS),
        }
    }

    /// Starts a server that does not run.
    pub(super) async fn run(&self, server: &Server) -> Result<(), LabError> {
        let mut running = server.running.lock().await;
        if running.as_mut().is_some_and(Running::runs) {
            return Ok(());
        }
        let front = if *self.shared.lock().await {
            self.front
        } else {
            None
        };
        let advertise = front.unwrap_or(server.address).ip();
        *running = Some(match &self.plane {
            Plane::Ours { store, auth, .. } => {
                let config = ReplicaConfig {
                    listener: self.net.listen(server.address)?,
                    tls: server.tls.clone(),
                    auth: auth.clone(),
                    advertise,
                    faults: server.faults.clone(),
                };
                Running::Replica(Replica::start(store, config).map_err(failed("start"))?)
            }
            Plane::Programs(programs) => {
                let started = programs.api_server(server.number, server.address, advertise);
                Running::Program(started.await?)
            }
        });
        Ok(())
    }

    /// Stops a server; returns whether it ran.
    pub(super) async fn end(&self, server: &Server, how: Stop) -> Result<bool, LabError> {
        // The lock is not held during the stop, so that the state can be read meanwhile.
        let running = server.running.lock().await.take();
        match (running, how) {
            (None, _) => return Ok(false),
            (Some(Running::Replica(replica)), Stop::Term) => replica.stop().await.map_err(failed("stop"))?,
            (Some(Running::Replica(replica)), Stop::Kill) => replica.kill().await,
            (Some(Running::Program(child)), how) => programs::end(child, how).await,
        }
        Ok(true)
    }

    /// Starts the administrator's server, which advertises nothing, has no faults and lives as long as the lab. With
    /// kube-apiserver the administrator uses a front, so the socket is returned.
    fn start_admin(&self, listener: TcpListener, tasks: &mut JoinSet<()>) -> Option<TcpListener> {
        let Plane::Ours { store, tls, auth } = &self.plane else {
            return Some(listener);
        };
        let shutdown = CancellationToken::new();
        let serving = lab_apiserver::serve(store.clone(), listener, tls.clone(), auth.clone(), shutdown);
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the administrator's API server ended");
            }
        });
        None
    }
}

impl Server {
    async fn runs(&self) -> bool {
        self.running.lock().await.as_mut().is_some_and(Running::runs)
    }
}

impl Running {
    fn runs(&mut self) -> bool {
        match self {
            Self::Replica(_) => true,
            Self::Program(child) => matches!(child.try_wait(), Ok(None)),
        }
    }
}

fn loopback() -> Result<TcpListener, LabError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io_error("listen on this host's loopback"))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, LabError> {
    listener
        .local_addr()
        .map_err(io_error("listen on this host's loopback"))
}
