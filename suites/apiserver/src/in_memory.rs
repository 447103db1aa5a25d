//! A server for clients of the same process: the same requests, answers and faults, over connections in memory, so that time may be
//! simulated.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{DuplexStream, duplex},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{auth::Auth, faults::Faults, http::Api, serve, store::Store};

/// Bytes under way on a connection, each way.
const BUFFER: usize = 64 << 10;

/// One server. Its connections end when it is dropped.
pub struct InMemory {
    store: Store,
    auth: Arc<Auth>,
    faults: Faults,
    /// While it runs.
    running: Mutex<Option<Running>>,
}

struct Running {
    api: Api,
    connections: JoinSet<()>,
}

impl InMemory {
    /// A server that runs.
    #[must_use]
    pub fn new(store: Store, auth: Auth, faults: Faults) -> Self {
        let server = Self {
            store,
            auth: Arc::new(auth),
            faults,
            running: Mutex::default(),
        };
        server.start();
        server
    }

    /// A new connection: its client's end. HTTP/1.1 and HTTP/2 without TLS. In a tokio runtime.
    ///
    /// # Errors
    /// The server does not run.
    pub fn connect(&self, source: IpAddr) -> io::Result<DuplexStream> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Running { api, connections }) = running.as_mut() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        while connections.try_join_next().is_some() {}
        let (client, server) = duplex(BUFFER);
        let api = api.clone();
        connections.spawn(async move {
            if let Err(error) = serve::answer(api, server, source, CancellationToken::new()).await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(client)
    }

    /// Ends all connections, and refuses further ones.
    pub fn kill(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Starts it again.
    pub fn start(&self) {
        let (shutdown, ended) = (CancellationToken::new(), CancellationToken::new());
        let (store, auth, faults) = (self.store.clone(), Arc::clone(&self.auth), self.faults.clone());
        let running = Running {
            api: Api::new(store, auth, faults, shutdown, ended),
            connections: JoinSet::new(),
        };
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }
}
