//! A UDP flow ends only when no Service uses its backend.
//!
//! What an agent does that looks at backends alone: a client that never pauses stays with the Service that had its frontend
//! before, for as long as that has the backend.

use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::{
    ending::{Ending, Which},
    flawed::{Flaw, Flawed},
};

/// The production agent's datapath, whose flows to backends that are there are kept.
pub fn flows_kept<D: Datapath>(inner: D) -> Flawed<D, FlowsKept> {
    Flawed::new(inner, FlowsKept)
}

/// Its flaw.
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
