//! `bootstrap-services-apart`: 50 Services are created and changed while the agent of a node starts, ten times. The
//! node's maps were first filled while the API lacked `default/kubernetes`, and are kept from then on. No probe of any
//! VIP, that of `default/kubernetes` included, ever reaches a backend of another Service.
//!
//! Each Service has a port of its own on the backends, so that every answer and every line of their logs names the
//! Service. A fifth of the Services is deleted before each start and created again during it, at its former ClusterIP;
//! all others get another endpoint meanwhile. A VIP may be silent or refused: what is delivered decides.
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    slice,
    time::Duration,
};

use cluster::{Capability, Family, Stop};
use faults::StoppedAgent;
use futures::{
    future::try_join,
    stream::{self, StreamExt as _, TryStreamExt as _},
};
use harness::{
    agents::{self, Killed},
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends, leading_to},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, eventually},
    write_effect::{self, Effect},
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "bootstrap-services-apart",
    area: super::AREA,
    claims: &["bootstrap-services-apart"],
    sentence: "Services that are created and changed while an agent starts never reach each other's backends",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Node,
        // `default/kubernetes` is deleted: of a cluster whose API servers are the suite's own.
        also: &[
            Capability::AgentCleanup,
            Capability::PodsWithoutAgents,
            Capability::ApiFaults,
        ],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("bootstrap_services_apart.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::from_secs(30),
    run: |cx| Box::pin(run(cx)),
};

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
/// The target port of the first Service.
const TARGETS: u16 = 9000;
const SERVICES: u16 = 50;
const RESTARTS: u16 = 10;
/// Starts that are watched by one window of probes.
const OF_WINDOW: u16 = 5;
/// One of so many Services is deleted and created again at each start.
const GROUPS: u16 = 5;
/// Writes at once.
const AT_ONCE: usize = 8;
/// From one connection of a client to the next.
const EVERY: Duration = Duration::from_millis(10);
/// Tries to fill the maps of a node before an API server writes `default/kubernetes` again, as each does every 10 s.
const TRIES: usize = 4;

async fn run(cx: &Context) -> Result<(), Halt> {
    let node = &cx.nodes()[0];
    cx.phase("staging: Services with a target port of their own each");
    let namespace = cx.namespace().await?;
    let targets: Vec<u16> = (TARGETS..TARGETS + SERVICES).collect();
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &targets, &targets).await?;
    let families = cx.families();
    let create = |number: u16| {
        let family = families[usize::from(number) % families.len()];
        Apart::create(cx, &namespace, number, family, &backends)
    };
    let services: Vec<Apart> = at_once((0..SERVICES).map(create).collect()).await?;

    cx.phase("the node's maps are filled while the API lacks default/kubernetes");
    fill_without_kubernetes(cx, node).await?;
    let (clients, within) = (cx.clients().on(node), Within::from_now(cx.limits().heal));
    let listed: Vec<Destination> = services.iter().flat_map(Apart::serves).collect();
    let what = "every Service serves after the first start";
    probing::control(cx, what, &clients, &listed, within).await?;

    let mut apart: Vec<Destination> = services.iter().flat_map(Apart::serves_or_none).collect();
    let kubernetes = cx.objects().get(&Key::service("default", "kubernetes")).await?;
    for family in &families {
        let leading = leading_to(cx, &kubernetes, *family).into_iter();
        let vips = leading.filter(frontends::Frontend::is_cluster_ip);
        apart.extend(vips.map(|vip| vip.none(&family.to_string())));
    }
    for first in (0..RESTARTS).step_by(usize::from(OF_WINDOW)) {
        cx.phase("fault: Services are created and changed while the agent starts, again and again");
        let window = Background::every(cx, &clients, &apart, EVERY, cx.limits().hold / 3).await?;
        for turn in first..first + OF_WINDOW {
            restart(cx, node, &services, turn).await?;
        }
        cx.phase("verdict: no probe has reached another Service's backend");
        window.hold(cx).await?;
    }
    let listed: Vec<Destination> = services.iter().flat_map(Apart::serves).collect();
    let within = Within::from_now(cx.limits().heal);
    let what = "every Service serves what it lists in the end";
    write_effect::takes_effect(cx, Effect::Listed, what, &clients, &listed, within).await
}

/// Deletes a group of Services, kills the agent, and writes all of them while it starts. They are handled when this
/// returns.
async fn restart(cx: &Context, node: &String, services: &[Apart], turn: u16) -> Result<(), Halt> {
    let (again, others): (Vec<&Apart>, Vec<&Apart>) = services
        .iter()
        .partition(|one| one.number % GROUPS == turn % GROUPS);
    at_once(again.iter().map(|one| one.delete(cx)).collect()).await?;
    fence::pass_on(cx, slice::from_ref(node)).await?;
    let killed = Killed::kill(cx, slice::from_ref(node)).await?;
    let written = async {
        at_once(again.iter().map(|one| one.create_again(cx, turn)).collect()).await?;
        at_once(others.iter().map(|one| one.list(cx, turn)).collect()).await
    };
    try_join(killed.start(cx), written).await?;
    fence::pass_on(cx, slice::from_ref(node)).await
}

