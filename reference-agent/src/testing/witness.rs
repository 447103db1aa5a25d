//! Resolves every frontend after every write: it must be served as before or as planned.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    maps::{Contents, LbMaps, Map, MapError},
    plan::{self, Plan, Serving},
    resolve::{self, Defect, Resolved},
};
use lb_abi::{
    Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, capacity,
};

/// Maps that are resolved after every write.
pub struct Witness<M> {
    inner: M,
    old: Resolved,
    new: Resolved,
    /// Backends that established flows keep, before and after, by number.
    serving: BTreeMap<BackendId, Backend>,
    /// Defects of adopted contents.
    inherited: BTreeSet<Defect>,
    /// SERVICES.
    services: BTreeMap<ServiceId, Service>,
    violations: Vec<String>,
}

impl<M: LbMaps> Witness<M> {
    /// Around maps with their contents.
    pub fn new(inner: M) -> Self {
        let contents = inner.contents().expect("maps in memory can be read");
        let inherited = resolve::resolve(&contents).1;
        Self {
            inner,
            old: Resolved::new(),
            new: Resolved::new(),
            serving: BTreeMap::new(),
            inherited,
            services: contents.services.into_iter().collect(),
            violations: Vec::new(),
        }
    }

    /// Writes from now on lead from the current contents to this plan.
    pub fn expect(&mut self, plan: &Plan) {
        let contents = self.inner.contents().expect("maps in memory can be read");
        self.old = resolve::resolve(&contents).0;
        self.new = plan::resolve(plan);
        let ports = plan.values().flat_map(|service| service.ports.values());
        let serving: BTreeSet<Backend> = ports
            .flat_map(|port| &port.serving)
            .map(|backend| backend.value())
            .collect();
        let mut seen = BTreeSet::new();
        let numbers = contents.backends.into_iter();
        self.serving = numbers
            .filter(|(id, _)| (1..capacity::BACKENDS).contains(id))
            .filter(|(_, backend)| serving.contains(backend) && seen.insert(*backend))
            .collect();
    }

    /// Permits that backends are removed which a plan has: a write of that plan has failed, and its next try puts them again.
    pub fn permit_removals(&mut self) {
        self.serving.clear();
    }

    /// States that were neither as before nor as planned, one sentence each.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The maps below.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The maps below.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    fn after(&mut self, write: &str, result: Result<(), MapError>) -> Result<(), MapError> {
        let contents = self.inner.contents()?;
        let (seen, defects) = resolve::resolve(&contents);
        for frontend in self.old.keys().chain(self.new.keys()).chain(seen.keys()) {
            let [seen, old, new] = [&seen, &self.old, &self.new].map(|all| all.get(frontend));
            if let Err(part) = between(seen, old, new) {
                self.violations.push(format!(
                    "after {write}: {part} of {frontend}: {seen:?}, was {old:?}, will be {new:?}"
                ));
            }
        }
        let there: BTreeMap<_, _> = contents.backends.into_iter().collect();
        for (id, backend) in &self.serving {
            if there.get(id) != Some(backend) {
                self.violations
                    .push(format!("after {write}: backend {id} is gone, which still serves"));
            }
        }
        for defect in defects
            .difference(&self.inherited)
            .filter(|defect| defect.is_hole())
        {
            self.violations.push(format!("after {write}: {defect}"));
        }
        result
    }
}

/// Checks that each part of how a frontend is served is as before or as planned. A selection works with complete slots of
/// either, so that parts may change one after the other.
fn between(seen: Option<&Serving>, old: Option<&Serving>, new: Option<&Serving>) -> Result<(), &'static str> {
    fn either<'a, T: PartialEq>(
        [seen, old, new]: [Option<&'a Serving>; 3],
        part: impl Fn(&'a Serving) -> T,
    ) -> bool {
        let [seen, old, new] = [seen, old, new].map(|serving| serving.map(&part));
        seen == old || seen == new
    }
    let all = [seen, old, new];
    let parts = [
        ("inside", either(all, |serving| &serving.internal)),
        ("outside", either(all, |serving| &serving.external)),
        ("affinity", either(all, |serving| serving.affinity_seconds)),
        ("silence", either(all, |serving| serving.silent)),
        (
            "ranges",
            either(all, |serving| &serving.sources) || are_changing(all),
        ),
    ];
    match parts.into_iter().find(|(_, lawful)| !lawful) {
        Some((part, _)) => Err(part),
        None => Ok(()),
    }
}

