//! Connections through an agent's start, to Services that the case does not touch.
//!
//! For each family there is a Service with TCP and UDP whose backend is that of the fence. From the hosts and pods of the
//! node under test its ClusterIP is dialled, from outside its node port there, each by one connection of TCP and one
//! connected socket of UDP that talk all along. Which of them are healthy is asked right before the agent starts: what the
//! fault itself has broken is not the start's.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::future::try_join_all;
use oracle::{
    check::Observed,
    finding::Finding,
    flow,
    history::{Attempt, Outcome, Transport},
};
use serde_json::json;

use crate::{
    case::Family,
    client::{Client, Run},
    context::Context,
    fence::slice_of,
    probing::Within,
    target::{Target, plan},
    verdict::Halt,
    waiting::eventually,
};

/// How long connections show whether they are healthy.
pub(super) const SHOWN: Duration = Duration::from_millis(1500);
/// The end of it, in which exchanges are not asked about: they may be under way when the agent starts.
const UNDER_WAY: Duration = Duration::from_millis(500);
/// The Services' port.
const PORT: u16 = 80;

/// A Service of one family.
pub(crate) struct Steady {
    family: Family,
    cluster_ip: IpAddr,
    /// Node ports of TCP and of UDP.
    node_ports: [u16; 2],
}

/// Connections that are open.
pub(super) struct Connections {
    runs: Vec<(Client, Vec<Target>, Run)>,
}

/// What became of connections that had been healthy.
#[derive(Default)]
pub(super) struct Fate {
    /// How many are judged.
    pub(super) healthy: usize,
    /// What is not as it should be of these.
    pub(super) findings: Vec<Finding>,
}

impl Steady {
    /// Creates one for each family; they are served everywhere when this returns.
    pub(super) async fn make(cx: &Context) -> Result<Vec<Self>, Halt> {
        let mut all = Vec::new();
        for family in cx.families() {
            all.push(Self::of(cx, family).await?);
        }
        cx.fence().await?;
        Ok(all)
    }

    async fn of(cx: &Context, family: Family) -> Result<Self, Halt> {
        let fence = cx.fence_objects()?;
        let name = format!("steady-{}", family.to_string().to_lowercase());
        let target = fence.targets[0];
        let port = |name: &str, protocol: &str| json!({ "name": name, "protocol": protocol, "port": target });
        let ports = json!([port("tcp", "TCP"), port("udp", "UDP")]);
        let mut of_service = ports.clone();
        for port in of_service.as_array_mut().into_iter().flatten() {
            port["port"] = PORT.into();
            port["targetPort"] = target.into();
        }
        let written = cx
            .objects()
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": name, "namespace": fence.namespace },
                "spec": { "type": "NodePort", "ipFamilies": [family.to_string()], "ports": of_service },
            }))
            .await?;
        cx.objects()
            .create(&slice_of(
                &name,
                &fence.namespace,
                &fence.backend,
                family,
                &ports,
            )?)
            .await?;
        let spec = &written.object["spec"];
        let node_port = |at: usize| {
            let port = spec["ports"][at]["nodePort"].as_u64();
            port.and_then(|port| u16::try_from(port).ok())
        };
        let address = spec["clusterIP"].as_str().and_then(|text| text.parse().ok());
        match (address, node_port(0), node_port(1)) {
            (Some(cluster_ip), Some(tcp), Some(udp)) => Ok(Self {
                family,
                cluster_ip,
                node_ports: [tcp, udp],
            }),
            _ => Err(Halt::Harness(format!(
                "the Service {name} has no cluster IP or no node ports"
            ))),
        }
    }

    /// TCP and UDP at its ClusterIP.
    fn inside(&self, identities: &[String; 2]) -> [Target; 2] {
        self.targets(identities, [PORT; 2], self.cluster_ip)
    }

    /// TCP and UDP at its node ports on a node.
    fn outside(&self, cx: &Context, node: &str, identities: &[String; 2]) -> Option<[Target; 2]> {
        let mut nodes = cx.cluster().describe().nodes.iter();
        let addresses = &nodes.find(|one| one.name == node)?.addresses;
        let of_family = |address: &&IpAddr| address.is_ipv6() == (self.family == Family::IPv6);
        let address = addresses.iter().find(of_family)?;
        Some(self.targets(identities, self.node_ports, *address))
    }

    fn targets(&self, identities: &[String; 2], ports: [u16; 2], address: IpAddr) -> [Target; 2] {
        let target = |at: usize, transport| {
            let address = SocketAddr::new(address, ports[at]);
            let identity = [identities[at].clone()];
            Target::serves(
                "connections",
                &self.family.to_string(),
                transport,
                address,
                identity,
            )
        };
        [target(0, Transport::Tcp), target(1, Transport::UdpConnected)]
    }
}

