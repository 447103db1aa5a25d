//! The fence: the proof that a write has been handled.
//!
//! After write W, one Service and one slice of the suite are changed and awaited in the datapath of the node under
//! test. Watches are ordered per kind, so W has then been handled too. The fence has a namespace, a backend and
//! ports of its own, and its names share no prefix with those under test (`p…`).
//!
//! Cases also put a fence between a new Service and their first dial of it. Whoever tracks connections leaves one
//! untranslated whose first packet came before the Service's rules, as long as its entry lives (two minutes for a TCP
//! handshake), and a client that comes by the same source port again meets that entry: a kernel hands source ports out
//! often enough for a case to see it. What becomes of those who dial too early is a claim of its own
//! (`udp-not-ready-yet`).

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use oracle::{
    finding::{Finding, Weight},
    history::{Attempt, Outcome, PlanEntry, Transport, Until},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    case::Family,
    client::{Client, Run},
    context::Context,
    effect::Effect,
    history::Event,
    limits::Limits,
    objects::Key,
    pods::{Backend, pod},
    readiness::Control,
    spent::Activity,
    target::plan,
    verdict::Halt,
};

const NAME: &str = "signal";
/// Of the Service that nobody changes.
const CONTROL: &str = "lasting";
/// Ports on which its backend listens where pods have a network of their own.
const TARGETS: [u16; 2] = [7001, 7002];
/// The Service's port is this plus the number of the fence.
const FIRST_PORT: u16 = 20_000;
/// From one look to the next where clients bear it, and how long each may take: before the change nobody may answer there.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Looks side by side: silent ones do not delay the one that is answered.
const LANES: usize = 4;

/// Looks are half of a second apart at most, [`LOOK_LIMIT`]; where one was later by so much the machine stood still, and nobody is
/// accused of being late.
const GAP: Duration = Duration::from_secs(2);
/// The part of the limit that clients take to be started and to end, at most.
const SLACK: f64 = 0.1;

/// The Service and slice of the fence.
pub(crate) struct Fence {
    pub(crate) namespace: String,
    address: IpAddr,
    pub(crate) backend: Backend,
    /// Ports on which that listens: the slice switches between them.
    pub(crate) targets: [u16; 2],
    number: Mutex<u16>,
    /// Nodes on which one was seen.
    seen: std::sync::Mutex<BTreeSet<String>>,
}

impl Fence {
    /// Its pod and the ports of that, for [`Fence::start`] when it is ready.
    pub(crate) fn pod(cx: &Context, namespace: &str) -> Result<(Value, [u16; 2]), Halt> {
        let nodes = cx.nodes();
        let node = nodes.first().ok_or_else(|| Halt::Harness("no node".to_owned()))?;
        let targets = TARGETS.map(|port| cx.port(port));
        Ok((pod(namespace, NAME, node, &targets), targets))
    }

    /// Creates it.
    pub(crate) async fn start(
        cx: &Context,
        namespace: &str,
        backend: Backend,
        targets: [u16; 2],
    ) -> Result<Self, Halt> {
        let family = *cx
            .families()
            .first()
            .ok_or_else(|| Halt::Harness("no family".to_owned()))?;
        let service = cx
            .objects()
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": NAME, "namespace": namespace },
                "spec": { "ipFamilies": [family.to_string()], "ports": service_ports(0, targets) },
            }))
            .await?;
        let address = service.object["spec"]["clusterIP"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let address =
            address.ok_or_else(|| Halt::Harness("the fence's Service has no cluster IP".to_owned()))?;
        cx.objects()
            .create(&slice_of(
                NAME,
                namespace,
                &backend,
                family,
                &slice_ports(0, targets),
            )?)
            .await?;
        Ok(Self {
            namespace: namespace.to_owned(),
            address,
            backend,
            targets,
            number: Mutex::new(0),
            seen: std::sync::Mutex::default(),
        })
    }
}

