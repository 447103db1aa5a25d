//! Plays a golden file: API objects through decoding, relists, the model, the plan and the reconciler, into maps in
//! memory that watch over every write.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::{Context as _, ensure};
use reference_agent::{
    control::Planner,
    decode,
    dump::dump,
    findings::Finding,
    maps::{Contents, memory::Capacities},
    model::{Event, Host, Kind, Node, Probe, Service, ServiceCidr, Slice},
    names::ObjectName,
    plan::Perspective,
    relist::{Object, Relist, Watched},
    testing::{World, api_state::ApiState},
};
use serde_json::Value;

use crate::{
    compare::{Found, difference},
    file::{self, Agent, Expect, List, Step},
};

type Key = (Kind, ObjectName);

pub(super) struct Player {
    perspective: Perspective,
    world: World<Planner>,
    api_state: ApiState,
    /// What the maps held when this agent started.
    found: Contents,
    host: Host,
    store: BTreeMap<Key, Value>,
    watches: [Watch; 4],
    /// What could not be read of each object.
    unread: BTreeMap<Key, Vec<Finding>>,
    /// Findings of Services, as they were told to others.
    reported: BTreeMap<ObjectName, Vec<Finding>>,
    /// Health checks, as they were told to others.
    health: BTreeMap<ObjectName, String>,
    /// Whether a map has less room than it should.
    tight: bool,
    /// What was dumped at each expectation.
    pub(super) dumps: Vec<String>,
}

/// The watch of one kind.
struct Watch {
    kind: Kind,
    relist: Relist,
    listing: bool,
}

const KINDS: [Kind; 4] = Kind::ALL;

impl Player {
    pub(super) fn new() -> anyhow::Result<Self> {
        let perspective = Agent::default().perspective()?;
        Ok(Self {
            world: World::seen_as(perspective.clone()),
            perspective,
            api_state: ApiState::default(),
            found: Contents::default(),
            host: machine(),
            store: BTreeMap::new(),
            watches: KINDS.map(Watch::new),
            unread: BTreeMap::new(),
            reported: BTreeMap::new(),
            health: BTreeMap::new(),
            tight: false,
            dumps: Vec::new(),
        })
    }

