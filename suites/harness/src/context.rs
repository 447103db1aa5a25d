//! The session of one case: its cluster and limits, the objects that it makes, its clients, and what it notes.
//!
//! It is what everything else that a case does is a function of: probes ([`probing`](crate::probing)), fences
//! ([`fence`](crate::fence)), recoveries ([`recovery`](crate::recovery)).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cluster::{Capability, Cluster, Description, Family};
use faults::FaultInjector;
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use serde_json::{Value, json};

use crate::{
    axes::Axes,
    client::Clients,
    dressing::Dressing,
    history::{Event, History},
    limits::Limits,
    logs::Logs,
    manifest::Manifest,
    names::{Kind, Names},
    objects::{CASE_LABEL, Objects, RUN_LABEL, Written},
    own_services::{OwnServices, backend_pod},
    pods::{self, Backend, Ports, pod},
    rate_turns::Turns,
    record::{Delay, Record},
    report::Needed,
    reused_flows::KnownFlows,
    time_spent::{Activity, Clock},
    verdict::Halt,
    waiting::Within,
    watch::Watch,
};

/// What a session has to know of its case ([`Case::about`](crate::case::Case::about)).
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its id.
    pub id: &'static str,
    /// Its objects, as YAML.
    pub manifest: &'static str,
    /// Longer than any run of it, limits unscaled.
    pub longest: Duration,
    /// Whether its pods may be privileged.
    pub is_privileged: bool,
    /// Whether it removes an agent by the agent's documented way.
    pub removes_agents: bool,
}

/// What a run tells each of its cases.
#[derive(Clone)]
pub struct Options {
    /// Name of the run, in the labels of everything it makes.
    pub run: String,
    /// Seed of the run.
    pub seed: u64,
    /// Limits of the run.
    pub limits: Limits,
    /// Where this machine is the cluster, and that of others: whose turn it is.
    pub turns: Option<Turns>,
    /// Told each part of the case as it begins.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The session.
pub struct Context {
    about: About,
    cluster: Arc<Cluster>,
    faults: FaultInjector,
    options: Options,
    history: Arc<History>,
    objects: Objects,
    manifest: Manifest,
    ports: Ports,
    clients: Clients,
    own_services: OwnServices,
    logs: Logs,
    axes: Axes,
    record: Record,
    known_flows: Arc<KnownFlows>,
    clock: Clock,
    random: Mutex<StdRng>,
    /// Something else than writes to the API has been done to the cluster.
    has_faults: AtomicBool,
}

impl Context {
    /// Makes the first namespace, with the clients and the Services of the suite's own. They last until what has the run's
    /// label is removed.
    ///
    /// # Errors
    /// What kept it from being made.
    pub async fn start(
        about: About,
        cluster: Arc<Cluster>,
        options: Options,
        history: Arc<History>,
    ) -> Result<Self, Halt> {
        let (described, limits) = (cluster.describe(), &options.limits);
        let confined = described.confined.as_deref();
        let is_on_hosts = is_on_hosts(&about, described);
        let client = cluster.client();
        let watch = Watch::start(&client, confined, Arc::clone(&history), limits.own_watch).await?;
        let token = rand::random::<u32>() & 0x00ff_ffff;
        let objects = Objects::new(
            client,
            Arc::clone(&history),
            Arc::new(watch),
            limits.clone(),
            Dressing::of(described, is_on_hosts),
            json!({ RUN_LABEL: options.run, CASE_LABEL: about.id }),
            Names::new(about.id, &format!("{token:06x}"), confined),
        );
        let manifest = Manifest::parse(about.manifest)?;
        let axes = Axes::new(limits.profile, options.seed, about.id);
        if is_on_hosts {
            axes.not_enabled(
                "pods with a network of their own",
                "the agents are the network of pods, and the case removes one: its pods are of their nodes' networks",
            );
        }
        let (ports, clock) = (Ports::new(token, is_on_hosts), Clock::default());
        enter(&history, &options, "clients and fence");
        let namespace = objects.names().helpers();
        objects.create_namespace(&namespace, about.is_privileged).await?;
        // The clients live beside the fence: the namespaces of the case hold the objects under test only. All come up at once.
        let nodes = nodes(described);
        let first = nodes.first().ok_or_else(|| Halt::Harness("no node".to_owned()))?;
        let (own, targets) = backend_pod(&namespace, first, &ports);
        let port = ports.port(8080);
        let of_node = |node: &String| pod(&namespace, &format!("client-{node}"), node, &[port]);
        let wanted: Vec<Value> = [own].into_iter().chain(nodes.iter().map(of_node)).collect();
        let mut made = {
            let _spent = clock.during(Activity::Staging);
            pods::create(&objects, &wanted).await?
        };
        let own = made.remove(0);
        let families = axes.choose(described.families(), Family::to_string);
        let own_services = OwnServices::create(&objects, &families, namespace, own, targets).await?;
        Ok(Self {
            clients: Clients::new(made, described),
            logs: Logs::new(Arc::clone(&cluster), limits.probe),
            random: Mutex::new(StdRng::seed_from_u64(options.seed)),
            about,
            faults: FaultInjector::new(Arc::clone(&cluster)),
            cluster,
            options,
            history,
            objects,
            manifest,
            ports,
            own_services,
            axes,
            record: Record::default(),
            known_flows: Arc::default(),
            clock,
            has_faults: AtomicBool::new(false),
        })
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

    /// Where probes come from.
    #[must_use]
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The axes of the case, and their verdicts.
    #[must_use]
    pub fn axes(&self) -> &Axes {
        &self.axes
    }

    /// What its backends have logged.
    #[must_use]
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        nodes(self.cluster.describe())
    }

