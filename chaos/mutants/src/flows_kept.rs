//! A UDP flow ends only when no Service uses its backend.
//!
//! What an agent does that looks at backends alone: a client that never pauses stays with the Service that had its frontend
//! before, for as long as that has the backend.

use std::{
    collections::{BTreeSet, HashSet},
    net::SocketAddr,
};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Remembered, ReverseKey,
    Tuple,
};
use lb_loader::LoaderError;
use reference_agent::{datapath::Datapath, udp::Connections};

use crate::flawed::{Flaw, Flawed};

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
        Ok(Ending {
            inner: inner.connections()?,
            only_to_nobody: true,
        })
    }
}

/// Flows and sockets, of which all end that are to, or only flows to backends that nobody has.
#[derive(Debug)]
pub struct Ending<C> {
    inner: C,
    only_to_nobody: bool,
}

impl<C> Ending<C> {
    /// All that are to end.
    pub(crate) fn all(inner: C) -> Self {
        Self {
            inner,
            only_to_nobody: false,
        }
    }
}

impl<C: Connections> Connections for Ending<C> {
    fn end_flows(&mut self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        let mut kept = BTreeSet::new();
        if self.only_to_nobody {
            kept.extend(self.inner.backends()?.into_iter().map(|(id, _)| id));
        }
        self.inner
            .end_flows(&mut |key, flow| !kept.contains(&flow.backend) && goes(key, flow))
    }

    fn end_choices(&mut self, goes: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        self.inner.end_choices(goes)
    }

    fn sockets(&mut self, show: &mut dyn FnMut(&ReverseKey, &Remembered)) -> Result<(), LoaderError> {
        self.inner.sockets(show)
    }

    fn frontends(&mut self) -> Result<Vec<(FrontendKey, Frontend)>, LoaderError> {
        self.inner.frontends()
    }

    fn addresses(&mut self) -> Result<Vec<(Address, u32)>, LoaderError> {
        self.inner.addresses()
    }

    fn backends(&mut self) -> Result<Vec<(BackendId, Backend)>, LoaderError> {
        self.inner.backends()
    }

    fn end_sockets(&mut self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError> {
        self.inner.end_sockets(backend, cookies)
    }
}
