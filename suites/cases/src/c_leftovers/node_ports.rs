//! Services with node ports that change while no agent runs: the backend of one is replaced, the other one is deleted.
//!
//! The former backend stays alive on the last node: it is the trap. Backends also listen on the Service's port: packets
//! that are translated twice, or not at all, would arrive there.
use std::net::{IpAddr, SocketAddr};

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    names::Key,
    pods::{Backend, endpoints, serve},
    probing::identities,
    verdict::Halt,
};
use oracle::history::Transport;
use serde_json::{Value, json};

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
/// Transports that must reach no backend: a connected UDP socket gets the error of a closed port as late as kernels
/// limit ICMP.
const UNANSWERED: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// Services with node ports, of one family.
pub(super) struct NodePorts {
    pub(super) axis: String,
    family: Family,
    namespace: String,
    /// The address of the node at which node ports are dialled.
    pub(super) node: IpAddr,
    shop: Frontends,
    /// Deleted while no agent runs.
    gone: Frontends,
    /// Service whose datagrams an XDP program sends elsewhere.
    pub(super) misled: SocketAddr,
    pub(super) old: Vec<Backend>,
    new: Vec<Backend>,
}

/// Frontends of one Service.
struct Frontends {
    name: &'static str,
    cluster_ip: IpAddr,
    /// Node ports of TCP and of UDP.
    ports: [u16; 2],
}

impl NodePorts {
    pub(super) async fn stage(cx: &Context, axis: &str, family: Family, node: &str) -> Result<Self, Halt> {
        let namespace = cx.namespace().await?;
        let nodes = cx.nodes();
        let last = nodes.last().map_or(node, String::as_str);
        let values: Vec<Value> = [("old", last), ("new1", node), ("new2", last)]
            .into_iter()
            .map(|(name, node)| {
                let args = serve(name, &namespace, &[TARGET, PORT], &[TARGET, PORT]);
                json!({ "name": name, "namespace": namespace, "node": node, "args": args })
            })
            .collect();
        let mut old = cx.backends(&values).await?;
        let new = old.split_off(1);
        let values = json!({
            "namespace": namespace, "family": family.to_string(), "endpoints": endpoints(&old, family)?,
        });
        let shop = Frontends::make(cx, &namespace, "shop", &values).await?;
        let gone = Frontends::make(cx, &namespace, "gone", &values).await?;
        let mut described = cx.cluster().describe().nodes.iter();
        let addresses = described
            .find(|one| one.name == node)
            .map(|one| one.addresses.clone());
        let of_family = |address: &IpAddr| address.is_ipv6() == (family == Family::IPv6);
        let address = addresses.into_iter().flatten().find(of_family);
        let node = address.ok_or_else(|| Halt::Harness(format!("{node} has no {family} address")))?;
        Ok(Self {
            axis: format!("{family}, {axis}"),
            family,
            namespace,
            node,
            misled: (node, shop.ports[1]).into(),
            shop,
            gone,
            old,
            new,
        })
    }

    pub(super) fn old_ports(&self) -> Vec<Destination> {
        let of =
            |one: &Frontends| self.served(one, "np", &self.old, |transport| (self.node, one.port(transport)));
        [of(&self.shop), of(&self.gone)].concat()
    }

    pub(super) fn old_cluster_ips(&self) -> Vec<Destination> {
        let of = |one: &Frontends| self.served(one, "cip", &self.old, |_| (one.cluster_ip, PORT));
        [of(&self.shop), of(&self.gone)].concat()
    }

    /// Those of them that the connect hooks see.
    pub(super) fn old_connecting(&self) -> Vec<Destination> {
        let mut targets = self.old_cluster_ips();
        targets.retain(|target| target.transport != Transport::Udp);
        targets
    }

    pub(super) fn ports_now(&self) -> Vec<Destination> {
        let shop = |transport| (self.node, self.shop.port(transport));
        let gone = |transport| (self.node, self.gone.port(transport));
        let mut targets = self.served(&self.shop, "np", &self.new, shop);
        targets.extend(self.none("np", gone));
        targets
    }

    pub(super) fn cluster_ips_now(&self) -> Vec<Destination> {
        let mut targets = self.served(&self.shop, "cip", &self.new, |_| (self.shop.cluster_ip, PORT));
        targets.extend(self.none("cip", |_| (self.gone.cluster_ip, PORT)));
        targets
    }

    fn served(
        &self,
        frontends: &Frontends,
        kind: &str,
        backends: &[Backend],
        address: impl Fn(Transport) -> (IpAddr, u16),
    ) -> Vec<Destination> {
        let name = format!("{} {kind}", frontends.name);
        let served = |&transport: &Transport| {
            let expected = identities(backends, transport, TARGET);
            Destination::serves(&self.axis, &name, transport, address(transport).into(), expected)
        };
        TRANSPORTS.iter().map(served).collect()
    }

    fn none(&self, kind: &str, address: impl Fn(Transport) -> (IpAddr, u16)) -> Vec<Destination> {
        let name = format!("{} {kind}", self.gone.name);
        let none = |&transport: &Transport| {
            Destination::none(&self.axis, &name, transport, address(transport).into())
        };
        UNANSWERED.iter().map(none).collect()
    }

    /// Which datagrams an XDP program sends to which backend.
    pub(super) fn misleading(&self) -> Result<(SocketAddr, SocketAddr), Halt> {
        let trap = (self.old[0].address(self.family)?, TARGET).into();
        Ok((self.misled, trap))
    }

    /// Replaces `b_old` by others, and deletes the other Service.
    pub(super) async fn replace(&self, cx: &Context) -> Result<(), Halt> {
        let slice = Key::slice(&self.namespace, self.shop.name);
        let endpoints = json!({ "endpoints": endpoints(&self.new, self.family)? });
        cx.objects().patch(&slice, endpoints).await?;
        for key in [
            Key::slice(&self.namespace, self.gone.name),
            Key::service(&self.namespace, self.gone.name),
        ] {
            cx.objects().delete(&key).await?;
        }
        Ok(())
    }
}

impl Frontends {
    async fn make(cx: &Context, namespace: &str, name: &'static str, values: &Value) -> Result<Self, Halt> {
        let cluster_ip = cx.apply_service(name, values).await?;
        let object = cx.objects().get(&Key::service(namespace, name)).await?;
        let port = |at: usize| {
            let port = object["spec"]["ports"][at]["nodePort"].as_u64();
            port.and_then(|port| u16::try_from(port).ok())
                .ok_or_else(|| Halt::Harness(format!("the Service {name} has no node ports")))
        };
        Ok(Self {
            name,
            cluster_ip,
            ports: [port(0)?, port(1)?],
        })
    }

    fn port(&self, transport: Transport) -> u16 {
        self.ports[usize::from(transport != Transport::Tcp)]
    }
}
