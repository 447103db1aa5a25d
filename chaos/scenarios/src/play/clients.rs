//! Clients of a cluster and their sockets, and servers outside pods.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::Place;
use harness::{client::Client, verdict::Halt};
use oracle::history::{Round, Transport};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    time::timeout,
};

use super::{
    PlayError, objects,
    side::{Side, node},
};
use crate::step::{Protocol, Vantage};

/// Beginning of a server's first line, once it listens (`probe serve`).
const READY: &str = "ready: ";
/// Limit until a server listens.
const LISTENS: Duration = Duration::from_secs(10);

/// One exchange of a client's sockets with a destination.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) from: Vantage,
    pub(super) protocol: Protocol,
    pub(super) to: SocketAddr,
    pub(super) source_port: Option<u16>,
    pub(super) fragments: &'a [u8],
    pub(super) sockets: u32,
    /// Whether the socket is already connected to the destination.
    pub(super) stays: bool,
    pub(super) limit: Duration,
}

impl Side {
    /// Starts a server, and returns when it listens. The server is killed on drop.
    pub(super) async fn server(
        &self,
        place: &Place,
        name: &str,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<Child, PlayError> {
        let port = port.to_string();
        let mut argv = ["probe", "serve", "--name", name, "--tcp", &port, "--udp", &port]
            .map(str::to_owned)
            .to_vec();
        if let Some(address) = address {
            argv.extend(["--address".to_owned(), address.to_string()]);
        }
        let failed = |why: String| PlayError::NotStaged {
            why: format!("the server {name} at port {port} does not serve: {why}"),
        };
        let mut child = self.cx.cluster().exec(place, &argv).await.map_err(Halt::from)?;
        // The log is read and discarded, so that the pipe does not fill.
        if let Some(mut stdout) = child.stdout.take() {
            tokio::spawn(async move { tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await });
        }
        let Some(stderr) = child.stderr.take() else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let mut lines = BufReader::new(stderr).lines();
        match timeout(LISTENS, lines.next_line()).await {
            Ok(Ok(Some(line))) if line.starts_with(READY) => Ok(child),
            Ok(Ok(Some(line))) => Err(failed(line)),
            Ok(Ok(None)) => Err(failed("it ended".to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("nothing within {LISTENS:?}"))),
        }
    }

    /// The client of a vantage.
    pub(super) fn client(&self, at: Vantage) -> Result<Client, Halt> {
        let number = at.node().unwrap_or_default();
        let of_node = |wanted: fn(&Place) -> bool| {
            let mut all = self.cx.clients().iter();
            let found = all.find(|client| client.node == node(number) && wanted(&client.place));
            found.map(|client| client.place.clone())
        };
        let place = match at.backend() {
            Some(backend) => {
                let pod = objects::pod(&self.pods, backend)?;
                let (namespace, name) = (pod.namespace.clone(), pod.in_api.clone());
                Some(Place::Pod { namespace, name })
            }
            None if at.is_host() => of_node(|place| matches!(place, Place::Host { .. })),
            None if at.is_pod() => of_node(|place| matches!(place, Place::Pod { .. })),
            None => Some(Place::Outside),
        };
        let place = place.ok_or_else(|| Halt::Harness(format!("there is no client at {}", at.name())))?;
        Ok(Client {
            name: at.name().to_owned(),
            node: at.node().map(node).unwrap_or_default(),
            place,
            private_cgroups: false,
        })
    }
}

/// Instructions for a client's sockets.
pub(super) fn round(exchange: &Exchange<'_>, is_fresh: bool) -> Round {
    Round {
        target: exchange.to.to_string(),
        transport: match exchange.protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
            Protocol::UdpConnected => Transport::UdpConnected,
        },
        address: exchange.to.ip(),
        port: exchange.to.port(),
        sockets: exchange.sockets,
        anew: is_fresh,
        stay: exchange.stays,
        source_port: Some(exchange.source_port.unwrap_or_default()),
        fragments: exchange.fragments.to_vec(),
        bytes: 0,
        watched: false,
        limit_ms: u64::try_from(exchange.limit.as_millis()).unwrap_or(u64::MAX),
    }
}
