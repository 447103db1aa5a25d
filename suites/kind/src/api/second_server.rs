//! Adds a second API server to a cluster with one: on a worker, with the first one's keys and etcd. Then all clients
//! of the API get the balancer's address.

use std::{
    fs,
    io::{self, Write as _},
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use cluster::api_server_name;
use lab_apiserver::Keys;
use nix::sys::signal::Signal;

use super::{
    ASIDE, ApiServers, MANIFEST, NAME, PORT, SHARED, Server, SharedEndpoint, address, balancer, lock_of,
    manifest,
};
use crate::{
    KindError,
    containers::{Container, network},
    error::io_error,
    process_lookup,
    state::Folder,
    tools::Tools,
};

/// Folder of the cluster's keys, including those of an API server.
const KEYS: &str = "/etc/kubernetes/pki";
const OWN_KEYS: [&str; 2] = ["apiserver.crt", "apiserver.key"];
/// Keys that all API servers share: kubeadm's list for a further control plane, and what it derives from them.
const COMMON_KEYS: [&str; 11] = [
    "ca.crt",
    "sa.key",
    "sa.pub",
    "front-proxy-ca.crt",
    "front-proxy-client.crt",
    "front-proxy-client.key",
    "apiserver-kubelet-client.crt",
    "apiserver-kubelet-client.key",
    "apiserver-etcd-client.crt",
    "apiserver-etcd-client.key",
    "etcd/ca.crt",
];
/// Client port of etcd on the control plane's node.
const ETCD: u16 = 2379;
/// Kubeconfigs of a node's clients of the API.
const ASKING: [&str; 3] = ["kubelet.conf", "controller-manager.conf", "scheduler.conf"];

/// The two servers to create.
struct Making<'a> {
    tools: &'a Tools,
    folder: &'a Folder,
    first: Server,
    second: Server,
    front: SocketAddr,
    /// kubeadm's manifest of the first.
    manifest: String,
}

/// Creates both servers behind the balancer, and configures administrator, kubelets and controllers with its address.
/// All are ready when this returns. Everything is written anew, as an earlier attempt may have been killed.
///
/// # Errors
/// The cluster has no worker; the files differ from those that kubeadm is known to write.
pub(super) async fn share(
    tools: &Tools,
    folder: &Folder,
    nodes: &[Container],
    image: &str,
) -> Result<ApiServers, KindError> {
    let [first, second] = places(folder.name(), nodes)?;
    let manifest = read_manifest(first)?;
    let advertised = advertised(&manifest)?;
    let server = |number, node: &Container| {
        Ok::<_, KindError>(Server {
            number,
            address: (address(node, advertised.is_ipv6())?, PORT).into(),
            node: node.clone(),
        })
    };
    let (first, second) = (server(1, first)?, server(2, second)?);
    let behind = [first.address, second.address];
    let front = balancer::start(tools, folder.name(), (image, &network(nodes)), &behind).await?;
    let making = Making {
        tools,
        folder,
        first,
        second,
        front: (front, PORT).into(),
        manifest,
    };
    let mut shared = SharedEndpoint {
        front: making.front,
        nodes: vec![making.first.node.name.clone(), making.second.node.name.clone()],
        unfinished: true,
    };
    // Written first, as it is the only record of the balancer.
    folder.put(SHARED, &shared)?;
    making.certify().await?;
    making.start_second().await?;
    making.configure_clients(nodes)?;
    making.restart_first().await?;
    for node in nodes {
        let arguments = ["exec", &node.name, "systemctl", "restart", "kubelet"];
        tools.docker("start kubelets again", arguments).await?;
    }
    shared.unfinished = false;
    folder.put(SHARED, &shared)?;
    Ok(ApiServers {
        advertised: making.front,
        servers: vec![making.first, making.second],
        folder: folder.clone(),
    })
}

/// The nodes of both servers.
fn places<'a>(cluster: &str, nodes: &'a [Container]) -> Result<[&'a Container; 2], KindError> {
    let first = nodes.iter().find(|node| node.is_control_plane);
    let second = nodes.iter().find(|node| !node.is_control_plane);
    match (first, second) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(KindError::Alone {
            name: cluster.to_owned(),
            nodes: nodes.len(),
        }),
    }
}

