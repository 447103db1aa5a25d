//! One API server of the control plane: it listens, advertises itself, and is stopped or killed.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{auth::Auth, faults::Faults, serve, serve::ServeError, store::Store};

/// What a replica is started with.
pub struct ReplicaConfig {
    /// Where it listens; the sockets may belong to another network namespace.
    pub listener: TcpListener,
    /// Its certificate.
    pub tls: Arc<rustls::ServerConfig>,
    /// Its users.
    pub auth: Arc<Auth>,
    /// Its address in `default/kubernetes` (`--advertise-address`); replicas may share one.
    pub advertise: IpAddr,
    /// Faults for its clients; replicas may share them.
    pub faults: Faults,
}

/// A running replica over a [`Store`]; any number of them share one.
///
/// Dropping it is [`Replica::kill`].
pub struct Replica {
    store: Store,
    address: SocketAddr,
    advertise: IpAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
    reconciling: JoinHandle<()>,
}

impl Replica {
    /// Starts it: requests are answered, and `default/kubernetes` shows its address.
    ///
    /// # Errors
    /// The listener can't be used.
    pub fn start(store: &Store, config: ReplicaConfig) -> Result<Self, ServeError> {
        let ReplicaConfig {
            listener,
            tls,
            auth,
            advertise,
            faults,
        } = config;
        let address = listener.local_addr()?;
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve::run(
            store.clone(),
            listener,
            tls,
            auth,
            faults,
            shutdown.clone(),
        ));
        store.renew_lease(advertise);
        let reconciling = tokio::spawn(reconcile(store.clone(), advertise));
        Ok(Self {
            store: store.clone(),
            address,
            advertise,
            shutdown,
            serving,
            reconciling,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it as SIGTERM does: it takes its address out of `default/kubernetes` (with it that of every replica
    /// which advertises the same, until the next of them reconciles), ends its watches, answers what is under way
    /// for at most two seconds, and frees its port.
    ///
    /// # Errors
    /// What serving ended with.
    pub async fn stop(mut self) -> Result<(), ServeError> {
        self.reconciling.abort();
        // Once it has ended, nothing renews the lease.
        let _aborted = (&mut self.reconciling).await;
        self.store.end_lease(self.advertise);
        self.shutdown.cancel();
        match (&mut self.serving).await {
            Ok(ended) => ended,
            Err(error) => Err(ServeError::Ended(error)),
        }
    }

    /// Ends it as SIGKILL does: connections break at once, the port is free, and its lease stays until it runs
    /// out ([`Config::lease`](crate::Config::lease)).
    pub async fn kill(mut self) {
        self.abort();
        // They end as aborted tasks, which is expected.
        let _aborted = (&mut self.reconciling).await;
        let _aborted = (&mut self.serving).await;
    }

    fn abort(&self) {
        self.reconciling.abort();
        self.serving.abort();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.abort();
    }
}

async fn reconcile(store: Store, advertise: IpAddr) {
    let period = store.config().reconcile_interval;
    loop {
        tokio::time::sleep(period).await;
        store.renew_lease(advertise);
    }
}
