//! A history: what happens to an agent, and the law after everything that does.
//!
//! Objects change in a store, each kind has a watch that queues changes, the agent takes from any queue (so that kinds
//! overtake each other), some events twice. A watch may break: then its queue is lost and a list of the store
//! follows, which may break off too. The agent may be restarted over the maps as they are, at any step; any write may
//! fail; entries may change behind the agent's back.
//!
//! The property tests and `cargo xtask soak agent` share this.

mod disturb;
mod feed;
mod kept;
mod objects;
mod steps;

use std::{collections::BTreeSet, net::IpAddr};

use reference_agent::{
    control::Planner,
    maps::{Contents, Map, faulty::FaultyMaps, memory::MemoryMaps},
    model::{Event, Host, Kind, Node, Service, Slice},
    plan::{Perspective, Selection},
    relist::Object,
    testing::{
        TestMaps, World,
        api_state::{ApiState, Incremental},
        witness::Witness,
    },
};

use self::{
    disturb::Disturbance,
    feed::{Feed, Watching},
    kept::{Keeping, Since},
};

pub(crate) use self::steps::{Otherwise, Step, Watch, steps};

/// So many that the Services of a history come to every scale of Maglev's tables.
const SLOTS: u32 = 4096;

/// An agent, its maps, and the API that it watches.
pub(crate) struct History {
    perspective: Perspective,
    world: World<Planner>,
    pub(crate) services: Feed<Service>,
    pub(crate) slices: Feed<Slice>,
    pub(crate) nodes: Feed<Node>,
    host: Host,
    /// Where this agent reaches its API servers.
    api_servers: BTreeSet<(IpAddr, u16)>,
    api_state: ApiState,
    incremental: Incremental,
    keeping: Keeping,
    /// What the start of this agent means to what is kept, until it has synced.
    start: Since,
    /// What the maps held when this agent started.
    found: Contents,
}

impl History {
    /// Nothing is there, nothing is listed.
    pub(crate) fn seen_as(
        perspective: Perspective,
        host: Host,
        api_servers: BTreeSet<(IpAddr, u16)>,
    ) -> Self {
        let mut history = Self {
            world: World::seen_as(perspective.clone()),
            services: Feed::new(),
            slices: Feed::new(),
            nodes: Feed::new(),
            host,
            api_servers,
            api_state: ApiState::default(),
            incremental: Incremental::new(perspective.clone()),
            keeping: Keeping::default(),
            perspective,
            start: Since::One,
            found: Contents::default(),
        };
        history.begin();
        history
    }

    /// What is in the maps.
    pub(crate) fn contents(&self) -> Contents {
        self.world.contents()
    }

    /// What comes next of a kind.
    pub(crate) fn deliver(&mut self, watch: Watch) {
        let events = self.watching(watch).deliver();
        self.tell(events);
    }

    /// Every watch breaks: what is on its way is lost, lists follow.
    pub(crate) fn break_watches(&mut self) {
        for watch in [Watch::Services, Watch::Slices, Watch::Nodes] {
            self.watching(watch).list(usize::MAX);
        }
    }