    /// Address families that the case runs for, each by itself: those of the cluster, in a quick run one of them.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let all = self.cluster.describe().families();
        self.axes.choose(all, Family::to_string)
    }

    /// Whether all pods of the case are of their nodes' networks: it removes an agent by its documented way, and the agents are
    /// the network of pods. Pods that have lost theirs would show nothing else.
    #[must_use]
    pub fn is_on_hosts(&self) -> bool {
        is_on_hosts(&self.about, self.cluster.describe())
    }

    /// The port on which backends of one node serve: this one, which pods with a network of their own have to themselves; in
    /// their nodes' networks a port that no other of the case has.
    #[must_use]
    pub fn port(&self, of_pods: u16) -> u16 {
        self.ports.port(of_pods)
    }

    /// A port of nodes' networks that nothing else of the case has: for servers that share these. It is no node port, and none
    /// that kernels assign to clients.
    #[must_use]
    pub fn host_port(&self) -> u16 {
        self.ports.on_hosts()
    }

    /// A fresh namespace, of one axis: what is made in it has names of its own in the API
    /// ([`Key::service`](crate::names::Key::service)). Names of one case have one length: none is a prefix of another.
    ///
    /// Where the suite may use one namespace only, objects are in that one, with the names that they would have in this.
    pub async fn namespace(&self) -> Result<String, Halt> {
        self.make_namespace(self.objects.names().namespace()).await
    }

    /// A fresh namespace whose name ends so, for rows that are about names: objects of one axis, of this number, may have one name
    /// in several of these. How names begin stays as it is. An ending begins with no digit, and no other of the axis has it.
    pub async fn namespace_ending(&self, axis: usize, ending: &str) -> Result<String, Halt> {
        let name = self.objects.names().namespace_ending(axis, ending);
        self.make_namespace(name).await
    }

    async fn make_namespace(&self, name: String) -> Result<String, Halt> {
        let is_privileged = self.about.is_privileged;
        self.objects.create_namespace(&name, is_privileged).await?;
        Ok(name)
    }

