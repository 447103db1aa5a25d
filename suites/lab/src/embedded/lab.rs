//! A lab that is up: everything that lives as long as the supervisor.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::fd::AsRawFd,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process,
    sync::Arc,
};

use futures::future::{join_all, try_join_all};
use ipnet::IpNet;
use lab_apiserver::{Auth, Config, Pki, Store};
use tokio::{net::UnixStream, sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    LabConfig, LabError,
    agent::Agent,
    cgroup::Cgroup,
    control,
    dir::LabDir,
    error::io_error,
    kubelet::{Kubelet, Place, Table},
    netns::NetNs,
    node::{Node, Underlay},
    output::Steps,
    protocol::{About, Descriptor, Located, Missing, NodeStatus, Refusal, Status},
    topology::{API_SERVER, API_SERVER_PORT, KUBERNETES_SERVICE, NodeAddresses, OUTSIDE, SERVICE_CIDR},
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
        let underlay = Underlay::create().await?;
        let outside = underlay.machine("outside", OUTSIDE).await?;
        let outside_cgroup = tree.child("outside");
        outside_cgroup.create()?;

        steps.begin("API server");
        let api = underlay.machine("apiserver", API_SERVER).await?;
        let local = serve_api(&api, dir, &mut tasks)?;
        let client = super::kube_client(&dir.kubeconfig()).await?;

        steps.begin(format!("{} nodes", config.nodes));
        let all: Vec<NodeAddresses> = (1..=config.nodes).map(NodeAddresses::new).collect();
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
            let (kubeconfig, log) = (dir.underlay_kubeconfig(), dir.agent_log(&node.name));
            let (agent, keeper) = Agent::new(node.clone(), config.agent.clone(), kubeconfig, log);
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

/// Two replicas over one store: one on the underlay, one on this host's loopback. Returns the latter's address.
fn serve_api(net: &NetNs, dir: &LabDir, tasks: &mut JoinSet<()>) -> Result<SocketAddr, LabError> {
    let failed = |what: &str, why: &dyn std::fmt::Display| LabError::Host {
        what: format!("{what} the API server"),
        why: why.to_string(),
        remedy: "See the supervisor's log",
    };
    let services: IpNet = SERVICE_CIDR
        .parse()
        .map_err(|error| failed("configure", &error))?;
    let config = Config::new(vec![services], vec![IpAddr::V4(API_SERVER)], API_SERVER_PORT);
    let store = Store::new(config).map_err(|error| failed("configure", &error))?;
    let pki = Pki::new().map_err(|error| failed("make certificates for", &error))?;
    let names = [
        API_SERVER.to_string(),
        KUBERNETES_SERVICE.to_string(),
        Ipv4Addr::LOCALHOST.to_string(),
        "localhost".to_owned(),
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        "kubernetes.default.svc.cluster.local".to_owned(),
    ];
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
    let underlay_address = SocketAddr::from((API_SERVER, API_SERVER_PORT));
    let underlay = net.listen(underlay_address)?;
    for listener in [local, underlay] {
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
    let configs = [
        (dir.kubeconfig(), local_address, admin),
        (dir.underlay_kubeconfig(), underlay_address, agent),
    ];
    for (path, address, token) in configs {
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
        addresses: vec![IpAddr::V4(node.addresses.internal())],
    };
    Description {
        provider: "lab".to_owned(),
        target: config.agent.label.clone(),
        kernel,
        nodes: nodes.map(node).collect(),
        capabilities: BTreeSet::from([
            Capability::Ipv4,
            Capability::ApiWrite,
            Capability::Node,
            Capability::Outside,
            Capability::HostNetwork,
        ]),
    }
}

impl Shared {
    /// As `plumbline lab status` shows it.
    pub(super) async fn status(&self) -> Status {
        let nodes = self.nodes.values().map(async |member| NodeStatus {
            name: member.node.name.clone(),
            address: member.node.addresses.internal(),
            pod_cidr: member.node.addresses.pod_cidr(),
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
