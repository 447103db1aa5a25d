//! The session of one case: its namespaces, clients, fence, watch, history, and the verdicts of its axes.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    },
    time::Duration,
};

use cluster::{AgentState, Capability, Cluster, Description, Place, dress::ADMITS};
use faults::FaultInjector;
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::{Value, json};

use crate::{
    axes::Axes,
    case::{Case, Rights},
    client::Client,
    evidence::Evidence,
    fence::Fence,
    history::{Event, History},
    limits::Limits,
    logs::Logs,
    manifest::Manifest,
    names::Names,
    objects::{CASE_LABEL, Key, Kind, Objects, RUN_LABEL, Written},
    pods::{Backend, Dressing, pod},
    recovery::Recoveries,
    repeated::AnsweredFlows,
    spent::Clock,
    turns::Turns,
    verdict::Halt,
    watch::Watch,
};

/// Ports of servers in nodes' networks: above what kernels hand out, where no program of a node is known to listen. A case has a block
/// of them, by its token: pods of the case before may still be there.
const HOST_PORTS: u16 = 61_000;
const HOST_BLOCK: u16 = 16;
const HOST_BLOCKS: u32 = 250;

/// What a run tells each of its cases.
#[derive(Clone)]
pub struct Options {
    /// Name of the run, in the labels of everything it makes.
    pub run: String,
    /// Seed of the run.
    pub seed: u64,
    /// The command that runs this case again with the same seed.
    pub replay: String,
    /// Limits of the run.
    pub limits: Limits,
    /// Folder for the evidence of this case; made if absent.
    pub folder: PathBuf,
    /// Of which cases everything is kept.
    pub evidence: Evidence,
    /// Leaves the namespaces of the case for a look at them; outside of a lab, of one that did not pass.
    pub keep: bool,
    /// Where this machine is the cluster, and that of others: whose turn it is.
    pub turns: Option<Turns>,
    /// Told each part of the case as it begins.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The session.
pub struct Context {
    pub(crate) case: Case,
    pub(crate) cluster: Arc<Cluster>,
    faults: FaultInjector,
    pub(crate) history: Arc<History>,
    pub(crate) options: Options,
    objects: Objects,
    manifest: Manifest,
    pub(crate) clients: Vec<Client>,
    fence: Option<Fence>,
    token: String,
    namespaces: AtomicU32,
    /// The next of [`Context::port`] in nodes' networks.
    ports: AtomicU16,
    pub(crate) axes: Axes,
    pub(crate) answered_flows: AnsweredFlows,
    pub(crate) recoveries: Recoveries,
    random: Mutex<StdRng>,
    pods: Mutex<Vec<Backend>>,
    pub(crate) logs: Logs,
    pub(crate) clock: Clock,
    recorded: Mutex<BTreeMap<String, String>>,
    delays: Mutex<BTreeMap<String, Duration>>,
    /// Something else than writes to the API has been done to the cluster.
    pub(crate) has_faults: AtomicBool,
}

impl Context {
    /// Makes the first namespace, the clients and the fence. They last until somebody removes what has the run's label.
    ///
    /// # Errors
    /// What kept it from being made.
    pub async fn start(
        case: Case,
        cluster: Arc<Cluster>,
        options: Options,
        history: Arc<History>,
    ) -> Result<Self, Halt> {
        let confined = cluster.describe().confined.as_deref();
        let watch = Watch::start(
            &cluster.client(),
            confined,
            Arc::clone(&history),
            options.limits.own_watch,
        )
        .await?;
        let token = rand::random::<u32>() & 0x00ff_ffff;
        let block = u16::try_from(token % HOST_BLOCKS).unwrap_or_default();
        let token = format!("{token:06x}");
        let objects = Objects::new(
            cluster.client(),
            Arc::clone(&history),
            Arc::new(watch),
            options.limits.clone(),
            Dressing::of(cluster.describe(), is_on_hosts(&case, cluster.describe())),
            labels(&case, &options),
            Names::new(case.id, &token, confined),
        );
        let mut cx = Self {
            manifest: Manifest::parse(case.manifest)?,
            random: Mutex::new(StdRng::seed_from_u64(options.seed)),
            token,
            case,
            faults: FaultInjector::new(Arc::clone(&cluster)),
            cluster,
            history,
            options,
            objects,
            clients: Vec::new(),
            fence: None,
            namespaces: AtomicU32::new(0),
            ports: AtomicU16::new(HOST_PORTS + block * HOST_BLOCK),
            axes: Axes::default(),
            answered_flows: AnsweredFlows::default(),
            recoveries: Recoveries::default(),
            pods: Mutex::default(),
            logs: Logs::default(),
            clock: Clock::default(),
            recorded: Mutex::default(),
            delays: Mutex::default(),
            has_faults: AtomicBool::new(false),
        };
        if cx.is_on_hosts() {
            cx.not_enabled(
                "pods with a network of their own",
                "the agents are the network of pods, and the case removes one: its pods are of their nodes' networks",
            );
        }
        cx.phase("clients and fence");
        let fence = format!("fence-{}", cx.token);
        let fence = cx.make_namespace(&fence).await?;
        // The clients live beside the fence: the namespaces of the case hold the objects under test only. All come up at once.
        let (pod, targets) = Fence::pod(&cx, &fence)?;
        let mut objects = vec![pod];
        objects.extend(cx.client_pods(&fence));
        let mut pods = cx.pods(objects).await?;
        let backend = pods.remove(0);
        cx.clients = cx.clients_in(pods);
        cx.fence = Some(Fence::start(&cx, &fence, backend, targets).await?);
        Ok(cx)
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Makes faults in the cluster.
    #[must_use]
    pub fn faults(&self) -> &FaultInjector {
        &self.faults
    }

    /// The limits of the run.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// Objects of the API.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.cluster
            .describe()
            .nodes
            .iter()
            .map(|node| node.name.clone())
            .collect()
    }

