//! Makes two API servers of a cluster with one: the second on a worker, with the first one's keys and etcd; and leads everybody
//! to the balancer.

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
    ASIDE, ApiServers, MANIFEST, NAME, PORT, SHARED, Server, Shared, address, balancer, lock_of, manifest,
};
use crate::{
    KindError,
    containers::{Container, network},
    error::io_error,
    placing,
    state::Folder,
    tools::Tools,
};

/// Where kubeadm keeps the cluster's keys, and those of an API server among them.
const KEYS: &str = "/etc/kubernetes/pki";
const OWN_KEYS: [&str; 2] = ["apiserver.crt", "apiserver.key"];
/// Those that every API server has: kubeadm's own list for a further control plane, and what it makes of it there.
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
/// Where etcd of a control plane's node takes clients.
const ETCD: u16 = 2379;
/// Who asks the API from a node, by its kubeconfig.
const ASKING: [&str; 3] = ["kubelet.conf", "controller-manager.conf", "scheduler.conf"];

/// A cluster that is to have two.
struct Making<'a> {
    tools: &'a Tools,
    folder: &'a Folder,
    first: Server,
    second: Server,
    front: SocketAddr,
    /// kubeadm's manifest of the first.
    manifest: String,
}

/// Makes them, and leads the administrator, kubelets and controllers to the balancer in front of them. All serve when this
/// returns. What of that is there already is made again: whoever began it may have been killed.
///
/// # Errors
/// There is no worker; what kubeadm has made is not what this was written for.
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
    let mut shared = Shared {
        front: making.front,
        nodes: vec![making.first.node.name.clone(), making.second.node.name.clone()],
        unfinished: true,
    };
    // First, as nobody else would know of the balancer that nodes are led to.
    folder.put(SHARED, &shared)?;
    making.certify().await?;
    making.start_second().await?;
    making.lead(nodes)?;
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

/// The nodes of both.
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
    /// Has kubeadm make the certificate of each, which is valid at the balancer, too.
    async fn certify(&self) -> Result<(), KindError> {
        let version = manifest::version(&self.manifest).ok_or_else(|| strange("it names no version"))?;
        let range = manifest::flag(&self.manifest, "--service-cluster-ip-range=");
        let range = range.ok_or_else(|| strange("it names no range of Services"))?;
        let node = &self.first.node;
        for server in [&self.first, &self.second] {
            let place = format!("{ASIDE}/pki-{}", server.number);
            // Kubeadm leaves certificates that are there as they are.
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
        let second = second.ok_or_else(|| strange("it names no etcd, or nobody probes it"))?;
        write(to, &format!("{ASIDE}/kube-apiserver.yaml"), &second)?;
        self.second.put_back()?;
        // Its certificate is the administrator's to check by kind's own kubeconfig.
        self.second.serves(&self.folder.kubeconfig()).await
    }

    fn advertising(&self) -> Result<String, KindError> {
        let text = manifest::advertising(&self.manifest, self.front.ip());
        text.ok_or_else(|| strange("it advertises no address"))
    }

    /// Leads whoever asks by a kubeconfig to the balancer, from the next start of each on.
    fn lead(&self, nodes: &[Container]) -> Result<(), KindError> {
        for node in nodes {
            for name in ASKING {
                let path = format!("/etc/kubernetes/{name}");
                if node.path(Path::new(&path)).exists() {
                    let text = manifest::asking(&read(node, &path)?, self.front);
                    let text = text.ok_or_else(|| strange("a kubeconfig beside it names no server"))?;
                    write(node, &path, &text)?;
                }
            }
        }
        let path = self.folder.kubeconfig();
        let text = fs::read_to_string(&path).map_err(io_error(format!("read {}", path.display())))?;
        let text = manifest::asking(&text, self.front)
            .ok_or_else(|| strange("kind's kubeconfig names no server"))?;
        self.folder.write("kubeconfig", text.as_bytes())
    }

    /// It advertises the balancer afterwards. Controllers and scheduler start again with it: they end when nobody answers, and
    /// begin anew by what their kubeconfigs say then.
    async fn restart_first(&self) -> Result<(), KindError> {
        let node = &self.first.node;
        let _lock = self.folder.hold(&lock_of(self.first.number))?;
        self.first.end_old().await?;
        for name in ["kube-controller-manager", "kube-scheduler"] {
            placing::signal(&placing::named(node, name), Signal::SIGTERM);
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

    /// What kubeadm has made for it goes where it reads it.
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
    /// Ends it, if it runs, before it is made anew.
    async fn end_old(&self) -> Result<(), KindError> {
        if self.node.path(Path::new(MANIFEST)).exists() {
            self.take_away()?;
        }
        self.gone().await
    }
}

/// The address that an API server advertises, by its manifest.
pub(super) fn advertised(manifest: &str) -> Result<IpAddr, KindError> {
    let address = manifest::flag(manifest, "--advertise-address=");
    address
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| strange("it advertises no address"))
}

/// What kubeadm has made is not what was expected.
fn strange(why: &str) -> KindError {
    KindError::Unexpected {
        what: format!("read {MANIFEST}"),
        why: why.to_owned(),
    }
}

/// Reads a file of a node.
pub(super) fn read(node: &Container, path: &str) -> Result<String, KindError> {
    fs::read_to_string(node.path(Path::new(path))).map_err(io_error(format!("read {path} of {}", node.name)))
}

/// Kubeadm's manifest of the API server of a node, which whoever is dead may have left aside.
pub(super) fn read_manifest(node: &Container) -> Result<String, KindError> {
    let aside = format!("{ASIDE}/{NAME}");
    let is_aside = !node.path(Path::new(MANIFEST)).exists() && node.path(Path::new(&aside)).exists();
    read(node, if is_aside { &aside } else { MANIFEST })
}

/// What a proxy in front of a server needs of the cluster's keys.
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

/// Writes a file for root alone.
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

/// That it is gone is no error.
fn remove_folder(node: &Container, path: &str) -> Result<(), KindError> {
    match fs::remove_dir_all(node.path(Path::new(path))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(format!("remove {path} on {}", node.name))(error))
        }
        _ => Ok(()),
    }
}
