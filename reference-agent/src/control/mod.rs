//! The control plane without I/O: events in, writes out.
//!
//! ```text
//! Event ─▶ DesiredState::apply ─▶ dirty services ─▶ DesiredState::plan_service ─▶ Reconciler ─▶ LbMaps
//! ```
//!
//! [`DesiredState`] is a seam: `chaos/mutants` puts its bugs around [`Planner`] there. The agent itself has no other.

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
use self::changes::{Ledger, PlanNotes};

/// How much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Services of the API that are balanced, whether they have a place in the maps or not.
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
    /// How many entries the agent has written there.
    pub entries: usize,
    /// How many fit.
    pub capacity: u32,
}

/// What becomes of events: the model and the plans made of it.
pub trait DesiredState: Send {
    /// Takes an event; the result names the Services whose plan may differ from before.
    fn apply(&mut self, event: Event) -> Dirty;
    /// The plan of one Service.
    fn plan_service(&self, service: ObjectId) -> ServicePlan;
    /// The plan of a Service that may lead to API servers, for whoever remembers where they are.
    fn plan_api_access(&self, service: ObjectId) -> ServicePlan {
        self.plan_service(service)
    }
    /// How large Maglev's tables are; `None`: there are none, or who decorates the planner does not say.
    fn scale(&self) -> Option<Scale> {
        None
    }
    /// What the API says.
    fn model(&self) -> &Model;
}

/// The production agent's: what the API says, planned for one node.
#[derive(Debug, Default)]
pub struct Planner {
    model: Model,
    perspective: Perspective,
}

impl Planner {
    /// Knows nothing yet.
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

/// DesiredState and maps, and what is still to be carried from the one to the other.
#[derive(Debug)]
pub struct Control<B, M> {
    desired: B,
    reconciler: Reconciler<M>,
    dirty: Dirty,
    ledger: Ledger,
}

impl<B: DesiredState, M: LbMaps> Control<B, M> {
    /// Takes over the maps with what is in them. Writes nothing.
    ///
    /// # Errors
    /// The maps can't be read.
    pub fn new(desired: B, maps: M) -> Result<Self, MapError> {
        Ok(Self {
            desired,
            reconciler: Reconciler::adopt(maps)?,
            dirty: Dirty::new(),
            ledger: Ledger::default(),
        })
    }

    /// Takes an event. Writes nothing.
    pub fn apply(&mut self, event: Event) {
        let dirty = self.desired.apply(event);
        self.dirty.extend(dirty);
    }

    /// Carries everything outstanding into the maps, and retries what is due.
    ///
    /// Does nothing until all kinds have synced once: a Service of which only one page of slices is known
    /// would lose the others' backends.
    pub fn reconcile(&mut self, now: Instant) {
        if !self.synced() {
            return;
        }
        let mut services = std::mem::take(&mut self.dirty);
        services.extend(self.reconciler.due(now));
        let desired = &self.desired;
        let mut notes = Vec::new();
        let ledger = &self.ledger;
        // Whoever comes first takes over what an earlier start has left, and of these it is the agent's own way.
        let ways: BTreeSet<ObjectId> = desired.model().api_frontend_owners().collect();
        let first = ways.iter().filter(|way| services.contains(way));
        let rest = services.iter().filter(|service| !ways.contains(service));
        let plans = first.chain(rest).map(|&service| {
            let mut plan = desired.plan_service(service);
            let of_plan = PlanNotes::take(service, &mut plan);
            if !of_plan.is_empty() || ledger.knows(service) {
                notes.push(of_plan);
            }
            (service, plan)
        });
        self.reconciler.reconcile(plans, now);
        self.record(&services, notes);
    }

    /// Records the notes of plans and what could not be written, for whatever reports them.
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
            self.ledger.record(notes, model.name(service));
        }
        let touched = self.reconciler.take_touched();
        for name in touched.into_iter().filter_map(|service| model.name(service)) {
            self.ledger.wrote(name);
        }
    }

    /// What reconciliations did, since this was asked last, that others act on.
    pub fn take_changes(&mut self) -> Changes {
        let (departed, moved) = (self.reconciler.take_departed(), self.reconciler.take_moved());
        self.ledger.take(departed, moved)
    }

    /// How much there is, and how full the maps are; walks over every service port.
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

    /// Compares the next map with what was written there, and repairs what differs: what is missing or wrong is
    /// written again, what is foreign removed, in an order that no program can tell. As many calls as there are maps
    /// are a round; the first call only begins it.
    ///
    /// Bounds: one map is read, at most [`WRONG_LIMIT`](crate::reconcile::WRONG_LIMIT) wrong entries are repaired in
    /// one call, each of which may wait for running programs; the others are in the next round.
    ///
    /// # Errors
    /// A map can't be read or written; the next round tries again.
    pub fn audit(&mut self) -> Result<Drift, MapError> {
        self.reconciler.audit()
    }

    /// Whether all kinds have been listed in full at least once, and the machine is known.
    pub fn synced(&self) -> bool {
        self.desired.model().synced()
    }

    /// Whether there is anything that [`reconcile`](Self::reconcile) would do at once.
    pub fn outstanding(&self) -> bool {
        self.synced() && (!self.dirty.is_empty() || self.postponed() > 0)
    }

    /// How many Services are not written in full because others come first: another round goes on with them.
    pub fn postponed(&self) -> usize {
        self.reconciler.postponed()
    }

    /// When to call [`reconcile`](Self::reconcile) next, though no event has come.
    pub fn deadline(&self) -> Option<Instant> {
        self.reconciler.deadline()
    }

    /// What failed and has not succeeded since, one sentence each, by name.
    pub fn troubles(&self) -> Vec<String> {
        self.reconciler
            .troubles()
            .map(|trouble| self.describe(&trouble))
            .collect()
    }

    /// What the maps are to hold.
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

    /// Ends, and gives the maps back.
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
