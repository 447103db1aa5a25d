//! A load balancer in front of the API servers: each connection goes to the next of them that takes it.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::embedded::{
    LIMITS, LabError,
    error::io_error,
    netns::{NetNs, roomy},
};

/// A listening socket, and the servers behind it.
pub(crate) struct Front {
    listener: TcpListener,
    servers: Arc<[SocketAddr]>,
    /// Which of them are known to be ready, where somebody looks: they are tried first.
    ready: Option<Arc<[AtomicBool]>>,
    /// Where the servers are reached, if not where this runs.
    net: Option<Arc<NetNs>>,
}

impl Front {
    /// Takes a listening socket over, of whichever namespace it is.
    pub(crate) fn new(
        listener: StdListener,
        servers: Arc<[SocketAddr]>,
        net: Option<Arc<NetNs>>,
    ) -> Result<Self, LabError> {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(roomy(listener)?))
            .map_err(io_error("listen in front of the API servers"))?;
        Ok(Self {
            listener,
            servers,
            ready: None,
            net,
        })
    }

    /// Tries servers first that are marked here, in the order of all: one that has just begun to listen may answer late.
    pub(crate) fn preferring(mut self, ready: Arc<[AtomicBool]>) -> Self {
        self.ready = Some(ready);
        self
    }

    /// Passes connections on, at most [`Limits::front_connections`](crate::embedded::Limits::front_connections) at
    /// once. A client for which no server is left is cut off, as by a load balancer without backends.
    pub(crate) async fn run(self) {
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
            let net = self.net.clone();
            connections.spawn(async move {
                pass(client, &order, net.as_deref()).await;
                drop(permit);
            });
        }
    }

    /// All servers, from one on; those first that are known to be ready.
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

async fn pass(mut client: TcpStream, order: &[SocketAddr], net: Option<&NetNs>) {
    for server in order {
        match timeout(LIMITS.front_connect, connect(*server, net)).await {
            Ok(Ok(mut server)) => {
                // Watch events are small and must not wait for more.
                drop(client.set_nodelay(true).and_then(|()| server.set_nodelay(true)));
                if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
                    tracing::debug!(%error, "a connection through the front of the API servers broke");
                }
                return;
            }
            Ok(Err(error)) => tracing::debug!(%server, %error, "the front passes over an API server"),
            Err(_) => tracing::debug!(%server, "the front passes over an API server that is silent"),
        }
    }
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
        assert_eq!(ports(&front, 1), [2, 3, 1], "nobody looks");
        let ready: Arc<[AtomicBool]> = [true, false, true].map(AtomicBool::new).into();
        let front = front.preferring(ready.clone());
        assert_eq!(ports(&front, 1), [3, 1, 2]);
        ready.iter().for_each(|one| one.store(false, Ordering::Relaxed));
        assert_eq!(
            ports(&front, 2),
            [3, 1, 2],
            "whoever takes it is better than nobody"
        );
    }
}
