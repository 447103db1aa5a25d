//! A load balancer in front of the API servers. Each connection goes to the next server that accepts it, through a
//! proxy while response faults are active.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lab_apiserver::Proxy;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{RwLock, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    LIMITS, LabError,
    error::io_error,
    netns::{NetNs, with_long_backlog},
};

/// Proxies by the address of their server.
pub type Proxies = BTreeMap<SocketAddr, Proxy>;

/// Whether connections pass through proxies, and which. A direct connection holds a read lock of `plain`.
#[derive(Clone)]
pub struct Through {
    /// The proxies, while there are any.
    pub now: watch::Receiver<Option<Arc<Proxies>>>,
    /// Read-locked by direct connections.
    pub plain: Arc<RwLock<()>>,
}

/// A listening socket, and the servers behind it.
pub struct Front {
    listener: TcpListener,
    servers: Arc<[SocketAddr]>,
    /// Readiness of the servers, where it is checked: ready servers are tried first.
    ready: Option<Arc<[AtomicBool]>>,
    /// Network namespace of the servers, if it is not this process's.
    net: Option<Arc<NetNs>>,
    /// Proxies for connections, while faults are active.
    through: Option<Through>,
}

impl Front {
    /// Uses a listening socket of any network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(
        listener: StdListener,
        servers: Arc<[SocketAddr]>,
        net: Option<Arc<NetNs>>,
    ) -> Result<Self, LabError> {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(with_long_backlog(listener)?))
            .map_err(io_error("listen in front of the API servers"))?;
        Ok(Self {
            listener,
            servers,
            ready: None,
            net,
            through: None,
        })
    }

    /// Tries the servers first that are marked as ready, in turn: a server that has just begun to listen may respond
    /// late.
    pub fn preferring(mut self, ready: Arc<[AtomicBool]>) -> Self {
        self.ready = Some(ready);
        self
    }

    /// Uses proxies for new connections while there are any. Direct connections are closed when that begins.
    pub fn through(mut self, through: Through) -> Self {
        self.through = Some(through);
        self
    }

    /// Forwards connections, at most [`Limits::front_connections`](crate::Limits::front_connections) at once. Without
    /// a server, the client's connection is closed, as by a load balancer without backends.
    pub async fn run(self) {
        let room = Arc::new(Semaphore::new(LIMITS.front_connections));
        let mut connections = JoinSet::new();
        let mut turn = 0;
        loop {
            while connections.try_join_next().is_some() {}
            // The semaphore is never closed.
            let Ok(permit) = room.clone().acquire_owned().await else {
                return;
            };
            let client = match self.listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    tracing::warn!(%error, "the front of the API servers could not accept a connection");
                    sleep(LIMITS.api_retry).await;
                    continue;
                }
            };
            let order = self.order(turn);
            turn = (turn + 1) % self.servers.len();
            let (net, through) = (self.net.clone(), self.through.clone());
            connections.spawn(async move {
                pass(client, &order, net.as_deref(), through).await;
                drop(permit);
            });
        }
    }

    /// All servers in turn, beginning with `first`; ready ones come first.
    fn order(&self, first: usize) -> Vec<SocketAddr> {
        let is_ready = |at: &usize| match &self.ready {
            Some(ready) => ready.get(*at).is_some_and(|ready| ready.load(Ordering::Relaxed)),
            None => true,
        };
        let turns = (first..self.servers.len()).chain(0..first);
        let (mut order, others): (Vec<usize>, Vec<usize>) = turns.partition(is_ready);
        order.extend(others);
        let servers = order.into_iter().filter_map(|at| self.servers.get(at));
        servers.copied().collect()
    }
}

async fn pass(client: TcpStream, order: &[SocketAddr], net: Option<&NetNs>, through: Option<Through>) {
    for server in order {
        match timeout(LIMITS.front_connect, connect(*server, net)).await {
            Ok(Ok(connected)) => {
                let passed = match through {
                    Some(through) => either(client, connected, *server, through).await,
                    None => plain(client, connected).await,
                };
                if let Err(error) = passed {
                    tracing::debug!(%error, "a connection through the front of the API servers broke");
                }
                return;
            }
            Ok(Err(error)) => tracing::debug!(%server, %error, "the front passes over an API server"),
            Err(_) => tracing::debug!(%server, "the front passes over an API server that is silent"),
        }
    }
}

/// Forwards a connection through a proxy if there is one; otherwise directly, until there is.
async fn either(
    client: TcpStream,
    connected: TcpStream,
    server: SocketAddr,
    mut through: Through,
) -> io::Result<()> {
    let proxies = through.now.borrow().clone();
    if let Some(proxies) = proxies {
        return match proxies.get(&server) {
            Some(proxy) => proxy.pass(client, connected).await,
            None => plain(client, connected).await,
        };
    }
    let _plain = through.plain.read().await;
    tokio::select! {
        biased;
        // The sender lives as long as this task.
        Ok(_) = through.now.wait_for(Option::is_some) => Ok(()),
        passed = plain(client, connected) => passed,
    }
}

async fn plain(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    // Watch events are small and must not wait for more.
    drop(client.set_nodelay(true).and_then(|()| server.set_nodelay(true)));
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

async fn connect(server: SocketAddr, net: Option<&NetNs>) -> io::Result<TcpStream> {
    let open = || match server {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = match net {
        Some(net) => net.inside(open)?,
        None => open()?,
    };
    socket.connect(server).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn servers_take_turns_and_those_that_are_ready_come_first() {
        let any = || StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let servers: Vec<SocketAddr> = [1, 2, 3].map(|port| (Ipv4Addr::LOCALHOST, port).into()).to_vec();
        let ports = |front: &Front, first| -> Vec<u16> {
            let order = front.order(first).into_iter();
            order.map(|server| server.port()).collect()
        };
        let front = Front::new(any(), servers.clone().into(), None).expect("a front");
        assert_eq!(ports(&front, 1), [2, 3, 1], "no readiness is known");
        let ready: Arc<[AtomicBool]> = [true, false, true].map(AtomicBool::new).into();
        let front = front.preferring(ready.clone());
        assert_eq!(ports(&front, 1), [3, 1, 2]);
        ready.iter().for_each(|one| one.store(false, Ordering::Relaxed));
        assert_eq!(
            ports(&front, 2),
            [3, 1, 2],
            "an unready server is better than none"
        );
    }
}
