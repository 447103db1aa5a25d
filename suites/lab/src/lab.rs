//! A running lab: everything that lives as long as the supervisor.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsRawFd,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process,
    sync::Arc,
    time::Duration,
};

use cluster::{Capability, ClusterError, Description, software::Software};
use futures::future::{join_all, try_join_all};
use kube::Client;
use lab_controllers::{Balancer, Routes, SliceSettings, keep_slices, route, schedule};
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    IpFamilies, LabConfig, LabError,
    agent::{Agent, Files},
    api::{ApiServers, kube_client},
    balancer,
    cgroup::Cgroup,
    dir::LabDir,
    error::io_error,
    kubelet::{Kubelet, Kubelets, PodPlace, Table},
    narrow_hop::NarrowHop,
    needs,
    netns::NetNs,
    power::PowerLoss,
    protocol::{About, Descriptor, Located, NodeStatus, Status},
    start_events::Steps,
    topology::NodeAddresses,
    underlay::{Node, Underlay},
    watched_writes::WatchedWrites,
};

/// All tasks of a lab. Ending them ends their processes and namespaces.
#[derive(Debug)]
pub(super) struct Lab {
    tasks: JoinSet<()>,
    shared: Arc<RequestState>,
}

/// State for requests on the control socket.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) about: About,
    /// Receives the connection of a `down` request, which is answered when the lab is down.
    pub(super) down: mpsc::Sender<UnixStream>,
    nodes: BTreeMap<String, Member>,
    underlay: Arc<Underlay>,
    outside: NetNs,
    outside_cgroup: Cgroup,
    dir: LabDir,
    pub(super) api: ApiServers,
}

/// A node with its agent and its pods.
#[derive(Debug)]
struct Member {
    node: Arc<Node>,
    agent: Agent,
    pods: Arc<Table>,
}

impl Lab {
    /// Starts all parts.
    pub(super) async fn start(
        config: LabConfig,
        tree: &Cgroup,
        dir: &LabDir,
        down: mpsc::Sender<UnixStream>,
        steps: Steps,
    ) -> Result<Self, LabError> {
        needs::check(&config.agent).await?;
        let mut tasks = JoinSet::new();
        steps.begin("underlay");
        let families = config.families;
        let underlay = Arc::new(Underlay::create(families).await?);
        let outside = underlay.machine("outside", &families.outside()).await?;
        let outside_cgroup = tree.child("outside");
        outside_cgroup.create()?;

        let all: Vec<NodeAddresses> = (1..=config.nodes)
            .map(|number| NodeAddresses::new(number, families))
            .collect();
        steps.begin(format!("{} API servers", config.control_plane.servers));
        let api = ApiServers::start(&config, &all, &underlay, tree, dir, &mut tasks).await?;
        let client = kube_client(&dir.kubeconfig()).await?;
        let controllers = kube_client(&dir.controllers_kubeconfig()).await?;
        control_the_rest(&controllers, families, &underlay, &all, &mut tasks);
        if api.are_ours() {
            // kube-controller-manager has its own.
            let slices = keep_slices(controllers, SliceSettings::default(), CancellationToken::new());
            tasks.spawn(slices);
        }

        steps.begin(format!("{} nodes", config.nodes));
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
                kubeconfig: dir.node_kubeconfig(&node.name),
                redirected: dir.redirected_kubeconfig(&node.name),
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
        let pods = members
            .values()
            .map(|member| (member.node.clone(), member.pods.clone()));
        api.set_kubelet(Arc::new(Kubelets::new(pods, config.plumbline.clone())));

        steps.begin(format!("agents: {}", config.agent.label));
        try_join_all(members.values().map(|member| member.agent.started())).await?;

        let description = describe(&config);
        let about = About {
            description,
            config,
            pid: process::id(),
            api: format!("https://{}", api.admin()),
        };
        let shared = RequestState {
            about,
            down,
            nodes: members,
            underlay,
            outside,
            outside_cgroup,
            dir: dir.clone(),
            api,
        };
        Ok(Self {
            tasks,
            shared: Arc::new(shared),
        })
    }

    /// Spawns a task that serves the lab.
    pub(super) fn serve<S>(&mut self, server: impl FnOnce(Arc<RequestState>) -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(server(self.shared.clone()));
    }