/// Whether ranges of clients are between the old and the new ones: all common ones exist, and no others. A frontend that is
/// added or removed meanwhile, or that serves all clients before or after, meets its port's ranges as they change.
fn are_changing(all: [Option<&Serving>; 3]) -> bool {
    match all.map(|serving| serving?.sources.as_ref()) {
        [Some(seen), Some(old), Some(new)] => {
            old.intersection(new).all(|range| seen.contains(range))
                && seen
                    .iter()
                    .all(|range| old.contains(range) || new.contains(range))
        }
        [Some(seen), Some(one), None] | [Some(seen), None, Some(one)] => one.is_subset(seen),
        _ => false,
    }
}

impl<M: LbMaps> Witness<M> {
    /// Whether a program that begins now could read a slot. The law of order checks programs that run already.
    fn is_current(&self, key: SlotKey) -> bool {
        let service = self.services.get(&key.service);
        service.is_some_and(|service| service.generation == key.generation)
    }

    /// After a write to a slot. Tables have thousands: everything is resolved only after writes to current slots.
    fn after_slot(
        &mut self,
        write: &str,
        key: SlotKey,
        result: Result<(), MapError>,
    ) -> Result<(), MapError> {
        if self.is_current(key) {
            self.after(&format!("{write} {key:?}"), result)
        } else {
            result
        }
    }
}

impl<M: LbMaps> LbMaps for Witness<M> {
    fn contents(&self) -> Result<Contents, MapError> {
        self.inner.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.inner.contents_of(map)
    }

    fn put_address(&mut self, address: Address, flags: u32) -> Result<(), MapError> {
        let result = self.inner.put_address(address, flags);
        self.after(&format!("put_address {address:?} {flags:#x}"), result)
    }

    fn delete_address(&mut self, address: Address) -> Result<(), MapError> {
        let result = self.inner.delete_address(address);
        self.after(&format!("delete_address {address:?}"), result)
    }

    fn put_frontend(&mut self, key: FrontendKey, value: Frontend) -> Result<(), MapError> {
        let result = self.inner.put_frontend(key, value);
        self.after(&format!("put_frontend {key:?} {value:?}"), result)
    }

    fn delete_frontend(&mut self, key: FrontendKey) -> Result<(), MapError> {
        let result = self.inner.delete_frontend(key);
        self.after(&format!("delete_frontend {key:?}"), result)
    }

    fn put_service(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        let result = self.inner.put_service(id, value);
        if result.is_ok() {
            self.services.insert(id, value);
        }
        self.after(&format!("put_service {id} {value:?}"), result)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        let result = self.inner.delete_service(id);
        if result.is_ok() {
            self.services.remove(&id);
        }
        self.after(&format!("delete_service {id}"), result)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        let result = self.inner.put_slot(key, backend);
        self.after_slot("put_slot", key, result)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        let result = self.inner.delete_slot(key);
        self.after_slot("delete_slot", key, result)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        let result = self.inner.put_backend(id, value);
        self.after(&format!("put_backend {id} {value:?}"), result)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        let result = self.inner.delete_backend(id);
        self.after(&format!("delete_backend {id}"), result)
    }

    fn put_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        let result = self.inner.put_source(key);
        self.after(&format!("put_source {key:?}"), result)
    }

    fn delete_source(&mut self, key: SourceKey) -> Result<(), MapError> {
        let result = self.inner.delete_source(key);
        self.after(&format!("delete_source {key:?}"), result)
    }

    fn put_kept(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        let result = self.inner.put_kept(id, value);
        self.after(&format!("put_kept {id} {value:?}"), result)
    }

    fn delete_kept(&mut self, id: ServiceId) -> Result<(), MapError> {
        let result = self.inner.delete_kept(id);
        self.after(&format!("delete_kept {id}"), result)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.inner.barrier()
    }
}
