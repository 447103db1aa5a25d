//! One of the two clusters: a lab, its staged objects, and its clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{AgentState, Place};
use harness::{
    agents,
    context::{About, Context, Options},
    fence,
    history::History,
    lasting_sockets::Keeper,
    limits::Limits,
    names::{Key, Kind},
    pods::{self, Backend as Pod, endpoints},
    verdict::Halt,
};
use lab::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime};
use serde_json::json;
use tokio::{process::Child, time::sleep};

use super::{
    PlayError,
    clients::{Exchange, round},
    objects,
};
use crate::{
    chaos::{
        schedule::SERVICES,
        shapes::{Shapes, target},
    },
    compare::TARGETS,
    observation::{Names, Observation, Outcome},
    state::OUTSIDE_SERVER,
    step::{Address, Backend, Change, Protocol, Service, Vantage},
};

/// What the harness has to know to make clients and a fence. No case of any list has this id.
const STAGE: About = About {
    id: "compare",
    manifest: include_str!("staging.yaml"),
    longest: Duration::MAX,
    is_privileged: true,
    removes_agents: false,
};

/// The Service whose endpoint is added and removed.
const NUDGE: &str = "nudge";
/// At this port and address, an anchor shows that the network routes an address to its node.
const ANCHOR: u16 = 7999;
/// Interval between checks.
const LOOK: Duration = Duration::from_millis(50);
/// Limit until an agent is ready. It takes a second; beside tests that kept all processors busy it once took more than
/// ten.
const READY: Duration = Duration::from_secs(60);

/// How to make a cluster.
#[derive(Clone, Debug)]
pub struct LabSpec {
    /// The agent under test.
    pub agent: AgentCommand,
    /// Path of plumbline, which runs the lab.
    pub plumbline: PathBuf,
    /// Factor for limits, on a slow machine.
    pub timeout_scale: f64,
}

/// A running cluster with its staged objects.
pub(super) struct Side {
    pub(super) cx: Context,
    lab: LabCluster,
    pub(super) namespace: String,
    pub(super) pods: Vec<Pod>,
    /// What chaos writes; there once the pods are.
    pub(super) shapes: Option<Shapes>,
    /// The agents since no fault has ended one.
    pub(super) agents: Option<BTreeMap<String, AgentState>>,
    names: Names,
    /// Fresh sockets of each vantage.
    fresh: BTreeMap<Vantage, Keeper>,
    kept: BTreeMap<u8, Keeper>,
    /// Killed on drop.
    servers: BTreeMap<(u8, u16), Child>,
    _outside: Option<Child>,
    is_nudged: bool,
}

