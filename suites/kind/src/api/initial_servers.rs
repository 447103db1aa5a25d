//! The API servers at the begin of a run: unchanged, completed to two, or repaired.

use std::{net::SocketAddr, time::Instant};

use existing::Connection;
use kube::Client;
use lab::api_is_ready;
use tokio::time::sleep;

use super::{ApiServers, SHARED, SharedEndpoint, balancer, second_server};
use crate::{KindConfig, KindError, LIMITS, containers::Container, state::Folder, tools::Tools};

/// Writes the administrator's kubeconfig. Creates a second API server if it is configured, or if an earlier attempt
/// is incomplete: it was interrupted, or Docker has assigned other addresses.
pub(crate) async fn of_cluster(
    tools: &Tools,
    config: &KindConfig,
    folder: &Folder,
    nodes: &[Container],
    image: &str,
) -> Result<ApiServers, KindError> {
    let shared = folder.read::<SharedEndpoint>(SHARED)?;
    if let Some(front) = shared.as_ref().and_then(SharedEndpoint::made) {
        let there = ApiServers::of(folder, nodes)?;
        let servers: Vec<SocketAddr> = there.servers.iter().map(|server| server.address).collect();
        if balancer::resume(tools, folder.name(), front.ip(), &servers).await? {
            there.repair().await?;
            return Ok(there);
        }
    }
    let arguments = ["get", "kubeconfig", "--name", &config.name];
    let kubeconfig = tools
        .kind("read the kubeconfig of the cluster", arguments)
        .await?;
    folder.write("kubeconfig", kubeconfig.as_bytes())?;
    if shared.is_some() || config.api_servers == Some(2) {
        return second_server::share(tools, folder, nodes, image).await;
    }
    let there = ApiServers::of(folder, nodes)?;
    there.repair().await?;
    Ok(there)
}

impl SharedEndpoint {
    /// The balancer's address, if all clients of the API are configured with it.
    fn made(&self) -> Option<SocketAddr> {
        (!self.unfinished).then_some(self.front)
    }
}

/// A client of the API, once it answers: nodes that have just been started need some time.
pub(crate) async fn answering(connection: &Connection) -> Result<Client, KindError> {
    let client = connection.client().await?;
    let begin = Instant::now();
    while !api_is_ready(&client).await {
        if begin.elapsed() > LIMITS.api_server {
            return Err(KindError::Unexpected {
                what: "ask the API of the cluster".to_owned(),
                why: format!("it was not ready after {:?}", LIMITS.api_server),
            });
        }
        sleep(LIMITS.look).await;
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use std::{fs, net::IpAddr, os::unix::fs::PermissionsExt as _, path::Path};

    use lab::IpFamilies;
    use nix::{
        mount::{MsFlags, mount},
        unistd::gettid,
    };
    use testing::isolation::Own;

    use super::*;
    use crate::{KindTarget, PodNetwork};

    /// A Docker that assigns an address to a balancer, with nodes without kubeadm.
    const DOCKER: &str = "case $1 in inspect) echo 172.18.0.9 ;; exec) echo no kubeadm >&2; exit 1 ;; esac";
    const KIND: &str = "echo 'server: https://127.0.0.1:7'";

    fn tools(folder: &Path) -> Tools {
        let [docker, kind] = [("docker", DOCKER), ("kind", KIND)].map(|(name, script)| {
            let path = folder.join(name);
            let calls = folder.join("calls");
            let script = format!("#!/bin/sh\necho {name} \"$@\" >> {}\n{script}\n", calls.display());
            fs::write(&path, script).expect("a program");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("so");
            path
        });
        Tools::at(docker, kind)
    }

    /// A node whose files are this thread's.
    fn node(name: &str, is_control_plane: bool, address: [u8; 4]) -> Container {
        Container {
            image: String::new(),
            name: name.to_owned(),
            is_control_plane,
            pid: gettid().as_raw().try_into().expect("a number"),
            network: "kind".to_owned(),
            addresses: vec![IpAddr::from(address)],
            cgroup: "/nowhere".into(),
            cgroup_root: "/nowhere".into(),
            bpffs: "/nowhere".into(),
        }
    }

    #[tokio::test]
    async fn what_nodes_are_led_to_is_known_first_and_made_again_where_that_had_not_come_to_its_end() {
        let Some(own) = Own::of(&testing::current()) else {
            return;
        };
        let none = None::<&str>;
        for folder in ["/etc", "/var/lib"] {
            mount(none, folder, Some("tmpfs"), MsFlags::empty(), none).expect("an empty folder");
        }
        let nodes = [
            node("c-control-plane", true, [172, 18, 0, 2]),
            node("c-worker", false, [172, 18, 0, 3]),
        ];
        // A killed run has left the manifest there.
        let aside = Path::new(super::super::ASIDE);
        fs::create_dir_all(aside).expect("a folder");
        let manifest = include_str!("../golden/kube-apiserver.yaml");
        fs::write(aside.join(super::super::NAME), manifest).expect("a manifest");
        fs::create_dir(Path::new("/etc/kubernetes/pki")).expect("a folder");
        for name in ["ca.crt", "ca.key"] {
            fs::write(Path::new("/etc/kubernetes/pki").join(name), "").expect("a key");
        }
        let folder = Folder::new("c").expect("a name");
        let _lock = folder.lock().expect("a folder").expect("a free lock");
        let alone = ApiServers::of(&folder, &nodes).expect("one, by the manifest that is aside");
        assert!(!alone.are_several());

        let tools = tools(&own.folder);
        let config = |api_servers| KindConfig {
            name: "c".to_owned(),
            nodes: 2,
            families: IpFamilies::Ipv4,
            image: None,
            target: KindTarget::Reference,
            pod_network: PodNetwork::Kind,
            api_servers,
        };
        // The second time, with the number that the cluster has.
        for (api_servers, balancers) in [(Some(2), 1), (None, 2)] {
            let config = config(api_servers);
            let made = of_cluster(&tools, &config, &folder, &nodes, "image").await;
            let error = made.expect_err("there is no kubeadm").to_string();
            assert!(error.contains("no kubeadm"), "{error}");
            let shared = folder
                .read::<SharedEndpoint>(SHARED)
                .expect("read")
                .expect("it is known");
            assert_eq!(shared.front.to_string(), "172.18.0.9:6443");
            let half = ApiServers::of(&folder, &nodes).expect_err("half made");
            assert!(matches!(half, KindError::NotWhole { .. }), "{half}");
            let calls = fs::read_to_string(own.folder.join("calls")).expect("calls");
            assert_eq!(calls.matches("docker run --detach").count(), balancers, "{calls}");
        }
    }
}