    /// Returns when a task ends by itself, which is always an error.
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

/// Runs the controllers until the tasks end.
fn control_the_rest(
    client: &Client,
    families: IpFamilies,
    underlay: &Arc<Underlay>,
    nodes: &[NodeAddresses],
    tasks: &mut JoinSet<()>,
) {
    // Never cancelled: the controllers end as tasks.
    let stop = CancellationToken::new();
    tasks.spawn(schedule(client.clone(), stop.clone()));
    tasks.spawn(Balancer::new(client.clone(), families.load_balancers()).run(stop.clone()));
    let (routes, wanted) = watch::channel(Routes::new());
    tasks.spawn(route(client.clone(), routes, stop));
    let ours = families.load_balancers();
    let nodes = nodes.iter().map(|node| (node.name(), node.internal())).collect();
    tasks.spawn(balancer::follow(underlay.router(), nodes, ours, wanted));
}

/// The description of a lab of this configuration, without what its parts declare.
pub(super) fn describe(config: &LabConfig) -> Description {
    let kernel = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let node = |number| {
        let addresses = NodeAddresses::new(number, config.families);
        cluster::Node {
            name: addresses.name(),
            addresses: addresses.internal(),
        }
    };
    // The parts declare the other capabilities.
    let mut capabilities = BTreeSet::from([Capability::ApiWrite]);
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
        nodes: (1..=config.nodes).map(node).collect(),
        capabilities,
        lacking: BTreeMap::new(),
        features: config.agent.features.clone(),
        deviations: config.agent.deviations.clone(),
        most_endpoints: config.agent.most_endpoints,
        ways: config.agent.program.api.ways(),
        variants: config.agent.program.configurations(),
        image: cluster::PROBE.to_owned(),
        pull_secrets: Vec::new(),
        confined: None,
        // All labs of a run have the same agent, so the run reads its software once.
        software: Software::default(),
        nodes_of_others: 0,
    }
}

impl RequestState {
    /// The state for `plumbline lab status`.
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
            api_servers: self.api.list().await,
            api_faults: self.api.faults(),
            target: self.about.config.agent.label.clone(),
            nodes: join_all(nodes).await,
        }
    }

    /// The agent of a node.
    pub(super) fn agent(&self, node: &str) -> Result<&Agent, ClusterError> {
        self.member(node).map(|member| &member.agent)
    }

    /// Gives the outside client addresses behind a narrow hop.
    pub(super) async fn narrow_hop(&self, lasts: Duration) -> Result<NarrowHop, ClusterError> {
        let failed = |error: LabError| ClusterError::failed("make a narrow hop", &error);
        let outside = self.outside.links().map_err(failed)?;
        NarrowHop::begin(
            Arc::clone(&self.underlay),
            outside,
            self.about.config.families,
            lasts,
        )
        .await
    }

    /// Takes the power of a node.
    pub(super) async fn power_loss(&self, node: &str, lasts: Duration) -> Result<PowerLoss, ClusterError> {
        let node = Arc::clone(&self.member(node)?.node);
        PowerLoss::begin(node, Arc::clone(&self.underlay), lasts).await
    }

    /// Starts the agent of a node so that its writes can fail.
    pub(super) async fn watched_writes(
        &self,
        node: &str,
        lasts: Duration,
    ) -> Result<WatchedWrites, ClusterError> {
        WatchedWrites::begin(self.member(node)?.agent.clone(), lasts).await
    }

    /// Namespaces and cgroup for a process in a place.
    pub(super) fn locate(&self, place: &cluster::Place) -> Result<Located, ClusterError> {
        let failed = |error: LabError| ClusterError::failed("find a place", &error);
        match place {
            cluster::Place::Outside => {
                let net = net(&self.outside).map_err(failed)?;
                let kubeconfig = Some(self.dir.outside_kubeconfig());
                Ok(located(net, None, &self.outside_cgroup, kubeconfig))
            }
            cluster::Place::Host { node } => {
                let node = &self.member(node)?.node;
                let net = net(&node.net).map_err(failed)?;
                let mnt = descriptor(&node.mnt).map_err(failed)?;
                let kubeconfig = Some(self.dir.node_kubeconfig(&node.name));
                Ok(located(net, Some(mnt), &node.system_cgroup(), kubeconfig))
            }
            cluster::Place::Pod { namespace, name } => {
                let found: Option<PodPlace> = self
                    .nodes
                    .values()
                    .find_map(|member| member.pods.find(namespace, name));
                let missing = || ClusterError::not_found("pod", format!("{namespace}/{name}"));
                let place = found.ok_or_else(missing)?;
                let net = net(place.net()).map_err(failed)?;
                Ok(located(net, None, &place.cgroup, None))
            }
        }
    }

    fn member(&self, node: &str) -> Result<&Member, ClusterError> {
        let missing = || ClusterError::not_found("node", node.to_owned());
        self.nodes.get(node).ok_or_else(missing)
    }
}

fn located(
    net: Descriptor,
    mnt: Option<Descriptor>,
    cgroup: &Cgroup,
    kubeconfig: Option<PathBuf>,
) -> Located {
    Located {
        net,
        mnt,
        cgroup: cgroup.path().to_owned(),
        kubeconfig,
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
