//! One round of the control loop: its steps, in order.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{latency::Latency, periodic_metrics::Survey};
use crate::{
    api_access::ApiServers,
    control::{Changes, Control, DesiredState},
    datapath::Datapath,
    feed::Arrival,
    health_checks::Wanted,
    hooks::Hooks,
    host::HostWatch,
    ledger::{Origin, Subject},
    maglev::Scale,
    maps::{Map, MapError},
    model::{Event, Kind, Model, ServiceRanges},
    names::ObjectName,
    pod_network::{self, Plans},
    readiness::Component,
    reconcile::Drift,
    reports::Reports,
    udp::Departures,
};

/// Shortest pause before the next scan of the hooks, or the next audit. Without other work, rounds are
/// [`SCAN`](crate::hooks::SCAN) apart.
const IDLE: Duration = Duration::from_millis(500);

/// What rounds work on, and what they send to.
pub(super) struct Rounds<B, D: Datapath> {
    pub(super) control: Control<B, D::Maps>,
    pub(super) hooks: Hooks<D>,
    pub(super) host: Option<HostWatch>,
    pub(super) pod_network: Option<Plans>,
    /// Remembers endpoints of API servers.
    pub(super) servers: Option<ApiServers>,
    /// Whether `servers` has seen every Service once. Adopted maps may hold a Service already, which is not written
    /// then.
    pub(super) learned: bool,
    /// Ends flows and sockets of backends that no longer serve.
    pub(super) departures: Departures,
    pub(super) health_checks: watch::Sender<Wanted>,
    pub(super) reports: Reports,
    pub(super) audits: Audits,
    pub(super) latency: Latency,
    pub(super) survey: Survey,
    /// Whether Nodes have changed since the pods' network was planned.
    pub(super) nodes_changed: bool,
    /// As last configured in the programs.
    pub(super) service_ranges: Option<ServiceRanges>,
    /// The size of Maglev's tables, as last logged.
    pub(super) scale: Scale,
}

/// When the next map is audited.
pub(super) struct Audits {
    every: Duration,
    next: Instant,
    /// The map that was compared last, as an index of [`Map::ALL`].
    last: usize,
    /// So many more follow at the shortest pause: every map once after the last finding.
    again: usize,
}

impl Audits {
    /// All maps within `interval`, one after the other, so that no audit delays events for long. After a finding the maps follow each other
    /// at the shortest pause until all of them are as they should be: what changes one map changes others, what is foreign goes when
    /// all have been compared, and what it kept out follows then.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        let every = interval / u32::try_from(Map::ALL.len()).unwrap_or(1);
        let next = now + every;
        let (last, again) = (0, 0);
        Self {
            every,
            next,
            last,
            again,
        }
    }

    /// When the next one follows on one that has found a difference, or none.
    fn follow(&mut self, now: Instant, found: bool) {
        self.again = if found {
            Map::ALL.len()
        } else {
            self.again.saturating_sub(1)
        };
        let pause = if self.again > 0 {
            IDLE.min(self.every)
        } else {
            self.every
        };
        self.next = now + pause;
    }
}

impl<B: DesiredState, D: Datapath> Rounds<B, D> {
    /// Takes events; writes nothing.
    pub(super) fn take(&mut self, arrival: Arrival) {
        for change in arrival.changes {
            if self.control.synced() {
                self.latency.begin(&change, arrival.at);
            }
            self.nodes_changed |= matches!(change.event, Event::NodeApplied(_) | Event::NodeDeleted(_));
            log_event(&change.event);
            self.control.apply(change.event);
        }
    }

    /// Writes what is outstanding, then checks the programs.
    pub(super) fn round(&mut self, now: Instant) {
        self.send_node_addresses();
        // Devices get their programs before the cgroup does.
        self.take_host();
        let metrics = &self.reports.metrics;
        let is_due = self.control.deadline().is_some_and(|deadline| deadline <= now);
        let retrying = is_due && self.control.postponed() == 0;
        let busy = self.control.outstanding() || retrying;
        if retrying {
            metrics.retries.at([]).inc();
        }
        self.control.reconcile(now);
        if busy {
            metrics.round.observe(now.elapsed().as_secs_f64());
        }
        let changes = self.control.take_changes();
        self.act_on(changes);
        self.learn_all();
        self.plan_pod_network();
        self.configure_service_ranges();
        self.report_scale();
        self.hooks.scan(self.control.synced(), now);
        self.audit(now);
        self.survey
            .update(&self.control, &self.hooks, &self.reports.metrics, now);
        self.report();
    }

    /// When the next round begins, without events. While the hooks wait for the maps, their time is past; rounds go on
    /// all the same, for `/healthz`.
    pub(super) fn wake(&self) -> Instant {
        let idle = Instant::now() + IDLE;
        let times = [self.hooks.next().max(idle), self.audits.next.max(idle)];
        times
            .into_iter()
            .chain(self.control.deadline())
            .min()
            .unwrap_or(idle)
    }