    pub(super) fn play(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Agent(agent) => self.start(agent),
            Step::Host(host) => {
                let probe = host.probe.as_ref().map(file::Probe::addresses);
                self.host = Host {
                    addresses: host.addresses.clone(),
                    probe: probe.map(|(frontend, backend)| Probe { frontend, backend }),
                };
                self.tell(Event::Host(self.host.clone()));
                Ok(())
            }
            Step::Apply(object) => self.apply(object),
            Step::Delete(object) => self.delete(object),
            Step::List(list) => self.list(list, true),
            Step::ListBreaksOff(list) => self.list(list, false),
            Step::Synced(kinds) => kinds.iter().try_for_each(|kind| self.listed(file::kind(kind)?)),
            Step::Fail(fail) => {
                let script = [vec![false; fail.pass], vec![true; fail.fail]].concat();
                self.world.faults().script(script);
                Ok(())
            }
            Step::Capacities(capacities) => {
                let full = Capacities::default();
                let slots = capacities.slots;
                self.tight = slots < full.slots;
                self.world
                    .faults()
                    .inner_mut()
                    .set_capacities(Capacities { slots, ..full });
                self.settle();
                Ok(())
            }
            Step::Expect(expect) => self.expect(expect),
        }
    }

    fn start(&mut self, agent: &Agent) -> anyhow::Result<()> {
        self.world.assert_lawful();
        self.found = self.world.contents();
        self.perspective = agent.perspective()?;
        self.world = World::with(Planner::new(self.perspective.clone()), &self.found);
        self.api_state = ApiState::default();
        self.watches = KINDS.map(Watch::new);
        self.unread.clear();
        self.reported.clear();
        self.health.clear();
        self.tight = false;
        self.tell(Event::ApiServers(agent.api_servers()));
        self.tell(Event::Host(self.host.clone()));
        let stored: Vec<_> = self.store.values().cloned().collect();
        if agent.unsynced {
            self.store.clear();
            return Ok(());
        }
        for object in stored {
            self.apply(&object)?;
        }
        KINDS.into_iter().try_for_each(|kind| self.listed(kind))
    }

    fn apply(&mut self, object: &Value) -> anyhow::Result<()> {
        match file::kind_of(object)? {
            Kind::Service => self.decoded(object, decode::name, decode::service),
            Kind::EndpointSlice => self.decoded(object, decode::name, decode::slice),
            Kind::Node => self.decoded(object, decode::cluster_scoped, decode::node),
            Kind::ServiceCidr => self.decoded(object, decode::cluster_scoped, decode::service_cidr),
        }
    }

    fn decoded<T: Object>(
        &mut self,
        object: &Value,
        name: fn(&Value) -> Result<ObjectName, decode::Defect>,
        read: fn(&Value) -> Result<decode::Decoded<T>, decode::Defect>,
    ) -> anyhow::Result<()> {
        let key = (
            T::KIND,
            name(object).map_err(|defect| anyhow::anyhow!("{defect}"))?,
        );
        let decoded = read(object).map_err(|defect| anyhow::anyhow!("{defect}"))?;
        let unread = decoded.defects.iter().map(|defect| Finding {
            reason: defect.reason,
            message: defect.to_string(),
        });
        self.unread.insert(key.clone(), unread.collect());
        self.store.insert(key, object.clone());
        let watch = self.watch(T::KIND);
        let watched = match watch.listing {
            true => Watched::InitApply(decoded.object),
            false => Watched::Apply(decoded.object),
        };
        let events = watch.relist.take(watched, None);
        events.into_iter().for_each(|change| self.tell(change.event));
        Ok(())
    }

    fn delete(&mut self, object: &Value) -> anyhow::Result<()> {
        let kind = file::kind_of(object)?;
        let name = match kind {
            Kind::Node | Kind::ServiceCidr => decode::cluster_scoped(object),
            Kind::Service | Kind::EndpointSlice => decode::name(object),
        };
        let name = name.map_err(|defect| anyhow::anyhow!("{defect}"))?;
        self.forget(&(kind, name.clone()));
        let relist = &mut self.watch(kind).relist;
        let events = match kind {
            Kind::Service => relist.take(Watched::<Service>::Delete(name), None),
            Kind::EndpointSlice => relist.take(Watched::<Slice>::Delete(name), None),
            Kind::Node => relist.take(Watched::<Node>::Delete(name), None),
            Kind::ServiceCidr => relist.take(Watched::<ServiceCidr>::Delete(name), None),
        };
        events.into_iter().for_each(|change| self.tell(change.event));
        Ok(())
    }

    fn forget(&mut self, key: &Key) {
        self.store.remove(key);
        self.unread.remove(key);
    }

    /// A new list: what it does not name is gone, if it is complete.
    fn list(&mut self, list: &List, complete: bool) -> anyhow::Result<()> {
        let kind = list.kind()?;
        let before: Vec<_> = self.store.keys().filter(|key| key.0 == kind).cloned().collect();
        let watch = self.watch(kind);
        watch.begin();
        for object in &list.items {
            ensure!(
                object["kind"].is_null() || file::kind_of(object)? == kind,
                "a list has items of one kind"
            );
            self.apply(object)?;
        }
        if complete {
            self.listed(kind)?;
            let named: Vec<_> = self.api_state.names(kind).into_iter().collect();
            for key in before.iter().filter(|key| !named.contains(&key.1)) {
                self.forget(key);
            }
        } else {
            self.watch(kind).listing = false;
        }
        Ok(())
    }

    fn listed(&mut self, kind: Kind) -> anyhow::Result<()> {
        let watch = self.watch(kind);
        ensure!(watch.listing, "synced: {kind:?} has been listed already");
        watch.listing = false;
        let relist = &mut watch.relist;
        let events = match kind {
            Kind::Service => relist.take(Watched::<Service>::InitDone, None),
            Kind::EndpointSlice => relist.take(Watched::<Slice>::InitDone, None),
            Kind::Node => relist.take(Watched::<Node>::InitDone, None),
            Kind::ServiceCidr => relist.take(Watched::<ServiceCidr>::InitDone, None),
        };
        events.into_iter().for_each(|change| self.tell(change.event));
        Ok(())
    }

    fn watch(&mut self, kind: Kind) -> &mut Watch {
        let watch = self.watches.iter_mut().find(|watch| watch.kind == kind);
        watch.unwrap_or_else(|| unreachable!("{kind:?} is watched"))
    }

    /// One event, and the law after it.
    fn tell(&mut self, event: Event) {
        self.api_state.take(&event);
        self.world.control.apply(event);
        self.settle();
    }

    fn settle(&mut self) {
        let settled = self.world.settle_within(if self.tight { 3 } else { 200 });
        assert!(
            settled || self.tight,
            "still failing: {:?}",
            self.world.control.troubles()
        );
        let changes = self.world.control.take_changes();
        self.reported.extend(changes.findings);
        for (name, check) in changes.health_checks {
            match check {
                Some(check) => {
                    let line = format!("{name} {} -> {}", check.port, check.local_endpoints);
                    self.health.insert(name, line);
                }
                None => _ = self.health.remove(&name),
            }
        }
        if !self.world.control.synced() {
            assert_eq!(
                self.world.contents(),
                self.found,
                "written before the first lists"
            );
            return;
        }
        let fresh = self.api_state.fresh(&self.perspective);
        if settled {
            fresh.assert_written(&self.world);
        } else {
            self.world.assert_lawful();
        }
    }

    fn expect(&mut self, expect: &Expect) -> anyhow::Result<()> {
        let dumped = dump(&self.world.contents());
        self.dumps.push(dumped.clone());
        let number = self.dumps.len();
        ensure!(
            dumped == expect.dump,
            "expectation {number}, the dump\n{}",
            difference(&expect.dump, &dumped)
        );
        let health: Vec<_> = self.health.values().cloned().collect();
        ensure!(
            health == expect.health_checks,
            "expectation {number}, health checks: expected {:#?}, found {health:#?}",
            expect.health_checks
        );
        let findings = self.findings();
        let as_expected = findings.len() == expect.findings.len()
            && findings
                .iter()
                .zip(&expect.findings)
                .all(|(found, expected)| found.is(expected));
        let shown: Vec<_> = findings
            .iter()
            .map(|found| format!("{} {}", found.head, found.message))
            .collect();
        ensure!(
            as_expected,
            "expectation {number}, findings: expected {:#?}, found {shown:#?}",
            expect.findings
        );
        Ok(())
    }

    /// All findings that last, sorted.
    fn findings(&self) -> Vec<Found> {
        let unread = self.unread.iter();
        let unread = unread.flat_map(|((kind, name), findings)| {
            findings
                .iter()
                .map(move |finding| Found::new(*kind, name, finding))
        });
        let reported = self.reported.iter();
        let reported = reported.flat_map(|(name, findings)| {
            findings
                .iter()
                .map(move |finding| Found::new(Kind::Service, name, finding))
        });
        let mut all: Vec<_> = unread.chain(reported).collect();
        all.sort();
        all
    }
}

