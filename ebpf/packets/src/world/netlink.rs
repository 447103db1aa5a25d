//! Devices, addresses, routes and neighbours of the [`World`](super::World), by rtnetlink(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnetlink::{
    Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
    packet_route::{
        address::AddressHeaderFlags,
        link::{InfoData, InfoKind, InfoVeth},
        route::{RouteAttribute, RouteMetric, RouteType},
    },
};
use tokio::runtime;

use super::{
    Addresses, CLOSED, MTU, NODE_LINK, PEER_LINK, POD_A, POD_B, SMALL_MTU, UPLINK, V4, V6, WorldError,
};

/// RTAX_MTU: the bit of `RTAX_LOCK` that makes a route's MTU hold for packets that are forwarded, too.
const MTU_LOCKED: u32 = 1 << 2;

/// Puts everything into the calling thread's namespace.
pub(super) fn furnish() -> Result<(), WorldError> {
    by_netlink(async |node| node.furnish().await)
}

/// Brings its loopback device up, with these addresses.
pub(super) fn loopback(addresses: &[IpAddr]) -> Result<(), WorldError> {
    by_netlink(async |node| node.loopback(addresses).await)
}

/// Makes the next node known.
pub(super) fn introduce() -> Result<(), WorldError> {
    by_netlink(async |node| {
        for at in [&V4, &V6] {
            node.neighbour(at.next_node, UPLINK).await?;
        }
        Ok(())
    })
}

fn by_netlink(work: impl AsyncFnOnce(Node) -> Result<(), WorldError>) -> Result<(), WorldError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(WorldError::Netlink)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(WorldError::Netlink)?;
        let connection = tokio::spawn(connection);
        let done = work(Node { handle }).await;
        connection.abort();
        done
    })
}

struct Node {
    handle: Handle,
}

impl Node {
    async fn furnish(&self) -> Result<(), WorldError> {
        self.up("lo").await?;
        for (index, name) in [
            (UPLINK, "uplink"),
            (POD_A, "pod_a"),
            (POD_B, "pod_b"),
            (CLOSED, "closed"),
        ] {
            self.device(index, name).await?;
        }
        self.family(&V4, 24, 32).await?;
        self.family(&V6, 64, 128).await
    }

    async fn loopback(&self, addresses: &[IpAddr]) -> Result<(), WorldError> {
        self.up("lo").await?;
        for address in addresses {
            let host = if address.is_ipv4() { 32 } else { 128 };
            // Of every namespace, the first device.
            self.address(1, *address, host).await?;
        }
        Ok(())
    }

    /// A veth pair: its other end stands for whatever is there, and has no address.
    async fn device(&self, index: u32, name: &str) -> Result<(), WorldError> {
        let other = format!("{name}_peer");
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(&other)
            .address(PEER_LINK.to_vec())
            .mtu(MTU);
        let veth = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(name)
            .index(index)
            .address(NODE_LINK.to_vec())
            .mtu(MTU)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())));
        let added = self.handle.link().add(veth.build()).execute().await;
        added.map_err(failed(format!("the veth pair {name}")))?;
        self.up(name).await?;
        self.up(&other).await
    }

    async fn up(&self, name: &str) -> Result<(), WorldError> {
        let up = LinkUnspec::new_with_name(name).up().build();
        let set = self.handle.link().set(up).execute().await;
        set.map_err(failed(format!("the device {name}, up")))
    }

    /// `network`: bits of a network's prefix. `host`: bits of an address.
    async fn family(&self, at: &Addresses, network: u8, host: u8) -> Result<(), WorldError> {
        for address in [at.node, at.node_also] {
            self.address(UPLINK, address, network).await?;
        }
        for (pod, device) in [(at.pod_a, POD_A), (at.pod_b, POD_B)] {
            let way = vec![RouteAttribute::Oif(device)];
            self.route(pod, host, RouteType::Unicast, way).await?;
            self.neighbour(pod, device).await?;
        }
        self.neighbour(at.gateway, UPLINK).await?;
        let gateway = RouteAttribute::Gateway(at.gateway.into());
        for destination in [at.client, at.stranger] {
            let way = vec![gateway.clone()];
            self.route(destination, network, RouteType::Unicast, way).await?;
        }
        // The next node is at the uplink, but its link address is not known yet.
        let next = RouteAttribute::Gateway(at.next_node.into());
        let way = vec![next.clone()];
        self.route(at.remote, network, RouteType::Unicast, way).await?;
        let locked = vec![RouteMetric::Lock(MTU_LOCKED), RouteMetric::Mtu(SMALL_MTU)];
        let way = vec![next, RouteAttribute::Metrics(locked)];
        self.route(at.narrow, network, RouteType::Unicast, way).await?;
        self.route(at.unreachable, network, RouteType::Unreachable, Vec::new())
            .await
    }

    async fn address(&self, device: u32, address: IpAddr, length: u8) -> Result<(), WorldError> {
        let mut add = self.handle.address().add(device, address, length);
        // Otherwise an IPv6 address can't be bound until a worker of the kernel has run.
        add.message_mut().header.flags = AddressHeaderFlags::Nodad;
        let added = add.execute().await;
        added.map_err(failed(format!("the address {address}")))
    }

    async fn route(
        &self,
        destination: IpAddr,
        length: u8,
        kind: RouteType,
        way: Vec<RouteAttribute>,
    ) -> Result<(), WorldError> {
        let what = format!("the route to {destination}/{length}");
        let mut message = match destination {
            IpAddr::V4(v4) => {
                let network = Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - length)));
                RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(network, length)
                    .build()
            }
            IpAddr::V6(v6) => {
                let network = Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - length)));
                RouteMessageBuilder::<Ipv6Addr>::new()
                    .destination_prefix(network, length)
                    .build()
            }
        };
        message.header.kind = kind;
        message.attributes.extend(way);
        let added = self.handle.route().add(message).execute().await;
        added.map_err(failed(what))
    }

    async fn neighbour(&self, address: IpAddr, device: u32) -> Result<(), WorldError> {
        let add = self.handle.neighbours().add(device, address);
        let added = add.link_layer_address(&PEER_LINK).execute().await;
        added.map_err(failed(format!("the neighbour {address}")))
    }
}

fn failed(what: String) -> impl FnOnce(rtnetlink::Error) -> WorldError {
    move |source| WorldError::Add { what, source }
}
