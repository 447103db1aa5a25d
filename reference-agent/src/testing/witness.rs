//! Resolves every frontend after every single write: it must be as it was or as it is to be, whole.

use std::collections::BTreeSet;

use crate::{
    maps::{Contents, LbMaps, MapError},
    resolve::{self, Defect, Resolved},
};
use lb_abi::{Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey};

/// Maps that are looked at after every write.
pub struct Witness<M> {
    inner: M,
    old: Resolved,
    new: Resolved,
    /// Holes of corrupt contents that were adopted.
    inherited: BTreeSet<Defect>,
    violations: Vec<String>,
}

impl<M: LbMaps> Witness<M> {
    /// Around maps with whatever is in them.
    pub fn new(inner: M) -> Self {
        let inherited = resolve::resolve(&inner.contents().expect("maps in memory can be read")).1;
        let (old, new) = <(Resolved, Resolved)>::default();
        Self {
            inner,
            old,
            new,
            inherited,
            violations: Vec::new(),
        }
    }

    /// What is written from now on leads from what is there to this.
    pub fn expect(&mut self, new: &Resolved) {
        self.old = resolve::resolve(&self.inner.contents().expect("maps in memory can be read")).0;
        self.new = new.clone();
    }

    /// What a client could have seen that was neither before nor after, one sentence each.
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
        let (seen, defects) = resolve::resolve(&self.inner.contents()?);
        for frontend in self.old.keys().chain(self.new.keys()).chain(seen.keys()) {
            let backends = seen.get(frontend);
            if backends != self.old.get(frontend) && backends != self.new.get(frontend) {
                let (old, new) = (self.old.get(frontend), self.new.get(frontend));
                self.violations.push(format!(
                    "after {write}: {frontend} is {backends:?}, was {old:?}, will be {new:?}"
                ));
            }
        }
        let hole = |defect: &&Defect| {
            matches!(
                defect,
                Defect::DanglingFrontend(..) | Defect::MissingSlots(..) | Defect::DanglingSlot(..)
            )
        };
        for defect in defects.difference(&self.inherited).filter(hole) {
            self.violations.push(format!("after {write}: {defect}"));
        }
        result
    }
}

impl<M: LbMaps> LbMaps for Witness<M> {
    fn contents(&self) -> Result<Contents, MapError> {
        self.inner.contents()
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
        self.after(&format!("put_service {id} {value:?}"), result)
    }

    fn delete_service(&mut self, id: ServiceId) -> Result<(), MapError> {
        let result = self.inner.delete_service(id);
        self.after(&format!("delete_service {id}"), result)
    }

    fn put_slot(&mut self, key: SlotKey, backend: BackendId) -> Result<(), MapError> {
        let result = self.inner.put_slot(key, backend);
        self.after(&format!("put_slot {key:?} {backend}"), result)
    }

    fn delete_slot(&mut self, key: SlotKey) -> Result<(), MapError> {
        let result = self.inner.delete_slot(key);
        self.after(&format!("delete_slot {key:?}"), result)
    }

    fn put_backend(&mut self, id: BackendId, value: Backend) -> Result<(), MapError> {
        let result = self.inner.put_backend(id, value);
        self.after(&format!("put_backend {id} {value:?}"), result)
    }

    fn delete_backend(&mut self, id: BackendId) -> Result<(), MapError> {
        let result = self.inner.delete_backend(id);
        self.after(&format!("delete_backend {id}"), result)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.inner.barrier()
    }
}
