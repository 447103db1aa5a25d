//! The containers that are nodes of a cluster, and their file systems and namespaces on this host.

use std::{
    fs::{self, File},
    net::IpAddr,
    path::{Path, PathBuf},
};

use lab::{EVERY_REFUSAL_IPV4, EVERY_REFUSAL_IPV6, NetNs};

use super::{
    KindError,
    config::CLUSTER_LABEL,
    docker_inspect::{Inspected, expect_one_control_plane, names, parse},
    error::io_error,
    tools::{self, Tools},
};

/// A node of a cluster, which is a container on this host.
#[derive(Clone, Debug)]
pub(super) struct Container {
    /// Name of the container, and of the node in the API.
    pub(super) name: String,
    /// Its image, with the digest on this machine.
    pub(super) image: String,
    /// Whether it runs the first API server.
    pub(super) is_control_plane: bool,
    /// Its first process, as this host sees it.
    pub(super) pid: u32,
    /// The Docker network of the cluster.
    pub(super) network: String,
    /// Addresses in that network, IPv4 first.
    pub(super) addresses: Vec<IpAddr>,
    /// Its cgroup v2 root, as this host sees it.
    pub(super) cgroup: PathBuf,
    /// The same path, as processes on the node see it.
    pub(super) cgroup_root: PathBuf,
    /// Its bpf file system, as processes on the node see it.
    pub(super) bpffs: PathBuf,
}

impl Container {
    /// A path of the node as this host sees it.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A namespace of the node: `net`, `mnt`, `pid` …
    pub(super) fn namespace(&self, kind: &str) -> Result<File, KindError> {
        let path = format!("/proc/{}/ns/{kind}", self.pid);
        File::open(&path).map_err(io_error(format!("open {path} of the node {}", self.name)))
    }
}

/// Removes the rate limit of ICMP errors on nodes, so that every refusal is sent, as in a lab.
pub(super) fn disable_icmp_rate_limit(nodes: &[Container]) -> Result<(), KindError> {
    for node in nodes {
        let net = NetNs::of(node.namespace("net")?);
        let set = || {
            for (name, value) in [EVERY_REFUSAL_IPV4, EVERY_REFUSAL_IPV6] {
                // procfs shows the namespace of the reading thread. The kernel may lack IPv6.
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

/// Fails if a cluster of this name exists: kind would refuse to create another, and the clean-up would then remove
/// the existing one.
pub(super) async fn expect_none(tools: &Tools, cluster: &str) -> Result<(), KindError> {
    if exist(tools, cluster).await? {
        return Err(KindError::Taken {
            name: cluster.to_owned(),
        });
    }
    Ok(())
}

/// Whether a cluster has nodes, running or stopped, as after a restart of the host.
pub(super) async fn exist(tools: &Tools, cluster: &str) -> Result<bool, KindError> {
    Ok(!list(tools, cluster, &["--all"]).await?.trim().is_empty())
}

/// The nodes of a cluster, sorted by name; an error if there are none, or some are stopped.
pub(super) async fn nodes(tools: &Tools, cluster: &str) -> Result<Vec<Container>, KindError> {
    let mut nodes = Vec::new();
    for inspected in running(tools, cluster).await? {
        expect_bpffs(tools, &inspected).await?;
        nodes.push(locate(&inspected)?);
    }
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

/// The Docker network of the nodes, and of containers beside them.
pub(super) fn network(nodes: &[Container]) -> String {
    let first = nodes.first().map(|node| node.network.clone());
    first.unwrap_or_else(tools::network)
}

/// Mounts a bpffs on a node without one: kind's image has none, since systemd leaves that to the host in containers.
/// An existing one stays, at any path.
async fn expect_bpffs(tools: &Tools, node: &Inspected) -> Result<(), KindError> {
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", node.pid())).unwrap_or_default();
    // `locate` reports nodes whose mounts can't be read.
    if mounts.is_empty() || mount(&mounts, "bpf").is_some() {
        return Ok(());
    }
    let name = node.name();
    let what = format!("mount a bpffs on the node {name}");
    let mount = ["exec", name, "mount", "-t", "bpf", "bpf", "/sys/fs/bpf"];
    tools.docker(&what, mount).await.map(drop)
}

/// The output of Docker for the nodes of a cluster; an error if one is stopped.
async fn running(tools: &Tools, cluster: &str) -> Result<Vec<Inspected>, KindError> {
    let what = format!("list the nodes of {cluster}");
    let listed = list(tools, cluster, &["--all"]).await?;
    let ids: Vec<&str> = listed.split_whitespace().collect();
    if ids.is_empty() {
        return Err(KindError::NotUp {
            name: cluster.to_owned(),
        });
    }
    let text = tools
        .docker(&what, ["inspect", "--type", "container"].into_iter().chain(ids))
        .await?;
    let nodes = parse(&text)?;
    expect_one_control_plane(cluster, &nodes)?;
    let stopped = names(&nodes, |one| !one.runs());
    if stopped.is_empty() {
        return Ok(nodes);
    }
    Err(KindError::Stopped {
        name: cluster.to_owned(),
        nodes: stopped,
    })
}

async fn list(tools: &Tools, cluster: &str, also: &[&str]) -> Result<String, KindError> {
    let filter = format!("label={CLUSTER_LABEL}={cluster}");
    let arguments = ["ps", "--quiet", "--no-trunc", "--filter", &filter];
    let what = format!("list the nodes of {cluster}");
    tools.docker(&what, arguments.iter().chain(also)).await
}

/// Finds the namespaces and file systems of a container on this host.
fn locate(inspected: &Inspected) -> Result<Container, KindError> {
    let name = inspected.name().to_owned();
    let pid = inspected.pid();
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
    let network = inspected.network(&tools::network());
    let (network, addresses) = network.ok_or_else(|| elsewhere("it is in no network".to_owned()))?;
    Ok(Container {
        image: inspected.image(),
        is_control_plane: inspected.is_control_plane(),
        pid,
        network: network.to_owned(),
        addresses,
        cgroup,
        cgroup_root: hierarchy.point,
        bpffs: bpffs.point,
        name,
    })
}

/// A mount: the root within its file system, and the mount point.
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
}
