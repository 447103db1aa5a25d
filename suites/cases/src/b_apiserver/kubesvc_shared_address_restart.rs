//! `kubesvc-shared-address-restart`: several API servers advertise one address; one stops gracefully; the EndpointSlice
//! of `default/kubernetes` is emptied, then refilled. `default/kubernetes-x`, a Service with the same backend, has no
//! failed connect from 60 s before to 10 min after; `default/kubernetes` fails at most from the empty version until the
//! endpoint propagation limit after the refill.
//!
//! Only the API servers write the EndpointSlice. `kubernetes-x` is patched as a service controller does, after the
//! emptying and after the refill. Its ClusterIP, node ports and load balancer address are dialled all along, and
//! connections that were established before go on, except those to the API server that stops. 60 s and 10 min are for
//! the long profile, whose hold time is as long; other profiles scale both by it.
//!
//! Agents reach the API through the advertised address, too, as in such clusters. An agent that knew only the stopping
//! server would get no update, and could show nothing.
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::{ApiEndpoint, ApiFault, Capability, Family, LONGEST, Stop, api_server_name};
use faults::RedirectedAgent;
use futures::future::try_join_all;
use harness::{
    agents, api_faults,
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontends::{self, balancers, node_port},
    names::Key,
    objects::{MANAGER, annotation},
    probing,
    verdict::Halt,
    waiting::{Within, eventually, has_lasted},
    watch::Version,
};
use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, PlanEntry, Transport},
};
use serde_json::{Value, json};

use super::kubernetes::{VALID_FOR, frontend, handshakes};