    /// One step of a generated history.
    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::PutService(shape) => self.services.put(shape.service()),
            Step::Annotate(which) => {
                let name = objects::named(&objects::SERVICES, which);
                if let Some(service) = self.services.store.get(&name).cloned() {
                    self.services.put(service);
                }
            }
            Step::DeleteService(which) => self.services.delete(&objects::named(&objects::SERVICES, which)),
            Step::PutSlice(shape) => self.slices.put(shape.slice()),
            Step::MoveEndpoints(from, to, at) => self.move_endpoints(from, to, at),
            Step::DeleteSlice(which) => self.slices.delete(&objects::named(&objects::SLICES, which)),
            Step::PutNode(shape) => self.nodes.put(shape.node()),
            Step::DeleteNode(which) => {
                let name = objects::NODES[which];
                let name = self
                    .nodes
                    .store
                    .values()
                    .find(|node| node.name == name)
                    .map(Object::name);
                name.into_iter().for_each(|name| self.nodes.delete(&name));
            }
            Step::Host(addresses, probe) => {
                self.host = objects::host(addresses, probe);
                self.tell(vec![Event::Host(self.host.clone())]);
            }
            Step::ApiServers(which) => {
                self.api_servers = objects::api_servers(which);
                self.tell(vec![Event::ApiServers(self.api_servers.clone())]);
            }
            Step::Deliver(watch, count) => {
                for _ in 0..count {
                    self.deliver(watch);
                }
            }
            Step::DeliverTogether(count) => self.deliver_together(count),
            Step::Repeat(watch) => {
                let events = self.watching(watch).repeat();
                self.tell(events);
            }
            Step::Relist(watch) => self.watching(watch).list(usize::MAX),
            Step::RelistThatBreaksOff(watch, after) => {
                self.watching(watch).list(after);
                while !self.watching(watch).is_idle() {
                    self.deliver(watch);
                }
                self.watching(watch).list(usize::MAX);
            }
            Step::Restart(otherwise) => {
                if otherwise.is_some() {
                    self.start = Since::Several;
                }
                if let Some(otherwise) = otherwise {
                    self.see(otherwise);
                }
                self.restart();
            }
            Step::Disturb(disturbances) => self.disturb(&disturbances),
            Step::Fail(script) => self.world.faults().script(script),
        }
    }

    fn watching(&mut self, watch: Watch) -> &mut dyn Watching {
        match watch {
            Watch::Services => &mut self.services,
            Watch::Slices => &mut self.slices,
            Watch::Nodes => &mut self.nodes,
        }
    }

    /// As the slice controller does when it splits or merges: first the slice that gets them, then the other.
    fn move_endpoints(&mut self, from: usize, to: usize, at: usize) {
        let [from, to] = [from, to].map(|which| objects::named(&objects::SLICES, which));
        let Some(mut before) = self.slices.store.get(&from).cloned() else {
            return;
        };
        if from == to || at >= before.endpoints.len() {
            return;
        }
        let moved = before.endpoints.split_off(at);
        let fresh = || Slice {
            name: to.clone(),
            endpoints: Vec::new(),
            ..before.clone()
        };
        let mut after = self.slices.store.get(&to).cloned().unwrap_or_else(fresh);
        after.endpoints.extend(moved);
        self.slices.put(after);
        match before.endpoints.is_empty() {
            true => self.slices.delete(&from),
            false => self.slices.put(before),
        }
    }

    fn deliver_together(&mut self, count: usize) {
        for _ in 0..count {
            for watch in [Watch::Services, Watch::Slices, Watch::Nodes] {
                for event in self.watching(watch).deliver() {
                    self.note(&event);
                    self.world.control.apply(event);
                }
            }
        }
        self.world.settle();
        self.check(Since::Several);
    }

    fn see(
        &mut self,
        Otherwise {
            selection,
            node,
            api_servers,
        }: Otherwise,
    ) {
        let perspective = &mut self.perspective;
        if selection {
            perspective.selection = match perspective.selection {
                Selection::Random => Selection::Maglev,
                Selection::Maglev => Selection::Random,
            };
        }
        if node {
            perspective.node = match perspective.node.as_str() {
                "here" => "there".to_owned(),
                _ => "here".to_owned(),
            };
        }
        if let Some(which) = api_servers {
            self.api_servers = objects::api_servers(which);
        }
    }

    /// Another agent starts over the maps as they are.
    pub(crate) fn restart(&mut self) {
        self.world.assert_lawful();
        self.found = self.world.contents();
        self.world = World::with(Planner::new(self.perspective.clone()), &self.found);
        self.api_state = ApiState::default();
        self.incremental = Incremental::new(self.perspective.clone());
        self.services.restart();
        self.slices.restart();
        self.nodes.restart();
        self.begin();
    }

    /// What an agent is told before anything of the API.
    fn begin(&mut self) {
        self.tell(vec![
            Event::ApiServers(self.api_servers.clone()),
            Event::Host(self.host.clone()),
        ]);
    }

    /// Events of one delivery, one by one, and the law after each.
    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            self.note(&event);
            self.world.event(event);
            self.check(Since::One);
        }
    }

    fn note(&mut self, event: &Event) {
        self.api_state.take(event);
        self.incremental.take(event.clone());
    }

    fn check(&mut self, since: Since) {
        let fresh = self.api_state.fresh(&self.perspective);
        fresh.assert_planned(&self.incremental);
        if !self.world.control.synced() {
            assert_eq!(
                self.world.contents(),
                self.found,
                "written before the first lists"
            );
            return;
        }
        fresh.assert_written(&self.world);
        let since = since.max(std::mem::replace(&mut self.start, Since::One));
        self.keeping.check(&fresh, &self.world.contents(), since);
    }

    /// Entries change behind the agent's back; the audit puts them right, all of them, and then finds nothing.
    fn disturb(&mut self, disturbances: &[(Map, u16, Disturbance)]) {
        if !self.world.control.synced() {
            return;
        }
        self.world.faults().script([]);
        self.world.settle();
        self.check(Since::Several);
        let before = self.world.contents();
        let mut contents = before.clone();
        for (map, entry, what) in disturbances {
            disturb::disturb(&mut contents, *map, *entry, *what);
        }
        self.hold_on_to(&contents);
        // What is foreign is removed at the end of the round.
        for _ in 0..2 * Map::ALL.len() {
            self.world.control.audit().expect("maps in memory can be written");
            self.world.settle();
        }
        assert_eq!(
            self.world.contents(),
            before,
            "after the audit of {disturbances:?} on the left, before on the right"
        );
        for _ in Map::ALL {
            let drift = self.world.control.audit().expect("maps in memory can be read");
            let found = drift.missing + drift.wrong + drift.foreign;
            assert_eq!(found, 0, "the audit finds what it has repaired: {drift:?}");
        }
        self.hold_on_to(&before);
    }

    /// The agent goes on with maps that hold this. What is written meanwhile is judged anew: the law of order is about
    /// programs that find what the agent has written.
    fn hold_on_to(&mut self, contents: &Contents) {
        let maps: TestMaps = Witness::new(FaultyMaps::new(MemoryMaps::with_contents(contents)));
        *self.world.maps_mut() = maps;
    }

    /// Everything that is still on its way arrives.
    pub(crate) fn end(&mut self) {
        for watch in [Watch::Nodes, Watch::Slices, Watch::Services] {
            while !self.watching(watch).is_idle() {
                self.deliver(watch);
            }
        }
        assert!(self.world.control.synced(), "everything was listed");
        let stored = [
            (Kind::Service, self.services.store.keys().cloned().collect()),
            (Kind::EndpointSlice, self.slices.store.keys().cloned().collect()),
            (Kind::Node, self.nodes.store.keys().cloned().collect()),
        ];
        for (kind, stored) in stored {
            assert_eq!(
                self.api_state.names(kind),
                stored,
                "the agent knows what is in the store, and nothing else"
            );
        }
        self.check(Since::One);
    }
}

/// Plays a history, and panics where it breaks the law.
pub(crate) fn hold(selection: Selection, steps: Vec<Step>) {
    let node = "here".to_owned();
    let perspective = Perspective {
        node,
        selection,
        slots: SLOTS,
    };
    let mut history = History::seen_as(perspective, Host::default(), BTreeSet::new());
    for step in steps {
        history.take(step);
    }
    history.end();
}
