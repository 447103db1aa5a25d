//! Devices, addresses, routes and neighbours of one namespace, by rtnetlink(7).

use std::{
    fmt,
    fs::File,
    net::IpAddr,
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use futures::TryStreamExt as _;
use ipnet::IpNet;
use nix::sched::{CloneFlags, setns};
use rtnetlink::{
    Handle, LinkMessageBuilder, LinkUnspec, LinkVeth,
    packet_route::{
        address::AddressHeaderFlags,
        link::{InfoData, InfoKind, InfoVeth},
        route::RouteType,
    },
};
use tokio::runtime::{self, Runtime};

use crate::{
    device::Device,
    error::NetworkError,
    route::{Route, Via},
};

/// Limit until the kernel receives packets for a new address. It takes milliseconds, and longer on a busy machine.
const LOCAL_LIMIT: Duration = Duration::from_secs(60);
const LOCAL_POLL: Duration = Duration::from_millis(1);

/// Changes one network namespace, from any thread.
pub struct Links {
    handle: Handle,
    runtime: Runtime,
}

impl Links {
    /// Of the calling thread's namespace.
    ///
    /// # Errors
    /// [`NetworkError::Netlink`]
    pub fn here() -> Result<Self, NetworkError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(NetworkError::Netlink)?;
        let connected = {
            let _reactor = runtime.enter();
            rtnetlink::new_connection()
        };
        let (connection, handle, _) = connected.map_err(NetworkError::Netlink)?;
        runtime.spawn(connection);
        Ok(Self { handle, runtime })
    }

    /// Of another namespace.
    pub(crate) fn inside(namespace: &File) -> Result<Self, NetworkError> {
        let open = || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
                .map_err(|errno| NetworkError::Namespace(errno.into()))?;
            Self::here()
        };
        // The calling thread stays where it is.
        thread::scope(|scope| scope.spawn(open).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Makes a request that has no method here.
    pub fn request<T>(&self, request: impl AsyncFnOnce(&Handle) -> T) -> T {
        self.runtime.block_on(request(&self.handle))
    }

    /// The index of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn index(&self, device: &str) -> Result<u32, NetworkError> {
        let found = self.request(async |handle| {
            let mut links = handle.link().get().match_name(device.to_owned()).execute();
            links.try_next().await
        });
        found
            .and_then(|link| link.ok_or(rtnetlink::Error::RequestFailed))
            .map(|link| link.header.index)
            .map_err(failed(|| format!("find the device {device}")))
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn up(&self, device: &str) -> Result<(), NetworkError> {
        let up = LinkUnspec::new_with_name(device).up().build();
        self.request(async |handle| handle.link().set(up).execute().await)
            .map_err(failed(|| format!("bring the device {device} up")))
    }

    /// Takes a device down: the kernel removes the routes by it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn down(&self, device: &str) -> Result<(), NetworkError> {
        let down = LinkUnspec::new_with_name(device).down().build();
        self.request(async |handle| handle.link().set(down).execute().await)
            .map_err(failed(|| format!("take the device {device} down")))
    }

    /// Adds a veth pair, and brings both ends up.
    ///
    /// # Errors
    /// [`NetworkError::Veth`]; an end can't be brought up.
    pub fn veth(&self, device: Device<'_>, peer: Device<'_>) -> Result<(), NetworkError> {
        let there = peer.describe(LinkMessageBuilder::<LinkUnspec>::new()).build();
        let pair = device
            .describe(LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth))
            .set_info_data(InfoData::Veth(InfoVeth::Peer(there)))
            .build();
        self.request(async |handle| handle.link().add(pair).execute().await)
            .map_err(|source| NetworkError::Veth {
                name: device.name().to_owned(),
                source,
            })?;
        for end in [device, peer] {
            match end.namespace() {
                Some(namespace) => Self::inside(namespace)?.up(end.name())?,
                None => self.up(end.name())?,
            }
        }
        Ok(())
    }

    /// Removes a device, and with it the other end of its pair.
    ///
    /// # Errors
    /// There is no such device.
    pub fn remove(&self, device: &str) -> Result<(), NetworkError> {
        let index = self.index(device)?;
        self.request(async |handle| handle.link().del(index).execute().await)
            .map_err(failed(|| format!("remove the device {device}")))
    }

    /// Adds addresses, with the lengths of their networks, to a device that is up. Sockets can be bound to them, and
    /// packets for them are received, when this returns.
    ///
    /// # Errors
    /// The kernel refuses one; [`NetworkError::NotLocal`].
    pub fn addresses(&self, device: &str, addresses: &[IpNet]) -> Result<(), NetworkError> {
        let index = self.index(device)?;
        for address in addresses {
            let mut add = self
                .handle
                .address()
                .add(index, address.addr(), address.prefix_len());
            // Otherwise an IPv6 address is tentative first, whatever the namespace's settings are.
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            self.request(async |_| add.execute().await)
                .map_err(failed(|| format!("add the address {address} to {device}")))?;
        }
        addresses
            .iter()
            .try_for_each(|address| self.until_local(address.addr()))
    }

    /// A work queue of the kernel adds the local route of an IPv6 address after the address itself.
    fn until_local(&self, address: IpAddr) -> Result<(), NetworkError> {
        let route = Route::to(address.into(), Via::Unreachable).message(None);
        let begun = Instant::now();
        loop {
            let found = self.request(async |handle| {
                let mut routes = handle.route().get(route.clone()).execute();
                routes.try_next().await
            });
            if found.is_ok_and(|route| route.is_some_and(|route| route.header.kind == RouteType::Local)) {
                return Ok(());
            }
            if begun.elapsed() > LOCAL_LIMIT {
                return Err(NetworkError::NotLocal {
                    address,
                    limit: LOCAL_LIMIT,
                });
            }
            thread::sleep(LOCAL_POLL);
        }
    }

    /// Adds a route.
    ///
    /// # Errors
    /// There is one to the same destination; its gateway can't be reached.
    pub fn add_route(&self, route: Route<'_>) -> Result<(), NetworkError> {
        let message = route.message(self.device_of(&route)?);
        self.request(async |handle| handle.route().add(message).execute().await)
            .map_err(failed(|| format!("add the route to {}", route.destination())))
    }

    /// Removes a route.
    ///
    /// # Errors
    /// There is no such route.
    pub fn remove_route(&self, route: Route<'_>) -> Result<(), NetworkError> {
        let message = route.message(self.device_of(&route)?);
        self.request(async |handle| handle.route().del(message).execute().await)
            .map_err(failed(|| format!("remove the route to {}", route.destination())))
    }

    fn device_of(&self, route: &Route<'_>) -> Result<Option<u32>, NetworkError> {
        route.device().map(|device| self.index(device)).transpose()
    }

    /// Adds a neighbour with a known link address.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn neighbour(
        &self,
        device: &str,
        address: IpAddr,
        link_address: [u8; 6],
    ) -> Result<(), NetworkError> {
        let index = self.index(device)?;
        let neighbours = self.handle.neighbours();
        let add = neighbours.add(index, address).link_layer_address(&link_address);
        self.request(async |_| add.execute().await)
            .map_err(failed(|| format!("add the neighbour {address} to {device}")))
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Links").finish_non_exhaustive()
    }
}

fn failed(what: impl FnOnce() -> String) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    move |source| NetworkError::Request { what: what(), source }
}
