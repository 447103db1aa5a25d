//! Links, addresses and routes of one network namespace, over rtnetlink(7).

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd,
};

use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder, RouteNextHopBuilder,
    packet_route::{
        address::AddressHeaderFlags,
        link::{InfoData, InfoKind, InfoVeth},
        route::{RouteAddress, RouteAttribute, RouteMetric, RouteScope, RouteType},
    },
};

use super::LabError;

/// Changes the network namespace in which it was created, from any thread.
#[derive(Clone)]
pub struct Links {
    handle: Handle,
}

/// Target of a route.
#[derive(Clone, Copy, Debug)]
pub enum Via {
    /// A link, by its index: the destination is a neighbour. The second field is the preferred source address.
    Link(u32, Option<IpAddr>),
    /// A gateway.
    Gateway(IpAddr),
    /// A blackhole: packets are dropped without an ICMP error.
    Blackhole,
}

impl Links {
    /// For the calling thread's namespace. Needs a runtime: the connection is a task that ends with the last clone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn here() -> Result<Self, LabError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(|error| LabError::Host {
            what: "open a netlink socket".to_owned(),
            why: error.to_string(),
            remedy: "The lab needs a kernel with CONFIG_NET_NS and rtnetlink",
        })?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// Sets a link up and returns its index.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn up(&self, name: &str) -> Result<u32, LabError> {
        let message = LinkUnspec::new_with_name(name).up().build();
        let result = self.handle.link().set(message).execute().await;
        result.map_err(failed(format!("set the link {name} up")))?;
        self.index(name).await
    }

    /// Sets a link down: the other end of a pair loses its carrier.
    pub(super) async fn down(&self, name: &str) -> Result<(), LabError> {
        let message = LinkUnspec::new_with_name(name).down().build();
        let result = self.handle.link().set(message).execute().await;
        result.map_err(failed(format!("set the link {name} down")))
    }

    /// Creates a bridge, up, and returns its index.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn bridge(&self, name: &str) -> Result<u32, LabError> {
        let message = LinkBridge::new(name).build();
        let result = self.handle.link().add(message).execute().await;
        result.map_err(unsupported(
            format!("make the bridge {name}"),
            "The lab needs CONFIG_BRIDGE",
        ))?;
        self.index(name).await
    }

    /// Creates a veth pair: this end here and up, as a port of a bridge if one is given; the other end in another
    /// namespace and down (the kernel refuses to set it up before its peer exists).
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn veth(
        &self,
        name: &str,
        bridge: Option<u32>,
        other: &str,
        namespace: &File,
    ) -> Result<(), LabError> {
        let there = LinkUnspec::new_with_name(other).setns_by_fd(namespace.as_raw_fd());
        let here = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(name)
            .up();
        let here = match bridge {
            Some(index) => here.controller(index),
            None => here,
        };
        let message = here
            .set_info_data(InfoData::Veth(InfoVeth::Peer(there.build())))
            .build();
        let result = self.handle.link().add(message).execute().await;
        result.map_err(unsupported(
            format!("make the veth pair {name}"),
            "The lab needs CONFIG_VETH",
        ))
    }

    /// Removes a link, and with it its peer; a missing link is no error.
    pub(super) async fn remove(&self, name: &str) -> Result<(), LabError> {
        match self.index(name).await {
            Ok(index) => match self.handle.link().del(index).execute().await {
                Err(error) if !is(&error, nix::libc::ENODEV) => Err(LabError::Netlink {
                    what: format!("remove the link {name}"),
                    error,
                }),
                _ => Ok(()),
            },
            Err(LabError::Netlink { error, .. }) if is(&error, nix::libc::ENODEV) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Index of a link.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn index(&self, name: &str) -> Result<u32, LabError> {
        let mut links = self.handle.link().get().match_name(name.to_owned()).execute();
        let found = links
            .try_next()
            .await
            .map_err(failed(format!("find the link {name}")))?;
        found
            .map(|link| link.header.index)
            .ok_or_else(|| LabError::Netlink {
                what: format!("find the link {name}"),
                error: rtnetlink::Error::RequestFailed,
            })
    }

    /// Destinations of all routes, including the namespace's own addresses.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn destinations(&self) -> Result<Vec<IpNet>, LabError> {
        let mut all = Vec::new();
        for every in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let mut routes = self.handle.route().get(every).execute();
            while let Some(route) = routes.try_next().await.map_err(failed("list the routes"))? {
                let destination = route.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
                    RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
                    _ => None,
                });
                // A default route has no destination.
                let prefix = route.header.destination_prefix_length;
                all.extend(destination.and_then(|address| IpNet::new(address, prefix).ok()));
            }
        }
        Ok(all)
    }

    /// Adds an address to a link, usable at once.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn address(&self, link: u32, address: IpNet) -> Result<(), LabError> {
        let addresses = self.handle.address();
        let mut request = addresses.add(link, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            // Without this flag, an address is tentative until duplicate address detection has ended.
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        request
            .execute()
            .await
            .map_err(failed(format!("add the address {address}")))
    }

    /// Removes an address from a link; a missing one is no error.
    pub(super) async fn unaddress(&self, link: u32, address: IpNet) -> Result<(), LabError> {
        let addresses = self.handle.address();
        let mut like = addresses.add(link, address.addr(), address.prefix_len());
        let message = like.message_mut().clone();
        match addresses.del(message).execute().await {
            Err(error) if !is(&error, nix::libc::EADDRNOTAVAIL) => Err(LabError::Netlink {
                what: format!("remove the address {address}"),
                error,
            }),
            _ => Ok(()),
        }
    }

    /// Adds a route by a gateway that takes packets up to this size, or replaces the one to the same destination: this
    /// namespace, as a router, says so to senders of larger ones.
    pub(super) async fn narrow_route(
        &self,
        network: IpNet,
        gateway: IpAddr,
        bytes: u32,
    ) -> Result<(), LabError> {
        // RTAX_MTU; locked, it holds for what is forwarded, too.
        const MTU: u32 = 2;
        let what = format!("add the route to {network}");
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(network.addr(), network.prefix_len())
            .map_err(mixed(&what))?;
        let mut route = route.gateway(gateway).map_err(mixed(&what))?.build();
        let metrics = vec![RouteMetric::Lock(1 << MTU), RouteMetric::Mtu(bytes)];
        route.attributes.push(RouteAttribute::Metrics(metrics));
        let request = self.handle.route().add(route).replace();
        request.execute().await.map_err(failed(what))
    }

    /// Adds a route, or replaces the one to the same destination.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn route(&self, network: IpNet, via: Via) -> Result<(), LabError> {
        let what = format!("add the route to {network}");
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(network.addr(), network.prefix_len())
            .map_err(mixed(&what))?;
        let route = match via {
            Via::Gateway(gateway) => route.gateway(gateway).map_err(mixed(&what))?,
            Via::Link(index, source) => {
                let route = route.output_interface(index).scope(RouteScope::Link);
                match source {
                    Some(source) => route.pref_source(source).map_err(mixed(&what))?,
                    None => route,
                }
            }
            Via::Blackhole => route.kind(RouteType::BlackHole),
        };
        let request = self.handle.route().add(route.build()).replace();
        request.execute().await.map_err(failed(what))
    }
}

