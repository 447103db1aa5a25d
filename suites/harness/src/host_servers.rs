//! Servers that are no pods: processes on nodes and on the client outside, which answer as backends do.

use std::net::{IpAddr, SocketAddr};

use cluster::{Family, Place};
use oracle::{
    check::Observed,
    finding::Finding,
    history::{Attempt, Outcome, PlanEntry, Stage, Transport},
    source::sources,
};
use tokio::process::Child;

use crate::{
    axes::first_line,
    client::Client,
    context::Context,
    destination::Destination,
    frontends::node_addresses,
    probing::{control, probe_briefly, run},
    verdict::Halt,
    waiting::Within,
};

/// To learn an own address, a socket is connected there; nothing is expected of it.
const ANY_PORT: u16 = 9;

/// A server of TCP and UDP. It ends with this.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct Server {
    name: String,
    port: u16,
    _child: Child,
}

impl Server {
    /// Starts a server at a port of a place. That it answers is for a control to show.
    ///
    /// # Errors
    /// If it can't be started there.
    pub async fn start(cx: &Context, place: &Place, name: &str, port: u16) -> Result<Self, Halt> {
        let number = port.to_string();
        let argv = [
            "probe", "serve", "--name", name, "--tcp", &number, "--udp", &number,
        ];
        let mut child = cx.cluster().exec(place, &argv.map(str::to_owned)).await?;
        // A full pipe would hold it up.
        if let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) {
            tokio::spawn(async move { tokio::io::copy(&mut out, &mut tokio::io::sink()).await });
            tokio::spawn(async move { tokio::io::copy(&mut err, &mut tokio::io::sink()).await });
        }
        Ok(Self {
            name: name.to_owned(),
            port,
            _child: child,
        })
    }

    /// Its identity by a transport.
    #[must_use]
    pub fn identity(&self, transport: Transport) -> String {
        let protocol = match transport {
            Transport::Tcp => "TCP",
            _ => "UDP",
        };
        format!("{}/{protocol}/{}", self.name, self.port)
    }

    /// What leads to it, at an address of its machine.
    #[must_use]
    pub fn at(&self, axis: &str, transport: Transport, address: IpAddr) -> Destination {
        let address = SocketAddr::new(address, self.port);
        Destination::serves(axis, &self.name, transport, address, [self.identity(transport)])
    }
}

/// Servers on the client outside and on nodes. They end with this.
#[derive(Debug)]
#[must_use = "they end when this is dropped"]
pub struct Servers {
    outside: Server,
    nodes: Vec<(Client, Server)>,
}

impl Servers {
    /// Starts servers at a port of the client outside and of every node's host.
    ///
    /// # Errors
    /// If one can't be started.
    pub async fn start(cx: &Context, namespace: &str, port: u16) -> Result<Self, Halt> {
        let outside = Server::start(cx, &Place::Outside, &format!("outside.{namespace}"), port).await?;
        let mut nodes = Vec::new();
        for host in cx.clients().on_hosts() {
            let name = format!("{}.{namespace}", host.node);
            nodes.push((host.clone(), Server::start(cx, &host.place, &name, port).await?));
        }
        Ok(Self { outside, nodes })
    }

    /// Starts a server at a port of the client outside alone.
    ///
    /// # Errors
    /// If it can't be started.
    pub async fn outside(cx: &Context, namespace: &str, port: u16) -> Result<Self, Halt> {
        let outside = Server::start(cx, &Place::Outside, &format!("outside.{namespace}"), port).await?;
        Ok(Self {
            outside,
            nodes: Vec::new(),
        })
    }

    /// What leads to the server outside, at an address of the client.
    #[must_use]
    pub fn outside_at(&self, axis: &str, transport: Transport, address: IpAddr) -> Destination {
        self.outside.at(axis, transport, address)
    }

