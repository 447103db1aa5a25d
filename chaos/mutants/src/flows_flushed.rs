//! All UDP flows end whenever any of them does.
//!
//! The bug of an agent that empties its table of flows with each change: all clients are served, and those of healthy
//! backends by another one.

use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed},
    udp_ending::{Ending, Which},
};

/// The production agent's datapath, which ends all flows.
pub fn flows_flushed<D: Datapath>(inner: D) -> Flawed<D, FlowsFlushed> {
    Flawed::new(inner, FlowsFlushed)
}

/// The flaw.
#[derive(Debug)]
pub struct FlowsFlushed;

impl<D: Datapath> Flaw<D> for FlowsFlushed {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        Ok(Ending::which(inner.connections()?, Which::Everything))
    }
}
