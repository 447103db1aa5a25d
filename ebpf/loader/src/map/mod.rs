//! The maps: typed access ([`Table`], [`ServiceTable`] …), and the pinned set.
//!
//! | module | holds |
//! |---|---|
//! | `table` | hash maps and the trie, typed |
//! | `mmap_array` | arrays as memory |
//! | `services` | SERVICES |
//! | `traffic` | SERVICE_TRAFFIC, BACKEND_TRAFFIC |
//! | `config` | CONFIG |
//! | `counters` | the per-CPU counters, summed |
//! | `barrier` | waits for running programs |
//! | `migrate` | what a new set takes over from another, whose ids are others |
//! | `compatibility` | whether pinned maps are of this version |
//! | `pins` | where a set of maps is pinned; which set is adopted, and how one takes another's place |

mod barrier;
pub(crate) mod compatibility;
mod config;
mod counters;
pub(crate) mod migrate;
mod mmap_array;
pub(crate) mod pins;
mod services;
mod table;
mod traffic;

use std::{os::fd::OwnedFd, path::Path};

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Chosen, ChosenKey, Flow, FragmentKey, Frontend,
    FrontendKey, Ports, Service, ServiceId, SlotKey, SocketRevnat, SocketRevnatKey, SourceKey, Tuple,
};

pub(crate) use self::barrier::Barrier;
pub use self::{
    config::ConfigTable,
    counters::Counts,
    services::{ServiceTable, ServiceView},
    table::{Plain, Table, View},
    traffic::{TrafficTable, TrafficView},
};
use self::{counters::Counters, pins::Pins};
use crate::{LoaderError, MapError, MapName, sys};

/// The maps of an open [`Datapath`](crate::Datapath), or of a [`Detached`](crate::Detached) one.
#[derive(Debug)]
pub struct Maps {
    /// FRONTENDS.
    pub frontends: Table<FrontendKey, Frontend>,
    /// ADDRESSES: [`address_flags`](lb_abi::address_flags).
    pub addresses: Table<Address, u32>,
    /// SERVICES.
    pub services: ServiceTable,
    /// SLOTS.
    pub slots: Table<SlotKey, BackendId>,
    /// BACKENDS.
    pub backends: Table<BackendId, Backend>,
    /// SOURCES. `get` finds the longest range that a key is in; `delete` takes the range itself.
    pub sources: Table<SourceKey, u32>,
    /// KEPT.
    pub kept: Table<ServiceId, Service>,
    /// CHOSEN: written by the programs, as are the next five.
    pub chosen: Table<ChosenKey, Chosen>,
    /// SOCKET_REVNAT.
    pub socket_revnat: Table<SocketRevnatKey, SocketRevnat>,
    /// SOCKET_BACKEND.
    pub socket_backend: Table<u64, Backend>,
    /// AFFINITY.
    pub affinity: Table<AffinityKey, Affinity>,
    /// FRAGMENTS.
    pub fragments: Table<FragmentKey, Ports>,
    /// CONNTRACK.
    pub conntrack: Table<Tuple, Flow>,
    /// CONFIG.
    pub config: ConfigTable,
    /// SERVICE_TRAFFIC.
    pub service_traffic: TrafficTable,
    /// BACKEND_TRAFFIC.
    pub backend_traffic: TrafficTable,
    counters: Counters,
}

impl Maps {
    /// Of a set that is pinned in a folder and known to be complete.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoaderError> {
        Self::new(|name| compatibility::open(folder, name, 0))
    }

    /// Of descriptors, each of a map that has the layout of its name.
    pub(crate) fn new(open: impl Fn(MapName) -> Result<OwnedFd, LoaderError>) -> Result<Self, LoaderError> {
        let traffic = |name| TrafficTable::new(name, &open(name)?);
        Ok(Self {
            frontends: Table::new(MapName::Frontends, open(MapName::Frontends)?),
            addresses: Table::new(MapName::Addresses, open(MapName::Addresses)?),
            services: ServiceTable::new(&open(MapName::Services)?)?,
            slots: Table::new(MapName::Slots, open(MapName::Slots)?),
            backends: Table::new(MapName::Backends, open(MapName::Backends)?),
            sources: Table::new(MapName::Sources, open(MapName::Sources)?),
            kept: Table::new(MapName::Kept, open(MapName::Kept)?),
            chosen: Table::new(MapName::Chosen, open(MapName::Chosen)?),
            socket_revnat: Table::new(MapName::SocketRevnat, open(MapName::SocketRevnat)?),
            socket_backend: Table::new(MapName::SocketBackend, open(MapName::SocketBackend)?),
            affinity: Table::new(MapName::Affinity, open(MapName::Affinity)?),
            fragments: Table::new(MapName::Fragments, open(MapName::Fragments)?),
            conntrack: Table::new(MapName::Conntrack, open(MapName::Conntrack)?),
            config: ConfigTable::new(open(MapName::Config)?),
            service_traffic: traffic(MapName::ServiceTraffic)?,
            backend_traffic: traffic(MapName::BackendTraffic)?,
            counters: Counters::new(open(MapName::Counters)?),
        })
    }

    /// The counters: what the programs have done since the maps were made.
    pub fn counters(&self) -> Result<Counts, MapError> {
        self.counters.read()
    }
}

