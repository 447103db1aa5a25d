//! State outlives its backend: nothing of UDP ends, or connected sockets stay, or choices of unconnected ones, or TCP connections
//! that are being opened.
//!
//! The bug of an agent that leaves UDP to time limits, which never come for a client that never pauses; or that only ends
//! one kind of state.

use lb_loader::LoaderError;
use reference_agent::datapath::Datapath;

use crate::{
    datapath_decorator::{Flaw, Flawed},
    udp_ending::{Ending, Which},
};

/// What stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Flows of packets, choices and connected sockets.
    All,
    /// Connected sockets.
    Sockets,
    /// Choices of unconnected sockets.
    Choices,
    /// TCP connections that are being opened: the one thing here that is no UDP's.
    Opening,
}

/// The production agent's datapath, in which UDP state stays.
pub fn udp_kept<D: Datapath>(inner: D, kept: Kept) -> Flawed<D, UdpKept> {
    Flawed::new(inner, UdpKept(kept))
}

/// The flaw.
#[derive(Debug)]
pub struct UdpKept(Kept);

impl<D: Datapath> Flaw<D> for UdpKept {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        let which = match self.0 {
            Kept::All => Which::Nothing,
            Kept::Sockets => Which::ButSockets,
            Kept::Choices => Which::ButChoices,
            Kept::Opening => Which::ButOpening,
        };
        Ok(Ending::which(inner.connections()?, which))
    }
}
