//! A start empties what an earlier one has left in the maps, before it knows what the API has: the services, or the
//! flows.
//!
//! The bug of an agent that begins with empty tables. Until its lists are there nothing is served; or connections
//! through the node, whose flows it does not know, end.

use std::path::Path;

use doctor::EvictionError;
use lb_loader::{LoaderError, empty_map};
use reference_agent::{
    datapath::Datapath,
    maps::{Contents, LbMaps},
};

use crate::datapath_decorator::{Flaw, Flawed};

/// Where the agent pins the map of flows, below its bpffs.
const FLOWS: &str = "plumbline/v1/maps/CONNTRACK";

/// The production agent's datapath, whose services are removed as the agent begins to use it.
pub fn services_forgotten<D: Datapath>(inner: D) -> Flawed<D, ServicesForgotten> {
    let mut maps = inner.maps();
    let Contents { services, .. } = maps.contents().unwrap_or_default();
    for (id, _) in services {
        // What stays, the agent sees.
        let _ = maps.delete_service(id);
    }
    Flawed::new(inner, ServicesForgotten)
}

/// The flaw, which is over when it is made.
#[derive(Debug)]
pub struct ServicesForgotten;

impl<D: Datapath> Flaw<D> for ServicesForgotten {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }
}

/// The production agent's datapath; at its first attachment it calls `forget`.
pub fn flows_forgotten<D: Datapath, F: FnOnce() + Send>(inner: D, forget: F) -> Flawed<D, FlowsForgotten<F>> {
    Flawed::new(inner, FlowsForgotten(Some(forget)))
}

/// The flaw.
#[derive(Debug)]
pub struct FlowsForgotten<F>(Option<F>);

impl<D: Datapath, F: FnOnce() + Send> Flaw<D> for FlowsForgotten<F> {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn attach(&mut self, inner: &mut D) -> Result<(), EvictionError> {
        inner.attach()?;
        if let Some(forget) = self.0.take() {
            forget();
        }
        Ok(())
    }
}

/// Empties the map of flows that is pinned below a bpffs.
///
/// # Errors
/// The map is not pinned there, or the kernel returns an error.
pub fn empty_flows(bpffs: &Path) -> Result<(), LoaderError> {
    empty_map(&bpffs.join(FLOWS))
}
