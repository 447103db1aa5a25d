//! Creates a cluster, or attaches to an existing one.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use cluster::{ApiEndpoints, Capability, Cluster, Parts};
use existing::{
    About, ApiPods, Connection, InstalledAgents, KubernetesCluster, Options, Own, PodOptions, Tested, Tier,
    give_back,
};
use kube::Client;

use super::{
    Existing, KindConfig, KindError, KindTarget, PodNetwork,
    access::{DebugClient, Places},
    agents::{self, Deployed},
    api::{self, ApiServers},
    baseline,
    containers::{self, Container},
    control_plane::KindControlPlane,
    deployment,
    load_balancers::{self, LoadBalancers},
    manifests, outside, pool,
    programs::{self, Programs},
    removal::{Undo, down, kept, remove_dead},
    state::{Folder, Lock},
    steps::{Step, StopWatch},
    tools::Tools,
};

/// Namespace of the run's own objects: on kind there are none.
const NAMESPACE: &str = "default";
/// File with options and description for other processes.
const ABOUT: &str = "about.json";

/// A running kind cluster with its agents.
#[derive(Debug)]
pub struct KindCluster {
    cluster: Cluster,
    folder: Folder,
    api: ApiServers,
    /// Held by the run with which the cluster ends.
    lock: Option<Lock>,
    /// Set while a run holds the cluster.
    balancers: Option<LoadBalancers>,
}

