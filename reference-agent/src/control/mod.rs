//! The control plane without I/O: events in, writes out.
//!
//! ```text
//! Event ─▶ DesiredState::apply ─▶ dirty services ─▶ DesiredState::plan_service ─▶ Reconciler ─▶ LbMaps
//! ```
//!
//! [`DesiredState`] is a seam: `chaos/mutants` puts its bugs around [`Planner`] there. In the agent it is always [`Planner`].

mod changes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use crate::{
    maglev::Scale,
    maps::{LbMaps, Map, MapError},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{self, Perspective, Plan, ServicePlan},
    reconcile::{Drift, Reconciler, Trouble},
};

pub use self::changes::Changes;
use self::changes::{ChangeLog, PlanNotes};

/// Sizes of what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Balanced Services of the API, also those that do not fit into the maps.
    pub services: usize,
    /// Entries of FRONTENDS.
    pub frontends: usize,
    /// Entries of BACKENDS.
    pub backends: usize,
    /// Entries of SLOTS, members included.
    pub slots: usize,
    /// Each map.
    pub maps: [Pressure; Map::ALL.len()],
}

/// How full a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Which map.
    pub map: &'static str,
    /// Entries that the agent has written.
    pub entries: usize,
    /// Entries that fit.
    pub capacity: u32,
}

/// The model of the API, and the plans made of it.
pub trait DesiredState: Send {
    /// Applies an event. The result: the Services whose plan may have changed.
    fn apply(&mut self, event: Event) -> Dirty;
    /// The plan of one Service.
    fn plan_service(&self, service: ObjectId) -> ServicePlan;
    /// The plan of a Service through which the agent may reach API servers, whose endpoints are remembered.
    fn plan_api_access(&self, service: ObjectId) -> ServicePlan {
        self.plan_service(service)
    }
    /// The size of Maglev's tables; `None`: there are none, or a decorator of the planner does not return it.
    fn scale(&self) -> Option<Scale> {
        None
    }
    /// The model.
    fn model(&self) -> &Model;
}

/// One whose type is chosen at run time.
impl<D: DesiredState + ?Sized> DesiredState for Box<D> {
    fn apply(&mut self, event: Event) -> Dirty {
        (**self).apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        (**self).plan_service(service)
    }

    fn plan_api_access(&self, service: ObjectId) -> ServicePlan {
        (**self).plan_api_access(service)
    }

    fn scale(&self) -> Option<Scale> {
        (**self).scale()
    }

    fn model(&self) -> &Model {
        (**self).model()
    }
}

/// The production agent's desired state: the API's objects, planned for one node.
#[derive(Debug, Default)]
pub struct Planner {
    model: Model,
    perspective: Perspective,
}

impl Planner {
    /// Without objects.
    pub fn new(perspective: Perspective) -> Self {
        Self {
            model: Model::default(),
            perspective,
        }
    }

    /// The plan of everything, from scratch.
    pub fn plan(&self) -> Plan {
        plan::plan(&self.model, &self.perspective)
    }
}

impl DesiredState for Planner {
    fn apply(&mut self, event: Event) -> Dirty {
        plan::apply(&mut self.model, &self.perspective, event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        plan::plan_service(&self.model, &self.perspective, service)
    }

    fn scale(&self) -> Option<Scale> {
        self.perspective.scale(&self.model)
    }

    fn model(&self) -> &Model {
        &self.model
    }
}

/// The desired state and the maps, and what of the one is still to be written to the other.
#[derive(Debug)]
pub struct Control<B, M> {
    desired: B,
    reconciler: Reconciler<M>,
    dirty: Dirty,
    changes: ChangeLog,
}

impl<B: DesiredState, M: LbMaps> Control<B, M> {
    /// Adopts the maps with their contents. Writes nothing.
    ///
    /// # Errors
    /// The maps can't be read.
    pub fn new(desired: B, maps: M) -> Result<Self, MapError> {
        Ok(Self {
            desired,
            reconciler: Reconciler::adopt(maps)?,
            dirty: Dirty::new(),
            changes: ChangeLog::default(),
        })
    }

    /// Applies an event. Writes nothing.
    pub fn apply(&mut self, event: Event) {
        let dirty = self.desired.apply(event);
        self.dirty.extend(dirty);
    }

