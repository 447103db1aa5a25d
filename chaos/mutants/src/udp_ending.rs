//! Which flows and sockets a flawed datapath ends.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    net::SocketAddr,
    time::Duration,
};

use lb_abi::{
    Address, Backend, BackendId, Chosen, ChosenKey, Flow, Frontend, FrontendKey, Service, ServiceId, SlotKey,
    SocketRevnat, SocketRevnatKey, TCP, Tuple, UDP, flow_flags,
};
use lb_loader::LoaderError;
use reference_agent::udp::{Connections, LiveMaps};

/// A round of the agent takes no longer: backends of TCP leave the maps in the same round as those of UDP, and maybe after them.
const ROUND: Duration = Duration::from_secs(1);

/// Flows and sockets that the datapath ends.
pub struct Ending<C> {
    inner: C,
    which: Which,
    /// Reads FRONTENDS, of [`Which::ByAddress`].
    frontends: Option<Frontends>,
}

type Frontends = Box<dyn Fn() -> Result<Vec<FrontendKey>, LoaderError> + Send>;

impl<C: fmt::Debug> fmt::Debug for Ending<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Ending");
        shown.field("inner", &self.inner).field("which", &self.which);
        shown.finish_non_exhaustive()
    }
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
    /// Besides, TCP flows whose backend no Service has any more.
    WithTcp,
    /// None.
    Nothing,
    /// All but connected sockets.
    ButSockets,
    /// All but choices of unconnected sockets.
    ButChoices,
    /// All but TCP connections that are being opened.
    ButOpening,
    /// All flows and choices there are.
    Everything,
}

impl<C> Ending<C> {
    /// All that the agent selects.
    pub(crate) fn all(inner: C) -> Self {
        Self::which(inner, Which::All)
    }

    pub(crate) fn which(inner: C, which: Which) -> Self {
        Self {
            inner,
            which,
            frontends: None,
        }
    }

    /// As if each socket had dialled each of the frontends.
    pub(crate) fn by_address(inner: C, frontends: Frontends) -> Self {
        Self {
            frontends: Some(frontends),
            ..Self::which(inner, Which::ByAddress)
        }
    }
}

impl<C: Connections> LiveMaps for Ending<C> {
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, LoaderError> {
        self.inner.frontend(key)
    }

    fn is_nodes(&self, address: &Address) -> Result<bool, LoaderError> {
        self.inner.is_nodes(address)
    }

    fn backend(&self, id: BackendId) -> Result<Option<Backend>, LoaderError> {
        self.inner.backend(id)
    }

    fn service(&self, id: ServiceId) -> Result<Option<Service>, LoaderError> {
        self.inner.service(id)
    }

    fn slot(&self, key: &SlotKey) -> Result<Option<BackendId>, LoaderError> {
        self.inner.slot(key)
    }
}

impl<C: Connections> Connections for Ending<C> {
    fn end_flows(&self, goes: &mut dyn FnMut(&Tuple, &Flow) -> bool) -> Result<usize, LoaderError> {
        if self.which == Which::WithTcp {
            std::thread::sleep(ROUND);
        }
        let mut used = BTreeSet::new();
        if matches!(self.which, Which::Unused | Which::WithTcp) {
            used.extend(self.inner.backends()?.into_iter().map(|(id, _)| id));
        }
        let which = self.which;
        self.inner.end_flows(&mut |key, flow| {
            let is_used = used.contains(&flow.backend);
            let is_tcp = key.protocol == TCP && flow.flags & flow_flags::OWN == 0;
            match which {
                Which::Unused => !is_used && goes(key, flow),
                Which::WithTcp => goes(key, flow) || (is_tcp && !is_used),
                Which::Nothing => false,
                Which::Everything => key.protocol == UDP,
                Which::All | Which::ByAddress | Which::ButSockets | Which::ButChoices | Which::ButOpening => {
                    goes(key, flow)
                }
            }
        })
    }

    fn end_choices(&self, goes: &mut dyn FnMut(&ChosenKey, &Chosen) -> bool) -> Result<(), LoaderError> {
        match self.which {
            Which::Nothing | Which::ButChoices => Ok(()),
            Which::Everything => self.inner.end_choices(&mut |_, _| true),
            _ => self.inner.end_choices(goes),
        }
    }

    fn sockets(&self, show: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat)) -> Result<(), LoaderError> {
        match self.which {
            Which::ByAddress => {}
            Which::Nothing | Which::ButSockets => return Ok(()),
            _ => return self.inner.sockets(show),
        }
        let all = self
            .frontends
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |all| all())?;
        let of_udp: Vec<FrontendKey> = all.into_iter().filter(|key| key.protocol == UDP).collect();
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

    fn backends(&self) -> Result<Vec<(BackendId, Backend)>, LoaderError> {
        self.inner.backends()
    }

    fn end_sockets(&self, backend: SocketAddr, cookies: &HashSet<u64>) -> Result<usize, LoaderError> {
        self.inner.end_sockets(backend, cookies)
    }

    fn end_opening(
        &self,
        is_to_end: &mut dyn FnMut(&SocketRevnatKey, &SocketRevnat) -> bool,
    ) -> Result<usize, LoaderError> {
        match self.which {
            Which::ButOpening => Ok(0),
            _ => self.inner.end_opening(is_to_end),
        }
    }
}