impl Watch {
    fn new(kind: Kind) -> Self {
        let mut watch = Self {
            kind,
            relist: Relist::default(),
            listing: false,
        };
        watch.begin();
        watch
    }

    fn begin(&mut self) {
        self.listing = true;
        let events = match self.kind {
            Kind::Service => self.relist.take(Watched::<Service>::Init, None),
            Kind::EndpointSlice => self.relist.take(Watched::<Slice>::Init, None),
            Kind::Node => self.relist.take(Watched::<Node>::Init, None),
            Kind::ServiceCidr => self.relist.take(Watched::<ServiceCidr>::Init, None),
        };
        assert_eq!(events, [], "the beginning of a list says nothing");
    }
}

/// The machine, until a step says otherwise.
fn machine() -> Host {
    Host {
        addresses: [IpAddr::from([10, 1, 0, 1])].into(),
        probe: None,
    }
}

/// Plays a whole file.
pub(super) fn play(steps: &[Step]) -> (Vec<String>, anyhow::Result<()>) {
    let mut player = match Player::new() {
        Ok(player) => player,
        Err(error) => return (Vec::new(), Err(error)),
    };
    // A file that doesn't begin with an agent is about one that has listed everything.
    let mut result = match steps.first() {
        Some(Step::Agent(_)) => Ok(()),
        _ => player.start(&Agent::default()),
    };
    for (index, step) in steps.iter().enumerate() {
        let played = player.play(step).with_context(|| format!("step {}", index + 1));
        result = result.and(played);
    }
    (player.dumps, result)
}