impl Making<'_> {
    /// Creates both certificates by kubeadm, valid for the balancer, too.
    async fn certify(&self) -> Result<(), KindError> {
        let version =
            manifest::version(&self.manifest).ok_or_else(|| unexpected_file("it names no version"))?;
        let range = manifest::flag(&self.manifest, "--service-cluster-ip-range=");
        let range = range.ok_or_else(|| unexpected_file("it names no range of Services"))?;
        let node = &self.first.node;
        for server in [&self.first, &self.second] {
            let place = format!("{ASIDE}/pki-{}", server.number);
            // Kubeadm keeps existing certificates.
            remove_folder(node, &place)?;
            make_folder(node, &place)?;
            for name in ["ca.crt", "ca.key"] {
                copy(node, &format!("{KEYS}/{name}"), node, &format!("{place}/{name}"))?;
            }
            let name = api_server_name(server.number);
            let also = [
                "localhost",
                "127.0.0.1",
                "::1",
                &name,
                &node.name,
                &self.front.ip().to_string(),
            ]
            .join(",");
            let own = server.address.ip().to_string();
            let arguments = [
                "exec",
                &node.name,
                "kubeadm",
                "init",
                "phase",
                "certs",
                "apiserver",
                "--cert-dir",
                &place,
                "--kubernetes-version",
                version,
                "--service-cidr",
                range,
                "--apiserver-advertise-address",
                &own,
                "--apiserver-cert-extra-sans",
                &also,
            ];
            let what = format!("make the certificate of API server {}", server.number);
            self.tools.docker(&what, arguments).await?;
        }
        Ok(())
    }

    async fn start_second(&self) -> Result<(), KindError> {
        let (from, to) = (&self.first.node, &self.second.node);
        make_folder(to, &format!("{KEYS}/etcd"))?;
        make_folder(to, ASIDE)?;
        self.second.end_old().await?;
        for name in COMMON_KEYS {
            copy(from, &format!("{KEYS}/{name}"), to, &format!("{KEYS}/{name}"))?;
        }
        self.install_keys(&self.second)?;
        let etcd = SocketAddr::new(self.first.address.ip(), ETCD);
        let second = self.advertising()?;
        let second = manifest::on_node(&second, self.second.address.ip(), etcd);
        let second = second.ok_or_else(|| unexpected_file("it names no etcd, or no probe"))?;
        write(to, &format!("{ASIDE}/kube-apiserver.yaml"), &second)?;
        self.second.put_back()?;
        // kind's own kubeconfig contains the authority of its certificate.
        self.second.serves(&self.folder.kubeconfig()).await
    }

    fn advertising(&self) -> Result<String, KindError> {
        let text = manifest::advertising(&self.manifest, self.front.ip());
        text.ok_or_else(|| unexpected_file("it advertises no address"))
    }

    /// Writes the balancer's address into all kubeconfigs, effective at the next start of each client.
    fn configure_clients(&self, nodes: &[Container]) -> Result<(), KindError> {
        for node in nodes {
            for name in ASKING {
                let path = format!("/etc/kubernetes/{name}");
                if node.path(Path::new(&path)).exists() {
                    let text = manifest::asking(&read(node, &path)?, self.front);
                    let text =
                        text.ok_or_else(|| unexpected_file("a kubeconfig beside it names no server"))?;
                    write(node, &path, &text)?;
                }
            }
        }
        let path = self.folder.kubeconfig();
        let text = fs::read_to_string(&path).map_err(io_error(format!("read {}", path.display())))?;
        let text = manifest::asking(&text, self.front)
            .ok_or_else(|| unexpected_file("kind's kubeconfig names no server"))?;
        self.folder.write("kubeconfig", text.as_bytes())
    }

    /// Lets the first server advertise the balancer. Controllers and scheduler end when it stops, and restart with
    /// their new kubeconfigs.
    async fn restart_first(&self) -> Result<(), KindError> {
        let node = &self.first.node;
        let _lock = self.folder.hold(&lock_of(self.first.number))?;
        self.first.end_old().await?;
        for name in ["kube-controller-manager", "kube-scheduler"] {
            process_lookup::signal(&process_lookup::named(node, name), Signal::SIGTERM);
        }
        self.install_keys(&self.first)?;
        write(
            node,
            &format!("{ASIDE}/kube-apiserver.yaml"),
            &self.advertising()?,
        )?;
        self.first.put_back()?;
        self.first.serves(&self.folder.kubeconfig()).await
    }

    /// Copies kubeadm's files to the paths that an API server reads.
    fn install_keys(&self, server: &Server) -> Result<(), KindError> {
        let from = &self.first.node;
        let place = format!("{ASIDE}/pki-{}", server.number);
        for name in OWN_KEYS {
            copy(
                from,
                &format!("{place}/{name}"),
                &server.node,
                &format!("{KEYS}/{name}"),
            )?;
        }
        remove_folder(from, &place)
    }
}