/// Removes the agent of a node with all that it has there, and starts it while the API lacks `default/kubernetes`, which
/// is there again when this returns.
async fn fill_without_kubernetes(cx: &Context, node: &String) -> Result<(), Halt> {
    let service = Key::service("default", "kubernetes");
    cx.objects().watch().follow_namespace("default");
    let is_missing = || {
        cx.objects()
            .watch()
            .versions(&service)
            .last()
            .is_some_and(|last| last.deleted)
    };
    let is_back = async || {
        let within = Within::from_now(cx.limits().heal);
        eventually("the API has default/kubernetes again", within, async || {
            Ok((!is_missing()).then_some(()))
        })
        .await
    };
    for _ in 0..TRIES {
        let before = cx.cluster().agents()?.state(node).await?;
        let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
        cx.cluster().agents()?.clean_up(node).await?;
        cx.fault(&format!(
            "agent of {node} removed, and default/kubernetes deleted"
        ));
        // Right after an API server has written it again it is missing longest.
        cx.objects().delete(&service).await?;
        is_back().await?;
        cx.objects().delete(&service).await?;
        agent.start().await?;
        fence::pass_on(cx, slice::from_ref(node)).await?;
        let was_missing = is_missing();
        is_back().await?;
        agents::ready(cx, node, &before, Within::from_now(cx.limits().heal)).await?;
        if was_missing {
            return fence::pass_on(cx, slice::from_ref(node)).await;
        }
    }
    Err(Halt::Inconclusive(format!(
        "in {TRIES} tries, the API had default/kubernetes again before the agent had filled its maps"
    )))
}

/// Runs some writes, a few at a time.
async fn at_once<T>(writes: Vec<impl Future<Output = Result<T, Halt>>>) -> Result<Vec<T>, Halt> {
    stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
}

/// A Service with a target port of its own, which lists one of two backends.
struct Apart {
    number: u16,
    family: Family,
    namespace: String,
    name: String,
    address: IpAddr,
    backends: Vec<Backend>,
}

impl Apart {
    async fn create(
        cx: &Context,
        namespace: &str,
        number: u16,
        family: Family,
        backends: &[Backend],
    ) -> Result<Self, Halt> {
        let name = format!("apart-{number:02}");
        let values = json!({ "service": name, "namespace": namespace });
        let made = Frontends::create(cx, family, values).await?;
        let one = Self {
            number,
            family,
            namespace: namespace.to_owned(),
            name,
            address: made.cluster_ip,
            backends: backends.to_vec(),
        };
        one.create_slice(cx, RESTARTS - 1).await?;
        Ok(one)
    }

    /// The backend that it lists from this start on.
    fn listed(&self, turn: u16) -> &[Backend] {
        slice::from_ref(&self.backends[usize::from(self.number + turn) % self.backends.len()])
    }

    async fn create_slice(&self, cx: &Context, turn: u16) -> Result<(), Halt> {
        let values = json!({
            "slice": self.name, "namespace": self.namespace, "family": self.family.to_string(),
            "target": self.target(), "endpoints": endpoints(self.listed(turn), self.family)?,
        });
        cx.apply("${slice}", &values).await.map(drop)
    }

    async fn create_again(&self, cx: &Context, turn: u16) -> Result<(), Halt> {
        let values = json!({
            "again": self.name, "namespace": self.namespace, "family": self.family.to_string(),
            "address": self.address.to_string(),
        });
        cx.apply("${again}", &values).await?;
        self.create_slice(cx, turn).await
    }

    async fn list(&self, cx: &Context, turn: u16) -> Result<(), Halt> {
        let listed = json!({ "endpoints": endpoints(self.listed(turn), self.family)? });
        let key = Key::slice(&self.namespace, &self.name);
        cx.objects().patch(&key, listed).await.map(drop)
    }

    async fn delete(&self, cx: &Context) -> Result<(), Halt> {
        cx.objects()
            .delete(&Key::service(&self.namespace, &self.name))
            .await?;
        let key = Key::slice(&self.namespace, &self.name);
        cx.objects().delete(&key).await.map(drop)
    }

    fn target(&self) -> u16 {
        TARGETS + self.number
    }

    /// Its VIP, at which the backend that it lists before the first and after the last start serves.
    fn serves(&self) -> Vec<Destination> {
        self.at_vip(self.listed(RESTARTS - 1), Destination::serves)
    }

    /// Its VIP, at which nothing but its own target port may be reached.
    fn serves_or_none(&self) -> Vec<Destination> {
        self.at_vip(&self.backends, Destination::serves_or_none)
    }

    fn at_vip(&self, backends: &[Backend], permits: Permits) -> Vec<Destination> {
        let at = |transport| {
            let by = identities(backends, transport, self.target());
            let axis = self.family.to_string();
            permits(&axis, &self.name, transport, (self.address, PORT).into(), by)
        };
        TRANSPORTS.map(at).into()
    }
}

/// A constructor of what is dialled.
type Permits = fn(&str, &str, Transport, SocketAddr, BTreeSet<String>) -> Destination;