    /// Writes everything outstanding, and retries what is due.
    ///
    /// Does nothing until all kinds have synced once: a Service of which only one page of slices has come would lose the
    /// backends of the others.
    pub fn reconcile(&mut self, now: Instant) {
        if !self.synced() {
            return;
        }
        let mut services = std::mem::take(&mut self.dirty);
        services.extend(self.reconciler.due(now));
        let desired = &self.desired;
        let mut notes = Vec::new();
        let changes = &self.changes;
        // The first to be written can claim what an earlier start has kept for the agent's own sockets.
        let kept: BTreeSet<ObjectId> = desired.model().api_frontend_owners().collect();
        let first = kept.iter().filter(|service| services.contains(service));
        let rest = services.iter().filter(|service| !kept.contains(service));
        let plans = first.chain(rest).map(|&service| {
            let mut plan = desired.plan_service(service);
            let of_plan = PlanNotes::take(service, &mut plan);
            if !of_plan.is_empty() || changes.has(service) {
                notes.push(of_plan);
            }
            (service, plan)
        });
        self.reconciler.reconcile(plans, now);
        self.record(&services, notes);
    }

    /// Records the notes of plans, and failed writes, to be reported.
    fn record(&mut self, services: &Dirty, notes: Vec<PlanNotes>) {
        let model = self.desired.model();
        let mut notes: BTreeMap<ObjectId, PlanNotes> =
            notes.into_iter().map(|notes| (notes.service(), notes)).collect();
        for service in self.reconciler.failing() {
            if services.contains(&service) {
                notes
                    .entry(service)
                    .or_insert_with(|| PlanNotes::take(service, &mut ServicePlan::default()));
            }
        }
        for (service, notes) in notes {
            let notes = notes.with_failures(self.reconciler.failures(service));
            self.changes.record(notes, model.name(service));
        }
        let touched = self.reconciler.take_touched();
        for name in touched.into_iter().filter_map(|service| model.name(service)) {
            self.changes.wrote(name);
        }
    }

    /// Results of reconciliations since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let (departed, moved) = (self.reconciler.take_departed(), self.reconciler.take_moved());
        self.changes.take(departed, moved)
    }

    /// Sizes of what is served and of the maps; walks over every service port.
    pub fn statistics(&self) -> Statistics {
        let entries = self.reconciler.entries();
        let of = |map: Map| entries[map as usize];
        Statistics {
            services: self.desired.model().services().count(),
            frontends: of(Map::Frontends),
            backends: of(Map::Backends),
            slots: of(Map::Slots),
            maps: Map::ALL.map(|map| Pressure {
                map: map.name(),
                entries: of(map),
                capacity: map.capacity(),
            }),
        }
    }

    /// Compares the next map with what was written there, and repairs differences: missing and wrong entries are written
    /// again, foreign ones removed, in an order that no program can observe. One call for each map makes a round.
    ///
    /// Bounds: a call reads one map, and repairs at most [`WRONG_LIMIT`](crate::reconcile::WRONG_LIMIT) wrong entries,
    /// each of which may wait for running programs; the next call goes on with the others.
    ///
    /// # Errors
    /// A map can't be read or written; the next round tries again.
    pub fn audit(&mut self) -> Result<Drift, MapError> {
        self.reconciler.audit()
    }

    /// Whether all kinds have been listed once, and the machine is known.
    pub fn synced(&self) -> bool {
        self.desired.model().synced()
    }

    /// Whether [`reconcile`](Self::reconcile) would write at once.
    pub fn outstanding(&self) -> bool {
        self.synced() && (!self.dirty.is_empty() || self.postponed() > 0)
    }

    /// How many Services wait for another round because others came first.
    pub fn postponed(&self) -> usize {
        self.reconciler.postponed()
    }

    /// When to call [`reconcile`](Self::reconcile) next without an event.
    pub fn deadline(&self) -> Option<Instant> {
        self.reconciler.deadline()
    }

    /// Failures that last, one sentence each, with the Service's name.
    pub fn troubles(&self) -> Vec<String> {
        self.reconciler
            .troubles()
            .map(|trouble| self.describe(&trouble))
            .collect()
    }

    /// The desired state.
    pub fn desired(&self) -> &B {
        &self.desired
    }

    /// The reconciler.
    pub fn reconciler(&self) -> &Reconciler<M> {
        &self.reconciler
    }

    /// The reconciler, for tests that disturb its maps.
    pub fn reconciler_mut(&mut self) -> &mut Reconciler<M> {
        &mut self.reconciler
    }

    /// Returns the maps.
    pub fn into_maps(self) -> M {
        self.reconciler.into_maps()
    }

    fn describe(&self, trouble: &Trouble<'_>) -> String {
        let Trouble {
            service,
            port,
            error,
            attempts,
        } = trouble;
        let Some(service) = service else {
            return format!("entries to be removed are still there after {attempts} attempts: {error}");
        };
        let name = self.desired.model().name(*service);
        let whose = match name {
            Some(name) => format!("service {name}"),
            None if *service == ObjectId::NODE => "the node itself".to_owned(),
            None => "service (deleted)".to_owned(),
        };
        let port = port.map_or_else(String::new, |port| format!(" port {port}"));
        format!("{whose}{port} is not written after {attempts} attempts: {error}")
    }
}