impl Server {
    /// Stops an earlier second server.
    async fn end_old(&self) -> Result<(), KindError> {
        if self.node.path(Path::new(MANIFEST)).exists() {
            self.take_away()?;
        }
        self.gone().await
    }
}

/// The advertised address in a manifest.
pub(super) fn advertised(manifest: &str) -> Result<IpAddr, KindError> {
    let address = manifest::flag(manifest, "--advertise-address=");
    address
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| unexpected_file("it advertises no address"))
}

/// The error for unexpected files of kubeadm.
fn unexpected_file(why: &str) -> KindError {
    KindError::Unexpected {
        what: format!("read {MANIFEST}"),
        why: why.to_owned(),
    }
}

/// Reads a file of a node.
pub(super) fn read(node: &Container, path: &str) -> Result<String, KindError> {
    fs::read_to_string(node.path(Path::new(path))).map_err(io_error(format!("read {path} of {}", node.name)))
}

/// Reads kubeadm's manifest of a node's API server, which a dead process may have left in [`ASIDE`](super::ASIDE).
pub(super) fn read_manifest(node: &Container) -> Result<String, KindError> {
    let aside = format!("{ASIDE}/{NAME}");
    let is_aside = !node.path(Path::new(MANIFEST)).exists() && node.path(Path::new(&aside)).exists();
    read(node, if is_aside { &aside } else { MANIFEST })
}

/// Keys of the cluster for a proxy in front of a server.
pub(super) fn keys(server: &Server) -> Result<Keys, KindError> {
    let file = |name: &str| read(&server.node, &format!("{KEYS}/{name}"));
    Ok(Keys {
        authority: file("ca.crt")?,
        certificate: file("apiserver.crt")?,
        key: file("apiserver.key")?,
        front_certificate: file("front-proxy-client.crt")?,
        front_key: file("front-proxy-client.key")?,
    })
}

/// Writes a file that only root can read.
pub(super) fn write(node: &Container, path: &str, text: &str) -> Result<(), KindError> {
    put(node, path, text.as_bytes())
}

fn copy(from: &Container, source: &str, to: &Container, target: &str) -> Result<(), KindError> {
    let bytes = fs::read(from.path(Path::new(source)));
    put(
        to,
        target,
        &bytes.map_err(io_error(format!("read {source} of {}", from.name)))?,
    )
}

fn put(node: &Container, path: &str, bytes: &[u8]) -> Result<(), KindError> {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let opened = options.open(node.path(Path::new(path)));
    opened
        .and_then(|mut file| file.write_all(bytes))
        .map_err(io_error(format!("write {path} of {}", node.name)))
}

fn make_folder(node: &Container, path: &str) -> Result<(), KindError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(node.path(Path::new(path)));
    made.map_err(io_error(format!("make {path} on {}", node.name)))
}

/// Removes a folder; a missing one is no error.
fn remove_folder(node: &Container, path: &str) -> Result<(), KindError> {
    match fs::remove_dir_all(node.path(Path::new(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(format!("remove {path} on {}", node.name))(error))
        }
        _ => Ok(()),
    }
}
