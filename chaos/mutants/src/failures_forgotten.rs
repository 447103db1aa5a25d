//! A write to a map that fails counts as done.
//!
//! The bug of an agent that logs what the kernel has refused, and goes on. Until the same entry changes again, it is what it
//! was before.

use lb_abi::{Address, Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey};
use reference_agent::{
    datapath::Datapath,
    maps::{Contents, LbMaps, Map, MapError},
};

use crate::datapath_decorator::{Flaw, Flawed};

/// The production agent's datapath, of whose maps no write ever seems to fail.
pub fn failures_forgotten<D: Datapath>(inner: D) -> Flawed<D, FailuresForgotten> {
    Flawed::new(inner, FailuresForgotten)
}

/// The flaw.
#[derive(Debug)]
pub struct FailuresForgotten;

impl<D: Datapath> Flaw<D> for FailuresForgotten {
    type Maps = Forgetting<D::Maps>;

    fn maps(&self, inner: &D) -> Self::Maps {
        Forgetting::new(inner.maps())
    }
}

/// Maps of which no write ever seems to fail.
#[derive(Debug)]
pub struct Forgetting<M>(M);

impl<M> Forgetting<M> {
    /// Wraps these maps.
    pub const fn new(inner: M) -> Self {
        Self(inner)
    }
}

/// The writes, of which each counts as done.
macro_rules! writes {
    ($($name:ident($($argument:ident: $of:ty),+);)+) => {
        $(fn $name(&mut self, $($argument: $of),+) -> Result<(), MapError> {
            let _: Result<(), MapError> = self.0.$name($($argument),+);
            Ok(())
        })+
    };
}

impl<M: LbMaps> LbMaps for Forgetting<M> {
    writes! {
        put_address(address: Address, flags: u32);
        delete_address(address: Address);
        put_frontend(key: FrontendKey, value: Frontend);
        delete_frontend(key: FrontendKey);
        put_service(id: ServiceId, value: Service);
        delete_service(id: ServiceId);
        put_slot(key: SlotKey, backend: BackendId);
        delete_slot(key: SlotKey);
        put_backend(id: BackendId, value: Backend);
        delete_backend(id: BackendId);
        put_source(key: SourceKey);
        delete_source(key: SourceKey);
        put_kept(id: ServiceId, value: Service);
        delete_kept(id: ServiceId);
    }

    fn contents(&self) -> Result<Contents, MapError> {
        self.0.contents()
    }

    fn contents_of(&self, map: Map) -> Result<Contents, MapError> {
        self.0.contents_of(map)
    }

    fn barrier(&mut self) -> Result<(), MapError> {
        self.0.barrier()
    }
}
