//! The output of `docker inspect` for the containers of a cluster: which are its nodes, and their properties.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

use super::KindError;

/// The label with the role of a node; its value for control planes.
const ROLE_LABEL: &str = "io.x-k8s.kind.role";
const CONTROL_PLANE: &str = "control-plane";

/// Output of `docker inspect` for a container, with the fields in use.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspected {
    name: String,
    /// Digest of its image on this machine.
    #[serde(default)]
    image: String,
    state: State,
    config: Config,
    network_settings: NetworkSettings,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    running: bool,
    /// 0 if it does not run.
    pid: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    /// Its image, as configured.
    #[serde(default)]
    image: String,
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    networks: BTreeMap<String, Network>,
}

#[derive(Debug, Deserialize)]
struct Network {
    #[serde(rename = "IPAddress")]
    ipv4: String,
    #[serde(rename = "GlobalIPv6Address")]
    ipv6: String,
}

/// Parses the output, and keeps the containers that are nodes.
pub(super) fn parse(text: &str) -> Result<Vec<Inspected>, KindError> {
    let mut all: Vec<Inspected> = serde_json::from_str(text).map_err(|error| KindError::Unexpected {
        what: "read what docker inspect says".to_owned(),
        why: error.to_string(),
    })?;
    // kind's load balancer in front of several control planes is no node.
    all.retain(|one| {
        matches!(
            one.config.labels.get(ROLE_LABEL).map(String::as_str),
            Some(CONTROL_PLANE | "worker")
        )
    });
    Ok(all)
}

/// Faults of API servers are implemented for a single control plane made by kubeadm.
pub(super) fn expect_one_control_plane(cluster: &str, nodes: &[Inspected]) -> Result<(), KindError> {
    let nodes = names(nodes, Inspected::is_control_plane);
    if nodes.len() < 2 {
        return Ok(());
    }
    Err(KindError::ControlPlanes {
        name: cluster.to_owned(),
        nodes,
    })
}

/// Names of the matching nodes, sorted.
pub(super) fn names(nodes: &[Inspected], are_meant: impl Fn(&Inspected) -> bool) -> Vec<String> {
    let meant = nodes.iter().filter(|one| are_meant(one));
    let mut names: Vec<String> = meant.map(|one| one.name().to_owned()).collect();
    names.sort();
    names
}

impl Inspected {
    /// Name of the container, and of the node in the API.
    pub(super) fn name(&self) -> &str {
        self.name.trim_start_matches('/')
    }

    pub(super) fn runs(&self) -> bool {
        self.state.running
    }

    /// Its image as configured, with its digest on this machine.
    pub(super) fn image(&self) -> String {
        format!("{} ({})", self.config.image, self.image)
    }

    /// Its first process, as this host sees it; 0 if it has none.
    pub(super) fn pid(&self) -> u32 {
        self.state.pid
    }

    pub(super) fn is_control_plane(&self) -> bool {
        let role = self.config.labels.get(ROLE_LABEL);
        role.is_some_and(|role| role == CONTROL_PLANE)
    }

    /// The container's network: the one that kind is `configured` with, or else the first, as a container may be connected to others later.
    /// With its addresses there, IPv4 first.
    pub(super) fn network(&self, configured: &str) -> Option<(&str, Vec<IpAddr>)> {
        let all = &self.network_settings.networks;
        let (name, network) = all.get_key_value(configured).or_else(|| all.first_key_value())?;
        let addresses = [&network.ipv4, &network.ipv6];
        // Docker reports an empty address for a family that the network lacks.
        let addresses = addresses.iter().filter_map(|text| text.parse().ok());
        Some((name, addresses.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, role: &str, networks: &[&str]) -> serde_json::Value {
        let network = |name: &&str| {
            let addresses = serde_json::json!({"IPAddress": "172.18.0.2", "GlobalIPv6Address": ""});
            ((*name).to_owned(), addresses)
        };
        let networks: serde_json::Map<_, _> = networks.iter().map(network).collect();
        serde_json::json!({
            "Name": format!("/{name}"),
            "State": {"Pid": 7, "Running": true},
            "Config": {"Labels": {"io.x-k8s.kind.role": role}},
            "NetworkSettings": {"Networks": networks},
        })
    }

    fn nodes(all: &[serde_json::Value]) -> Vec<Inspected> {
        parse(&serde_json::json!(all).to_string()).expect("what docker inspect says")
    }

    #[test]
    fn nodes_are_those_that_have_a_role_of_nodes() {
        let all = nodes(&[
            container("a-worker", "worker", &["kind"]),
            container("a-external-load-balancer", "external-load-balancer", &["kind"]),
            container("a-control-plane", CONTROL_PLANE, &["kind"]),
        ]);
        assert_eq!(names(&all, |_| true), ["a-control-plane", "a-worker"]);
        let error = parse("no").expect_err("no JSON").to_string();
        assert!(error.contains("docker inspect"), "{error}");
    }

    #[test]
    fn a_cluster_of_several_control_planes_is_refused() {
        let one = [
            container("c-worker", "worker", &[]),
            container("c-control-plane2", CONTROL_PLANE, &[]),
        ];
        expect_one_control_plane("c", &nodes(&one)).expect("one");
        let two = [&one[..], &[container("c-control-plane", CONTROL_PLANE, &[])]].concat();
        let error = expect_one_control_plane("c", &nodes(&two)).expect_err("two");
        let error = error.to_string();
        assert!(
            error.contains("\"c\" has the control planes c-control-plane, c-control-plane2"),
            "{error}"
        );
    }

    #[test]
    fn the_network_of_a_node_is_the_one_that_kind_has_put_it_into() {
        let chosen = |networks: &[&str], configured: &str| {
            let all = nodes(&[container("a-worker", "worker", networks)]);
            let found = all.first().and_then(|node| node.network(configured));
            found.map(|(name, addresses)| (name.to_owned(), addresses))
        };
        let at = |name: &str| Some((name.to_owned(), vec!["172.18.0.2".parse().expect("an address")]));
        assert_eq!(chosen(&["bridge", "kind"], "kind"), at("kind"));
        assert_eq!(
            chosen(&["mine"], "kind"),
            at("mine"),
            "the network was configured by another process"
        );
        assert_eq!(chosen(&[], "kind"), None);
    }
}
