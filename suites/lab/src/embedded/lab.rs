//! A lab that is up: everything that lives as long as the supervisor.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::fd::AsRawFd,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process,
    sync::Arc,
};

use futures::future::{join_all, try_join_all};
use lab_apiserver::{Auth, Config, Pki, Store};
use tokio::{net::UnixStream, sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    IpFamilies, LabConfig, LabError,
    agent::{Agent, Files},
    cgroup::Cgroup,
    control,
    dir::LabDir,
    error::io_error,
    kubelet::{Kubelet, Place, Table},
    netns::NetNs,
    node::{Node, Underlay},
    output::Steps,
    protocol::{About, Descriptor, Located, Missing, NodeStatus, Refusal, Status},
    topology::{API_SERVER_PORT, NodeAddresses},
};
use crate::cluster::{self, Capability, Description};

/// Everything; its end is that of all tasks, and with them of their processes and namespaces.
#[derive(Debug)]
pub(super) struct Lab {
    tasks: JoinSet<()>,
    _underlay: Underlay,
    _api: NetNs,
}

/// What requests on the control socket need.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) about: About,
    /// Takes the connection of whoever wants the lab down, to be answered when it is.
    pub(super) down: mpsc::Sender<UnixStream>,
    nodes: BTreeMap<String, Member>,
    outside: NetNs,
    outside_cgroup: Cgroup,
    kubeconfig: PathBuf,
}

/// A node with its agent and its pods.
#[derive(Debug)]
struct Member {
    node: Arc<Node>,
    agent: Agent,
    pods: Arc<Table>,
}

impl Lab {
    /// Brings everything up.
    pub(super) async fn start(
        config: LabConfig,
        tree: &Cgroup,
        dir: &LabDir,
        down: mpsc::Sender<UnixStream>,
        steps: Steps,
    ) -> Result<Self, LabError> {
        let mut tasks = JoinSet::new();
        steps.begin("underlay");
        let families = config.families;
        let underlay = Underlay::create(families).await?;
        let outside = underlay.machine("outside", &families.outside()).await?;
        let outside_cgroup = tree.child("outside");
        outside_cgroup.create()?;

        steps.begin("API server");
        let api = underlay.machine("apiserver", &families.api_server()).await?;
        let local = serve_api(families, &api, dir, &mut tasks)?;
        let client = super::kube_client(&dir.kubeconfig()).await?;

        steps.begin(format!("{} nodes", config.nodes));
        let all: Vec<NodeAddresses> = (1..=config.nodes)
            .map(|number| NodeAddresses::new(number, families))
            .collect();
        let nodes = all
            .iter()
            .map(|addresses| Node::create(*addresses, &all, &underlay, tree));
        let nodes = try_join_all(nodes).await?;
        let mut members = BTreeMap::new();
        let mut kubelets = Vec::new();
        for node in nodes.into_iter().map(Arc::new) {
            let kubelet = Kubelet::new(
                node.clone(),
                client.clone(),
                config.plumbline.clone(),
                dir.clone(),
            );
            let files = Files {
                kubeconfig: dir.underlay_kubeconfig(),
                log: dir.agent_log(&node.name),
                state: dir.agent_state(&node.name),
            };
            let (agent, keeper) = Agent::new(node.clone(), config.agent.clone(), files);
            tasks.spawn(keeper);
            members.insert(
                node.name.clone(),
                Member {
                    node,
                    agent,
                    pods: kubelet.table(),
                },
            );
            kubelets.push(kubelet);
        }
        try_join_all(kubelets.iter().map(Kubelet::register)).await?;
        for kubelet in kubelets {
            tasks.spawn(kubelet.run());
        }

        steps.begin(format!("agents: {}", config.agent.label));
        try_join_all(members.values().map(|member| member.agent.started())).await?;

        let description = describe(&config, members.values().map(|member| &*member.node));
        let api_url = format!("https://{local}");
        let about = About {
            description,
            config,
            pid: process::id(),
            api: api_url,
        };
        let kubeconfig = dir.underlay_kubeconfig();
        let shared = Shared {
            about,
            down,
            nodes: members,
            outside,
            outside_cgroup,
            kubeconfig,
        };
        control::serve(&dir.socket(), Arc::new(shared), &mut tasks)?;
        Ok(Self {
            tasks,
            _underlay: underlay,
            _api: api,
        })
    }

    /// Returns when a task ends by itself, which none should: the lab is then no lab any more.
    pub(super) async fn broken(&mut self) -> LabError {
        let why = match self.tasks.join_next().await {
            Some(Err(error)) => error.to_string(),
            Some(Ok(())) => "a server or a kubelet ended".to_owned(),
            None => "nothing runs".to_owned(),
        };
        LabError::Host {
            what: "go on".to_owned(),
            why,
            remedy: "See the supervisor's log",
        }
    }

