//! The containers that are nodes of a cluster, and where their file systems and namespaces are on this host.

use std::{
    fs::{self, File},
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{KindError, config::CLUSTER_LABEL, error::io_error, tools::Tools};
use crate::embedded::{EVERY_REFUSAL_IPV4, EVERY_REFUSAL_IPV6, NetNs};

/// The label that says what a node is for; its value for control planes.
const ROLE_LABEL: &str = "io.x-k8s.kind.role";
const CONTROL_PLANE: &str = "control-plane";

/// A node of a cluster, as a container of this host.
#[derive(Clone, Debug)]
pub(super) struct Container {
    /// Its name, which is the node's in the API.
    pub(super) name: String,
    /// Whether the API server runs on it.
    pub(super) is_control_plane: bool,
    /// Its first process, as this host sees it.
    pub(super) pid: u32,
    /// Addresses in the cluster's network, IPv4 first.
    pub(super) addresses: Vec<IpAddr>,
    /// Its cgroup v2 root, as this host sees it.
    pub(super) cgroup: PathBuf,
    /// The same as processes on it see it.
    pub(super) cgroup_root: PathBuf,
    /// Its bpf file system, as processes on it see it.
    pub(super) bpffs: PathBuf,
}

impl Container {
    /// A path of the node as this host sees it.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// One of its namespaces: `net`, `mnt`, `pid` …
    pub(super) fn namespace(&self, kind: &str) -> Result<File, KindError> {
        let path = format!("/proc/{}/ns/{kind}", self.pid);
        File::open(&path).map_err(io_error(format!("open {path} of the node {}", self.name)))
    }
}

/// Lets nodes send every refusal that is an ICMP error, as those of a lab do.
pub(super) fn let_refuse(nodes: &[Container]) -> Result<(), KindError> {
    for node in nodes {
        let net = NetNs::of(node.namespace("net")?);
        let set = || {
            for (name, value) in [EVERY_REFUSAL_IPV4, EVERY_REFUSAL_IPV6] {
                // Shows the namespace of the thread that looks. A kernel may have no IPv6.
                let file = Path::new("/proc/sys/net").join(name);
                if file.exists() {
                    fs::write(file, value)?;
                }
            }
            Ok(())
        };
        net.inside(set)
            .map_err(io_error(format!("let {} send all its refusals", node.name)))?;
    }
    Ok(())
}

/// What `docker inspect` says of a container, as far as it is used.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    name: String,
    state: State,
    config: Config,
    network_settings: NetworkSettings,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    pid: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    networks: std::collections::BTreeMap<String, Network>,
}

#[derive(Debug, Deserialize)]
struct Network {
    #[serde(rename = "IPAddress")]
    ipv4: String,
    #[serde(rename = "GlobalIPv6Address")]
    ipv6: String,
}

/// Fails if there is a cluster of this name, whosever it is: kind would refuse to make another, and what is undone then is what
/// was there.
pub(super) async fn expect_none(tools: &Tools, cluster: &str) -> Result<(), KindError> {
    if list(tools, cluster, &["--all"]).await?.trim().is_empty() {
        return Ok(());
    }
    Err(KindError::Taken {
        name: cluster.to_owned(),
    })
}

