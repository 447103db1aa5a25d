//! The API servers: replicas over one store.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
};

use lab_apiserver::{Auth, Config, Faults, Replica, ReplicaConfig, Store, kubelet::Kubelet};
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    access::{Access, failed},
    faults::Held,
    front::Front,
};
use crate::{
    cluster::{ApiServer, Stop, users},
    embedded::{
        Advertise, LabConfig, LabError,
        dir::LabDir,
        error::io_error,
        netns::NetNs,
        node::Underlay,
        topology::{API_SERVER_PORT, NodeAddresses},
    },
};

/// All of them. Dropping the value kills them.
pub(in crate::embedded) struct ApiServers {
    pub(super) servers: Vec<Server>,
    pub(super) store: Store,
    pub(super) held: Held,
    advertised: Vec<SocketAddr>,
    tls: Arc<rustls::ServerConfig>,
    auth: Arc<Auth>,
    net: Arc<NetNs>,
    admin: SocketAddr,
}

/// One of them.
pub(super) struct Server {
    pub(super) number: u8,
    pub(super) faults: Faults,
    address: SocketAddr,
    replica: Mutex<Option<Replica>>,
}

impl std::fmt::Debug for ApiServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApiServers").finish_non_exhaustive()
    }
}

impl ApiServers {
    /// Starts them and writes everybody's kubeconfig.
    pub(in crate::embedded) async fn start(
        config: &LabConfig,
        nodes: &[NodeAddresses],
        underlay: &Underlay,
        dir: &LabDir,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, LabError> {
        let (families, plane) = (config.families, &config.control_plane);
        let numbers = 1..=plane.servers;
        let all = numbers
            .clone()
            .flat_map(|number| families.api_server(number))
            .chain(families.api_front());
        let net = underlay.machine("apiserver", &all.collect::<Vec<_>>()).await?;
        let net = Arc::new(net);
        // `default/kubernetes` is of one family, and so is the way to it.
        let primary = |addresses: Vec<std::net::IpAddr>| {
            let primary = addresses.into_iter().next();
            primary.map(|address| SocketAddr::new(address, API_SERVER_PORT))
        };
        let addresses: Vec<SocketAddr> = numbers
            .clone()
            .filter_map(|number| primary(families.api_server(number)))
            .collect();
        let front: Vec<SocketAddr> = primary(families.api_front()).into_iter().collect();
        let advertised = match plane.advertise {
            Advertise::Own => addresses.clone(),
            Advertise::Shared => front.clone(),
        };

        let names: Vec<String> = nodes.iter().map(|node| node.name()).collect();
        let access = Access::new(families, &names)?;
        let store = Store::new(Config::new(families.services(), Vec::new(), API_SERVER_PORT))
            .map_err(failed("configure"))?;
        let [eyes, controllers] = [loopback()?, loopback()?];
        let (admin, behind) = (address_of(&eyes)?, address_of(&controllers)?);
        let servers: Vec<Server> = numbers
            .zip(&addresses)
            .map(|(number, address)| Server {
                number,
                faults: Faults::new(),
                address: *address,
                replica: Mutex::default(),
            })
            .collect();
        let these = Self {
            servers,
            store,
            held: Held::default(),
            advertised: advertised.clone(),
            tls: access.tls(),
            auth: access.auth(),
            net,
            admin,
        };
        for server in &these.servers {
            these.run(server).await?;
        }
        these.never_stops(eyes, tasks);
        let behind_front: Arc<[SocketAddr]> = addresses.into();
        let mut fronts = vec![controllers];
        for address in &front {
            fronts.push(these.net.listen(*address)?);
        }
        for listener in fronts {
            let front = Front::new(listener, behind_front.clone(), these.net.clone())?;
            tasks.spawn(front.run());
        }

        access.write(&dir.kubeconfig(), admin, users::ADMIN)?;
        access.write(&dir.controllers_kubeconfig(), behind, users::CONTROLLERS)?;
        for address in front {
            access.write(&dir.outside_kubeconfig(), address, users::OUTSIDE)?;
        }
        for (name, server) in names.iter().zip(advertised.iter().cycle()) {
            access.write(&dir.node_kubeconfig(name), *server, &users::node(name))?;
        }
        Ok(these)
    }

    /// Where the administrator asks: on this host's loopback.
    pub(in crate::embedded) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// All of them by number.
    pub(in crate::embedded) async fn list(&self) -> Vec<ApiServer> {
        let mut all = Vec::new();
        for server in &self.servers {
            all.push(ApiServer {
                number: server.number,
                address: server.address,
                running: server.replica.lock().await.is_some(),
            });
        }
        all
    }

    /// Whom they ask about the pods of nodes.
    pub(in crate::embedded) fn ask_about_pods(&self, kubelet: Arc<dyn Kubelet>) {
        self.store.set_kubelet(kubelet);
    }

    /// Lets the resourceVersion jump ahead.
    pub(in crate::embedded) fn jump_versions(&self, by: u32) {
        self.store.jump_versions(by);
    }

    /// Starts one that does not run.
    pub(super) async fn run(&self, server: &Server) -> Result<(), LabError> {
        let mut replica = server.replica.lock().await;
        if replica.is_some() {
            return Ok(());
        }
        let own = usize::from(server.number - 1);
        let advertise = self.advertised.get(own).or(self.advertised.first());
        let config = ReplicaConfig {
            listener: self.net.listen(server.address)?,
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            advertise: advertise.unwrap_or(&server.address).ip(),
            faults: server.faults.clone(),
        };
        *replica = Some(Replica::start(&self.store, config).map_err(failed("start"))?);
        Ok(())
    }

    /// Ends one; whether it ran.
    pub(super) async fn end(&self, server: &Server, how: Stop) -> Result<bool, LabError> {
        let Some(replica) = server.replica.lock().await.take() else {
            return Ok(false);
        };
        match how {
            Stop::Term => replica.stop().await.map_err(failed("stop"))?,
            Stop::Kill => replica.kill().await,
        }
        Ok(true)
    }

    /// A server that advertises nothing, meets no fault and lives as long as the lab.
    fn never_stops(&self, listener: TcpListener, tasks: &mut JoinSet<()>) {
        let serving = lab_apiserver::serve(
            self.store.clone(),
            listener,
            self.tls.clone(),
            self.auth.clone(),
            CancellationToken::new(),
        );
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the administrator's API server ended");
            }
        });
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