impl Connections {
    /// Opens them. They have all been answered when this returns, or T_svc has passed.
    pub(super) async fn open(cx: &Context, steady: &[Steady], node: &str) -> Result<Self, Halt> {
        let fence = cx.fence_objects()?;
        let identities = [Transport::Tcp, Transport::UdpConnected]
            .map(|transport| fence.backend.identity(transport, fence.targets[0]));
        let mut dialled: Vec<(Client, Vec<Target>)> = Vec::new();
        for client in cx.clients_on(node) {
            let inside = |steady: &Steady| steady.inside(&identities);
            dialled.push((client, steady.iter().flat_map(inside).collect()));
        }
        if let Some(client) = cx.outside() {
            let outside = |steady: &Steady| steady.outside(cx, node, &identities);
            dialled.push((client, steady.iter().filter_map(outside).flatten().collect()));
        }
        let longest = cx.limits().longest(cx.case.longest);
        let starts = dialled.into_iter().map(async |(client, targets)| {
            let entry = |target: &Target| target.established(1, longest, cx.limits());
            let plan = plan(&client, targets.iter().map(entry).collect());
            let run = Run::start(&cx.cluster, &client, &plan, Arc::clone(&cx.history)).await?;
            Ok::<_, Halt>((client, targets, run))
        });
        let opened = Self {
            runs: try_join_all(starts).await?,
        };
        let within = Within::from_now(cx.limits().service);
        let answered = eventually("every connection is answered", within, async || {
            Ok(opened.are_answered().then_some(()))
        });
        match answered.await {
            // Those that are not, are not healthy.
            Ok(()) | Err(Halt::Inconclusive(_)) => Ok(opened),
            Err(halt) => Err(halt),
        }
    }

    fn are_answered(&self) -> bool {
        self.runs.iter().all(|(_, targets, run)| {
            let answered = |attempts: &[Attempt], target: &Target| {
                let label = target.label();
                attempts.iter().any(|one| {
                    one.target == label
                        && one.transport == target.transport
                        && matches!(one.outcome, Outcome::Answered { .. })
                })
            };
            run.with_attempts(|attempts| targets.iter().all(|target| answered(attempts, target)))
        })
    }

    /// Ends them, and says what became of those that were healthy in the [`SHOWN`] before a start at that time, in
    /// microseconds since the Unix epoch.
    ///
    /// # Errors
    /// If a client has ended before, which would be a hole.
    pub(super) async fn end(self, cx: &Context, started_us: u64) -> Result<Fate, Halt> {
        let (mut asked, mut stops) = (Vec::new(), Vec::new());
        for (client, targets, run) in self.runs {
            asked.push((client, targets));
            stops.push(run.stop());
        }
        let mut attempts = try_join_all(stops).await?.concat();
        let microseconds = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let from_us = started_us.saturating_sub(microseconds(SHOWN));
        let until_us = started_us.saturating_sub(microseconds(UNDER_WAY));
        // Half of what there is room for: a client that is busy for a moment leaves some out.
        let room = (SHOWN - UNDER_WAY).as_millis() / cx.limits().exchange.as_millis().max(1);
        let healthy = flow::healthy(&attempts, from_us, until_us, (room / 2) as usize);
        attempts.retain(|one| {
            one.start_us >= from_us && flow::key(one).is_some_and(|key| healthy.contains(&key))
        });
        let is_silent = |one: &Attempt| matches!(one.outcome, Outcome::Timeout { .. });
        let logs = if attempts.iter().any(is_silent) {
            cx.log(&cx.fence_objects()?.backend).await?
        } else {
            Vec::new()
        };
        let observed = Observed::new(&attempts, &logs, cx.limits().times());
        let mut fate = Fate::default();
        for (client, targets) in &asked {
            for target in targets {
                let stream = target.stream(client);
                if !healthy.iter().any(|key| key.is_of(&stream)) {
                    continue;
                }
                fate.healthy += 1;
                fate.findings
                    .extend(flow::flows(&observed, &target.flows(client, 1, cx.limits())));
            }
        }
        Ok(fate)
    }
}