/// The maps that an agent has pinned, to be read; as in [`Maps`].
#[derive(Debug)]
pub struct PinnedMaps {
    /// FRONTENDS.
    pub frontends: View<FrontendKey, Frontend>,
    /// ADDRESSES.
    pub addresses: View<Address, u32>,
    /// SERVICES.
    pub services: ServiceView,
    /// SLOTS.
    pub slots: View<SlotKey, BackendId>,
    /// BACKENDS.
    pub backends: View<BackendId, Backend>,
    /// SOURCES.
    pub sources: View<SourceKey, u32>,
    /// KEPT.
    pub kept: View<ServiceId, Service>,
    /// CHOSEN.
    pub chosen: View<ChosenKey, Chosen>,
    /// SOCKET_REVNAT.
    pub socket_revnat: View<SocketRevnatKey, SocketRevnat>,
    /// SOCKET_BACKEND.
    pub socket_backend: View<u64, Backend>,
    /// AFFINITY.
    pub affinity: View<AffinityKey, Affinity>,
    /// FRAGMENTS.
    pub fragments: View<FragmentKey, Ports>,
    /// CONNTRACK.
    pub conntrack: View<Tuple, Flow>,
    /// SERVICE_TRAFFIC.
    pub service_traffic: TrafficView,
    /// BACKEND_TRAFFIC.
    pub backend_traffic: TrafficView,
    config: View<u32, lb_abi::Config>,
    counters: Counters,
}

impl PinnedMaps {
    /// The counters: what the programs have done since the maps were made.
    pub fn counters(&self) -> Result<Counts, MapError> {
        self.counters.read()
    }

    /// CONFIG; `None` can't be: it is an array.
    pub fn config(&self) -> Result<Option<lb_abi::Config>, MapError> {
        self.config.get(&0)
    }
}

/// Opens the pinned maps for reading, beside a running agent or after it; changes nothing.
///
/// # Errors
/// [`LoaderError::NotPinned`] if there are none, or of another layout.
pub fn read_pinned(bpffs: &Path) -> Result<PinnedMaps, LoaderError> {
    let pins = Pins::new(bpffs);
    let folder = pins.maps();
    compatibility::inspect(&folder).map_err(|why| LoaderError::NotPinned {
        path: folder.clone(),
        why: why.to_string(),
    })?;
    let open = |name| compatibility::open(&folder, name, sys::READ_ONLY);
    // Linux shares a mapping only with a descriptor that may write; the mapping itself is for reading.
    let to_map = |name| compatibility::open(&folder, name, 0);
    let traffic = |name| TrafficView::new(name, &to_map(name)?);
    Ok(PinnedMaps {
        frontends: View::new(MapName::Frontends, open(MapName::Frontends)?),
        addresses: View::new(MapName::Addresses, open(MapName::Addresses)?),
        services: ServiceView::new(&to_map(MapName::Services)?)?,
        slots: View::new(MapName::Slots, open(MapName::Slots)?),
        backends: View::new(MapName::Backends, open(MapName::Backends)?),
        sources: View::new(MapName::Sources, open(MapName::Sources)?),
        kept: View::new(MapName::Kept, open(MapName::Kept)?),
        chosen: View::new(MapName::Chosen, open(MapName::Chosen)?),
        socket_revnat: View::new(MapName::SocketRevnat, open(MapName::SocketRevnat)?),
        socket_backend: View::new(MapName::SocketBackend, open(MapName::SocketBackend)?),
        affinity: View::new(MapName::Affinity, open(MapName::Affinity)?),
        fragments: View::new(MapName::Fragments, open(MapName::Fragments)?),
        conntrack: View::new(MapName::Conntrack, open(MapName::Conntrack)?),
        service_traffic: traffic(MapName::ServiceTraffic)?,
        backend_traffic: traffic(MapName::BackendTraffic)?,
        config: View::new(MapName::Config, open(MapName::Config)?),
        counters: Counters::new(open(MapName::Counters)?),
    })
}
