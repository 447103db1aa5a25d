//! Law 1: for every history of events, what has been written equals the plan from scratch.
//!
//! Histories are made as the API makes them: objects change in a store, each kind has a watch that queues
//! changes, the agent takes from either queue (so that kinds overtake each other), some events twice. A watch may
//! break: then its queue is lost and a list of the store follows, which may break off too. The agent may be
//! restarted over the maps as they are, at any step; any write may fail.

mod feed;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::{Event, Host, Kind, Model, Service, Slice},
    names::ObjectName,
    plan::{self, Perspective, Plan, Selection},
    testing::{
        World,
        objects::{name, service, slice},
    },
};

use self::{
    feed::Feed,
    steps::{
        CLUSTER_IPS, ENDPOINTS, OWNERS, SERVICE_PORTS, SERVICES, SLICE_PORTS, SLICES, Step, Watch, step,
        step_with_tables,
    },
};

/// What the agent was told, kept by the simplest means there are.
#[derive(Default)]
struct Told {
    services: BTreeMap<ObjectName, Service>,
    slices: BTreeMap<ObjectName, Slice>,
}

impl Told {
    fn take(&mut self, event: &Event) {
        match event.clone() {
            Event::ServiceApplied(service) => _ = self.services.insert(service.name.clone(), service),
            Event::ServiceDeleted(name) => _ = self.services.remove(&name),
            Event::SliceApplied(slice) => _ = self.slices.insert(slice.name.clone(), slice),
            Event::SliceDeleted(name) => _ = self.slices.remove(&name),
            Event::NodeApplied(_) | Event::NodeDeleted(_) | Event::Host(_) | Event::Synced(_) => {}
        }
    }

    /// The plan of a model that was made from scratch, in another order.
    fn planned(&self, perspective: &Perspective) -> Plan {
        let mut model = Model::default();
        for slice in self.slices.values().rev() {
            model.apply(Event::SliceApplied(slice.clone()));
        }
        for service in self.services.values().rev() {
            model.apply(Event::ServiceApplied(service.clone()));
        }
        plan::plan(&model, perspective)
    }
}

/// Over maps with contents. Nodes and this machine are known from the start, and never change.
fn seen_as(perspective: &Perspective, found: &Contents) -> World<Planner> {
    let mut world = World::with(Planner::new(perspective.clone()), found);
    world.event(Event::Synced(Kind::Node));
    world.event(Event::Host(Host::default()));
    world
}

struct History {
    perspective: Perspective,
    world: World<Planner>,
    services: Feed<Service>,
    slices: Feed<Slice>,
    told: Told,
    /// What the maps held when this agent started.
    found: Contents,
}

