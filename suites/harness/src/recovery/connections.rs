//! Connections through an agent's start, to Services that the case does not touch.
//!
//! For each family there is a Service with TCP and UDP whose backend is that of the fence. From the hosts and pods of the
//! node under test its ClusterIP is dialled, from outside its node port there, each by one connection of TCP and one
//! connected socket of UDP that talk all along. Which of them are healthy is asked right before the agent starts: what the
//! fault itself has broken is not the start's.

use std::{net::SocketAddr, time::Duration};

use futures::future::try_join_all;
use oracle::{
    check::Observed,
    finding::Finding,
    flow,
    history::{Attempt, Outcome, Transport},
};

use crate::{
    client::{Client, Run},
    context::Context,
    destination::Destination,
    fence,
    own_services::ControlService,
    probing,
    verdict::Halt,
    waiting::{Within, eventually},
};

/// How long connections show whether they are healthy.
pub(super) const SHOWN: Duration = Duration::from_millis(1500);
/// The end of it, in which exchanges are not asked about: they may be under way when the agent starts.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// Connections that are open.
pub(super) struct Connections {
    runs: Vec<(Client, Vec<Destination>, Run)>,
}

/// What became of connections that had been healthy.
#[derive(Default)]
pub(super) struct Fate {
    /// How many are judged.
    pub(super) healthy: usize,
    /// What is not as it should be of these.
    pub(super) findings: Vec<Finding>,
}

/// Control Services of each family, with TCP and UDP. The first recovery makes them; they are served everywhere when this returns.
async fn services(cx: &Context) -> Result<&[ControlService], Halt> {
    let own = cx.own_services();
    let made = own.connected().get_or_try_init(async || {
        let mut all = Vec::new();
        for family in cx.families() {
            let name = format!("steady-{family}").to_lowercase();
            let made = own.create_control(cx.objects(), &name, family, &["TCP", "UDP"]);
            all.push(made.await?);
        }
        fence::pass(cx).await?;
        Ok::<_, Halt>(all)
    });
    Ok(made.await?)
}

/// TCP and UDP of a control Service at these addresses.
fn targets(cx: &Context, service: &ControlService, addresses: [SocketAddr; 2]) -> [Destination; 2] {
    let [tcp, udp] = addresses;
    let target = |transport, address| {
        let (family, identity) = (
            service.family().to_string(),
            cx.own_services().identity(transport),
        );
        Destination::serves("connections", &family, transport, address, [identity])
    };
    [target(Transport::Tcp, tcp), target(Transport::UdpConnected, udp)]
}

/// A control Service at its ClusterIP.
fn inside(cx: &Context, service: &ControlService) -> [Destination; 2] {
    targets(cx, service, [service.at_cluster_ip(); 2])
}

/// A control Service at its node ports on a node.
fn outside(cx: &Context, service: &ControlService, node: &str) -> Option<[Destination; 2]> {
    let nodes = service.at_nodes(cx.cluster().describe()).into_iter();
    let (_, ports) = nodes.into_iter().find(|(name, _)| name == node)?;
    Some(targets(cx, service, ports.try_into().ok()?))
}

impl Connections {
    /// Opens them. They have all been answered when this returns, or T_svc has passed.
    pub(super) async fn open(cx: &Context, node: &str) -> Result<Self, Halt> {
        let services = services(cx).await?;
        let mut dialled: Vec<(Client, Vec<Destination>)> = Vec::new();
        for client in cx.clients().on(node) {
            let targets = services.iter().flat_map(|service| inside(cx, service));
            dialled.push((client, targets.collect()));
        }
        if let Some(client) = cx.clients().outside() {
            let targets = services.iter().filter_map(|service| outside(cx, service, node));
            dialled.push((client, targets.flatten().collect()));
        }
        let starts = dialled.into_iter().map(async |(client, targets)| {
            let entry = |target: &Destination| target.established(1, cx.longest(), cx.limits());
            let run = probing::begin(cx, &client, targets.iter().map(entry).collect()).await?;
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
            let answered = |attempts: &[Attempt], target: &Destination| {
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
            cx.logs().of(cx.own_services().backend()).await?
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