impl KindCluster {
    /// Creates a cluster, or reuses one, and returns when all agents are ready. `progress` is called after each step.
    ///
    /// # Errors
    /// Why the cluster could not be started; a new cluster is removed again.
    pub async fn up(
        config: &KindConfig,
        existing: Existing,
        mut progress: impl FnMut(&Step) + Send,
    ) -> Result<Self, KindError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(KindError::NotRoot);
        }
        let folder = Folder::new(&config.name)?;
        config.check(existing)?;
        let held = || KindError::Held {
            name: config.name.clone(),
        };
        if folder.is_held()? {
            return Err(held());
        }
        let tools = Tools::find().await?;
        remove_dead().await?;
        // Checked before anything is created.
        match existing {
            Existing::Use => drop(containers::nodes(&tools, &config.name).await?),
            Existing::Refuse => containers::expect_none(&tools, &config.name).await?,
        }
        let is_new = !folder.path().join(ABOUT).exists();
        let lock = folder.lock()?.ok_or_else(held)?;
        let mut watch = StopWatch::start(&mut progress);
        if existing == Existing::Use {
            folder.keep()?;
        }
        let is_ours = existing == Existing::Refuse;
        let undo = (is_ours || is_new).then(|| Undo::new(folder.clone(), is_ours));
        let programs = Programs::find(config.target)?;
        let (probe_image, agent_image) = programs.images()?;
        probe_image.load_into_docker(&tools).await?;
        let probe = probe_image.name.clone();
        watch.done("images made");
        if existing == Existing::Refuse {
            create(&tools, config, &folder).await?;
            watch.done("cluster made");
        }
        let nodes = Arc::new(containers::nodes(&tools, &config.name).await?);
        let api = api::of_cluster(&tools, config, &folder, &nodes, &probe).await?;
        if api.are_several() {
            watch.done("two API servers");
        }
        let connection = connection(&folder);
        let client = api::answering(&connection).await?;
        deployment::expect_proxy(&client, config).await?;
        if existing == Existing::Use {
            load_balancers::expect_alone(&client, &config.name).await?;
        }
        containers::disable_icmp_rate_limit(&nodes)?;
        for image in [Some(&probe_image), agent_image.as_ref()].into_iter().flatten() {
            image.load_into_nodes(&tools, &config.name, &nodes).await?;
        }
        for node in nodes.iter() {
            programs::install(node, &programs.plumbline, "plumbline")?;
        }
        outside::start(&tools, &config.name, &probe, &containers::network(&nodes)).await?;
        let mut swallowed = outside::cluster_ips(&nodes)?;
        let pool = pool::find(&tools, &folder, &nodes, &swallowed).await?;
        swallowed.extend(&pool);
        outside::route_service_ranges_to_blackhole(&tools, &config.name, &nodes, &swallowed).await?;
        watch.done("images loaded");
        if existing == Existing::Refuse && config.target == KindTarget::Reference {
            baseline::note(&client, &folder, &nodes, config.pod_network).await?;
        }
        let deployed = Deployed::find(config.target, config.pod_network)?;
        let agents = deployed.agents(&client, &config.name, &nodes);
        let front = api.front();
        match &agent_image {
            Some(image) => {
                let wanted = wanted(&image.name, &nodes, config, front)?;
                deployment::apply(&client, &manifests::objects(&wanted)?).await?;
            }
            None => {
                if let Some(front) = front {
                    deployment::set_proxy_api_server(&client, front).await?;
                }
            }
        }
        if existing == Existing::Use {
            // A killed run may have left agents stopped, in a variant, or redirected.
            give_back(&client, Some(&config.name)).await?;
        }
        agents::all_ready(&agents, &nodes).await?;
        watch.done("agents ready");
        if config.pod_network == PodNetwork::Agent {
            // Kubelet looks for a CNI plugin every few seconds.
            deployment::nodes_ready(&client).await?;
            watch.done("nodes ready");
        }
        let route = outside::route(&tools, &config.name).await?;
        let balancers = LoadBalancers::start(client.clone(), pool, &nodes, &route).await?;
        let options = Options {
            provider: "kind".to_owned(),
            tested: tested(config.target, &deployed, front.is_some()),
            connection,
            tier: Tier::Node,
            image: probe,
            program: "/plumbline".to_owned(),
            namespace: NAMESPACE.to_owned(),
            run: config.name.clone(),
            plumbline: programs.plumbline.clone(),
            pods: PodOptions::default(),
        };
        let image = |node: &Container| (node.name.clone(), node.image.clone());
        let images = nodes.iter().map(image).collect();
        let running = RunningCluster {
            nodes,
            agents,
            knows_policies: api::policies_are_known(&client).await?,
            api: api.clone(),
            outside: outside::process(&tools, &config.name).await?,
        };
        let own = running.own(&options, &client, &folder)?;
        let mut surveyed = KubernetesCluster::survey(options, own).await?;
        let agent = deployed
            .target()
            .cluster
            .as_ref()
            .map(|installed| &installed.agent);
        surveyed.look_at_software(agent, &images).await;
        folder.put(ABOUT, surveyed.about())?;
        if let Some(undo) = undo {
            undo.disarm();
        }
        Ok(Self {
            cluster: surveyed.cluster(),
            folder,
            api,
            lock: Some(lock),
            balancers: Some(balancers),
        })
    }

    /// Attaches to a cluster that another process has started.
    ///
    /// # Errors
    /// The cluster does not exist any more.
    pub async fn attach(name: &str) -> Result<Self, KindError> {
        let folder = Folder::new(name)?;
        if !folder.path().exists() {
            return Err(KindError::NotKept {
                name: name.to_owned(),
                kept: kept()?,
            });
        }
        let about: About = folder.read(ABOUT)?.ok_or_else(|| KindError::NotWhole {
            name: name.to_owned(),
        })?;
        let tools = Tools::find().await?;
        let label = about.description.target.clone();
        let kind = KindTarget::find(&label)?;
        let client = about.options.connection.client().await?;
        let nodes = Arc::new(containers::nodes(&tools, name).await?);
        let api = ApiServers::of(&folder, &nodes)?;
        let can = &about.description.capabilities;
        let network = if can.contains(&Capability::PodsWithoutAgents) {
            PodNetwork::Kind
        } else {
            PodNetwork::Agent
        };
        let running = RunningCluster {
            agents: Deployed::find(kind, network)?.agents(&client, name, &nodes),
            nodes,
            // From the start of the cluster: after a killed run, no API server may be left to answer.
            knows_policies: can.contains(&Capability::Unreconciled),
            api: api.clone(),
            outside: outside::process(&tools, name).await?,
        };
        let own = running.own(&about.options, &client, &folder)?;
        Ok(Self {
            cluster: KubernetesCluster::attach(about, own).await?.cluster(),
            folder,
            api,
            lock: None,
            balancers: None,
        })
    }

    /// Attaches to a kept cluster; `None` if a run uses it. No run can use it as long as the value lives.
    ///
    /// # Errors
    /// No run has kept the cluster; it does not exist any more.
    pub async fn attach_alone(name: &str) -> Result<Option<Self>, KindError> {
        let folder = Folder::new(name)?;
        // A folder created here would look like that of a dead run, and its cluster would be removed.
        if !folder.path().exists() {
            return Err(KindError::NotKept {
                name: name.to_owned(),
                kept: kept()?,
            });
        }
        let Some(lock) = folder.lock()? else {
            return Ok(None);
        };
        if !folder.is_kept() {
            return Err(KindError::Left {
                name: name.to_owned(),
            });
        }
        let mut cluster = Self::attach(name).await?;
        cluster.lock = Some(lock);
        Ok(Some(cluster))
    }

    /// The cluster for cases.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Name of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        self.folder.name()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.kubeconfig()
    }

    /// Heals faults of API servers that a dead case has left; returns what was done: stopped servers, and policies
    /// against writing `default/kubernetes`.
    ///
    /// # Errors
    /// A server does not start, or does not reconcile.
    pub async fn settle(&self) -> Result<Vec<String>, KindError> {
        self.api.settle().await
    }

    /// Keeps the cluster when the run ends: its DaemonSets are restored, and Services of type LoadBalancer release
    /// their addresses.
    ///
    /// # Errors
    /// That can't be recorded; the API does not answer. The cluster is kept all the same.
    pub async fn keep(&self) -> Result<(), KindError> {
        self.folder.keep()?;
        let ended = match &self.balancers {
            Some(balancers) => balancers.end().await,
            None => Ok(()),
        };
        give_back(&self.cluster.client(), Some(self.name())).await?;
        ended
    }

    /// Restores DaemonSets that a dead run has borrowed, and releases addresses that it has assigned to Services of
    /// type LoadBalancer; returns what was done.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn take_back(&self) -> Result<Vec<String>, KindError> {
        let client = self.cluster.client();
        let mut done = give_back(&client, Some(self.name())).await?;
        done.extend(load_balancers::give_back(&client, None).await?);
        Ok(done)
    }

    /// Removes the cluster.
    ///
    /// # Errors
    /// What could not be removed.
    pub async fn down(self) -> Result<(), KindError> {
        let down = down(self.folder.name()).await;
        drop(self.lock);
        down
    }
}