/// The nodes of a cluster in the order of their names; an error if there are none.
pub(super) async fn nodes(tools: &Tools, cluster: &str) -> Result<Vec<Container>, KindError> {
    let what = format!("list the nodes of {cluster}");
    let listed = list(tools, cluster, &[]).await?;
    let ids: Vec<&str> = listed.split_whitespace().collect();
    if ids.is_empty() {
        return Err(KindError::NotUp {
            name: cluster.to_owned(),
        });
    }
    let text = tools
        .docker(&what, ["inspect", "--type", "container"].into_iter().chain(ids))
        .await?;
    let mut nodes = parse(&text)?.iter().map(locate).collect::<Result<Vec<_>, _>>()?;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

async fn list(tools: &Tools, cluster: &str, also: &[&str]) -> Result<String, KindError> {
    let filter = format!("label={CLUSTER_LABEL}={cluster}");
    let arguments = ["ps", "--quiet", "--no-trunc", "--filter", &filter];
    let what = format!("list the nodes of {cluster}");
    tools.docker(&what, arguments.iter().chain(also)).await
}

fn parse(text: &str) -> Result<Vec<Inspected>, KindError> {
    let mut all: Vec<Inspected> = serde_json::from_str(text).map_err(|error| KindError::Unexpected {
        what: "read what docker inspect says".to_owned(),
        why: error.to_string(),
    })?;
    // A load balancer in front of several control planes is no node.
    all.retain(|one| {
        matches!(
            one.config.labels.get(ROLE_LABEL).map(String::as_str),
            Some(CONTROL_PLANE | "worker")
        )
    });
    Ok(all)
}

/// Finds the namespaces and file systems of a container on this host.
fn locate(inspected: &Inspected) -> Result<Container, KindError> {
    let name = inspected.name.trim_start_matches('/').to_owned();
    let pid = inspected.state.pid;
    let elsewhere = |why: String| KindError::Elsewhere {
        node: name.clone(),
        why,
    };
    let read = |path: String| {
        fs::read_to_string(&path)
            .map_err(|error| elsewhere(format!("its first process should have {path}: {error}")))
    };
    let mounts = read(format!("/proc/{pid}/mountinfo"))?;
    let lacks = |file_system, remedy| KindError::NoMount {
        node: name.clone(),
        file_system,
        remedy,
    };
    let hierarchy = mount(&mounts, "cgroup2").ok_or_else(|| {
        lacks(
            "cgroup2",
            "boot this host with systemd.unified_cgroup_hierarchy=1, or mount one beside those of version 1",
        )
    })?;
    let bpffs = mount(&mounts, "bpf").ok_or_else(|| lacks("bpf", "`mount -t bpf bpf /sys/fs/bpf` on it"))?;
    let own = read("/proc/self/mountinfo".to_owned())?;
    let own = mount(&own, "cgroup2")
        .ok_or_else(|| elsewhere("no cgroup2 file system is mounted here".to_owned()))?;
    let below = hierarchy.root.strip_prefix(&own.root).unwrap_or(&hierarchy.root);
    let cgroup = own.point.join(below.strip_prefix("/").unwrap_or(below));
    if !cgroup.join("cgroup.procs").is_file() {
        return Err(elsewhere(format!("its cgroup should be {}", cgroup.display())));
    }
    let networks = inspected.network_settings.networks.values();
    let addresses = |family: fn(&Network) -> &String| {
        let parsed = networks
            .clone()
            .filter_map(move |network| family(network).parse::<IpAddr>().ok());
        parsed.collect::<Vec<_>>()
    };
    let addresses = [
        addresses(|network| &network.ipv4),
        addresses(|network| &network.ipv6),
    ]
    .concat();
    let role = inspected.config.labels.get(ROLE_LABEL);
    Ok(Container {
        is_control_plane: role.is_some_and(|role| role == CONTROL_PLANE),
        pid,
        addresses,
        cgroup,
        cgroup_root: hierarchy.point,
        bpffs: bpffs.point,
        name,
    })
}

/// A mount: what of its file system is its root, and where it is.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    root: PathBuf,
    point: PathBuf,
}

/// The first mount of a type in a mountinfo (proc_pid_mountinfo(5)).
fn mount(mountinfo: &str, file_system: &str) -> Option<Mount> {
    mountinfo.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        if kind.split(' ').next()? != file_system {
            return None;
        }
        let mut fields = place.split(' ').skip(3);
        Some(Mount {
            root: fields.next()?.into(),
            point: fields.next()?.into(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_type_wherever_they_are() {
        let text = "56 88 0:72 / /sys/fs/bpf rw,relatime shared:30 - bpf bpf rw\n\
                    59 89 0:38 /docker/cd22 /sys/fs/cgroup/unified rw,nosuid shared:31 - cgroup2 cgroup2 rw\n";
        let at = |root: &str, point: &str| {
            Some(Mount {
                root: root.into(),
                point: point.into(),
            })
        };
        assert_eq!(mount(text, "bpf"), at("/", "/sys/fs/bpf"));
        assert_eq!(
            mount(text, "cgroup2"),
            at("/docker/cd22", "/sys/fs/cgroup/unified")
        );
        assert_eq!(mount(text, "tmpfs"), None);
    }

    #[test]
    fn nodes_are_those_that_have_a_role_of_nodes() {
        let container = |name: &str, role: &str| {
            serde_json::json!({
                "Name": format!("/{name}"),
                "State": {"Pid": 7, "Running": true},
                "Config": {"Labels": {"io.x-k8s.kind.role": role}},
                "NetworkSettings": {"Networks": {"kind": {"IPAddress": "172.18.0.2", "GlobalIPv6Address": ""}}},
            })
        };
        let all = serde_json::json!([
            container("a-worker", "worker"),
            container("a-external-load-balancer", "external-load-balancer"),
            container("a-control-plane", "control-plane"),
        ]);
        let names: Vec<String> = parse(&all.to_string())
            .expect("what docker inspect says")
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["/a-worker", "/a-control-plane"]);
        let error = parse("no").expect_err("no JSON").to_string();
        assert!(error.contains("docker inspect"), "{error}");
    }
}