pub(crate) const CASE: Case = Case {
    id: "kubesvc-shared-address-restart",
    area: super::AREA,
    claims: &["kubesvc-shared-address-restart"],
    sentence: "when one of several API servers behind one address stops, a Service with the same backend never fails",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[
            Capability::ApiServers,
            Capability::ApiFaults,
            Capability::SharedAddress,
        ],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("kubesvc_shared_address_restart.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Start of the neighbour's name.
const NEIGHBOUR: &str = "kubernetes-x";
/// The API server that stops.
const STOPPED: u8 = 2;
/// Established connections to each frontend.
const FLOWS: u32 = 4;
/// Largest number of tries to open them until one of them stays. A hash of ports, or turns, choose the API server of a
/// connection: with two servers and a hash, all [`FLOWS`] of a frontend reach the stopping one in 1 of 16 tries.
const OPENED: u32 = 6;
/// Number and interval of probes that look which API server answers.
const LOOKS: u32 = 20;
const LOOK_MS: u64 = 100;
/// Before the fault everything must work for this fraction of the hold time: for 60 s of 10 min.
const BEFORE: u32 = 10;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: all API servers advertise one address");
    let (family, kubernetes) = frontend(cx).await?;
    let axis = family.to_string();
    cx.objects().watch().follow_namespace("default");
    let shared = api_faults::begin(cx, &ApiFault::SharedAddress, LONGEST).await?;
    let slice = Key::slice("default", "kubernetes");
    let within = Within::from_now(cx.limits().heal);
    let listed = eventually("default/kubernetes has one endpoint", within, async || {
        let object = cx.objects().get(&slice).await?;
        let is_one = object["endpoints"].as_array().is_some_and(|all| all.len() == 1);
        Ok(is_one.then_some(object))
    })
    .await?;
    let redirected = redirect(cx, advertised(&listed)?).await?;
    let neighbour = Neighbour::stage(cx, &axis, family, &listed).await?;
    let own = [Destination::certified(&axis, "kubernetes", kubernetes, VALID_FOR)];

    cx.phase("control: every frontend answers, and connections are established");
    fence::pass(cx).await?;
    let within = Within::from_now(cx.limits().service);
    probing::control(cx, "default/kubernetes answers", cx.clients(), &own, within).await?;
    for (clients, targets) in neighbour.vantages(cx) {
        probing::control(cx, "every frontend answers", &clients, targets, within).await?;
    }
    let agents = agents::all(cx).await?;
    let stays = |identity: &str| !names(identity).any(|name| name == api_server_name(STOPPED));
    let flows = neighbour.flows(cx, stays).await?;
    let windows = neighbour.vantages(cx).into_iter();
    let windows = windows.map(async |(clients, targets)| {
        let targets: Vec<Destination> = targets.iter().map(while_one_stops).collect();
        Background::start(cx, &clients, &targets, cx.limits().hold).await
    });
    let windows: Vec<Background> = try_join_all(windows).await?;
    let before = std::time::Instant::now();
    has_lasted(before, cx.limits().hold / BEFORE).await;

    cx.phase("fault: one of the API servers stops");
    let seen = cx.objects().watch().versions(&slice).len();
    let stop = ApiFault::Down {
        server: STOPPED,
        how: Stop::Term,
    };
    let after_emptying = async {
        let emptied = shown(cx, &slice, seen, "empty", |version| !has_endpoints(version)).await?;
        neighbour.patch(cx, "emptied").await?;
        Ok(emptied)
    };
    let (stopped, emptied) = futures::try_join!(api_faults::begin(cx, &stop, LONGEST), after_emptying)?;
    cx.phase("default/kubernetes is refilled by another");
    shown(cx, &slice, emptied, "refilled", has_endpoints).await?;
    // The patch and its fence must not delay the probes.
    let within = Within::from_now(cx.limits().endpoints);
    neighbour.patch(cx, "refilled").await?;
    fence::pass(cx).await?;
    let settled = probing::settle(cx, cx.clients(), &own, within).await?;
    // The probes that follow show what has not settled.
    probing::record_settled(cx, &settled);
    let window = Background::start(cx, cx.clients(), &own, handshakes(cx.limits())).await?;
    window.hold(cx).await?;
    stopped.heal().await?;

    cx.phase("verdict: the neighbour serves for the hold time");
    let held = try_join_all(windows.into_iter().map(|window| window.hold(cx)));
    let flows = flows.hold_those(cx, cx.limits().hold, stays);
    futures::try_join!(held, flows)?;
    agents::no_restart(cx, &axis, agents.as_ref()).await?;
    // That address ends with the fault.
    try_join_all(redirected.into_iter().map(RedirectedAgent::heal)).await?;
    shared.heal().await?;
    Ok(())
}

/// The advertised addresses of the API servers.
fn advertised(listed: &Value) -> Result<SocketAddr, Halt> {
    let address = listed["endpoints"][0]["addresses"][0].as_str();
    let address = address.and_then(|address| address.parse::<IpAddr>().ok());
    let port = listed["ports"][0]["port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok());
    address
        .zip(port)
        .map(SocketAddr::from)
        .ok_or_else(|| Halt::Harness(format!("default/kubernetes lists no address and port: {listed}")))
}

/// Redirects all agents there that may be configured with an API server's own address instead.
async fn redirect(cx: &Context, advertised: SocketAddr) -> Result<Vec<RedirectedAgent>, Halt> {
    let servers = cx.cluster().control_plane()?.servers().await?;
    let knows_it = cx.cluster().describe().ways.shared;
    if knows_it || servers.iter().all(|server| server.address == advertised) {
        return Ok(Vec::new());
    }
    cx.phase(&format!("agents reach the API by {advertised}"));
    let endpoint = ApiEndpoint {
        server: advertised,
        further: Vec::new(),
    };
    let all = cx.nodes().into_iter().map(async |node| {
        let before = cx.cluster().agents()?.state(&node).await?;
        let within = Within::from_now(cx.limits().heal);
        let agent = RedirectedAgent::redirect(cx.faults(), &node, &endpoint).await?;
        agents::ready(cx, &node, &before, within).await?;
        Ok::<_, Halt>(agent)
    });
    try_join_all(all).await
}

/// `default/kubernetes-x` and its frontends.
struct Neighbour {
    service: Key,
    /// Frontends for clients inside.
    inside: Vec<Destination>,
    /// Frontends for clients outside.
    outside: Vec<Destination>,
}

impl Neighbour {
    /// Creates it, with the endpoints of `default/kubernetes`.
    async fn stage(cx: &Context, axis: &str, family: Family, listed: &Value) -> Result<Self, Halt> {
        let name = cx.named(NEIGHBOUR);
        let mut of_slice = cx.objects().labels().clone();
        of_slice["kubernetes.io/service-name"] = json!(name);
        of_slice["endpointslice.kubernetes.io/managed-by"] = MANAGER.into();
        let values = json!({
            "neighbour": name, "port-name": cx.named("https"), "labels": cx.objects().labels(), "slice-labels": of_slice,
            "family": family.to_string(), "endpoints": listed["endpoints"], "target": advertised(listed)?.port(),
        });
        let address = cx.apply_service("${neighbour}", &values).await?;
        let service = Key::service("default", &name);
        let has_balancer = cx.cluster().describe().features.contains("loadbalancer");
        if !has_balancer {
            cx.axes()
                .not_enabled("lb", "the target does not declare the feature loadbalancer");
        }
        let within = Within::from_now(cx.limits().service);
        let object = eventually("kubernetes-x has all its frontends", within, async || {
            let object = cx.objects().get(&service).await?;
            let is_whole = node_port(&object, "TCP").is_some()
                && (!has_balancer || !balancers(&object, family).is_empty());
            Ok(is_whole.then_some(object))
        })
        .await?;
        let certified =
            |name: &str, address: SocketAddr| Destination::certified(axis, name, address, VALID_FOR);
        let port = node_port(&object, "TCP").unwrap_or_default();
        let mut outside: Vec<Destination> = frontends::node_addresses(cx, family)
            .into_iter()
            .map(|(node, address)| certified(&format!("np {node}"), (address, port).into()))
            .collect();
        if has_balancer {
            let lb = balancers(&object, family).into_iter();
            outside.extend(lb.map(|address| certified("lb", (address, PORT).into())));
        }
        let mut inside = vec![certified("cip", (address, PORT).into())];
        inside.extend(outside.iter().cloned());
        Ok(Self {
            service,
            inside,
            outside,
        })
    }

    /// Each client with its targets.
    fn vantages(&self, cx: &Context) -> Vec<(Vec<Client>, &[Destination])> {
        let mut vantages = vec![(cx.clients().to_vec(), &self.inside[..])];
        vantages.extend(
            cx.clients()
                .outside()
                .map(|client| (vec![client], &self.outside[..])),
        );
        vantages
    }

    /// The API servers that answer at the ClusterIP, by their certificates: they accept connections by turns.
    async fn certificates(&self, cx: &Context) -> Result<BTreeSet<String>, Halt> {
        let (Some(client), Some(target)) = (cx.clients().first(), self.inside.first()) else {
            return Err(Halt::Harness("no client can see which server answers".to_owned()));
        };
        let entry = PlanEntry {
            target: format!("which API server answers at {}", target.address),
            transport: Transport::Tls,
            address: target.address.ip(),
            port: target.address.port(),
            count: LOOKS,
            interval_ms: LOOK_MS,
            limit_ms: u64::try_from(cx.limits().probe.as_millis()).unwrap_or(u64::MAX),
            until: None,
            flows: None,
            source_ports: None,
            at_once: None,
            one_way: false,
        };
        let by = |attempt: Attempt| match attempt.outcome {
            Outcome::Answered { answer, .. } => Some(answer.identity),
            _ => None,
        };
        let attempts = probing::run(cx, client, vec![entry]).await?;
        Ok(attempts.into_iter().filter_map(by).collect())
    }

    /// Opens connections to each frontend, and again until one of them has an API server that stays; otherwise the
    /// verdict shows it. One frontend after the other: API servers that accept connections by turns would always give a
    /// frontend the same server if all frontends were dialled in a row.
    async fn flows(&self, cx: &Context, stays: impl Fn(&str) -> bool) -> Result<Flows, Halt> {
        let certificates = self.certificates(cx).await?;
        let mut all = Flows::none();
        for (clients, targets) in self.vantages(cx) {
            for target in targets {
                let target = [established(target, &certificates)];
                let open = async || {
                    let within = Within::from_now(cx.limits().service);
                    Flows::open(cx, &clients, &target, FLOWS, within).await
                };
                let mut flows = open().await?;
                for _ in 1..OPENED {
                    if flows.stay(&stays) {
                        break;
                    }
                    drop(flows);
                    flows = open().await?;
                }
                all = all.and(flows);
            }
        }
        Ok(all)
    }

    /// Patches it as a service controller does. On return every node has handled it.
    async fn patch(&self, cx: &Context, when: &str) -> Result<(), Halt> {
        let patch = annotation("plumbline-trigger", when);
        cx.objects().patch(&self.service, patch).await?;
        fence::pass(cx).await
    }
}

const PORT: u16 = 443;

/// Connections that stay with the API server that accepted them.
fn established(target: &Destination, certificates: &BTreeSet<String>) -> Destination {
    let name = format!("{} (established)", target.name);
    let by = certificates.iter().map(|one| at_port(one, target.address.port()));
    Destination::serves(&target.axis, &name, Transport::Tls, target.address, by)
}

/// A stopping API server ends connections, which is no failed connect.
fn while_one_stops(target: &Destination) -> Destination {
    Destination {
        permitted: Permitted::CertifiedOrCut(VALID_FOR.to_owned()),
        ..target.clone()
    }
}

/// Names of the certificate in an identity.
fn names(identity: &str) -> impl Iterator<Item = &str> {
    identity.split(['/', ','])
}

/// The same names with the dialled port.
fn at_port(identity: &str, port: u16) -> String {
    let names = identity.split('/').next().unwrap_or_default();
    format!("{names}/TCP/{port}")
}

fn has_endpoints(version: &Version) -> bool {
    version.object["endpoints"]
        .as_array()
        .is_some_and(|all| !all.is_empty())
}

/// Witness: the suite's own watch shows such a version after the first `seen`. Returns the number of versions up to it;
/// the next one may have followed already.
async fn shown(
    cx: &Context,
    slice: &Key,
    seen: usize,
    what: &str,
    is_it: impl Fn(&Version) -> bool,
) -> Result<usize, Halt> {
    let what = format!("not witnessed (the suite's own watch shows default/kubernetes {what})");
    eventually(&what, Within::from_now(cx.limits().heal), async || {
        let versions = cx.objects().watch().versions(slice);
        let found = versions.iter().skip(seen).position(&is_it);
        Ok(found.map(|before| seen + before + 1))
    })
    .await
}