impl Links {
    /// Adds a multipath route to several gateways behind a link, or replaces the one to the same destination.
    pub(super) async fn spread(
        &self,
        network: IpNet,
        link: u32,
        gateways: &[IpAddr],
    ) -> Result<(), LabError> {
        let what = format!("add the route to {network}");
        let hop = |gateway: &IpAddr| {
            let hop = match gateway {
                IpAddr::V4(_) => RouteNextHopBuilder::new_ipv4(),
                IpAddr::V6(_) => RouteNextHopBuilder::new_ipv6(),
            };
            Ok(hop.interface(link).via(*gateway).map_err(mixed(&what))?.build())
        };
        let hops = gateways.iter().map(hop).collect::<Result<Vec<_>, LabError>>()?;
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(network.addr(), network.prefix_len())
            .map_err(mixed(&what))?
            .multipath(hops);
        let request = self.handle.route().add(route.build()).replace();
        request.execute().await.map_err(failed(what))
    }

    /// Removes the route to a destination; a missing route is no error.
    pub(super) async fn unroute(&self, network: IpNet) -> Result<(), LabError> {
        let what = format!("remove the route to {network}");
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(network.addr(), network.prefix_len())
            .map_err(mixed(&what))?;
        match self.handle.route().del(route.build()).execute().await {
            Err(error) if !is(&error, nix::libc::ESRCH) => Err(LabError::Netlink { what, error }),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Links").finish_non_exhaustive()
    }
}

fn is(error: &rtnetlink::Error, errno: i32) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -errno)
}

fn mixed<E: ToString>(what: &str) -> impl FnOnce(E) -> LabError + '_ {
    move |why| LabError::Host {
        what: what.to_owned(),
        why: why.to_string(),
        remedy: "The lab's address plan mixes families: report it",
    }
}

fn failed(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> LabError {
    let what = what.into();
    move |error| LabError::Netlink { what, error }
}

/// The kernel returns EOPNOTSUPP where it lacks a kind of link.
fn unsupported(what: String, remedy: &'static str) -> impl FnOnce(rtnetlink::Error) -> LabError {
    move |error| {
        if is(&error, nix::libc::EOPNOTSUPP) {
            LabError::Host {
                what,
                why: error.to_string(),
                remedy,
            }
        } else {
            LabError::Netlink { what, error }
        }
    }
}
