//! Results of reconciliations: for metrics, Events, health check servers, and the ending of UDP flows.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::capacity;

use crate::{
    findings::{Finding, Reason},
    hash::HashMap,
    names::{ObjectId, ObjectName},
    plan::{HealthCheck, ServicePlan},
    reconcile::{Bounded, Departed, MovedFrontend, Trouble},
};

/// Changes since the last call. Of several changes of one Service the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Services with new lists of findings, [`Reason::NotWritten`] included, sorted; empty: all are over, or the Service
    /// is gone.
    pub findings: Vec<(ObjectName, Vec<Finding>)>,
    /// Services with a new health check node port; `None`: it has none, or is gone.
    pub health_checks: Vec<(ObjectName, Option<HealthCheck>)>,
    /// UDP backends that have left a service port.
    pub departed: Bounded<Departed>,
    /// UDP frontends that have passed to another service port, or to none.
    pub moved: Bounded<MovedFrontend>,
    /// Services of which something was written, deleted ones excepted: at most as many as there can be service ports.
    pub written: Vec<ObjectName>,
}

/// What is reported of every Service, and its changes since the last call.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    reported: HashMap<ObjectId, Reported>,
    findings: BTreeMap<ObjectName, Vec<Finding>>,
    health_checks: BTreeMap<ObjectName, Option<HealthCheck>>,
    written: BTreeSet<ObjectName>,
}

/// What is reported of one Service; never empty.
#[derive(Debug)]
struct Reported {
    name: ObjectName,
    findings: Vec<Finding>,
    health_check: Option<HealthCheck>,
}

/// The part of a Service's plan that goes into reports, not into maps.
#[derive(Debug)]
pub(super) struct PlanNotes {
    service: ObjectId,
    findings: Vec<Finding>,
    health_check: Option<HealthCheck>,
}

impl PlanNotes {
    /// Takes the notes out of a plan that is about to be written.
    pub(super) fn take(service: ObjectId, plan: &mut ServicePlan) -> Self {
        Self {
            service,
            findings: std::mem::take(&mut plan.findings),
            health_check: plan.health_check,
        }
    }

    /// The Service of the plan.
    pub(super) const fn service(&self) -> ObjectId {
        self.service
    }

    /// Whether there is nothing to report.
    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.health_check.is_none()
    }

    /// Adds failed writes.
    pub(super) fn with_failures<'a>(mut self, troubles: impl Iterator<Item = Trouble<'a>>) -> Self {
        self.findings.extend(troubles.map(|trouble| Finding {
            reason: Reason::NotWritten,
            message: not_written(&trouble),
        }));
        self.findings.sort_unstable();
        self
    }
}

/// The message has no number of attempts: it is one finding until the write succeeds.
fn not_written(trouble: &Trouble<'_>) -> String {
    let Trouble { port, error, .. } = trouble;
    match port {
        Some(port) => format!("port {port} is not written, and goes on as it was: {error}"),
        None => format!("an address is not written: {error}"),
    }
}

impl ChangeLog {
    /// Records notes, and their changes. `name`: of a Service that the API has.
    pub(super) fn record(&mut self, notes: PlanNotes, name: Option<&ObjectName>) {
        let is_empty = notes.is_empty();
        let PlanNotes {
            service,
            findings,
            health_check,
        } = notes;
        let before = self.reported.get(&service);
        let Some(name) = before.map(|before| &before.name).or(name).cloned() else {
            // The node itself has no name: its failures are in the troubles.
            return;
        };
        let (findings_before, check_before) =
            before.map_or((&[][..], None), |before| (&before.findings, before.health_check));
        if findings_before != findings {
            self.findings.insert(name.clone(), findings.clone());
        }
        if check_before != health_check {
            self.health_checks.insert(name.clone(), health_check);
        }
        if is_empty {
            self.reported.remove(&service);
        } else {
            let reported = Reported {
                name,
                findings,
                health_check,
            };
            self.reported.insert(service, reported);
        }
    }

    /// Whether anything is reported of a Service.
    pub(super) fn has(&self, service: ObjectId) -> bool {
        self.reported.contains_key(&service)
    }

    /// Something of a Service was written.
    pub(super) fn wrote(&mut self, name: &ObjectName) {
        if self.written.len() < capacity::SERVICES as usize {
            self.written.insert(name.clone());
        }
    }

    /// The changes since the last call.
    pub(super) fn take(&mut self, departed: Bounded<Departed>, moved: Bounded<MovedFrontend>) -> Changes {
        Changes {
            findings: std::mem::take(&mut self.findings).into_iter().collect(),
            health_checks: std::mem::take(&mut self.health_checks).into_iter().collect(),
            departed,
            moved,
            written: std::mem::take(&mut self.written).into_iter().collect(),
        }
    }
}
