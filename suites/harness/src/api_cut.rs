//! Nodes whose agents reach no API server: their packets are dropped in the kernel of the node, both ways, and no error
//! says so.

use std::{
    collections::BTreeSet,
    iter,
    net::{IpAddr, SocketAddr},
};

use cluster::{Node, Place};
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

/// A cut that is there. Each node ends it when this is dropped, or when its time is over.
#[must_use = "the cut ends when this is dropped"]
pub struct ApiCut(Vec<Lasting>);

impl ApiCut {
    /// Drops what the processes of all nodes send to these addresses of API servers, and what comes from there. Pods'
    /// packets are not touched, nor a server of the node itself that its agent (by node and process) has no connection to: the
    /// kubelet asks that server whether it lives, and would start it again.
    ///
    /// # Errors
    /// A node has no `nft`, or its kernel none of what that needs.
    pub async fn begin(cx: &Context, agents: &[(String, u32)], servers: &[SocketAddr]) -> Result<Self, Halt> {
        let longest = cx.limits().longest(cx.limits().heal);
        let on = async |node: &Node| {
            let mut cut = servers.to_vec();
            let is_own = |server: &SocketAddr| node.addresses.contains(&server.ip());
            for own in servers.iter().filter(|server| is_own(server)) {
                if !has_connection(cx, agents, &node.name, *own).await? {
                    cut.retain(|server| server != own);
                }
            }
            let (begin, end) = (rules(&cut), format!("nft delete table {TABLE}"));
            let place = Place::Host {
                node: node.name.clone(),
            };
            Lasting::begin(cx, &place, [&begin, &end], longest).await
        };
        let nodes = cx.cluster().describe().nodes.iter();
        Ok(Self(try_join_all(nodes.map(on)).await?))
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

/// Whether the agent of a node has a connection to a server.
async fn has_connection(
    cx: &Context,
    agents: &[(String, u32)],
    node: &str,
    server: SocketAddr,
) -> Result<bool, Halt> {
    let Some((_, process)) = agents.iter().find(|(of, _)| of == node) else {
        return Ok(false);
    };
    let found = Connections::of(cx.cluster(), node, *process, &[server]).await?;
    Ok(!found.established.is_empty())
}

fn rules(servers: &[SocketAddr]) -> String {
    let mut commands = vec![
        format!("nft add table {TABLE}"),
        format!("nft 'add chain {TABLE} out {{ type filter hook output priority -300 ; }}'"),
        format!("nft 'add chain {TABLE} in {{ type filter hook input priority -300 ; }}'"),
    ];
    for server in servers {
        let family = if server.is_ipv4() { "ip" } else { "ip6" };
        for (chain, end) in [("out", 'd'), ("in", 's')] {
            let (address, port) = (server.ip(), server.port());
            commands.push(format!(
                "nft add rule {TABLE} {chain} {family} {end}addr {address} tcp {end}port {port} drop"
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
            let found = Connections::of(cx.cluster(), &node, process, servers).await?;
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
        let gone = Connections::reset(cx.cluster(), node, *process, servers)
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
    fn both_ways_to_each_server_are_cut_and_nothing_else() {
        let servers = ["192.0.2.1:6443", "[2001:db8::1]:6443"].map(|one| one.parse().unwrap());
        let rules = rules(&servers);
        let drops: Vec<&str> = rules.lines().filter(|line| line.ends_with(" drop")).collect();
        assert_eq!(
            drops,
            [
                "nft add rule inet plumbline_api_cut out ip daddr 192.0.2.1 tcp dport 6443 drop",
                "nft add rule inet plumbline_api_cut in ip saddr 192.0.2.1 tcp sport 6443 drop",
                "nft add rule inet plumbline_api_cut out ip6 daddr 2001:db8::1 tcp dport 6443 drop",
                "nft add rule inet plumbline_api_cut in ip6 saddr 2001:db8::1 tcp sport 6443 drop",
            ]
        );
    }
}