    pub(crate) fn fence_objects(&self) -> Result<&Fence, Halt> {
        self.fence
            .as_ref()
            .ok_or_else(|| Halt::Harness("the fence is not there yet".to_owned()))
    }

    /// A fresh namespace, of one axis: what is made in it has names of its own in the API ([`Key::service`]). Names of one case have
    /// one length: none is a prefix of another.
    ///
    /// Where the suite may use one namespace only, objects are in that one, with the names that they would have in this.
    pub async fn namespace(&self) -> Result<String, Halt> {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        self.make_namespace(&format!("p{}-{number:03}", self.token)).await
    }

    /// A fresh namespace whose name ends so, for rows that are about names: objects of one axis, of this number, may have one name
    /// in several of these. How names begin stays as it is. An ending begins with no digit, and no other of the axis has it.
    pub async fn namespace_ending(&self, axis: usize, ending: &str) -> Result<String, Halt> {
        self.make_namespace(&format!("p{}-{axis:02}{ending}", self.token))
            .await
    }

    /// A name of the case's own, that begins with this: for what it makes in a namespace of others.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.token)
    }

    /// Makes it, where the suite may use others than one.
    async fn make_namespace(&self, name: &str) -> Result<String, Halt> {
        self.objects.watch().follow_namespace(name);
        if self.cluster.describe().confined.is_none() {
            let mut labels = json!({});
            if self.case.needs.rights == Rights::Node {
                labels[ADMITS] = "privileged".into();
            }
            let metadata = json!({ "name": name, "labels": labels });
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            self.objects.create(&object).await?;
        }
        Ok(name.to_owned())
    }

    /// Whether all pods of the case are of their nodes' networks: it removes an agent by its documented way, and the agents are
    /// the network of pods. Pods that have lost theirs would show nothing else.
    #[must_use]
    pub fn is_on_hosts(&self) -> bool {
        is_on_hosts(&self.case, self.cluster.describe())
    }

    /// The port on which backends of one node serve: this one, which pods with a network of their own have to themselves; in
    /// their nodes' networks a port that no other of the case has.
    #[must_use]
    pub fn port(&self, of_pods: u16) -> u16 {
        if !self.is_on_hosts() {
            return of_pods;
        }
        self.ports.fetch_add(1, Ordering::Relaxed)
    }

    /// A pod on each node.
    fn client_pods(&self, namespace: &str) -> Vec<Value> {
        let nodes = self.nodes().into_iter();
        let port = self.port(8080);
        nodes
            .map(|node| pod(namespace, &format!("client-{node}"), &node, &[port]))
            .collect()
    }

    /// Clients in these pods, and on their nodes where there are such.
    fn clients_in(&self, pods: Vec<Backend>) -> Vec<Client> {
        let has_hosts = self
            .cluster
            .describe()
            .capabilities
            .contains(&Capability::HostNetwork);
        let mut clients = Vec::new();
        for pod in pods {
            let host = Place::Host {
                node: pod.node.clone(),
            };
            let (namespace, name) = (pod.namespace, pod.in_api);
            clients.push(Client {
                name: format!("pod@{}", pod.node),
                node: pod.node.clone(),
                place: Place::Pod { namespace, name },
                private_cgroups: false,
            });
            if has_hosts {
                clients.push(Client {
                    name: format!("host@{}", pod.node),
                    node: pod.node,
                    place: host,
                    private_cgroups: false,
                });
            }
        }
        clients
    }

