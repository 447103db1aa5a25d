//! For tests of this crate and of mutants: objects in one line, and a control plane over maps that check every write.
//!
//! - `objects`: objects in one line. `incidents`: incident 1 as a table of histories.
//! - `node`: a node without a kernel; `node_maps`, `connections` and `node_found` are its maps, flows and attachments.
//! - `witness`: what is served after every write. `api_state`: law 1 as a check.

pub mod api_state;
pub mod connections;
pub mod incidents;
pub mod node;
mod node_found;
pub mod node_maps;
pub mod objects;
pub mod witness;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::{
    control::{Control, DesiredState, Planner},
    endpoint_address::TransportAddress,
    maps::{Contents, LbMaps, faulty::FaultyMaps, memory::MemoryMaps},
    model::{Event, Host, Kind, Service, Slice},
    names::ObjectId,
    plan::{self, Perspective, Serving},
    reconcile::COLLECT_AFTER,
    resolve::{self, Resolved},
};

use self::{
    objects::{address, name},
    witness::Witness,
};

/// Maps under test: in memory, failing by a script, every write witnessed.
pub type TestMaps = Witness<FaultyMaps<MemoryMaps>>;

/// A control plane, and a clock that only tests move.
pub struct World<B> {
    /// What is under test.
    pub control: Control<B, TestMaps>,
    /// Now, as far as retries can tell.
    pub now: Instant,
}

/// More retries than the failures of any test need.
const ROUNDS: usize = 200;

impl Default for World<Planner> {
    fn default() -> Self {
        Self::with(Planner::default(), &Contents::default())
    }
}

impl World<Planner> {
    /// A production control plane over empty maps, with nothing synced.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, for a node of this name and with this way to choose.
    pub fn seen_as(perspective: Perspective) -> Self {
        Self::with(Planner::new(perspective), &Contents::default())
    }

    /// The same, synced.
    pub fn synced() -> Self {
        let mut world = Self::new();
        world.sync();
        world
    }
}

impl<B: DesiredState> World<B> {
    /// A control plane over maps with contents, with nothing synced.
    pub fn with(desired: B, contents: &Contents) -> Self {
        let maps = Witness::new(FaultyMaps::new(MemoryMaps::with_contents(contents)));
        let control = Control::new(desired, maps).expect("maps in memory can be read");
        Self {
            control,
            now: Instant::now(),
        }
    }

    /// All first lists are complete, and the machine has no addresses.
    pub fn sync(&mut self) {
        for event in synced() {
            self.event(event);
        }
    }

    /// Applies an event, and reconciles until nothing is outstanding.
    pub fn event(&mut self, event: Event) {
        self.control.apply(event);
        self.settle();
    }

    /// Creates or changes a Service.
    pub fn put_service(&mut self, service: Service) {
        self.event(Event::ServiceApplied(service));
    }

    /// Creates or changes a slice.
    pub fn put_slice(&mut self, slice: Slice) {
        self.event(Event::SliceApplied(slice));
    }

    /// Creates or changes a slice, without reconciling.
    pub fn put_slice_unsettled(&mut self, slice: Slice) {
        self.control.apply(Event::SliceApplied(slice));
    }

    /// Deletes a Service, without reconciling.
    pub fn delete_service_unsettled(&mut self, text: &str) {
        self.control.apply(Event::ServiceDeleted(name(text)));
    }

    /// Deletes a Service, `namespace/name`.
    pub fn delete_service(&mut self, text: &str) {
        self.event(Event::ServiceDeleted(name(text)));
    }

    /// Deletes a slice, `namespace/name`.
    pub fn delete_slice(&mut self, text: &str) {
        self.event(Event::SliceDeleted(name(text)));
    }

    /// Reconciles, and lets every retry come due until none is left.
    pub fn settle(&mut self) {
        let rounds = self.settle_within(ROUNDS);
        assert!(
            rounds,
            "still failing after {ROUNDS} retries: {:?}",
            self.control.troubles()
        );
    }

