//! Routes to the pods of other nodes: those of the main table that carry [`PROTOCOL`], and no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt as _;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::{
    Handle, RouteMessageBuilder, new_connection,
    packet_route::{
        AddressFamily,
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType},
    },
};

use super::plan::Hop;
use crate::endpoint_address::Family;

/// Marks this agent's routes (`rtm_protocol`, rtnetlink(7)): a number that neither linux/rtnetlink.h nor iproute2's
/// rt_protos has.
pub const PROTOCOL: u8 = 221;

/// Why routes could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// No netlink socket could be opened.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The kernel's routes can't be read.
    #[error("{}", describe(.0))]
    List(#[source] rtnetlink::Error),
    /// Some routes stay, one sentence each.
    #[error("{}", .0.join("; "))]
    Left(Vec<String>),
}

/// The result of a reconciliation.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many of the wanted routes exist.
    pub(super) there: usize,
    /// How many were set, replaced or removed.
    pub(super) changed: usize,
    /// Their devices.
    pub(super) devices: BTreeSet<u32>,
    /// What failed, one sentence each.
    pub(super) troubles: Vec<String>,
}

/// A route of the kernel.
struct KernelRoute {
    to: IpNet,
    gateway: Option<IpAddr>,
    device: Option<u32>,
    message: RouteMessage,
}

impl KernelRoute {
    fn is_ours(&self) -> bool {
        self.message.header.protocol == RouteProtocol::from(PROTOCOL)
    }
}

/// Sets missing routes, replaces those with another gateway, and removes the rest.
///
/// # Errors
/// The kernel's routes can't be read. Routes that can't be set or removed are in the outcome.
pub(super) async fn reconcile(
    handle: &Handle,
    wanted: &BTreeMap<IpNet, Hop>,
) -> Result<Outcome, rtnetlink::Error> {
    let found = list(handle).await?;
    let mut outcome = Outcome::default();
    let mut ours: BTreeMap<IpNet, Option<IpAddr>> = BTreeMap::new();
    for route in found.iter().filter(|route| route.is_ours()) {
        outcome.devices.extend(route.device);
        let first = !ours.contains_key(&route.to);
        if first && wanted.contains_key(&route.to) {
            ours.insert(route.to, route.gateway);
            continue;
        }
        match handle.route().del(route.message.clone()).execute().await {
            Ok(()) => outcome.changed += 1,
            // It ended with its device meanwhile.
            Err(error) if code(&error) == Some(Errno::ESRCH as i32) => {}
            Err(error) => outcome.troubles.push(format!(
                "the route to {}, where no node has pods, can't be removed: {}",
                route.to,
                describe(&error)
            )),
        }
    }
    for (to, Hop { gateway, node }) in wanted {
        let before = ours.get(to);
        if before == Some(&Some(*gateway)) {
            outcome.there += 1;
            continue;
        }
        let request = handle.route().add(message(*to, *gateway));
        let request = if before.is_some() {
            request.replace()
        } else {
            request
        };
        match request.execute().await {
            Ok(()) => {
                outcome.changed += 1;
                outcome.there += 1;
            }
            Err(error) => {
                let others = found.iter().filter(|route| route.to == *to && !route.is_ours());
                let others: Vec<&KernelRoute> = others.collect();
                if others.iter().any(|route| route.gateway == Some(*gateway)) {
                    // Another owner's route does the same.
                    outcome.there += 1;
                    continue;
                }
                outcome
                    .troubles
                    .push(trouble(*to, *gateway, node, &error, &others));
            }
        }
    }
    Ok(outcome)
}

/// Removes all of the agent's routes. The result: how many there were.
pub(super) async fn remove_all() -> Result<usize, RoutesError> {
    let (connection, handle, _) = new_connection()?;
    let connection = tokio::spawn(connection);
    let outcome = reconcile(&handle, &BTreeMap::new()).await;
    connection.abort();
    let outcome = outcome.map_err(RoutesError::List)?;
    if outcome.troubles.is_empty() {
        Ok(outcome.changed)
    } else {
        Err(RoutesError::Left(outcome.troubles))
    }
}

/// Whether a message is about one of the agent's routes.
pub(super) fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::from(PROTOCOL)
}

fn trouble(
    to: IpNet,
    gateway: IpAddr,
    node: &str,
    error: &rtnetlink::Error,
    others: &[&KernelRoute],
) -> String {
    let begin = format!("pods of the node {node} in {to} can't be reached");
    match others.first() {
        Some(other) => {
            let protocol = u8::from(other.message.header.protocol);
            let via = other
                .gateway
                .map_or_else(String::new, |via| format!(" via {via}"));
            format!("{begin}: a route of another owner is there{via} (protocol {protocol}), which stays")
        }
        None => format!(
            "{begin}: no route via {gateway}: {}; the pod network needs nodes that share a link",
            describe(error)
        ),
    }
}

fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().raw_os_error(),
        _ => None,
    }
}

fn describe(error: &rtnetlink::Error) -> String {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}

fn message(to: IpNet, gateway: IpAddr) -> RouteMessage {
    let protocol = RouteProtocol::from(PROTOCOL);
    match (to, gateway) {
        (IpNet::V4(to), IpAddr::V4(gateway)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to.network(), to.prefix_len())
            .gateway(gateway)
            .protocol(protocol)
            .build(),
        (IpNet::V6(to), IpAddr::V6(gateway)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(to.network(), to.prefix_len())
            .gateway(gateway)
            .protocol(protocol)
            .build(),
        // The plan takes a gateway of the range's family; the kernel refuses this one.
        (IpNet::V4(_), IpAddr::V6(_)) | (IpNet::V6(_), IpAddr::V4(_)) => RouteMessage::default(),
    }
}

async fn list(handle: &Handle) -> Result<Vec<KernelRoute>, rtnetlink::Error> {
    let mut found = Vec::new();
    for family in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let mut routes = handle.route().get(family).execute();
        while let Some(route) = routes.try_next().await? {
            found.extend(read(route));
        }
    }
    Ok(found)
}

/// `None`: it is not of the main table, or no ordinary route.
fn read(message: RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let family = match header.address_family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let unspecified = match family {
        Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let (mut to, mut gateway, mut device) = (unspecified, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = (*address).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => to = (*address).into(),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some((*address).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(address)) => gateway = Some((*address).into()),
            RouteAttribute::Oif(index) => device = Some(*index),
            _ => {}
        }
    }
    Some(KernelRoute {
        to: IpNet::new(to, header.destination_prefix_length).ok()?,
        gateway,
        device,
        message,
    })
}