    /// Reports what is not ready.
    pub(super) fn report(&self) {
        let Reports {
            readiness, metrics, ..
        } = &self.reports;
        let unsynced: Vec<Kind> = self.control.desired().model().unsynced().collect();
        // Services are served without Service ranges.
        let (unneeded, needed): (Vec<Kind>, Vec<Kind>) =
            unsynced.iter().partition(|kind| **kind == Kind::ServiceCidr);
        let unlisted = |kinds: Vec<Kind>| kinds.into_iter().map(|kind| readiness.unlisted_reason(kind));
        let now = Instant::now();
        let listed = Kind::ALL.into_iter().filter(|kind| !unsynced.contains(kind));
        let silent = listed.filter_map(|kind| readiness.silence_reason(kind, now));
        let watches = silent.chain(unlisted(unneeded)).collect();
        let mut troubles = self.control.troubles();
        let postponed = self.control.postponed();
        metrics
            .outstanding
            .at([])
            .set(i64::try_from(troubles.len() + postponed).unwrap_or(i64::MAX));
        if postponed > 0 {
            troubles.push(format!(
                "{postponed} Services wait to be written: frontends that get other values are replaced a few at a time"
            ));
        }
        let unattached = self.hooks.unattached_reasons();
        let mut others = self.hooks.reasons();
        others.retain(|reason| !unattached.contains(reason));
        readiness.set_reasons(Component::Programs, unattached);
        readiness.set_reasons(Component::Hooks, others);
        readiness.set_reasons(Component::Lists, unlisted(needed).collect());
        readiness.set_reasons(Component::Watches, watches);
        readiness.set_reasons(Component::Maps, troubles);
        readiness.round_ended(now);
        metrics
            .ready
            .at([])
            .set(i64::from(readiness.reasons().is_empty()));
    }

    /// Passes the results of reconciliation on.
    fn act_on(&mut self, changes: Changes) {
        for (service, findings) in changes.findings {
            let subject = Subject::Object(Kind::Service, service);
            self.reports.ledger.set(subject, Origin::Planned, findings);
        }
        if !changes.health_checks.is_empty() {
            self.health_checks.send_modify(|wanted| {
                for (service, check) in changes.health_checks {
                    match check {
                        Some(check) => wanted.insert(service, check),
                        None => wanted.remove(&service),
                    };
                }
            });
        }
        self.departures.send(changes.departed, changes.moved);
        for service in &changes.written {
            self.learn(service);
            let seconds = self.latency.written(service, &self.reports.metrics);
            self.log_written(service, seconds);
        }
        // A failed write is still to come.
        if self.control.synced() && self.control.deadline().is_none() {
            self.latency.forget();
        }
    }

    /// Remembers the endpoints of API servers, once.
    fn learn_all(&mut self) {
        if self.learned || !self.control.synced() {
            return;
        }
        self.learned = true;
        for (_, service) in self.control.desired().model().services() {
            self.learn(&service.name);
        }
    }

    /// Remembers the endpoints of a Service, if they are API servers.
    fn learn(&self, service: &ObjectName) {
        let Some(servers) = &self.servers else { return };
        let (desired, model) = (self.control.desired(), self.control.desired().model());
        let Some(id) = model.id(service) else { return };
        if model
            .service(id)
            .is_some_and(|service| servers.may_serve_api(service))
        {
            servers.learn_from(service, &desired.plan_api_access(id));
        }
    }

