//! Multicast groups of rtnetlink(7) → snapshots.
//!
//! A message only shows *that* something has changed; then everything is dumped again. So nothing depends on messages that
//! may be lost, and the error of a lost one (ENOBUFS) causes a dump, too. Changes during a dump cause another one, as the
//! subscription begins first. Routes are dumped only when a default route may have changed: a router has a million others.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use rtnetlink::{
    Handle, MulticastGroup, RouteMessageBuilder, new_connection, new_multicast_connection,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{RouteNetlinkMessage, route::RouteMessage},
};
use tokio::{sync::watch, task::AbortHandle, time::sleep};

use super::snapshot::{HostAddress, Link, Snapshot, default_route};
use crate::endpoint_address::Family;

/// Delay after the first error.
pub const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest delay between two tries; each is twice the one before.
pub const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// Shortest time between two dumps: a burst of messages causes one.
pub const SETTLE: Duration = Duration::from_millis(2);
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Why a watch by netlink ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlinkError {
    /// No socket could be opened.
    #[error("failed to open a netlink socket: {0}")]
    Connect(#[source] std::io::Error),
    /// A request failed, or the connection ended.
    #[error(transparent)]
    Request(#[from] rtnetlink::Error),
}

/// Publishes a snapshot of the network namespace of the calling thread, and a new one whenever it changes, until the
/// receiver is dropped. After a failure it begins again.
pub async fn watch(snapshots: watch::Sender<Option<Snapshot>>) {
    let mut delay = RETRY_FIRST;
    while !snapshots.is_closed() {
        let error = match follow(&snapshots, &mut delay).await {
            Ok(()) => return,
            Err(error) => error,
        };
        tracing::warn!(%error, pause = ?delay, "can't watch the host's addresses and devices");
        sleep(delay).await;
        delay = (delay * 2).min(RETRY_LIMIT);
    }
}

/// One connection to the kernel. `Ok`: the receiver is dropped.
async fn follow(
    snapshots: &watch::Sender<Option<Snapshot>>,
    delay: &mut Duration,
) -> Result<(), NetlinkError> {
    // The subscription begins before the first dump, so that no change is lost.
    let (connection, _keep, mut messages) =
        new_multicast_connection(&GROUPS).map_err(NetlinkError::Connect)?;
    let _listening = Task::start(connection);
    let (connection, handle, _) = new_connection().map_err(NetlinkError::Connect)?;
    let _asking = Task::start(connection);
    let mut snapshot = Snapshot {
        defaults: defaults(&handle).await?,
        ..Snapshot::default()
    };
    loop {
        (snapshot.links, snapshot.addresses) = (links(&handle).await?, addresses(&handle).await?);
        snapshots.send_if_modified(|before| {
            let differs = before.as_ref() != Some(&snapshot);
            if differs {
                *before = Some(snapshot.clone());
            }
            differs
        });
        *delay = RETRY_FIRST;
        sleep(SETTLE).await;
        let first = tokio::select! {
            () = snapshots.closed() => return Ok(()),
            first = messages.next() => first,
        };
        let Some((first, _)) = first else {
            return Err(rtnetlink::Error::RequestFailed.into());
        };
        let mut routes = concerns_defaults(&first, &snapshot);
        while let Ok((message, _)) = messages.try_recv() {
            routes |= concerns_defaults(&message, &snapshot);
        }
        if routes {
            snapshot.defaults = defaults(&handle).await?;
        }
    }
}

/// Whether a default route may have changed. IPv4 sends no message for routes that end with their device or address.
fn concerns_defaults(message: &NetlinkMessage<RouteNetlinkMessage>, before: &Snapshot) -> bool {
    use RouteNetlinkMessage::{DelAddress, DelLink, DelRoute, NewLink, NewRoute};
    let leads_by = |index: u32| before.defaults.iter().any(|(_, device)| *device == index);
    match &message.payload {
        NetlinkPayload::InnerMessage(NewRoute(route) | DelRoute(route)) => default_route(route).is_some(),
        NetlinkPayload::InnerMessage(NewLink(link) | DelLink(link)) => leads_by(link.header.index),
        NetlinkPayload::InnerMessage(DelAddress(address)) => leads_by(address.header.index),
        NetlinkPayload::InnerMessage(_) => false,
        // Messages were lost.
        _ => true,
    }
}

async fn links(handle: &Handle) -> Result<BTreeMap<u32, Link>, rtnetlink::Error> {
    let listed: Vec<_> = handle.link().get().execute().try_collect().await?;
    Ok(listed.into_iter().filter_map(Link::read).collect())
}

async fn addresses(handle: &Handle) -> Result<Vec<HostAddress>, rtnetlink::Error> {
    let listed: Vec<_> = handle.address().get().execute().try_collect().await?;
    Ok(listed.iter().filter_map(HostAddress::read).collect())
}

/// Family and device of the default routes, the lowest metric first.
async fn defaults(handle: &Handle) -> Result<Vec<(Family, u32)>, rtnetlink::Error> {
    let mut found: BTreeSet<(Family, u32, u32)> = BTreeSet::new();
    let families = [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ];
    for family in families {
        found.extend(routes(handle, family).await?);
    }
    Ok(found
        .into_iter()
        .map(|(family, _, device)| (family, device))
        .collect())
}

async fn routes(
    handle: &Handle,
    family: RouteMessage,
) -> Result<BTreeSet<(Family, u32, u32)>, rtnetlink::Error> {
    let mut listed = handle.route().get(family).execute();
    let mut found = BTreeSet::new();
    while let Some(route) = listed.try_next().await? {
        if let Some((family, metric, devices)) = default_route(&route) {
            found.extend(devices.into_iter().map(|device| (family, metric, device)));
        }
    }
    Ok(found)
}

/// A task that is aborted when the value is dropped.
struct Task(AbortHandle);

impl Task {
    fn start(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
