//! For tests of this crate and of mutants: objects in one line, and a control plane over maps that watch over
//! every write.

pub mod connections;
pub mod incidents;
pub mod node;
mod node_found;
pub mod node_maps;
pub mod objects;
pub mod told;
pub mod witness;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::{
    control::{Control, DesiredState, Planner},
    maps::{Contents, LbMaps, faulty::FaultyMaps, memory::MemoryMaps},
    model::{Event, Host, Kind, Service, Slice},
    names::ObjectId,
    plan::{self, Perspective, Serving},
    reconcile::COLLECT_AFTER,
    resolve::{self, Resolved},
    transport::TransportAddress,
};

use self::{
    objects::{address, name},
    witness::Witness,
};

/// Maps under test: in memory, failing when told to, every write witnessed.
pub type TestMaps = Witness<FaultyMaps<MemoryMaps>>;

/// A control plane, and a clock that only tests move.
pub struct World<B> {
    /// What is under test.
    pub control: Control<B, TestMaps>,
    /// Now, as far as retries can tell.
    pub now: Instant,
}

/// More retries than any test's failures need: retries end.
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

    /// Every kind's first list ends, and the machine is one without addresses.
    pub fn sync(&mut self) {
        for event in synced() {
            self.event(event);
        }
    }

    /// One event, carried through until nothing is outstanding.
    pub fn event(&mut self, event: Event) {
        self.control.apply(event);
        self.settle();
    }

    /// A Service exists.
    pub fn put_service(&mut self, service: Service) {
        self.event(Event::ServiceApplied(service));
    }

    /// A slice exists.
    pub fn put_slice(&mut self, slice: Slice) {
        self.event(Event::SliceApplied(slice));
    }

    /// Not carried through yet.
    pub fn put_slice_unsettled(&mut self, slice: Slice) {
        self.control.apply(Event::SliceApplied(slice));
    }

    /// Not carried through yet.
    pub fn delete_service_unsettled(&mut self, text: &str) {
        self.control.apply(Event::ServiceDeleted(name(text)));
    }

    /// A Service, `namespace/name`, doesn't exist.
    pub fn delete_service(&mut self, text: &str) {
        self.event(Event::ServiceDeleted(name(text)));
    }

    /// A slice, `namespace/name`, doesn't exist.
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

    /// The same with a limit; `false`: something still fails. What is only waiting to be removed is removed in any
    /// case.
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

    /// Lets time pass, and what is due be tried again.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.settle_within(0);
    }

    /// What the desired state would have written by a fresh agent.
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

    /// Where failures are told.
    pub fn faults(&mut self) -> &mut FaultyMaps<MemoryMaps> {
        self.maps_mut().inner_mut()
    }

    /// The maps below the failures.
    pub fn memory(&self) -> &MemoryMaps {
        self.maps().inner().inner()
    }

    /// What is in the maps.
    pub fn contents(&self) -> Contents {
        self.maps().contents().expect("maps in memory can be read")
    }

    /// What clients meet.
    pub fn resolved(&self) -> Resolved {
        resolve::resolve(&self.contents()).0
    }

    /// Whom clients can get.
    pub fn served(&self) -> Served {
        served(&self.resolved())
    }

    /// The addresses of the backends of a frontend; `None`: it is no frontend.
    pub fn serves(&self, frontend: &str) -> Option<BTreeSet<TransportAddress>> {
        self.served().remove(&address(frontend))
    }

    /// The maps are clean, and every write on the way was lawful.
    pub fn assert_clean(&self) {
        let (_, defects) = resolve::resolve(&self.contents());
        assert!(defects.is_empty(), "defects: {defects:#?}");
        self.assert_lawful();
    }

    /// Every write so far was lawful.
    pub fn assert_lawful(&self) {
        assert_eq!(self.memory().violations(), [] as [String; 0]);
        assert_eq!(self.maps().violations(), [] as [String; 0]);
    }
}

/// What the agent waits for: the end of every kind's first list, and a machine, one without addresses.
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

/// Whom clients can get.
pub fn served(resolved: &Resolved) -> Served {
    let backends = |serving: &Serving| serving.internal.iter().map(|backend| backend.address).collect();
    resolved
        .iter()
        .map(|(frontend, serving)| (*frontend, backends(serving)))
        .collect()
}