impl History {
    fn new(selection: Selection) -> Self {
        let perspective = Perspective {
            node: "here".to_owned(),
            selection,
            ..Perspective::default()
        };
        Self {
            world: seen_as(&perspective, &Contents::default()),
            perspective,
            services: Feed::new(),
            slices: Feed::new(),
            told: Told::default(),
            found: Contents::default(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::PutService {
                service: which,
                ip,
                ports,
                created,
            } => {
                let object = service(SERVICES[which], CLUSTER_IPS[ip], SERVICE_PORTS[ports]);
                self.services.put(Service { created, ..object });
            }
            Step::DeleteService(which) => self.services.delete(&name(SERVICES[which])),
            Step::PutSlice {
                slice: which,
                owner,
                ports,
                endpoints,
            } => {
                let listed = (0..)
                    .zip(ENDPOINTS)
                    .filter(|(bit, _)| endpoints & (1 << bit) != 0);
                let listed: Vec<_> = listed.map(|(_, endpoint)| endpoint).collect();
                self.slices
                    .put(slice(SLICES[which], OWNERS[owner], SLICE_PORTS[ports], &listed));
            }
            Step::DeleteSlice(which) => self.slices.delete(&name(SLICES[which])),
            Step::Deliver(watch, count) => {
                for _ in 0..count {
                    let events = match watch {
                        Watch::Services => self.services.deliver(),
                        Watch::Slices => self.slices.deliver(),
                    };
                    self.tell(events);
                }
            }
            Step::DeliverTogether(count) => {
                for _ in 0..count {
                    for event in self.services.deliver().into_iter().chain(self.slices.deliver()) {
                        self.told.take(&event);
                        self.world.control.apply(event);
                    }
                }
                self.world.settle();
                self.check();
            }
            Step::Repeat(Watch::Services) => {
                let events = self.services.repeat();
                self.tell(events);
            }
            Step::Repeat(Watch::Slices) => {
                let events = self.slices.repeat();
                self.tell(events);
            }
            Step::Relist(Watch::Services) => self.services.list(usize::MAX),
            Step::Relist(Watch::Slices) => self.slices.list(usize::MAX),
            Step::RelistThatBreaksOff(watch, after) => self.relist_that_breaks_off(watch, after),
            Step::Restart => self.restart(),
            Step::RestartOtherwise => {
                self.perspective.selection = match self.perspective.selection {
                    Selection::Random => Selection::Maglev,
                    Selection::Maglev => Selection::Random,
                };
                self.restart();
            }
            Step::Fail(script) => self.world.faults().script(script),
        }
    }

    fn relist_that_breaks_off(&mut self, watch: Watch, after: usize) {
        match watch {
            Watch::Services => {
                self.services.list(after);
                while !self.services.queue.is_empty() {
                    let events = self.services.deliver();
                    self.tell(events);
                }
                self.services.list(usize::MAX);
            }
            Watch::Slices => {
                self.slices.list(after);
                while !self.slices.queue.is_empty() {
                    let events = self.slices.deliver();
                    self.tell(events);
                }
                self.slices.list(usize::MAX);
            }
        }
    }

    fn restart(&mut self) {
        self.world.assert_lawful();
        self.found = self.world.contents();
        self.world = seen_as(&self.perspective, &self.found);
        self.told = Told::default();
        self.services.restart();
        self.slices.restart();
    }

    /// Events of one delivery, one by one, and the law after each.
    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            self.told.take(&event);
            self.world.event(event);
            self.check();
        }
    }

    fn check(&self) {
        if !self.world.control.synced() {
            assert_eq!(self.world.contents(), self.found, "written before the first sync");
            return;
        }
        let plan = self.told.planned(&self.perspective);
        assert_eq!(
            plan::resolve(&plan),
            plan::resolve(&self.world.control.brain().plan())
        );
        assert_eq!(
            self.world.resolved(),
            plan::resolve(&plan),
            "maps on the left, plan on the right"
        );
        let addresses = self.world.contents().addresses.into_iter();
        let addresses: BTreeMap<_, _> = addresses
            .map(|(address, flags)| (address.into(), flags))
            .collect();
        assert_eq!(
            addresses,
            plan::addresses(&plan),
            "maps on the left, plan on the right"
        );
        self.world.assert_clean();
    }

    /// Everything that is still on its way arrives.
    fn end(&mut self) {
        while !(self.services.queue.is_empty() && self.slices.queue.is_empty()) {
            self.take(Step::Deliver(Watch::Slices, 1));
            self.take(Step::Deliver(Watch::Services, 1));
        }
        let told: BTreeSet<_> = self.told.services.keys().chain(self.told.slices.keys()).collect();
        let stored: BTreeSet<_> = self
            .services
            .store
            .keys()
            .chain(self.slices.store.keys())
            .collect();
        assert_eq!(
            told, stored,
            "the agent knows what is in the store, and nothing else"
        );
        self.check();
    }
}

fn hold(selection: Selection, steps: Vec<Step>) {
    let mut history = History::new(selection);
    for step in steps {
        history.take(step);
    }
    history.end();
}

proptest! {
    // PROPTEST_CASES may ask for more.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(512)))]

    #[test]
    fn what_is_written_is_the_plan_from_scratch(steps in prop::collection::vec(step(), 1..60)) {
        hold(Selection::Random, steps);
    }
}

proptest! {
    // A table has hundreds of slots, each of which is looked at after every write that counts: fewer of these.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(512) / 4))]

    #[test]
    fn what_is_written_is_the_plan_from_scratch_with_tables_too(steps in prop::collection::vec(step_with_tables(), 1..40)) {
        hold(Selection::Maglev, steps);
    }
}
