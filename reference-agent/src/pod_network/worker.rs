//! Plans → the kernel and the file, again and again.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, channel::mpsc::UnboundedReceiver};
use ipnet::IpNet;
use rtnetlink::{
    Handle, MulticastGroup, new_connection, new_multicast_connection,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::RouteNetlinkMessage,
    sys::SocketAddr,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, sleep_until},
};

use super::{
    conflist::Conflist,
    flags::{RemoveError, remove},
    masquerade::{Masquerade, Written},
    plan::Plan,
    routes::{self, Outcome},
};
use crate::{
    host::{HostWatch, NetlinkError, View},
    readiness::Component,
    reports::Reports,
};

/// Time after which everything is checked and written again without a message of the kernel: rules may have been flushed.
pub const AUDIT: Duration = Duration::from_secs(30);
/// Delay after the first failure.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// Longest delay between two tries; each is twice the one before.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// Shortest time between two rounds: a burst of messages causes one.
const SETTLE: Duration = Duration::from_millis(100);
const GROUPS: [MulticastGroup; 3] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

type Messages = UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// Keeps the pods' network as planned, in the network namespace of the thread that first runs it.
#[derive(Debug)]
pub struct Worker {
    node: String,
    conflist: Conflist,
    plans: watch::Receiver<Option<Arc<Plan>>>,
    views: watch::Receiver<Option<Arc<View>>>,
    reports: Reports,
}

/// The result of one round.
#[derive(Debug, Default)]
struct Round {
    troubles: Vec<String>,
    outcome: Outcome,
}

impl Worker {
    /// `host`: this node, whose MTU pods get.
    pub fn new(
        folder: &Path,
        host: &HostWatch,
        plans: watch::Receiver<Option<Arc<Plan>>>,
        reports: Reports,
    ) -> Self {
        let waiting = "the pod network is not set up yet: the Nodes are not known";
        reports
            .readiness
            .set_reasons(Component::PodNetwork, vec![waiting.to_owned()]);
        Self {
            node: host.node.clone(),
            conflist: Conflist::new(folder),
            plans,
            views: host.views.clone(),
            reports,
        }
    }

    /// Runs until the sender of plans is dropped. The network stays as it is then.
    pub async fn run(mut self) {
        let mut delay = RETRY_FIRST;
        loop {
            let error = match self.follow(&mut delay).await {
                Ok(()) => return,
                Err(error) => error,
            };
            self.reports.metrics.pod_network_failures.at([]).inc();
            let trouble =
                format!("the pod network can't be kept: the kernel's routes can't be read: {error}");
            self.reports
                .readiness
                .set_reasons(Component::PodNetwork, vec![trouble]);
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_LIMIT);
        }
    }

    /// One connection to the kernel. `Ok`: the sender of plans is dropped.
    async fn follow(&mut self, delay: &mut Duration) -> Result<(), NetlinkError> {
        let mut connections = JoinSet::new();
        // The subscription begins before the first round, so that no change is lost.
        let (connection, _keep, mut messages) =
            new_multicast_connection(&GROUPS).map_err(NetlinkError::Connect)?;
        connections.spawn(connection);
        let (connection, handle, _) = new_connection().map_err(NetlinkError::Connect)?;
        connections.spawn(connection);
        let mut written = None;
        let mut audit = Instant::now();
        loop {
            let now = Instant::now();
            if now >= audit {
                // If that can't be read, writing fails, too, and reports why.
                written =
                    written.filter(|written: &Written| written.is_current().is_ok_and(|current| current));
                audit = now + AUDIT;
            }
            let plan = self.plans.borrow_and_update().clone();
            let mtu = self.views.borrow_and_update().as_ref().map(|view| view.mtu);
            let mut round = Round::default();
            if let (Some(plan), Some(mtu)) = (&plan, mtu) {
                round = self.work(&handle, plan, mtu, &mut written).await?;
                self.report(&round, plan);
            }
            let retry = if round.troubles.is_empty() {
                *delay = RETRY_FIRST;
                audit
            } else {
                let next = Instant::now() + *delay;
                *delay = (*delay * 2).min(RETRY_LIMIT);
                next.min(audit)
            };
            sleep(SETTLE).await;
            tokio::select! {
                changed = self.plans.changed() => match changed {
                    Ok(()) => *delay = RETRY_FIRST,
                    Err(_) => return Ok(()),
                },
                Ok(()) = self.views.changed() => {}
                lost = relevant_message(&mut messages, &round) => lost?,
                () = sleep_until(retry.into()) => {}
            }
        }
    }

    /// Sets everything as planned. `written`: the current rules.
    async fn work(
        &self,
        handle: &Handle,
        plan: &Plan,
        mtu: Option<u32>,
        written: &mut Option<Written>,
    ) -> Result<Round, rtnetlink::Error> {
        let nothing = Plan::default();
        let mut round = Round::default();
        let looked = self
            .conflist
            .foreign()
            .and_then(|foreign| Ok((foreign, self.conflist.exists()?)));
        let (refused, own) = match looked {
            Ok((foreign, ours)) => {
                round.troubles.extend(self.conflist.warning(&foreign, ours));
                (!foreign.is_empty() && !ours, true)
            }
            Err(error) => {
                let at = self.conflist.path();
                round
                    .troubles
                    .push(format!("{} can't be looked at: {error}", at.display()));
                (false, false)
            }
        };
        let wanted = if refused { &nothing } else { plan };
        round.troubles.extend(plan.troubles.iter().cloned());
        round.outcome = routes::reconcile(handle, &wanted.routes).await?;
        round.troubles.append(&mut round.outcome.troubles);
        let masquerade = Masquerade {
            pods: wanted.own.clone(),
            kept: wanted.kept.clone(),
        };
        if written.as_ref().is_none_or(|written| !written.is_of(&masquerade)) {
            let done = if refused {
                Masquerade::remove().map(|_| None)
            } else {
                masquerade.write().map(Some)
            };
            match done {
                Ok(done) => *written = done,
                Err(error) => round.troubles.push(format!(
                    "what pods send out of the cluster is not masqueraded: nf_tables: {error}"
                )),
            }
        }
        // Last, so that the first pod finds all that could be set.
        if own && !wanted.own.is_empty() {
            let path = self.conflist.path();
            match self
                .conflist
                .write(&Conflist::render(&self.node, &wanted.own, mtu))
            {
                Ok(true) => {
                    tracing::info!(file = %path.display(), ranges = ?wanted.own, mtu, "pods have a network");
                }
                Ok(false) => {}
                Err(error) => round
                    .troubles
                    .push(format!("{} can't be written: {error}", path.display())),
            }
        }
        round.troubles.extend(forwarding(&wanted.own));
        Ok(round)
    }

    fn report(&self, round: &Round, plan: &Plan) {
        let Reports {
            readiness, metrics, ..
        } = &self.reports;
        let Round { troubles, outcome } = round;
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.pod_routes.at(["planned"]).set(number(plan.routes.len()));
        metrics.pod_routes.at(["set"]).set(number(outcome.there));
        if !troubles.is_empty() {
            metrics.pod_network_failures.at([]).inc();
        }
        if outcome.changed > 0 {
            let (changed, there) = (outcome.changed, outcome.there);
            tracing::info!(changed, there, "routes to pods of other nodes");
        }
        readiness.set_reasons(Component::PodNetwork, troubles.clone());
    }
}