/// Facts of a running cluster, on this host.
struct RunningCluster {
    nodes: Arc<Vec<Container>>,
    agents: InstalledAgents,
    knows_policies: bool,
    api: ApiServers,
    outside: u32,
}

impl RunningCluster {
    /// The parts of the cluster for cases.
    fn own(self, options: &Options, client: &Client, folder: &Folder) -> Result<Own, KindError> {
        let places = Arc::new(Places {
            nodes: self.nodes,
            client: DebugClient(client.clone()),
            pods: ApiPods::new(client.clone(), options.clone()),
            outside: self.outside,
            baseline: baseline::read(folder)?,
            plumbline: options.plumbline.clone(),
        });
        let control_plane = KindControlPlane {
            client: DebugClient(client.clone()),
            api: self.api,
            knows_policies: self.knows_policies,
            folder: folder.clone(),
            plumbline: options.plumbline.clone(),
        };
        Ok(Own {
            pods: Some(Arc::clone(&places) as _),
            parts: Parts {
                nodes: Some(Arc::clone(&places) as _),
                agents: Some(Arc::new(self.agents)),
                control_plane: Some(Arc::new(control_plane)),
                outside: Some(places),
                has_load_balancers: true,
            },
        })
    }
}

async fn create(tools: &Tools, config: &KindConfig, folder: &Folder) -> Result<(), KindError> {
    folder.write("kind.yaml", config.to_yaml().as_bytes())?;
    let (file, kubeconfig) = (folder.config(), folder.kubeconfig());
    let mut arguments = vec![
        "create".as_ref(),
        "cluster".as_ref(),
        "--config".as_ref(),
        file.as_os_str(),
    ];
    arguments.extend(["--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    tools
        .kind(&format!("make the cluster {}", config.name), arguments)
        .await
        .map(drop)
}

fn connection(folder: &Folder) -> Connection {
    Connection {
        kubeconfig: Some(folder.kubeconfig()),
        context: None,
    }
}

fn tested(kind: KindTarget, deployed: &Deployed, shared: bool) -> Tested {
    let program = deployed.configurable();
    let ways = program.map_or_else(ApiEndpoints::default, |program| program.api.ways());
    let target = deployed.target();
    Tested {
        label: kind.name().to_owned(),
        features: target.features.clone(),
        deviations: target.deviations.clone(),
        most_endpoints: target.most_endpoints,
        ways: ApiEndpoints { shared, ..ways },
        variants: program
            .map(|program| program.variants.keys().copied().collect())
            .unwrap_or_default(),
        agents: None,
    }
}

fn wanted<'a>(
    image: &'a str,
    nodes: &'a [Container],
    config: &KindConfig,
    front: Option<SocketAddr>,
) -> Result<manifests::Wanted<'a>, KindError> {
    let control_plane = nodes.iter().find(|node| node.is_control_plane);
    let address = control_plane.and_then(|node| Some((node, *node.addresses.first()?)));
    let (node, address) = address.ok_or_else(|| KindError::Unexpected {
        what: format!("find the control plane of {}", config.name),
        why: "no node of it has that role, and an address".to_owned(),
    })?;
    Ok(manifests::Wanted {
        image,
        server: front.unwrap_or((address, api::PORT).into()),
        cgroup: &node.cgroup_root,
        bpffs: &node.bpffs,
        pod_network: config.pod_network,
    })
}