    /// Control: the servers of all nodes answer a client, and see its own address, which is returned: no machine between
    /// translates. An axis where that is not so becomes inconclusive.
    ///
    /// # Errors
    /// If no axis is left, or the client has no address of the family.
    pub async fn see(
        &self,
        cx: &Context,
        client: &Client,
        axis: &str,
        family: Family,
    ) -> Result<IpAddr, Halt> {
        let own = address_of(cx, client, family).await?;
        let mut targets = Vec::new();
        for (node, address) in node_addresses(cx, family) {
            let of_node = self.nodes.iter().find(|(host, _)| host.node == node);
            targets.extend(of_node.map(|(_, server)| server.at(axis, Transport::Tcp, address)));
        }
        let (clients, within) = ([client.clone()], Within::from_now(cx.limits().endpoints));
        control(cx, "servers of nodes answer", &clients, &targets, within).await?;
        let attempts = probe_briefly(cx, client, &targets).await?;
        let observed = Observed::new(&attempts, &[], cx.limits().times());
        let of = |target: &Destination| sources(&observed, &target.stream(client), own, target.fewest());
        let findings: Vec<Finding> = targets.iter().flat_map(of).collect();
        if let Some(first) = findings.first() {
            let first = first_line(first);
            let why = format!("no path to the nodes without translation: {first}");
            cx.axes().inconclusive(axis, why, findings);
        }
        Ok(own)
    }

    /// What a process on a node's host dials: the server outside, and that of another node.
    pub async fn from(
        &self,
        cx: &Context,
        host: &Client,
        axis: &str,
        family: Family,
        transports: &[Transport],
    ) -> Result<Vec<Destination>, Halt> {
        let none = || Halt::Harness(format!("no machine beside {} has a {family} address", host.node));
        let client = cx.clients().outside().ok_or_else(none)?;
        let outside = address_of(cx, &client, family).await?;
        let each = transports.iter();
        let mut all: Vec<_> = each.map(|&by| self.outside.at(axis, by, outside)).collect();
        all.extend(self.of_another_node(cx, host, axis, family, transports)?);
        Ok(all)
    }

    /// The server of another node than a client's.
    ///
    /// # Errors
    /// If no node has an address of the family.
    pub fn of_another_node(
        &self,
        cx: &Context,
        client: &Client,
        axis: &str,
        family: Family,
        transports: &[Transport],
    ) -> Result<Vec<Destination>, Halt> {
        let none = || Halt::Harness(format!("no node beside {} has a {family} address", client.node));
        let at = self.nodes.iter().position(|(other, _)| other.node == client.node);
        let after = at.map_or(0, |at| at + 1) % self.nodes.len().max(1);
        let (other, server) = self.nodes.get(after).ok_or_else(none)?;
        let mut nodes = node_addresses(cx, family).into_iter();
        let (_, address) = nodes.find(|(node, _)| *node == other.node).ok_or_else(none)?;
        let each = transports.iter();
        Ok(each.map(|&by| server.at(axis, by, address)).collect())
    }
}

/// The address from which a client dials the first node.
pub async fn address_of(cx: &Context, client: &Client, family: Family) -> Result<IpAddr, Halt> {
    let unknown = || Halt::Harness(format!("{} has no {family} address", client.name));
    let nodes = node_addresses(cx, family);
    let (_, address) = nodes.first().ok_or_else(unknown)?;
    let target = Destination::none(
        "",
        "own address",
        Transport::UdpConnected,
        (*address, ANY_PORT).into(),
    );
    let attempts = run(cx, client, vec![target.once(cx.limits())]).await?;
    let local = attempts.first().and_then(|attempt| attempt.local);
    local.map(|local| local.ip()).ok_or_else(unknown)
}

/// Whether sockets of a client may be bound to all of these ports.
pub async fn may_bind(cx: &Context, client: &Client, dialled: &[(Destination, u16)]) -> Result<bool, Halt> {
    let entry = |(target, port): &(Destination, u16)| PlanEntry {
        source_ports: Some([*port, *port]),
        ..target.once(cx.limits())
    };
    let attempts = run(cx, client, dialled.iter().map(entry).collect()).await?;
    let refused = |attempt: &Attempt| matches!(&attempt.outcome, Outcome::Failed { stage: Stage::Socket, errno } if errno == "EADDRINUSE" || errno == "EPERM");
    Ok(!attempts.iter().any(refused))
}
