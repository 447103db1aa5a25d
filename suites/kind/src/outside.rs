//! The outside client, and its router to load balancers: containers in the nodes' network that are no nodes.
//!
//! Nodes route untranslated packets for addresses of Services to the client, which drops them: a host beyond this one
//! might answer otherwise.

use std::{
    fs::{self, File},
    net::IpAddr,
    path::Path,
};

use ipnet::IpNet;
use lab::NetNs;

use super::{
    KindError, LIMITS,
    containers::Container,
    error::io_error,
    outside_route::{CLIENT, OutsideRoute, ROUTER, apply_settings},
    process_lookup::on_node,
    tools::Tools,
};

/// Label of a cluster's containers that are no nodes; its value is the cluster's name.
pub(super) const LABEL: &str = "plumbline.cluster";

/// User of processes beside the nodes: this host's root, as no Pod Security Standard applies.
pub(super) const ROOT: &str = "0:0";

/// Restarts both. They have the probe's image and do nothing: clients are started in the client's namespaces.
pub(super) async fn start(tools: &Tools, cluster: &str, image: &str, network: &str) -> Result<(), KindError> {
    let (client, router) = (name(cluster), router_name(cluster));
    for (name, settings, what) in [
        (client, CLIENT, "start the client outside"),
        (router, ROUTER, "start the router"),
    ] {
        start_one(tools, cluster, &name, (image, network), what).await?;
        let net = net_of(process_of(tools, &name, what).await?)?;
        apply_settings(&net, settings).map_err(io_error(what))?;
    }
    Ok(())
}

async fn start_one(
    tools: &Tools,
    cluster: &str,
    name: &str,
    (image, network): (&str, &str),
    what: &str,
) -> Result<(), KindError> {
    let label = format!("{LABEL}={cluster}");
    remove_one(tools, name).await?;
    let arguments = [
        "run",
        "--detach",
        "--name",
        name,
        "--label",
        &label,
        "--network",
        network,
        "--user",
        ROOT,
        image,
        "serve",
        "--name",
        "outside",
        "--tcp",
        "8080",
    ];
    tools.docker(what, arguments).await.map(drop)
}

/// Its process, as this host sees it.
pub(super) async fn process(tools: &Tools, cluster: &str) -> Result<u32, KindError> {
    process_of(tools, &name(cluster), "find the client outside").await
}

/// The first process of a container beside the nodes.
pub(super) async fn process_of(tools: &Tools, name: &str, what: &str) -> Result<u32, KindError> {
    let text = tools
        .docker(what, ["inspect", "--format", "{{.State.Pid}}", name])
        .await?;
    // Docker prints 0 for none.
    let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| KindError::Unexpected {
        what: what.to_owned(),
        why: format!("the container {name} does not run: `docker logs {name}` says why"),
    })
}

/// The network namespace of a process.
fn net_of(process: u32) -> Result<NetNs, KindError> {
    let path = format!("/proc/{process}/ns/net");
    Ok(NetNs::of(
        File::open(&path).map_err(io_error(format!("open {path}")))?,
    ))
}

/// The client's route to load balancers.
pub(super) async fn route(tools: &Tools, cluster: &str) -> Result<OutsideRoute, KindError> {
    let router = router_name(cluster);
    Ok(OutsideRoute {
        client: net_of(process(tools, cluster).await?)?,
        router: net_of(process_of(tools, &router, "find the router").await?)?,
        through: addresses(tools, &router).await?,
    })
}

/// Routes untranslated packets for addresses of Services from the nodes to the client, which does not forward.
pub(super) async fn route_service_ranges_to_blackhole(
    tools: &Tools,
    cluster: &str,
    nodes: &[Container],
    ranges: &[IpNet],
) -> Result<(), KindError> {
    let what = "route untranslated addresses of Services to the client outside";
    let gateways = addresses(tools, &name(cluster)).await?;
    for node in nodes {
        for range in ranges {
            let is_of = |gateway: &&IpAddr| gateway.is_ipv6() == range.addr().is_ipv6();
            let Some(gateway) = gateways.iter().find(is_of) else {
                continue;
            };
            let words = [
                "route",
                "replace",
                &range.to_string(),
                "via",
                &gateway.to_string(),
            ];
            on_node(
                node,
                Path::new("ip"),
                &words.map(str::to_owned),
                what,
                LIMITS.count,
            )
            .await?;
        }
    }
    Ok(())
}

/// The ranges of ClusterIPs, from the API server's manifest.
pub(super) fn cluster_ips(nodes: &[Container]) -> Result<Vec<IpNet>, KindError> {
    let unexpected = |why: &str| KindError::Unexpected {
        what: "find the ranges of Services".to_owned(),
        why: why.to_owned(),
    };
    let control_plane = nodes.iter().find(|node| node.is_control_plane);
    let control_plane = control_plane.ok_or_else(|| unexpected("no node is a control plane"))?;
    let manifest = control_plane.path(Path::new("/etc/kubernetes/manifests/kube-apiserver.yaml"));
    let manifest = fs::read_to_string(&manifest).map_err(io_error(format!("read {}", manifest.display())))?;
    let ranges = service_ranges(&manifest);
    if ranges.is_empty() {
        return Err(unexpected("the API server's manifest names none"));
    }
    Ok(ranges)
}

/// The addresses of a running container.
pub(super) async fn addresses(tools: &Tools, name: &str) -> Result<Vec<IpAddr>, KindError> {
    let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}";
    let what = format!("find the addresses of {name}");
    let text = tools.docker(&what, ["inspect", "--format", format, name]).await?;
    Ok(text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// The ranges in a kube-apiserver's manifest.
fn service_ranges(manifest: &str) -> Vec<IpNet> {
    let flag = "--service-cluster-ip-range=";
    let ranges = manifest.lines().find_map(|line| line.split_once(flag));
    let ranges = ranges
        .into_iter()
        .flat_map(|(_, ranges)| ranges.trim().split(','));
    ranges.filter_map(|range| range.parse().ok()).collect()
}

/// Removes a container by its name; a missing one is no error.
pub(super) async fn remove_one(tools: &Tools, name: &str) -> Result<(), KindError> {
    remove_all(tools, &format!("name=^/?{name}$")).await
}

/// Removes all containers of a cluster that are no nodes; missing ones are no error.
pub(super) async fn remove(tools: &Tools, cluster: &str) -> Result<(), KindError> {
    remove_all(tools, &format!("label={LABEL}={cluster}")).await
}

async fn remove_all(tools: &Tools, filter: &str) -> Result<(), KindError> {
    let what = "remove what a cluster has beside its nodes";
    let ids = tools
        .docker(what, ["ps", "--all", "--quiet", "--filter", filter])
        .await?;
    let ids: Vec<&str> = ids.split_whitespace().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let arguments = ["rm", "--force"].into_iter().chain(ids);
    tools.docker(what, arguments).await.map(drop)
}

/// Name of the client's container.
pub(super) fn name(cluster: &str) -> String {
    format!("{cluster}-outside")
}

/// Name of the router's container.
pub(super) fn router_name(cluster: &str) -> String {
    format!("{cluster}-router")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_services_are_those_of_the_api_server() {
        let dual =
            "    - --secure-port=6443\n    - --service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112\n";
        let found: Vec<String> = service_ranges(dual).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.96.0.0/16", "fd00:10:96::/112"]);
        assert!(service_ranges("kind: Pod\n").is_empty());
    }
}
