//! TCP connections end with the conntrack entries of their backend when it serves no new ones.
//!
//! The bug of an agent that treats TCP like UDP: an endpoint that turns unready, or does not serve any more while it
//! terminates, loses the connections that it is still working on.

use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed},
    udp_ending::{Ending, Which},
};

/// The production agent's datapath, which also ends TCP flows to backends that are gone.
pub fn connections_cut<D: Datapath>(inner: D) -> Flawed<D, ConnectionsCut> {
    Flawed::new(inner, ConnectionsCut)
}

/// The flaw.
#[derive(Debug)]
pub struct ConnectionsCut;

impl<D: Datapath> Flaw<D> for ConnectionsCut {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        Ok(Ending::which(inner.connections()?, Which::WithTcp))
    }
}