    fn log_written(&self, service: &ObjectName, seconds: Option<f64>) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let desired = self.control.desired();
        let plan = desired
            .model()
            .id(service)
            .map(|id| desired.plan_service(id))
            .unwrap_or_default();
        let ports = plan.ports.len();
        let frontends: usize = plan.ports.values().map(|port| port.frontends.len()).sum();
        let backends: usize = plan.ports.values().map(|port| port.cluster.len()).sum();
        let local: usize = plan.ports.values().map(|port| port.local.len()).sum();
        tracing::debug!(%service, ports, frontends, backends, local, seconds, "written");
    }

    fn audit(&mut self, now: Instant) {
        if now < self.audits.next || !self.control.synced() {
            return;
        }
        let begin = Instant::now();
        let audited = self.control.audit();
        let found = match &audited {
            Ok(drift) => drift.missing + drift.wrong + drift.foreign > 0,
            Err(error) => matches!(error, MapError::Full { .. }),
        };
        self.audits.follow(now, found);
        let metrics = &self.reports.metrics;
        metrics.audit.observe(begin.elapsed().as_secs_f64());
        let Drift {
            map,
            missing,
            wrong,
            foreign,
        } = match audited {
            Ok(drift) => drift,
            Err(error) => {
                tracing::warn!(%error, "an audit failed; the next one tries again");
                return;
            }
        };
        let at = Map::ALL.iter().position(|one| *one == map).unwrap_or_default();
        if at < self.audits.last {
            metrics.audits.at([]).inc();
        }
        self.audits.last = at;
        let kinds = [("missing", missing), ("wrong", wrong), ("foreign", foreign)];
        for (what, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
            metrics
                .drift
                .at([map.name(), what])
                .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
        if found {
            let map = map.name();
            tracing::warn!(
                map,
                missing,
                wrong,
                foreign,
                "another program has changed a map; its entries are written again"
            );
        }
    }

    /// Attaches programs to new devices at once.
    fn take_host(&mut self) {
        let view = self
            .host
            .as_mut()
            .and_then(|host| host.views.borrow_and_update().clone());
        if let Some(view) = view {
            self.hooks.set_host(view);
        }
    }

    /// Plans the pods' network when Nodes have changed; not before all of them are known.
    fn plan_pod_network(&mut self) {
        let (Some(host), Some(plans)) = (&self.host, &self.pod_network) else {
            return;
        };
        if !self.nodes_changed || !self.control.synced() {
            return;
        }
        let plan = pod_network::plan(&host.node, self.control.desired().model().nodes());
        plans.send_if_modified(|before| {
            let differs = before.as_deref() != Some(&plan);
            if differs {
                *before = Some(Arc::new(plan));
            }
            differs
        });
        self.nodes_changed = false;
    }

    /// Sends the addresses of this node's Node object when they have changed.
    fn send_node_addresses(&self) {
        let Some(host) = &self.host else { return };
        let Some(addresses) = node_addresses(self.control.desired().model(), &host.node) else {
            return;
        };
        host.node_addresses.send_if_modified(|before| {
            let differs = before.as_deref() != Some(addresses);
            if differs {
                *before = Some(addresses.to_vec());
            }
            differs
        });
    }
}

/// The addresses of a Node object; `None`: it may not be listed yet.
fn node_addresses<'a>(model: &'a Model, node: &str) -> Option<&'a [IpAddr]> {
    match model.node(node) {
        Some(node) => Some(&node.addresses),
        None if model.unsynced().any(|kind| kind == Kind::Node) => None,
        None => Some(&[]),
    }
}

/// Logs an event under the name of its Service.
fn log_event(event: &Event) {
    match event {
        Event::ServiceApplied(service) => {
            tracing::debug!(service = %service.name, ports = service.ports.len(), "service seen");
        }
        Event::ServiceDeleted(name) => tracing::debug!(service = %name, "service gone"),
        Event::SliceApplied(slice) => {
            let owner = slice.owner().map(|owner| owner.to_string()).unwrap_or_default();
            let endpoints = slice.endpoints.len();
            tracing::debug!(service = owner, slice = %slice.name, endpoints, "slice seen");
        }
        Event::SliceDeleted(name) => tracing::debug!(slice = %name, "slice gone"),
        Event::ApiServers(servers) => tracing::debug!(?servers, "addresses of API servers"),
        Event::NodeApplied(_)
        | Event::NodeDeleted(_)
        | Event::ServiceCidrApplied(_)
        | Event::ServiceCidrDeleted(_)
        | Event::ServiceRanges(_)
        | Event::Host(_)
        | Event::Synced(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Node;

    #[test]
    fn after_a_finding_every_map_is_compared_again_at_the_shortest_pause() {
        let (now, seldom) = (Instant::now(), Duration::from_secs(10));
        let all = u32::try_from(Map::ALL.len()).expect("few");
        let mut audits = Audits::new(seldom * all, now);
        let mut pause = |found| {
            audits.follow(now, found);
            audits.next - now
        };
        assert_eq!(pause(false), seldom);
        assert_eq!(pause(true), IDLE);
        for _ in 1..all {
            assert_eq!(pause(false), IDLE);
        }
        assert_eq!(pause(false), seldom);
    }

    #[test]
    fn a_missing_node_object_has_no_addresses_once_nodes_are_listed() {
        let mut model = Model::default();
        assert_eq!(node_addresses(&model, "here"), None);
        let address = [192, 0, 2, 1].into();
        model.apply(Event::NodeApplied(Node {
            name: "here".to_owned(),
            zone: None,
            addresses: vec![address],
            internal: vec![address],
            pods: Vec::new(),
        }));
        assert_eq!(
            node_addresses(&model, "here"),
            Some(&[address][..]),
            "in the middle of a list"
        );
        assert_eq!(node_addresses(&model, "there"), None);
        model.apply(Event::Synced(Kind::Node));
        assert_eq!(node_addresses(&model, "there"), Some(&[][..]));
    }
}
