//! A UDP flow ends only if no Service uses its backend.
//!
//! The bug of an agent that only checks backends: a client that never pauses stays with the Service that had its
//! frontend before, as long as that Service has the backend.

use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed},
    udp_ending::{Ending, Which},
};

/// The production agent's datapath, which keeps flows to existing backends.
pub fn flows_kept<D: Datapath>(inner: D) -> Flawed<D, FlowsKept> {
    Flawed::new(inner, FlowsKept)
}

/// The flaw.
#[derive(Debug)]
pub struct FlowsKept;

impl<D: Datapath> Flaw<D> for FlowsKept {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        Ok(Ending::which(inner.connections()?, Which::Unused))
    }
}
