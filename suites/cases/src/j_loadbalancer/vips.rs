//! Addresses of load balancers and external IPs that no machine has, and the routes of the client outside to them.
//!
//! They are of ranges for documentation (RFC 5737, RFC 3849), and each case has its own. The client outside has a route
//! to each through one node at a time, and may have further addresses in its own network.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cluster::{Family, Place};
use harness::{
    client::Client, commands, context::Context, frontends::node_addresses, host_servers, verdict::Halt,
};

/// The address of a number.
pub(super) fn vip(family: Family, number: u8) -> IpAddr {
    match family {
        Family::IPv4 => Ipv4Addr::new(192, 0, 2, number).into(),
        Family::IPv6 => Ipv6Addr::new(0x2001, 0xdb8, 0x6a, 0, 0, 0, 0, number.into()).into(),
    }
}

/// The client outside sends packets to these addresses through a node, from now on; from this address of its own, or from
/// its usual one.
///
/// # Errors
/// The node has no address of the family, or the route can't be written.
pub(super) async fn route(
    cx: &Context,
    family: Family,
    vips: &[IpAddr],
    node: &str,
    from: Option<IpAddr>,
) -> Result<(), Halt> {
    let mut nodes = node_addresses(cx, family).into_iter();
    let found = nodes.find(|(name, _)| name == node);
    let (_, via) = found.ok_or_else(|| Halt::Harness(format!("{node} has no {family} address")))?;
    let from = from.map_or_else(String::new, |from| format!(" src {from}"));
    let each = vips
        .iter()
        .map(|vip| format!("ip route replace {vip} via {via}{from}"));
    let commands: Vec<String> = each.collect();
    commands::change(cx, &Place::Outside, &commands.join("; ")).await
}

/// Gives the client outside a further address: its own but for the last byte, which no other case has. The client dials
/// from it only where a route says so.
///
/// # Errors
/// It can't be added.
pub(super) async fn own(cx: &Context, client: &Client, family: Family, last: u8) -> Result<IpAddr, Halt> {
    let own = host_servers::address_of(cx, client, family).await?;
    let further = with_last(own, last);
    let device = format!("$(ip -o addr show to {own} | awk '{{print $2; exit}}')");
    let (length, flag) = match family {
        Family::IPv4 => (32, ""),
        Family::IPv6 => (128, "nodad"),
    };
    let command =
        format!("ip addr replace {further}/{length} dev {device} {flag} valid_lft 3600 preferred_lft 0");
    commands::change(cx, &Place::Outside, &command).await?;
    Ok(further)
}

/// The same address but for its last byte.
pub(super) fn with_last(address: IpAddr, last: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            Ipv4Addr::new(a, b, c, last).into()
        }
        IpAddr::V6(v6) => {
            let mut bytes = v6.octets();
            bytes[15] = last;
            Ipv6Addr::from(bytes).into()
        }
    }
}