    /// As [`settle`](Self::settle), with a limit; `false`: something still fails. Waiting entries are removed in any case.
    pub fn settle_within(&mut self, rounds: usize) -> bool {
        let plan = self.planned();
        self.maps_mut().expect(&plan);
        self.control.reconcile(self.now);
        let collected = self.now + COLLECT_AFTER;
        if self
            .control
            .deadline()
            .is_some_and(|deadline| deadline <= collected)
        {
            self.now = collected;
            self.control.reconcile(self.now);
        }
        for _ in 0..rounds {
            let Some(deadline) = self.control.deadline() else {
                return true;
            };
            self.now = self.now.max(deadline);
            self.control.reconcile(self.now);
        }
        self.control.deadline().is_none()
    }

    /// One round at this time: writes what is to be written, and retries what is due.
    pub fn round(&mut self, now: Instant) {
        let plan = self.planned();
        let has_failed = !self.control.troubles().is_empty();
        let maps = self.maps_mut();
        maps.expect(&plan);
        if has_failed {
            maps.permit_removals();
        }
        self.now = now;
        self.control.reconcile(now);
    }

    /// Lets time pass, and retries what is due.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.settle_within(0);
    }

    /// The plan that a new agent would write.
    fn planned(&self) -> plan::Plan {
        let desired = self.control.desired();
        let services = desired.model().services().map(|(id, _)| id);
        services
            .chain([ObjectId::NODE])
            .map(|id| (id, desired.plan_service(id)))
            .collect()
    }

    /// The maps under test.
    pub fn maps(&self) -> &TestMaps {
        self.control.reconciler().maps()
    }

    /// The maps under test.
    pub fn maps_mut(&mut self) -> &mut TestMaps {
        self.control.reconciler_mut().maps_mut()
    }

    /// The script of failures.
    pub fn faults(&mut self) -> &mut FaultyMaps<MemoryMaps> {
        self.maps_mut().inner_mut()
    }

    /// The maps below the failures.
    pub fn memory(&self) -> &MemoryMaps {
        self.maps().inner().inner()
    }

    /// The contents of the maps.
    pub fn contents(&self) -> Contents {
        self.maps().contents().expect("maps in memory can be read")
    }

    /// How each frontend is served.
    pub fn resolved(&self) -> Resolved {
        resolve::resolve(&self.contents()).0
    }

    /// The backends of each frontend.
    pub fn served(&self) -> Served {
        served(&self.resolved())
    }

    /// The addresses of the backends of a frontend; `None`: it is no frontend.
    pub fn serves(&self, frontend: &str) -> Option<BTreeSet<TransportAddress>> {
        self.served().remove(&address(frontend))
    }

    /// Panics unless the maps have no defects, and every write so far was lawful.
    pub fn assert_clean(&self) {
        let (_, defects) = resolve::resolve(&self.contents());
        assert!(defects.is_empty(), "defects: {defects:#?}");
        self.assert_lawful();
    }

    /// Panics unless every write so far was lawful.
    pub fn assert_lawful(&self) {
        assert_eq!(self.memory().violations(), [] as [String; 0]);
        assert_eq!(self.maps().violations(), [] as [String; 0]);
    }
}

/// The events that the agent waits for: the ends of all first lists, and a machine without addresses.
pub fn synced() -> [Event; 4] {
    [
        Event::Host(Host::default()),
        Event::Synced(Kind::Node),
        Event::Synced(Kind::Service),
        Event::Synced(Kind::EndpointSlice),
    ]
}

/// Frontends with the addresses of their backends.
pub type Served = BTreeMap<TransportAddress, BTreeSet<TransportAddress>>;

/// The backends of each frontend.
pub fn served(resolved: &Resolved) -> Served {
    let backends = |serving: &Serving| serving.internal.iter().map(|backend| backend.address).collect();
    resolved
        .iter()
        .map(|(frontend, serving)| (*frontend, backends(serving)))
        .collect()
}