impl Fence {
    /// Creates a Service beside it that nobody changes, for the watch of [`crate::readiness`].
    pub(crate) async fn control(&self, cx: &Context) -> Result<Control, Halt> {
        let family = *cx
            .families()
            .first()
            .ok_or_else(|| Halt::Harness("no family".to_owned()))?;
        let written = cx
            .objects()
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": CONTROL, "namespace": self.namespace },
                "spec": { "type": "NodePort", "ipFamilies": [family.to_string()], "ports": service_ports(0, self.targets) },
            }))
            .await?;
        cx.objects()
            .create(&slice_of(
                CONTROL,
                &self.namespace,
                &self.backend,
                family,
                &slice_ports(0, self.targets),
            )?)
            .await?;
        let spec = &written.object["spec"];
        let address = spec["clusterIP"].as_str().and_then(|text| text.parse().ok());
        let port = spec["ports"][0]["nodePort"].as_u64();
        let (Some(address), Some(port)) = (address, port.and_then(|port| u16::try_from(port).ok())) else {
            return Err(Halt::Harness(
                "the control Service has no cluster IP or no node port".to_owned(),
            ));
        };
        let nodes = cx.cluster().describe().nodes.iter();
        let node_ports = nodes.filter_map(|node| {
            let of_family = |address: &&IpAddr| address.is_ipv6() == (family == Family::IPv6);
            let address = node.addresses.iter().find(of_family)?;
            Some((node.name.clone(), SocketAddr::new(*address, port)))
        });
        Ok(Control {
            cluster_ip: SocketAddr::new(address, FIRST_PORT),
            node_ports: node_ports.collect(),
            identity: self.backend.identity(Transport::Tcp, self.targets[0]),
        })
    }
}

impl Context {
    /// Everything written before is handled on every node when this returns.
    pub async fn fence(&self) -> Result<(), Halt> {
        self.fence_on(&self.nodes()).await
    }

    /// Everything written before is handled on these nodes when this returns.
    ///
    /// The fence is a Service's port and a slice like any other. Where nothing has been done to the cluster but writes to its API,
    /// and the suite's own watch holds them, a fence that comes later than T_ep, or not at all where one has come before, breaks
    /// `service-change-live`.
    ///
    /// # Errors
    /// Inconclusive if it is not seen: within T_ep where there was a fault, and otherwise within twice that.
    pub async fn fence_on(&self, nodes: &[String]) -> Result<(), Halt> {
        let _spent = self.clock.during(Activity::Fence);
        let fence = self.fence_objects()?;
        // Held while it is awaited: the next fence would move the port away.
        let mut number = fence.number.lock().await;
        *number += 1;
        let began = Instant::now();
        let service = Key::service(&fence.namespace, NAME);
        self.objects()
            .patch(
                &service,
                json!({ "spec": { "ports": service_ports(*number, fence.targets) } }),
            )
            .await?;
        let slice = Key::slice(&fence.namespace, NAME);
        self.objects()
            .patch(&slice, json!({ "ports": slice_ports(*number, fence.targets) }))
            .await?;
        let clients = self.pod_clients();
        let clients = clients.iter().filter(|client| nodes.contains(&client.node));
        let written = Instant::now();
        try_join_all(clients.map(|client| self.await_fence(fence, client, *number, (began, written))))
            .await?;
        Ok(())
    }