/// Removes the pods' network of an earlier start, and tries again until it is gone. Without the agent's table there was
/// none since the boot. The file is outside of network namespaces: it may be of an earlier boot, or of another node of
/// this host.
pub(crate) async fn clear(node: String, folder: PathBuf, reports: Reports) {
    let mut delay = RETRY_FIRST;
    loop {
        let found = match is_left(&node, &folder) {
            Ok(true) => remove(&folder).await,
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(removed) => {
                for what in removed {
                    tracing::info!(
                        what,
                        "an earlier start gave pods their network, this one does not"
                    );
                }
                reports.readiness.set_reasons(Component::PodNetwork, Vec::new());
                return;
            }
            Err(error) => {
                reports.metrics.pod_network_failures.at([]).inc();
                let trouble =
                    format!("what an earlier start with --pod-network has left is still there: {error}");
                reports
                    .readiness
                    .set_reasons(Component::PodNetwork, vec![trouble]);
            }
        }
        sleep(delay).await;
        delay = (delay * 2).min(RETRY_LIMIT);
    }
}

/// Whether an earlier start on this node has left something.
fn is_left(node: &str, folder: &Path) -> Result<bool, RemoveError> {
    if Masquerade::exists().map_err(RemoveError::Read)? {
        return Ok(true);
    }
    let conflist = Conflist::new(folder);
    conflist.is_of(node).map_err(|source| RemoveError::ReadFile {
        path: conflist.path(),
        source,
    })
}

/// Returns when one of the agent's routes may be gone, or one that failed may be possible now. IPv4 sends no message for
/// routes that end with their device.
async fn relevant_message(messages: &mut Messages, round: &Round) -> Result<(), rtnetlink::Error> {
    use RouteNetlinkMessage::{DelLink, DelRoute, NewLink, NewRoute};
    let failing = !round.troubles.is_empty();
    loop {
        let Some((message, _)) = messages.next().await else {
            return Err(rtnetlink::Error::RequestFailed);
        };
        let concerns = match &message.payload {
            NetlinkPayload::InnerMessage(DelRoute(route)) => routes::is_ours(route),
            NetlinkPayload::InnerMessage(NewLink(link) | DelLink(link)) => {
                failing || round.outcome.devices.contains(&link.header.index)
            }
            NetlinkPayload::InnerMessage(NewRoute(route)) => failing && !routes::is_ours(route),
            NetlinkPayload::InnerMessage(_) => false,
            // Messages were lost.
            _ => true,
        };
        if concerns {
            return Ok(());
        }
    }
}

/// Reasons that the kernel forwards no packets of these ranges. An unreadable setting counts as forwarding.
fn forwarding(ranges: &[IpNet]) -> Vec<String> {
    let has_v4 = ranges.iter().any(|range| range.addr().is_ipv4());
    let has_v6 = ranges.iter().any(|range| range.addr().is_ipv6());
    [(has_v4, "net.ipv4.ip_forward"), (has_v6, "net.ipv6.conf.all.forwarding")]
        .into_iter()
        .filter(|(has, setting)| {
            let file = format!("/proc/sys/{}", setting.replace('.', "/"));
            *has && fs::read_to_string(file).is_ok_and(|value| value.trim() == "0")
        })
        .map(|(_, setting)| {
            format!("packets of pods are not forwarded: {setting} is 0; ptp turns it on with the first pod, or do it yourself")
        })
        .collect()
}
