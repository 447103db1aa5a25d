//! Which UDP flows and sockets a flawed datapath ends.

use std::{
    collections::{BTreeSet, HashSet},
    net::SocketAddr,
};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, SocketRevnat,
    SocketRevnatKey, Tuple, UDP,
};
use lb_loader::LoaderError;
use reference_agent::udp::Connections;

/// Flows and sockets that the datapath ends.
#[derive(Debug)]
pub struct Ending<C> {
    inner: C,
    which: Which,
}

/// The selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All that the agent selects.
    All,
    /// Only flows whose backend no Service has any more.
    Unused,
    /// Sockets whose backend has left any Service, whichever Service they have dialled.
    ByAddress,
    /// None.
    Nothing,
    /// All but connected sockets.
    ButSockets,
    /// All but choices of unconnected sockets.
    ButChoices,
    /// All flows and choices there are.
    Everything,
}

impl<C> Ending<C> {
    /// All that the agent selects.
    pub(crate) fn all(inner: C) -> Self {
        Self::which(inner, Which::All)
    }

    pub(crate) fn which(inner: C, which: Which) -> Self {
        Self { inner, which }
    }
}

impl<C: Connections> Connections for Ending<C> {
    fn end_flows(&mut self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        match self.which {
            Which::Nothing => return Ok(0),
            Which::Everything => return self.inner.end_flows(&mut |key, _| key.protocol == UDP),
            _ => {}
        }
        let mut kept = BTreeSet::new();
        if self.which == Which::Unused {
            kept.extend(self.inner.backends()?.into_iter().map(|(id, _)| id));
        }
        self.inner
            .end_flows(&mut |key, flow| !kept.contains(&flow.backend) && goes(key, flow))
    }

    fn end_choices(&mut self, goes: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        match self.which {
            Which::Nothing | Which::ButChoices => Ok(()),
            Which::Everything => self.inner.end_choices(&mut |_, _| true),
            _ => self.inner.end_choices(goes),
        }
    }

    fn sockets(&mut self, show: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), LoaderError> {
        match self.which {
            Which::ByAddress => {}
            Which::Nothing | Which::ButSockets => return Ok(()),
            _ => return self.inner.sockets(show),
        }
        let frontends = self.inner.frontends()?;
        let of_udp: Vec<FrontendKey> = frontends
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| key.protocol == UDP)
            .collect();
        self.inner.sockets(&mut |key, remembered| {
            for frontend in &of_udp {
                let shown = SocketRevnat {
                    frontend: *frontend,
                    ..*remembered
                };
                show(key, &shown);
            }
        })
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