impl Side {
    /// Starts a lab and stages its objects.
    pub(super) async fn up(name: &str, make: &LabSpec, folder: &Path) -> Result<Self, PlayError> {
        let config = LabConfig {
            name: name.to_owned(),
            nodes: 2,
            families: IpFamilies::Ipv4,
            control_plane: ControlPlane::default(),
            timeout_scale: make.timeout_scale.ceil() as u32,
            agent: make.agent.clone(),
            plumbline: make.plumbline.clone(),
        };
        let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {}).await?;
        ready(&lab, make.timeout_scale).await?;
        let options = Options {
            run: name.to_owned(),
            seed: 0,
            limits: Limits::default().scaled(make.timeout_scale),
            turns: None,
            progress: Arc::new(|_| {}),
        };
        let written = fs::create_dir_all(folder).and_then(|()| History::create(folder));
        let history = written.map_err(|error| PlayError::Folder {
            path: folder.to_owned(),
            error,
        })?;
        let cx = Context::start(STAGE, Arc::new(lab.cluster().clone()), options, Arc::new(history)).await?;
        let namespace = cx.namespace().await?;
        let mut side = Self {
            lab,
            namespace,
            pods: Vec::new(),
            shapes: None,
            agents: None,
            names: Names::default(),
            fresh: BTreeMap::new(),
            kept: BTreeMap::new(),
            servers: BTreeMap::new(),
            _outside: None,
            is_nudged: false,
            cx,
        };
        side.stage().await?;
        Ok(side)
    }

    async fn stage(&mut self) -> Result<(), PlayError> {
        let (cx, namespace) = (&self.cx, &self.namespace);
        let mut ports = vec![TARGETS];
        ports.extend((1..=9).map(|number| TARGETS + number));
        ports.extend((0..SERVICES).map(target).collect::<BTreeSet<u16>>());
        let pod = |backend: Backend| {
            let name = backend.name();
            let args = pods::serve(name, namespace, &ports, &ports);
            json!({ "name": name, "namespace": namespace, "node": node(backend.node()), "args": args })
        };
        self.pods = cx.backends(&Backend::ALL.map(pod)).await?;
        self.shapes = Some(self.shapes().await?);
        cx.apply("${nudge}", &json!({ "nudge": NUDGE, "namespace": namespace }))
            .await?;
        for (address, backend) in [(Address::Routed1, Backend::B1), (Address::Routed2, Backend::B2)] {
            let pod = [objects::pod(&self.pods, backend)?];
            let values = json!({
                "routed": address.to_string(), "namespace": namespace, "address": objects::address(address),
                "endpoints": endpoints(pod, cluster::Family::IPv4)?,
            });
            cx.apply("${routed}", &values).await?;
        }
        self._outside = Some(
            self.server(&Place::Outside, "outside", None, OUTSIDE_SERVER)
                .await?,
        );
        self.names = self.name().await?;
        self.settle().await?;
        self.agents = agents::all(&self.cx).await?;
        self.routed().await
    }

    /// Names of all addresses that a backend may see: the two clusters may have given pods different ones.
    async fn name(&self) -> Result<Names, Halt> {
        let mut addresses = BTreeMap::new();
        for one in Address::ALL {
            addresses.insert(objects::address(one), one.to_string());
        }
        for pod in &self.pods {
            addresses.extend(pod.addresses.iter().map(|one| (*one, pod.plain().to_owned())));
        }
        for at in [Vantage::Pod1, Vantage::Pod2] {
            if let Place::Pod { namespace, name } = self.client(at)?.place {
                let pod = self
                    .cx
                    .objects()
                    .get(&Key::new(Kind::Pod, &namespace, &name))
                    .await?;
                let all = pods::addresses(&pod);
                addresses.extend(all.into_iter().map(|one| (one, at.name().to_owned())));
            }
        }
        for number in [1, 2] {
            // The gateway of the node's pods: the node itself connects to its pods from this address.
            addresses.insert(Ipv4Addr::new(10, 244, number, 1).into(), format!("node{number}"));
        }
        Ok(Names {
            addresses,
            namespace: self.namespace.clone(),
        })
    }

    /// Returns when the network routes both routed addresses to their nodes.
    async fn routed(&mut self) -> Result<(), PlayError> {
        let limit = self.cx.limits().service;
        for address in [Address::Routed1, Address::Routed2] {
            let to = SocketAddr::new(objects::address(address), ANCHOR);
            let began = Instant::now();
            loop {
                let exchange = Exchange {
                    from: Vantage::Outside,
                    protocol: Protocol::Tcp,
                    to,
                    source_port: None,
                    fragments: &[],
                    sockets: 1,
                    stays: false,
                    limit: Duration::from_millis(500),
                };
                let seen = self.fresh(&exchange).await?;
                if seen.iter().all(|one| one.outcome == Outcome::Answered) {
                    break;
                }
                if began.elapsed() > limit {
                    let why = format!("{to} is not served within {limit:?}: {}", seen[0].words);
                    return Err(PlayError::NotStaged { why });
                }
            }
        }
        Ok(())
    }

    /// Returns when all writes are effective on every node.
    pub(super) async fn settle(&mut self) -> Result<(), PlayError> {
        self.is_nudged = !self.is_nudged;
        let pods = self.pods.iter().take(usize::from(self.is_nudged));
        let endpoints = endpoints(pods, cluster::Family::IPv4)?;
        let slice = Key::slice(&self.namespace, NUDGE);
        self.cx
            .objects()
            .patch(&slice, json!({ "endpoints": endpoints }))
            .await?;
        Ok(fence::pass(&self.cx).await?)
    }

    /// Writes Services in turn.
    pub(super) async fn write(
        &self,
        services: &BTreeMap<u8, Service>,
        changes: &[Change],
    ) -> Result<(), PlayError> {
        let mut services = services.clone();
        for change in changes {
            let before = services.get(&change.service);
            objects::write(self.cx.objects(), &self.namespace, &self.pods, before, change).await?;
            match &change.to {
                Some(to) => drop(services.insert(change.service, to.clone())),
                None => drop(services.remove(&change.service)),
            }
        }
        Ok(())
    }

    /// One exchange of each of several fresh sockets.
    pub(super) async fn fresh(&mut self, exchange: &Exchange<'_>) -> Result<Vec<Observation>, PlayError> {
        let keeper = match self.fresh.remove(&exchange.from) {
            Some(keeper) => keeper,
            None => Keeper::start(&self.cx, &self.client(exchange.from)?).await?,
        };
        let keeper = self.fresh.entry(exchange.from).or_insert(keeper);
        let round = round(exchange, true);
        let attempts = keeper.make(&round).await?;
        if exchange.source_port.is_some() {
            // Otherwise they stay open until the next exchange, and occupy the port.
            self.fresh.remove(&exchange.from);
        }
        Ok(attempts.iter().map(|one| self.names.seen(one)).collect())
    }

    /// One exchange of a kept socket, which is opened if it does not exist.
    pub(super) async fn kept(
        &mut self,
        socket: u8,
        exchange: &Exchange<'_>,
    ) -> Result<Vec<Observation>, PlayError> {
        let keeper = match self.kept.remove(&socket) {
            Some(keeper) => keeper,
            None => Keeper::start(&self.cx, &self.client(exchange.from)?).await?,
        };
        let keeper = self.kept.entry(socket).or_insert(keeper);
        let round = round(exchange, false);
        let attempts = keeper.make(&round).await?;
        Ok(attempts.iter().map(|one| self.names.seen(one)).collect())
    }

    pub(super) fn close(&mut self, socket: u8) {
        self.kept.remove(&socket);
    }

    /// Starts a node's own server.
    pub(super) async fn serve(&mut self, number: u8, port: u16) -> Result<(), PlayError> {
        let place = Place::Host { node: node(number) };
        let address = objects::address(Address::of_node(number));
        let child = self
            .server(&place, &format!("host{number}"), Some(address), port)
            .await?;
        self.servers.insert((number, port), child);
        Ok(())
    }

    /// Stops a node's own server.
    pub(super) async fn end_serving(&mut self, number: u8, port: u16) {
        if let Some(mut child) = self.servers.remove(&(number, port)) {
            // It may have ended by itself.
            drop(child.kill().await);
        }
    }

    /// Claims that the target is known not to keep.
    pub(super) fn deviations(&self) -> impl Iterator<Item = String> + '_ {
        let all = &self.lab.cluster().describe().deviations;
        all.iter().map(|one| one.claim.clone())
    }

    /// Fails if an agent or the lab has ended by itself: results do not count then.
    pub(super) async fn intact(&self) -> Result<(), PlayError> {
        self.lab.cluster().intact().await.map_err(Halt::from)?;
        let restarted = agents::restarted_since(&self.cx, self.agents.as_ref()).await?;
        if !restarted.is_empty() {
            let why = format!("agents ended by themselves: {}", restarted.join(", "));
            return Err(PlayError::NotStaged { why });
        }
        Ok(())
    }

    /// Removes the lab.
    pub(super) async fn down(self) -> Result<(), PlayError> {
        let Self {
            cx,
            lab,
            fresh,
            kept,
            servers,
            ..
        } = self;
        drop((cx, fresh, kept, servers));
        Ok(lab.down().await?)
    }
}

/// The agent of a node.
async fn agent(lab: &LabCluster, number: u8) -> Result<AgentState, Halt> {
    Ok(lab.cluster().agents()?.state(&node(number)).await?)
}

async fn ready(lab: &LabCluster, scale: f64) -> Result<(), PlayError> {
    let began = Instant::now();
    for number in [1, 2] {
        loop {
            let state = agent(lab, number).await?;
            if state.ready == Some(true) {
                break;
            }
            if state.last_exit.is_some() || began.elapsed() > READY.mul_f64(scale) {
                let why = format!("the agent of node{number} is not ready: {state:?}");
                return Err(PlayError::NotStaged { why });
            }
            sleep(LOOK).await;
        }
    }
    Ok(())
}

pub(super) fn node(number: u8) -> String {
    format!("node{number}")
}
