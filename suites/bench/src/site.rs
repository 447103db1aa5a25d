//! A lab that is measured: two nodes, a server on each, the Services to them, and as many others as wanted.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cluster::{Family, Place, Stop};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use harness::{
    commands,
    context::{About, Context, Options},
    frontends::balancers,
    history::{History, now_us},
    limits::Limits,
    names::Key,
    pods::{Backend, endpoints},
    verdict::Halt,
    waiting::{Within, eventually},
};
use lab::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime};
use probe::load::{Measured, Seen, Work};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    time::timeout,
};

use super::{BARE, BenchError, By, Change, Settings, Way};

/// What the harness has to know to make clients and objects. No case of any list has this id.
const STAGE: About = About {
    id: "bench",
    manifest: include_str!("staging.yaml"),
    longest: Duration::MAX,
    is_privileged: true,
    removes_agents: false,
};

const FAMILY: Family = Family::IPv4;
/// The servers' first port, and that of the Services.
const PORT: u16 = 7000;
/// The port of the other Services.
pub(super) const FILLED: u16 = 80;
/// The Service whose endpoint changes.
const MOVING: &str = "moving";
/// Writes that are under way at once.
const AT_ONCE: usize = 64;
/// Until all Services are served at first, and until a change is seen: kube-proxy takes minutes for tens of thousands.
const SERVED: Duration = Duration::from_secs(600);
/// Until an agent is ready, a client has started, or one has ended after its time.
const STARTS: Duration = Duration::from_secs(60);

/// A lab.
pub(super) struct Site {
    /// The target's name.
    pub(super) name: String,
    lab: LabCluster,
    pub(super) cx: Context,
    namespace: String,
    /// Threads of a client.
    threads: usize,
    /// A server on each node.
    pub(super) servers: Vec<Backend>,
    /// The Service of each server: its cluster IP, and node ports.
    services: Vec<Front>,
    moving: IpAddr,
    /// Which server the moving Service has.
    moved: usize,
    /// Cluster IPs of the other Services, in the order of their creation.
    pub(super) fillers: Vec<IpAddr>,
}

/// Where a Service is reached.
struct Front {
    cluster_ip: IpAddr,
    balancer: IpAddr,
    /// By the work's port.
    node_ports: Value,
}

impl Site {
    /// Makes a lab with its servers and Services. The bare one's agents are stopped, and what they left is removed.
    pub(super) async fn up(
        settings: &Settings,
        number: usize,
        name: &str,
        agent: &AgentCommand,
    ) -> Result<Self, BenchError> {
        let of_lab = |error| BenchError::Lab {
            target: name.to_owned(),
            error,
        };
        let config = LabConfig {
            name: format!("{}-{number}", settings.run),
            nodes: 2,
            families: IpFamilies::Ipv4,
            control_plane: ControlPlane::default(),
            timeout_scale: 1,
            agent: agent.clone(),
            plumbline: settings.plumbline.clone(),
        };
        let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
            .await
            .map_err(of_lab)?;
        let staged = Self::stage(settings, name, &lab).await;
        match staged {
            Ok((cx, namespace, servers, services, moving)) => Ok(Self {
                name: name.to_owned(),
                lab,
                cx,
                namespace,
                threads: settings.threads,
                servers,
                services,
                moving,
                moved: 0,
                fillers: Vec::new(),
            }),
            Err(error) => {
                let target = name.to_owned();
                // What was not staged is the error that counts.
                let _ = lab.down().await;
                Err(BenchError::Halt { target, error })
            }
        }
    }

    async fn stage(
        settings: &Settings,
        name: &str,
        lab: &LabCluster,
    ) -> Result<(Context, String, Vec<Backend>, Vec<Front>, IpAddr), Halt> {
        let folder = settings.out.join("histories").join(name);
        let unwritten = |error| Halt::Harness(format!("failed to write to {}: {error}", folder.display()));
        let history = fs::create_dir_all(&folder).and_then(|()| History::create(&folder));
        let options = Options {
            run: settings.run.clone(),
            seed: 0,
            limits: Limits::default(),
            turns: None,
            progress: Arc::new(|_| {}),
        };
        let cluster = Arc::new(lab.cluster().clone());
        let history = Arc::new(history.map_err(unwritten)?);
        let cx = Context::start(STAGE, cluster, options, history).await?;
        let namespace = cx.namespace().await?;
        let nodes = cx.nodes();
        let pods: Vec<Value> = nodes
            .iter()
            .map(|node| {
                json!({
                    "name": format!("b-{node}"), "namespace": namespace, "node": node,
                    "threads": settings.threads.to_string(),
                })
            })
            .collect();
        let servers = cx.backends(&pods).await?;
        let [near, far] = servers.as_slice() else {
            return Err(Halt::Harness(format!(
                "expected two nodes, found {}",
                nodes.len()
            )));
        };
        let mut services = Vec::new();
        for (service, server) in [("near", near), ("far", far)] {
            let values = json!({
                "service": service, "namespace": namespace, "type": "LoadBalancer",
                "endpoints": endpoints([server], FAMILY)?,
            });
            let cluster_ip = cx.apply_service("${service}", &values).await?;
            let (object, balancer) = balanced(&cx, &Key::service(&namespace, service)).await?;
            services.push(Front {
                cluster_ip,
                balancer,
                node_ports: object["spec"]["ports"].clone(),
            });
        }
        let values = json!({
            "service": MOVING, "namespace": namespace, "type": "ClusterIP", "endpoints": endpoints([near], FAMILY)?,
        });
        let moving = cx.apply_service("${service}", &values).await?;
        let balancers = services.iter().map(|front| front.balancer);
        route(&cx, near, far, balancers).await?;
        if name == BARE {
            let agents = cx.cluster().agents()?;
            for node in &nodes {
                agents.stop(node, Stop::Term).await?;
                agents.clean_up(node).await?;
            }
        }
        Ok((cx, namespace, servers, services, moving))
    }

