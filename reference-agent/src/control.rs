//! The control plane without I/O: events in, writes out.
//!
//! ```text
//! Event ─▶ Brain::apply ─▶ dirty services ─▶ Brain::plan_service ─▶ Reconciler ─▶ LbMaps
//! ```
//!
//! [`Brain`] is a seam: `chaos/mutants` puts its bugs around [`Planner`] there. The agent itself has no other.

use std::time::Instant;

use crate::{
    maps::{LbMaps, MapError},
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::{self, Perspective, Plan, ServicePlan},
    reconcile::{Reconciler, Trouble},
};

/// What becomes of events: the model and the plans made of it.
pub trait Brain: Send {
    /// Takes an event; the result names the Services whose plan may differ from before.
    fn apply(&mut self, event: Event) -> Dirty;
    /// The plan of one Service.
    fn plan_service(&self, service: ObjectId) -> ServicePlan;
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

impl Brain for Planner {
    fn apply(&mut self, event: Event) -> Dirty {
        plan::apply(&mut self.model, &self.perspective, event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        plan::plan_service(&self.model, &self.perspective, service)
    }

    fn model(&self) -> &Model {
        &self.model
    }
}

/// Brain and maps, and what is still to be carried from the one to the other.
#[derive(Debug)]
pub struct Control<B, M> {
    brain: B,
    reconciler: Reconciler<M>,
    dirty: Dirty,
}

impl<B: Brain, M: LbMaps> Control<B, M> {
    /// Takes over the maps with what is in them. Writes nothing.
    ///
    /// # Errors
    /// The maps can't be read.
    pub fn new(brain: B, maps: M) -> Result<Self, MapError> {
        Ok(Self {
            brain,
            reconciler: Reconciler::adopt(maps)?,
            dirty: Dirty::new(),
        })
    }

    /// Takes an event. Writes nothing.
    pub fn apply(&mut self, event: Event) {
        let dirty = self.brain.apply(event);
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
        let brain = &self.brain;
        let plans = services
            .into_iter()
            .map(|service| (service, brain.plan_service(service)));
        self.reconciler.reconcile(plans, now);
    }

    /// Whether all kinds have been listed in full at least once, and the machine is known.
    pub fn synced(&self) -> bool {
        self.brain.model().synced()
    }

    /// Whether there is anything that [`reconcile`](Self::reconcile) would do at once.
    pub fn outstanding(&self) -> bool {
        self.synced() && !self.dirty.is_empty()
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

    /// The brain.
    pub fn brain(&self) -> &B {
        &self.brain
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
        let name = self
            .brain
            .model()
            .name(*service)
            .map_or_else(|| "(deleted)".to_owned(), ToString::to_string);
        let port = port.map_or_else(String::new, |port| format!(" port {port}"));
        format!("service {name}{port} is not written after {attempts} attempts: {error}")
    }
}