    /// Ends all tasks; when this returns, their children are being killed.
    pub(super) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Replicas over one store: on the underlay, by each family, and on this host's loopback, whose address is returned.
fn serve_api(
    families: IpFamilies,
    net: &NetNs,
    dir: &LabDir,
    tasks: &mut JoinSet<()>,
) -> Result<SocketAddr, LabError> {
    let failed = |what: &str, why: &dyn std::fmt::Display| LabError::Host {
        what: format!("{what} the API server"),
        why: why.to_string(),
        remedy: "See the supervisor's log",
    };
    let config = Config::new(families.services(), families.api_server(), API_SERVER_PORT);
    let store = Store::new(config).map_err(|error| failed("configure", &error))?;
    let pki = Pki::new().map_err(|error| failed("make certificates for", &error))?;
    let addresses = [
        families.api_server(),
        families.kubernetes_service(),
        vec![Ipv4Addr::LOCALHOST.into()],
    ]
    .concat();
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let names: Vec<String> = addresses
        .iter()
        .map(ToString::to_string)
        .chain(names.map(str::to_owned))
        .collect();
    let tls = pki
        .server_tls(&names)
        .map_err(|error| failed("make certificates for", &error))?;
    let (admin, agent) = (lab_apiserver::new_token(), lab_apiserver::new_token());
    let auth = Auth::new()
        .with_user(&admin, "admin")
        .with_user(&agent, "system:node");
    let auth = Arc::new(auth);

    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let local = TcpListener::bind(loopback).map_err(io_error("listen on this host's loopback"))?;
    let local_address = local
        .local_addr()
        .map_err(io_error("listen on this host's loopback"))?;
    let underlay: Vec<SocketAddr> = families
        .api_server()
        .into_iter()
        .map(|address| SocketAddr::new(address, API_SERVER_PORT))
        .collect();
    let mut listeners = vec![local];
    for address in &underlay {
        listeners.push(net.listen(*address)?);
    }
    for listener in listeners {
        let serving = lab_apiserver::serve(
            store.clone(),
            listener,
            tls.clone(),
            auth.clone(),
            CancellationToken::new(),
        );
        tasks.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the API server ended");
            }
        });
    }
    let primary = underlay
        .into_iter()
        .next()
        .map(|address| (dir.underlay_kubeconfig(), address, agent));
    for (path, address, token) in [(dir.kubeconfig(), local_address, admin)]
        .into_iter()
        .chain(primary)
    {
        lab_apiserver::write_kubeconfig(&path, &format!("https://{address}"), pki.ca_pem(), &token)
            .map_err(|error| failed("write a kubeconfig for", &error))?;
    }
    Ok(local_address)
}

fn describe<'a>(config: &LabConfig, nodes: impl Iterator<Item = &'a Node>) -> Description {
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let node = |node: &Node| cluster::Node {
        name: node.name.clone(),
        addresses: node.addresses.internal(),
    };
    let mut capabilities = BTreeSet::from([
        Capability::ApiWrite,
        Capability::Node,
        Capability::Outside,
        Capability::HostNetwork,
    ]);
    if config.families.has_ipv4() {
        capabilities.insert(Capability::Ipv4);
    }
    if config.families.has_ipv6() {
        capabilities.insert(Capability::Ipv6);
    }
    Description {
        provider: "lab".to_owned(),
        target: config.agent.label.clone(),
        kernel,
        nodes: nodes.map(node).collect(),
        capabilities,
    }
}

impl Shared {
    /// As `plumbline lab status` shows it.
    pub(super) async fn status(&self) -> Status {
        let nodes = self.nodes.values().map(async |member| NodeStatus {
            name: member.node.name.clone(),
            zone: member.node.addresses.zone().to_owned(),
            addresses: member.node.addresses.internal(),
            pod_cidrs: member.node.addresses.pod_cidrs(),
            agent: member.agent.state().await,
            pods: member.pods.views(),
        });
        Status {
            name: self.about.config.name.clone(),
            supervisor: self.about.pid,
            api: self.about.api.clone(),
            target: self.about.config.agent.label.clone(),
            nodes: join_all(nodes).await,
        }
    }

    /// The agent of a node.
    pub(super) fn agent(&self, node: &str) -> Result<&Agent, Refusal> {
        self.member(node).map(|member| &member.agent)
    }

    /// Where a process in a place goes.
    pub(super) fn locate(&self, place: &cluster::Place) -> Result<Located, Refusal> {
        let failed = |error: LabError| Refusal::failed("find a place", &error);
        match place {
            cluster::Place::Outside => {
                let net = net(&self.outside).map_err(failed)?;
                Ok(self.located(net, None, &self.outside_cgroup, true))
            }
            cluster::Place::Host { node } => {
                let node = &self.member(node)?.node;
                let net = net(&node.net).map_err(failed)?;
                let mnt = descriptor(&node.mnt).map_err(failed)?;
                Ok(self.located(net, Some(mnt), &node.system_cgroup(), true))
            }
            cluster::Place::Pod { namespace, name } => {
                let found: Option<Place> = self
                    .nodes
                    .values()
                    .find_map(|member| member.pods.find(namespace, name));
                let missing = || Refusal::NotFound {
                    what: Missing::Pod,
                    name: format!("{namespace}/{name}"),
                };
                let place = found.ok_or_else(missing)?;
                let net = net(place.net()).map_err(failed)?;
                Ok(self.located(net, None, &place.cgroup, false))
            }
        }
    }

    fn located(&self, net: Descriptor, mnt: Option<Descriptor>, cgroup: &Cgroup, api: bool) -> Located {
        let kubeconfig = api.then(|| self.kubeconfig.clone());
        Located {
            net,
            mnt,
            cgroup: cgroup.path().to_owned(),
            kubeconfig,
        }
    }

    fn member(&self, node: &str) -> Result<&Member, Refusal> {
        let missing = || Refusal::NotFound {
            what: Missing::Node,
            name: node.to_owned(),
        };
        self.nodes.get(node).ok_or_else(missing)
    }
}

fn net(net: &NetNs) -> Result<Descriptor, LabError> {
    descriptor(net.file())
}

fn descriptor(file: &std::fs::File) -> Result<Descriptor, LabError> {
    let inode = file.metadata().map_err(io_error("stat a namespace"))?.ino();
    Ok(Descriptor {
        fd: file.as_raw_fd(),
        inode,
    })
}
