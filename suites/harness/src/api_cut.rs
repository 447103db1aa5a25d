//! Nodes whose agents reach no API server: their packets are dropped in the kernel of the node, both ways, and no error
//! says so.

use std::{
    collections::BTreeSet,
    iter,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use cluster::Place;
use faults::Connections;
use futures::future::try_join_all;
use serde_json::Value;

use crate::{
    agents,
    commands::Lasting,
    context::Context,
    names::Key,
    verdict::Halt,
    waiting::{Within, eventually},
};

/// The table of its rules, in each node's network.
const TABLE: &str = "inet plumbline_api_cut";

/// The kubelet bears that an API server of its node does not answer for so long: kubeadm's static pods have a liveness probe every 10 s,
/// and the eighth in a row that fails starts them again.
const BORNE: Duration = Duration::from_secs(60);

/// A cut that is there. Each node ends it when this is dropped, or when its time is over.
#[must_use = "the cut ends when this is dropped"]
pub struct ApiCut(Vec<Lasting>);

impl ApiCut {
    /// Drops what the processes of all nodes send to the ports of these API servers, at whatever address, and what comes from there: an
    /// agent that knows a server by its name has its addresses of both families. Pods' packets are not touched, nor, in a cut that
    /// `lasts` longer than the kubelet bears, a server of the node itself that its agent (by node and process) has no connection to: the
    /// kubelet asks that server whether it lives, and would start it again. In a shorter one such a server is cut off, too: an agent
    /// goes on with it when it notices that the other one is silent.
    ///
    /// # Errors
    /// A node has no `nft`, or its kernel none of what that needs.
    pub async fn begin(
        cx: &Context,
        agents: &[(String, u32)],
        servers: &[SocketAddr],
        lasts: Duration,
    ) -> Result<Self, Halt> {
        let longest = cx.limits().longest(cx.limits().heal);
        let on = async |node: String| {
            let mut uses_own = lasts < BORNE;
            for (of, process) in agents {
                uses_own |= *of == node && has_own(cx, &node, *process, servers).await?;
            }
            let (begin, end) = (rules(servers, uses_own), format!("nft delete table {TABLE}"));
            Lasting::begin(cx, &Place::Host { node }, [&begin, &end], longest).await
        };
        Ok(Self(try_join_all(cx.nodes().into_iter().map(on)).await?))
    }

    /// Ends it.
    ///
    /// # Errors
    /// Its time was over before.
    pub async fn end(self, cx: &Context) -> Result<(), Halt> {
        try_join_all(self.0.into_iter().map(|one| one.end(cx)))
            .await
            .map(drop)
    }
}

/// Whether the agent of a node has a connection to a server of the node itself: one from the address that it goes to.
async fn has_own(cx: &Context, node: &str, process: u32, servers: &[SocketAddr]) -> Result<bool, Halt> {
    let found = Connections::of(cx.cluster(), node, process, &anywhere(servers)).await?;
    for own in found.established {
        let to: Vec<SocketAddr> = ports(servers).map(|port| (own.ip(), port).into()).collect();
        let found = Connections::of(cx.cluster(), node, process, &to).await?;
        if found.established.contains(&own) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ports(servers: &[SocketAddr]) -> impl Iterator<Item = u16> + use<> {
    let ports: BTreeSet<u16> = servers.iter().map(SocketAddr::port).collect();
    ports.into_iter()
}

/// The ports of these servers at any address, as [`Connections`] are asked for.
fn anywhere(servers: &[SocketAddr]) -> Vec<SocketAddr> {
    ports(servers)
        .map(|port| (Ipv6Addr::UNSPECIFIED, port).into())
        .collect()
}

/// `all`: also packets of the node to itself.
fn rules(servers: &[SocketAddr], all: bool) -> String {
    let mut commands = vec![
        format!("nft add table {TABLE}"),
        format!("nft 'add chain {TABLE} out {{ type filter hook output priority -300 ; }}'"),
        format!("nft 'add chain {TABLE} in {{ type filter hook input priority -300 ; }}'"),
    ];
    for port in ports(servers) {
        for (chain, device, end) in [("out", "oifname", 'd'), ("in", "iifname", 's')] {
            let beyond = if all {
                String::new()
            } else {
                format!("{device} != lo ")
            };
            commands.push(format!(
                "nft add rule {TABLE} {chain} {beyond}tcp {end}port {port} drop"
            ));
        }
    }
    commands.join("\n")
}

/// Addresses that agents may reach API servers by: of each, and what `default/kubernetes` lists, which is a balancer's where
/// servers share an address.
///
/// # Errors
/// They can't be listed.
pub async fn servers(cx: &Context) -> Result<Vec<SocketAddr>, Halt> {
    let servers = cx.cluster().control_plane()?.servers().await?;
    let slice = cx.objects().get(&Key::slice("default", "kubernetes")).await?;
    let mut all: BTreeSet<SocketAddr> = servers.iter().map(|server| server.address).collect();
    all.extend(listed(&slice));
    Ok(all.into_iter().collect())
}

/// The endpoints of an EndpointSlice at its first port.
fn listed(slice: &Value) -> Vec<SocketAddr> {
    let port = slice.pointer("/ports/0/port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok());
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let addresses = endpoints.filter_map(|endpoint| endpoint.pointer("/addresses/0")?.as_str()?.parse().ok());
    addresses
        .zip(iter::repeat(port))
        .filter_map(|(address, port): (IpAddr, _)| Some(SocketAddr::new(address, port?)))
        .collect()
}

/// Agents by their nodes, and how many connections to these addresses each has: at least one, or it is not shown that
/// it can be cut off.
///
/// # Errors
/// Inconclusive if an agent does not run, or has none within T_heal.
pub async fn connected(cx: &Context, servers: &[SocketAddr]) -> Result<Vec<(String, u32)>, Halt> {
    let mut connected = Vec::new();
    for (node, state) in agents::all(cx).await?.unwrap_or_default() {
        let none = || Halt::Inconclusive(format!("the agent of {node} does not run"));
        let process = state.pid.ok_or_else(none)?;
        let within = Within::from_now(cx.limits().heal);
        let what = format!("the agent of {node} has a connection to an API server");
        eventually(&what, within, async || {
            let found = Connections::of(cx.cluster(), &node, process, &anywhere(servers)).await?;
            Ok((!found.established.is_empty()).then_some(()))
        })
        .await?;
        connected.push((node, process));
    }
    Ok(connected)
}

/// Resets the connections of agents to these addresses: each notices that it has none.
///
/// # Errors
/// Inconclusive if one of them had none.
pub async fn reset(cx: &Context, agents: &[(String, u32)], servers: &[SocketAddr]) -> Result<(), Halt> {
    for (node, process) in agents {
        let gone = Connections::reset(cx.cluster(), node, *process, &anywhere(servers))
            .await?
            .established;
        cx.fault(&format!(
            "connections of the agent of {node} to the API reset: {gone:?}"
        ));
        if gone.is_empty() {
            let why = format!("the agent of {node} had no connection to the API that could be reset");
            return Err(Halt::Inconclusive(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_kubernetes_service_lists_is_an_address_of_api_servers() {
        let slice = json!({
            "ports": [{ "name": "https", "port": 6443 }],
            "endpoints": [{ "addresses": ["192.0.2.9"] }, { "addresses": ["2001:db8::9"] }],
        });
        let found: Vec<String> = listed(&slice).iter().map(SocketAddr::to_string).collect();
        assert_eq!(found, ["192.0.2.9:6443", "[2001:db8::9]:6443"]);
        assert!(listed(&json!({ "endpoints": [{ "addresses": ["192.0.2.9"] }] })).is_empty());
        assert!(listed(&json!({})).is_empty());
    }

    #[test]
    fn both_ways_to_the_port_of_servers_are_cut_and_the_nodes_own_only_if_its_agent_uses_it() {
        let servers = ["192.0.2.1:6443", "192.0.2.2:6443"].map(|one| one.parse().unwrap());
        let drops = |all| -> Vec<String> {
            let rules = rules(&servers, all);
            let drops = rules.lines().filter(|line| line.ends_with(" drop"));
            drops.map(str::to_owned).collect()
        };
        assert_eq!(
            drops(true),
            [
                "nft add rule inet plumbline_api_cut out tcp dport 6443 drop",
                "nft add rule inet plumbline_api_cut in tcp sport 6443 drop",
            ]
        );
        assert_eq!(
            drops(false),
            [
                "nft add rule inet plumbline_api_cut out oifname != lo tcp dport 6443 drop",
                "nft add rule inet plumbline_api_cut in iifname != lo tcp sport 6443 drop",
            ]
        );
    }
}