    /// Whether it has no implementation.
    pub(super) fn is_bare(&self) -> bool {
        self.name == BARE
    }

    /// By what its servers are reached.
    pub(super) fn by(&self) -> Vec<By> {
        if self.is_bare() {
            vec![By::Direct]
        } else {
            vec![By::Direct, By::Service]
        }
    }

    /// Creates Services until there are so many beside the measured ones, and returns when the last of them is served.
    pub(super) async fn fill(&mut self, services: usize) -> Result<(), BenchError> {
        let created = self.create(services).await.map_err(|error| self.halt(error))?;
        let served = self.serves(created.last().copied()).await;
        self.fillers.extend(created);
        served.map_err(|error| self.halt(error))
    }

    async fn create(&self, services: usize) -> Result<Vec<IpAddr>, Halt> {
        // An endpoint that leads somewhere, as those of most Services do.
        let endpoints = endpoints(self.servers.last(), FAMILY)?;
        let create = async |number: usize| {
            let values = json!({
                "filler": format!("f{number}"), "namespace": self.namespace, "endpoints": endpoints,
            });
            self.cx.apply_service("${filler}", &values).await
        };
        stream::iter(self.fillers.len()..services)
            .map(create)
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Returns when every node serves the last of the Services that were created, or the one that moves, where none was.
    async fn serves(&self, last: Option<IpAddr>) -> Result<(), Halt> {
        if self.is_bare() {
            return Ok(());
        }
        let (last, servers) = match last {
            Some(address) => (SocketAddr::new(address, FILLED), &self.servers[1..]),
            None => (
                SocketAddr::new(self.moving, PORT),
                &self.servers[self.moved..=self.moved],
            ),
        };
        for node in self.cx.nodes() {
            self.until(&Place::Host { node }, &[last], servers)
                .await?
                .seen()
                .await?;
        }
        Ok(())
    }

    /// Measures once.
    pub(super) async fn measure(
        &self,
        way: Way,
        by: By,
        work: Work,
        lasts: Duration,
    ) -> Result<Measured, BenchError> {
        let measured = async {
            let to = self.destination(way, by, work)?;
            let threads = self.threads.to_string();
            let argv = load(&[to], lasts, &["--work", work.name(), "--threads", &threads]);
            let child = self.cx.cluster().exec(&self.place(way), &argv).await?;
            let output = timeout(lasts + STARTS, child.wait_with_output()).await;
            let failed = |why: String| Halt::Harness(format!("failed to load {to}: {why}"));
            let output = output.map_err(|_| failed("it does not end".to_owned()))?;
            let output = output.map_err(|error| failed(error.to_string()))?;
            if !output.status.success() {
                return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
            }
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
        };
        measured.await.map_err(|error| self.halt(error))
    }

    /// Where clients of a way are: the first node, or outside.
    fn place(&self, way: Way) -> Place {
        let node = self.servers[0].node.clone();
        match way {
            Way::Pod => {
                let pods = self.cx.clients().in_pods();
                let client = pods.into_iter().find(|client| client.node == node);
                client.map_or(Place::Outside, |client| client.place)
            }
            Way::Host => Place::Host { node },
            Way::Near | Way::Far | Way::Balanced => Place::Outside,
        }
    }

    fn destination(&self, way: Way, by: By, work: Work) -> Result<SocketAddr, Halt> {
        let which = usize::from(way != Way::Near);
        let (server, front) = (&self.servers[which], &self.services[which]);
        let port = PORT + work.offset();
        match (by, way) {
            (By::Direct, _) => Ok(SocketAddr::new(server.address(FAMILY)?, port)),
            (By::Service, Way::Pod | Way::Host) => Ok(SocketAddr::new(front.cluster_ip, port)),
            (By::Service, Way::Balanced) => Ok(SocketAddr::new(front.balancer, port)),
            (By::Service, Way::Near | Way::Far) => {
                let protocol = if work.is_udp() { "UDP" } else { "TCP" };
                let ports = front.node_ports.as_array().into_iter().flatten();
                let found = ports
                    .filter(|one| one["port"] == port && one["protocol"] == protocol)
                    .find_map(|one| u16::try_from(one["nodePort"].as_u64()?).ok());
                let node_port =
                    found.ok_or_else(|| Halt::Harness(format!("there is no node port for {port}")))?;
                let nodes = &self.cx.cluster().describe().nodes;
                let address = nodes.first().and_then(|node| FAMILY.first_of(&node.addresses));
                let address =
                    address.ok_or_else(|| Halt::Harness("the first node has no address".to_owned()))?;
                Ok(SocketAddr::new(address, node_port))
            }
        }
    }

    /// Moves the endpoint of a Service to the other server, and sees when a client in a pod reaches it, while other slices change
    /// so often in a second.
    pub(super) async fn change(
        &mut self,
        services: usize,
        others: u32,
        round: usize,
    ) -> Result<Change, BenchError> {
        let to = 1 - self.moved;
        let changed = self.try_change(to, others).await;
        self.moved = to;
        let (took, failed, others_made) = changed.map_err(|error| self.halt(error))?;
        Ok(Change {
            target: self.name.clone(),
            services,
            others,
            others_made,
            round,
            took,
            failed,
        })
    }

    async fn try_change(&self, to: usize, others: u32) -> Result<(Duration, u64, f64), Halt> {
        /// How long other slices change before this one does.
        const AHEAD: Duration = Duration::from_secs(1);
        let server = &self.servers[to];
        let (made, begin) = (AtomicU64::new(0), Instant::now());
        let measured = async {
            let watching = self
                .until(
                    &self.place(Way::Pod),
                    &[SocketAddr::new(self.moving, PORT)],
                    slice::from_ref(server),
                )
                .await?;
            if others > 0 {
                tokio::time::sleep(AHEAD).await;
            }
            let written_us = now_us();
            self.list(MOVING, server).await?;
            let seen = watching.seen().await?;
            let took = Duration::from_micros(seen.began_us.saturating_sub(written_us));
            Ok::<_, Halt>((took, seen.failed))
        };
        let (took, failed) = tokio::select! {
            measured = measured => measured?,
            error = self.change_others(others, &made) => return Err(error),
        };
        let others_made = made.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
        Ok((took, failed, others_made))
    }

    /// Changes slices of other Services for as long as it is polled. Returns what has failed.
    async fn change_others(&self, in_a_second: u32, made: &AtomicU64) -> Halt {
        if in_a_second == 0 || self.fillers.is_empty() {
            return std::future::pending().await;
        }
        let ticks = tokio::time::interval(Duration::from_secs(1) / in_a_second);
        let writes = stream::unfold((ticks, 0), async |(mut ticks, number): (_, usize)| {
            ticks.tick().await;
            Some((number, (ticks, number + 1)))
        });
        let write = async |number: usize| {
            let fillers = self.fillers.len();
            let server = &self.servers[(number / fillers) % self.servers.len()];
            self.list(&format!("f{}", number % fillers), server).await?;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let written = writes.map(write).buffer_unordered(AT_ONCE);
        let ended: Result<(), Halt> = written.try_collect().await;
        ended
            .err()
            .unwrap_or_else(|| Halt::Harness("the changes have ended".to_owned()))
    }

    /// A Service's slice has this server alone.
    async fn list(&self, service: &str, server: &Backend) -> Result<(), Halt> {
        let patch = json!({ "endpoints": endpoints([server], FAMILY)? });
        let slice = Key::slice(&self.namespace, service);
        self.cx.objects().patch(&slice, patch).await.map(drop)
    }

    /// Starts a client that connects until one of the servers answers, at one destination after the other, and returns when it does.
    pub(super) async fn until(
        &self,
        place: &Place,
        to: &[SocketAddr],
        servers: &[Backend],
    ) -> Result<Watching, Halt> {
        let names: Vec<&str> = servers.iter().map(Backend::plain).collect();
        let argv = load(
            to,
            SERVED,
            &names
                .iter()
                .flat_map(|name| ["--until", name])
                .collect::<Vec<_>>(),
        );
        let to = match to {
            [one] => one.to_string(),
            several => format!("{} Services", several.len()),
        };
        let mut child = self.cx.cluster().exec(place, &argv).await?;
        let failed = |why: &str| Halt::Harness(format!("failed to watch {to}: {why}"));
        let errors = child.stderr.take().ok_or_else(|| failed("it has no output"))?;
        let mut line = String::new();
        let read = timeout(STARTS, BufReader::new(errors).read_line(&mut line)).await;
        if !read.is_ok_and(|read| read.is_ok()) || !line.starts_with(probe::serve::READY) {
            return Err(failed(line.trim()));
        }
        Ok(Watching {
            child,
            what: format!("{} at {to}", names.join(" or ")),
        })
    }

    /// Resident memory of the agent of the first node, in KiB.
    pub(super) async fn resident_kib(&self) -> Result<u64, BenchError> {
        let node = &self.servers[0].node;
        let resident = async {
            let state = self.cx.cluster().agents()?.state(node).await?;
            let pid = state
                .pid
                .ok_or_else(|| Halt::Harness(format!("no agent runs on {node}")))?;
            let status = fs::read_to_string(format!("/proc/{pid}/status"));
            let status =
                status.map_err(|error| Halt::Harness(format!("failed to look at process {pid}: {error}")))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
                .ok_or_else(|| Halt::Harness(format!("process {pid} has no VmRSS")))
        };
        resident.await.map_err(|error| self.halt(error))
    }

    /// Removes the lab.
    pub(super) async fn down(self) -> Result<(), BenchError> {
        let Self {
            name: target,
            lab,
            cx,
            ..
        } = self;
        // Its watches would miss the API servers.
        drop(cx);
        let down = lab.down().await;
        down.map_err(|error| BenchError::Lab { target, error })
    }

    pub(super) fn halt(&self, error: Halt) -> BenchError {
        BenchError::Halt {
            target: self.name.clone(),
            error,
        }
    }
}

/// A Service's object once it has addresses of a load balancer, and the first of them.
async fn balanced(cx: &Context, service: &Key) -> Result<(Value, IpAddr), Halt> {
    let what = format!("{service} has an address of a load balancer");
    eventually(&what, Within::from_now(STARTS), async || {
        let object = cx.objects().get(service).await?;
        let first = balancers(&object, FAMILY).first().copied();
        Ok(first.map(|address| (object, address)))
    })
    .await
}

/// Makes the direct way from outside, and back, that of node ports and load balancers: by the first node. Answers would return by the shorter way
/// otherwise, and a node that sees half of a connection may drop it.
async fn route(
    cx: &Context,
    near: &Backend,
    far: &Backend,
    balancers: impl Iterator<Item = IpAddr>,
) -> Result<(), Halt> {
    let first = cx.cluster().describe().nodes.first();
    let gateway = first.and_then(|node| FAMILY.first_of(&node.addresses));
    let gateway = gateway.ok_or_else(|| Halt::Harness("the first node has no address".to_owned()))?;
    let found = commands::output(cx, &Place::Outside, &format!("ip route get {gateway}")).await?;
    let mut words = found.split_whitespace().skip_while(|word| *word != "src");
    let outside = words.nth(1).and_then(|word| word.parse::<IpAddr>().ok());
    let outside = outside.ok_or_else(|| Halt::Harness(format!("no address of its own in {found:?}")))?;
    let servers = [near.address(FAMILY)?, far.address(FAMILY)?];
    for to in servers.into_iter().chain(balancers) {
        let route = format!("ip route replace {to} via {gateway}");
        commands::change(cx, &Place::Outside, &route).await?;
    }
    let host = |node: &str| Place::Host {
        node: node.to_owned(),
    };
    // The first node would tell both ends of the shorter way.
    let silent = "for one in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $one; done";
    commands::change(cx, &host(&near.node), silent).await?;
    let back = format!("ip route replace {outside} via {gateway}");
    commands::change(cx, &host(&far.node), &back).await
}

/// A client that connects until a server answers.
pub(super) struct Watching {
    child: Child,
    what: String,
}

impl Watching {
    /// When it did.
    pub(super) async fn seen(mut self) -> Result<Seen, Halt> {
        let what = self.what;
        let failed = |why: String| Halt::Harness(format!("{what}: {why}"));
        drop(self.child.stdin.take());
        let output = timeout(SERVED + STARTS, self.child.wait_with_output()).await;
        let output = output.map_err(|_| failed("its client does not end".to_owned()))?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| failed(format!("it was not reached within {SERVED:?}")))
    }
}

/// A client's command line.
fn load(to: &[SocketAddr], lasts: Duration, what: &[&str]) -> Vec<String> {
    let mut argv = ["probe", "load", "--for", &lasts.as_millis().to_string()]
        .map(str::to_owned)
        .to_vec();
    argv.extend(to.iter().flat_map(|to| ["--to".to_owned(), to.to_string()]));
    argv.extend(what.iter().map(ToString::to_string));
    argv
}
