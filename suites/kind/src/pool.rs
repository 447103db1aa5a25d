//! Address ranges for load balancers that are free on this host.
//!
//! They are part of the ranges for network benchmarks (RFC 2544, RFC 5180), so no other host uses them. Routes of the
//! host and the nodes, the nodes' network and ClusterIPs are checked nevertheless.

use ipnet::IpNet;
use lab::{LabError, Links, NetNs};

use super::{
    KindError,
    containers::{Container, network},
    state::Folder,
    tools::Tools,
};

/// Base ranges, from which one range of each family is taken, and its prefix length.
const SET_ASIDE: [(&str, u8); 2] = [("198.18.0.0/15", 24), ("2001:2::/48", 112)];
/// Number of IPv6 ranges that are tried; IPv4 has as many.
const TRIED: usize = 512;
/// A route with a shorter prefix is a default route, or a part of one: VPNs have 0.0.0.0/1, routers 2000::/3.
const DEFAULT_ROUTES: u8 = 8;
/// File with the ranges of a cluster.
const POOL: &str = "load-balancers.json";

/// One range of each family that Services have; the previous one, as long as it is free.
pub(super) async fn find(
    tools: &Tools,
    folder: &Folder,
    nodes: &[Container],
    cluster_ips: &[IpNet],
) -> Result<Vec<IpNet>, KindError> {
    let had: Vec<String> = folder.read(POOL)?.unwrap_or_default();
    let had: Vec<IpNet> = had.iter().filter_map(|range| range.parse().ok()).collect();
    let mut taken = cluster_ips.to_vec();
    taken.extend(subnets(tools, &network(nodes)).await?);
    taken.extend(destinations(None).await?);
    for node in nodes {
        let found = destinations(Some(&NetNs::of(node.namespace("net")?))).await?;
        // An earlier run has routed these to its outside client.
        taken.extend(found.into_iter().filter(|range| !had.contains(range)));
    }
    let mut pool = Vec::new();
    for is_ipv6 in [false, true] {
        if cluster_ips.iter().any(|range| range.addr().is_ipv6() == is_ipv6) {
            pool.push(choose(is_ipv6, &had, &taken).ok_or_else(|| full(is_ipv6))?);
        }
    }
    let shown: Vec<String> = pool.iter().map(IpNet::to_string).collect();
    folder.put(POOL, &shown)?;
    Ok(pool)
}

/// Subnets of the nodes' network.
async fn subnets(tools: &Tools, network: &str) -> Result<Vec<IpNet>, KindError> {
    let format = "{{range .IPAM.Config}}{{.Subnet}} {{end}}";
    let arguments = ["network", "inspect", "--format", format, network];
    let text = tools.docker("find the network of the nodes", arguments).await?;
    Ok(text
        .split_whitespace()
        .filter_map(|range| range.parse().ok())
        .collect())
}

/// Destinations of the routes in a namespace; without one, in this process's.
async fn destinations(net: Option<&NetNs>) -> Result<Vec<IpNet>, KindError> {
    let unexpected = |error: LabError| KindError::Unexpected {
        what: "find free addresses".to_owned(),
        why: error.to_string(),
    };
    let links = match net {
        Some(net) => net.links(),
        None => Links::here(),
    };
    let all = links.map_err(unexpected)?.destinations().await;
    all.map_err(unexpected)
}

/// The previous range, or else the first free one.
fn choose(is_ipv6: bool, had: &[IpNet], taken: &[IpNet]) -> Option<IpNet> {
    let of_family = |range: &IpNet| range.addr().is_ipv6() == is_ipv6;
    let ranges = SET_ASIDE.iter().filter_map(|(text, length)| {
        let all: IpNet = text.parse().ok()?;
        of_family(&all).then_some(all)?.subnets(*length).ok()
    });
    let ranges = ranges.flat_map(|ranges| ranges.take(TRIED));
    let had = had.iter().copied().filter(of_family);
    had.chain(ranges).find(|range| is_free(range, taken))
}

fn is_free(range: &IpNet, taken: &[IpNet]) -> bool {
    let mut own = taken.iter().filter(|taken| taken.prefix_len() >= DEFAULT_ROUTES);
    !own.any(|taken| taken.contains(&range.network()) || range.contains(&taken.network()))
}

fn full(is_ipv6: bool) -> KindError {
    let [ipv4, ipv6] = SET_ASIDE;
    let (range, length) = if is_ipv6 { ipv6 } else { ipv4 };
    KindError::Unexpected {
        what: "find addresses for load balancers".to_owned(),
        why: format!(
            "expected a /{length} of {range} that neither this host nor a node has a route to, found none: `ip route` shows what \
             leads there"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().expect("a range")).collect()
    }

    fn chosen(is_ipv6: bool, had: &[&str], taken: &[&str]) -> Option<String> {
        choose(is_ipv6, &ranges(had), &ranges(taken)).map(|range| range.to_string())
    }

    #[test]
    fn a_chosen_range_is_free() {
        let rows: [(bool, &[&str], &[&str], &str); 8] = [
            (false, &[], &["172.18.0.0/16", "10.96.0.0/16"], "198.18.0.0/24"),
            (false, &[], &["198.18.0.7/32"], "198.18.1.0/24"),
            (false, &[], &["198.18.0.0/16"], "198.19.0.0/24"),
            // A VPN's halves of the default route.
            (false, &[], &["0.0.0.0/1", "128.0.0.0/1"], "198.18.0.0/24"),
            (false, &["198.18.9.0/24"], &[], "198.18.9.0/24"),
            (false, &["198.18.9.0/24"], &["198.18.9.128/25"], "198.18.0.0/24"),
            (
                true,
                &["198.18.9.0/24"],
                &["2000::/3", "fe80::/64"],
                "2001:2::/112",
            ),
            (true, &[], &["2001:2::/112", "198.18.0.0/15"], "2001:2::1:0/112"),
        ];
        for (is_ipv6, had, taken, expected) in rows {
            assert_eq!(
                chosen(is_ipv6, had, taken).as_deref(),
                Some(expected),
                "{had:?} {taken:?}"
            );
        }
    }

    #[test]
    fn without_a_free_range_the_error_names_the_routes() {
        assert_eq!(chosen(false, &[], &["198.16.0.0/12"]), None);
        let message = full(false).to_string();
        assert!(
            message.contains("198.18.0.0/15") && message.contains("ip route"),
            "{message}"
        );
    }
}