    async fn await_fence(
        &self,
        fence: &Fence,
        client: &Client,
        number: u16,
        (began, written): (Instant, Instant),
    ) -> Result<(), Halt> {
        let identity = fence
            .backend
            .identity(Transport::Tcp, target(number, fence.targets));
        let limit = self.limits().endpoints;
        let is_the_targets = !self.has_faults.load(Ordering::Relaxed);
        // So that late and never are told apart.
        let longest = if is_the_targets { limit * 2 } else { limit };
        let address = SocketAddr::new(fence.address, FIRST_PORT + number);
        let (interval, look_limit) = look(self.limits());
        let looks = longest.as_millis().div_ceil(interval.as_millis());
        let entry = PlanEntry {
            target: format!("fence {number}"),
            transport: Transport::Tcp,
            address: address.ip(),
            port: address.port(),
            count: u32::try_from(looks).unwrap_or(u32::MAX),
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            limit_ms: u64::try_from(look_limit.as_millis()).unwrap_or(u64::MAX),
            until: Some(Until::Identity(identity.clone())),
            flows: None,
            source_ports: None,
            at_once: None,
        };
        let plan = plan(client, vec![entry; LANES]);
        let run = Run::start(&self.cluster, client, &plan, self.history.clone()).await?;
        let attempts = tokio::time::timeout(longest, run.finish(longest + look_limit)).await;
        let is_it = |outcome: &Outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.identity == identity);
        let mut is_even = false;
        let found = match attempts {
            Ok(attempts) => {
                let attempts = attempts?;
                is_even = are_even(&attempts, GAP.mul_f64(self.limits().scale.max(1.0)));
                let is_seen = attempts.iter().any(|attempt| is_it(&attempt.outcome));
                (!is_seen).then(|| oracle::record::line(&oracle::record::outcomes(&attempts)))
            }
            Err(_) => Some("no end of the probes".to_owned()),
        };
        let took = written.elapsed();
        // A look that began in time may end later; and starting and ending a client is no matter of the target's.
        let is_late = found.is_some() || took > limit.mul_f64(1.0 + SLACK) + look_limit;
        let has_come_before = {
            let mut seen = fence.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let before = seen.contains(&client.node);
            if found.is_none() {
                seen.insert(client.node.clone());
            }
            before
        };
        if is_the_targets && is_even && is_late && (has_come_before || found.is_none()) {
            self.breaks_in_time(
                &client.node,
                number,
                (address, &identity),
                (limit, took),
                found.as_deref(),
            );
        }
        if let Some(found) = found {
            return Err(Halt::Inconclusive(format!(
                "fence {number} was not seen on {} within {longest:?}: expected {address} served by {identity}, \
                 found {found}; what was written before it may not have been handled",
                client.node
            )));
        }
        self.history.add(&Event::Fence {
            number: u32::from(number),
            node: client.node.clone(),
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        Ok(())
    }

    fn breaks_in_time(
        &self,
        node: &str,
        number: u16,
        (address, identity): (SocketAddr, &str),
        (limit, took): (Duration, Duration),
        found: Option<&str>,
    ) {
        let found = found.map_or_else(
            || format!("that after {:.1} s", took.as_secs_f64()),
            |found| format!("in {:.1} s {found}", took.as_secs_f64()),
        );
        let finding = Finding {
            weight: Weight::Violation,
            subject: format!("fence {number} on {node}"),
            expected: format!("{address} served by {identity} within {limit:?} of the write"),
            found,
            first: Vec::new(),
        };
        let axis = format!("the fence on {node}");
        self.judged(&axis, Vec::new());
        self.breaks(
            &axis,
            Effect::Changed,
            "a changed port is in force",
            vec![finding],
        );
    }
}

/// Whether looks have followed each other as they should: a machine that did not let them would have kept the target waiting, too.
fn are_even(attempts: &[Attempt], gap: Duration) -> bool {
    let mut starts: Vec<u64> = attempts.iter().map(|attempt| attempt.start_us).collect();
    starts.sort_unstable();
    starts.len() > 1
        && starts
            .windows(2)
            .all(|two| Duration::from_micros(two[1] - two[0]) < gap)
}

/// From one look to the next, and how long each may take. All lanes of a client together keep to its rate, and limits are
/// lengthened as all are: a machine that is emulated answers none of eighty looks in a second within half of one.
fn look(limits: &Limits) -> (Duration, Duration) {
    let lanes = u32::try_from(LANES).unwrap_or(u32::MAX);
    let kept = Duration::from_secs(1) * lanes / limits.rate.max(1);
    (LOOK.max(kept), LOOK_LIMIT.mul_f64(limits.scale.max(1.0)))
}

fn target(number: u16, targets: [u16; 2]) -> u16 {
    targets[usize::from(number) % targets.len()]
}

fn service_ports(number: u16, targets: [u16; 2]) -> Value {
    json!([{
        "name": NAME, "protocol": "TCP", "port": FIRST_PORT + number, "targetPort": target(number, targets),
    }])
}

fn slice_ports(number: u16, targets: [u16; 2]) -> Value {
    json!([{ "name": NAME, "protocol": "TCP", "port": target(number, targets) }])
}

/// A slice of the Service of its name, with one backend.
pub(crate) fn slice_of(
    name: &str,
    namespace: &str,
    backend: &Backend,
    family: Family,
    ports: &Value,
) -> Result<Value, Halt> {
    Ok(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": crate::objects::MANAGER,
            },
        },
        "addressType": family.to_string(),
        "endpoints": [backend.endpoint(family, true)?],
        "ports": ports,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stood_still_accuses_nobody() {
        let at = |start_us| Attempt {
            start_us,
            end_us: start_us + 1,
            client: String::new(),
            target: String::new(),
            transport: Transport::Tcp,
            destination: "10.0.0.1:80".parse().unwrap(),
            local: None,
            nonce: String::new(),
            exchange: None,
            fragments: None,
            outcome: Outcome::Timeout {
                stage: oracle::history::Stage::Connect,
            },
        };
        let looks = |starts: &[u64]| starts.iter().map(|start| at(start * 1_000)).collect::<Vec<_>>();
        assert!(are_even(&looks(&[0, 700, 100, 1_200]), GAP));
        assert!(!are_even(&looks(&[0, 100, 2_300]), GAP));
        assert!(!are_even(&looks(&[0]), GAP));
    }

    #[test]
    fn looks_keep_to_what_clients_and_machines_bear() {
        let of = |rate, scale| look(&Limits::default().with_rate(rate).scaled(scale));
        assert_eq!(of(400, 1.0), (LOOK, LOOK_LIMIT));
        assert_eq!(of(20, 10.0), (Duration::from_millis(200), Duration::from_secs(5)));
        let lanes = Duration::from_secs(1).div_duration_f64(of(20, 1.0).0) * LANES as f64;
        assert!(lanes <= 20.0, "all lanes together: {lanes} in a second");
    }
}