    /// A name of the case's own, that begins with this: for what it makes in a namespace of others.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        self.objects.names().named(name)
    }

    /// Creates the backends of the manifest's pod named `${name}`: one for each of `values`.
    pub async fn backends(&self, values: &[Value]) -> Result<Vec<Backend>, Halt> {
        let _spent = self.clock.during(Activity::Staging);
        let mut pods = Vec::new();
        for values in values {
            pods.extend(self.manifest.named("${name}", values)?);
        }
        let backends = pods::create(&self.objects, &pods).await?;
        self.logs.add(&backends);
        Ok(backends)
    }

    /// Deletes backends, which serve on until their grace periods are over.
    pub async fn delete_backends(&self, backends: &[Backend]) -> Result<(), Halt> {
        self.logs.will_end(backends);
        pods::delete(&self.objects, backends).await
    }

    /// Returns when none of these deleted backends runs any more.
    ///
    /// # Errors
    /// Inconclusive if one still does at the end of the limit.
    pub async fn backends_are_gone(&self, backends: &[Backend], within: Within) -> Result<(), Halt> {
        pods::gone(&self.objects, backends, within).await
    }

    /// Creates the manifest's objects of a name, in their order. For a Service that is not headless, returns its cluster IP.
    pub async fn apply(&self, name: &str, values: &Value) -> Result<Option<IpAddr>, Halt> {
        let service = self.apply_all(name, values).await?;
        let service = service.filter(|service| !service.is_headless());
        service.as_ref().map(Written::cluster_ip).transpose()
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

    /// Puts things in an order that the seed decides.
    pub fn shuffle<T>(&self, things: &mut [T]) {
        things.shuffle(&mut *self.random.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Enters a part of the case.
    pub fn phase(&self, name: &str) {
        enter(&self.history, &self.options, name);
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
        self.record.value(name, value.into());
    }

    /// Records how long a change took, and how long it might; of several of one name the one that came nearest to its limit
    /// is reported.
    pub fn record_delay(&self, name: &str, took: Duration, limit: Duration) {
        self.record.delay(name, Delay { took, limit });
    }

    /// Records what a recovery needed.
    pub(crate) fn record_recovery(&self, needed: Needed) {
        self.record.recovery(needed);
    }

    /// All that was recorded, by name.
    pub(crate) fn recorded(&self) -> BTreeMap<String, String> {
        self.record.all()
    }

    /// What its recoveries needed, in their order.
    pub(crate) fn recoveries(&self) -> Vec<Needed> {
        self.record.recoveries()
    }

    /// The history.
    pub(crate) fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Whether something else than writes to the API has been done to the cluster.
    pub(crate) fn has_faults(&self) -> bool {
        self.has_faults.load(Ordering::Relaxed)
    }

    /// Longer than any run of the case, with the limits of this run.
    pub(crate) fn longest(&self) -> Duration {
        self.limits().longest(self.about.longest)
    }

    /// Whose turn it is on the machine that is the cluster.
    pub(crate) fn turns(&self) -> Option<&Turns> {
        self.options.turns.as_ref()
    }

    /// The suite's own Services.
    pub(crate) fn own_services(&self) -> &OwnServices {
        &self.own_services
    }

    /// Flows of its attempts so far.
    /// Flows of datagrams that were answered so far, by nodes of clients (outside, by the client's name), source ports and
    /// destinations: a datagram from such a port goes on with its flow.
    #[must_use]
    pub fn answered_flows(&self) -> Vec<(String, u16, SocketAddr)> {
        self.known_flows.answered()
    }

    pub(crate) fn known_flows(&self) -> &Arc<KnownFlows> {
        &self.known_flows
    }

    /// What the case spends its time on.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn enter(history: &History, options: &Options, phase: &str) {
    history.add(&Event::Phase {
        name: phase.to_owned(),
    });
    (options.progress)(phase);
}

fn nodes(cluster: &Description) -> Vec<String> {
    cluster.nodes.iter().map(|node| node.name.clone()).collect()
}

fn is_on_hosts(about: &About, cluster: &Description) -> bool {
    about.removes_agents && !cluster.capabilities.contains(&Capability::PodsWithoutAgents)
}