    /// Creates the backends of the manifest's pod named `${name}`: one for each of `values`.
    pub async fn backends(&self, values: &[Value]) -> Result<Vec<Backend>, Halt> {
        let mut objects = Vec::new();
        for values in values {
            objects.extend(self.manifest.named("${name}", values)?);
        }
        let pods = self.pods(objects).await?;
        self.pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(pods.iter().cloned());
        Ok(pods)
    }

    /// Creates the manifest's objects of a name, in their order. For a Service, returns its cluster IP.
    pub async fn apply(&self, name: &str, values: &Value) -> Result<Option<IpAddr>, Halt> {
        let service = self.apply_all(name, values).await?;
        service.as_ref().map(cluster_ip).transpose()
    }

    /// Creates the manifest's objects of a name, in their order, and returns the Service among them.
    pub(crate) async fn apply_all(&self, name: &str, values: &Value) -> Result<Option<Written>, Halt> {
        let mut service = None;
        for object in self.manifest.named(name, values)? {
            let written = self.objects.create(&object).await?;
            if written.key.kind == Kind::Service {
                service = Some(written);
            }
        }
        Ok(service)
    }

    /// As [`Context::apply`], where one of the objects is a Service.
    pub async fn apply_service(&self, name: &str, values: &Value) -> Result<IpAddr, Halt> {
        self.apply(name, values)
            .await?
            .ok_or_else(|| Halt::Harness(format!("the manifest has no Service named {name}")))
    }

    /// Labels of what the case makes in a namespace that is not its own: by them it is removed, whatever becomes of the case.
    #[must_use]
    pub fn labels(&self) -> Value {
        labels(&self.case, &self.options)
    }

    /// Puts things in an order that the seed decides.
    pub fn shuffle<T>(&self, things: &mut [T]) {
        things.shuffle(&mut *self.random.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Enters a part of the case.
    pub fn phase(&self, name: &str) {
        self.history.add(&Event::Phase {
            name: name.to_owned(),
        });
        (self.options.progress)(name);
    }

    /// Notes a fault, in the history.
    pub fn fault(&self, what: &str) {
        self.has_faults.store(true, Ordering::Relaxed);
        self.history.add(&Event::Fault {
            what: what.to_owned(),
        });
    }

    /// Records what is not judged: delays, errnos, choices of the implementation.
    pub fn record(&self, name: &str, value: impl Into<String>) {
        self.recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), value.into());
    }

    /// Records how long a change took; of several of one name the longest is reported.
    pub fn record_delay(&self, name: &str, took: Duration) {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = delays.entry(name.to_owned()).or_default();
        *longest = took.max(*longest);
    }

    pub(crate) fn all_recorded(&self) -> BTreeMap<String, String> {
        let mut all = self
            .recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for (name, took) in &*self.delays.lock().unwrap_or_else(PoisonError::into_inner) {
            all.insert(
                format!("delay at most: {name}"),
                format!("{} ms", took.as_millis()),
            );
        }
        all
    }

    pub(crate) fn backends_made(&self) -> Vec<Backend> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The agents of all nodes; `None` where the cluster does not show them.
    pub async fn agents(&self) -> Result<Option<BTreeMap<String, AgentState>>, Halt> {
        let Ok(agents) = self.cluster.agents() else {
            return Ok(None);
        };
        let mut states = BTreeMap::new();
        for node in self.nodes() {
            let state = agents.state(&node).await?;
            self.history.add(&Event::Agent {
                node: node.clone(),
                state: state.clone(),
            });
            states.insert(node, state);
        }
        Ok(Some(states))
    }

    /// Versions of an object since one of them; an error if the suite's own watch does not have that one.
    pub fn versions_since(&self, key: &Key, resource_version: &str) -> Result<usize, Halt> {
        let versions = self.objects.watch().versions(key);
        let at = versions
            .iter()
            .position(|version| version.resource_version == resource_version);
        at.map(|at| versions.len() - at - 1).ok_or_else(|| {
            Halt::Inconclusive(format!(
                "the suite's own watch lacks version {resource_version} of {key}"
            ))
        })
    }
}

/// The cluster IP of a Service that was written.
pub(crate) fn cluster_ip(service: &Written) -> Result<IpAddr, Halt> {
    let text = service.object["spec"]["clusterIP"].as_str().unwrap_or_default();
    text.parse()
        .map_err(|_| Halt::Harness(format!("{} has no cluster IP but {text:?}", service.key)))
}

fn is_on_hosts(case: &Case, cluster: &Description) -> bool {
    case.needs.also.contains(&Capability::AgentCleanup)
        && !cluster.capabilities.contains(&Capability::PodsWithoutAgents)
}

fn labels(case: &Case, options: &Options) -> Value {
    json!({ RUN_LABEL: options.run, CASE_LABEL: case.id })
}
