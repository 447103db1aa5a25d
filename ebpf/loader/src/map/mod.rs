//! The maps: which there are ([`MapName`]), typed access ([`Table`], [`ServiceTable`]), and the pinned set.
//!
//! | module | holds |
//! |---|---|
//! | `name` | names, capacities, layouts |
//! | `table` | hash maps, typed |
//! | `services` | SERVICES, as memory |
//! | `counters` | the per-CPU counters, summed |
//! | `pins` | where a set of maps is pinned; which set is adopted, and how one takes another's place |

mod barrier;
mod counters;
mod name;
pub(crate) mod pins;
mod services;
mod table;

use std::path::Path;

use lb_abi::{Backend, BackendId, Frontend, FrontendKey, ReverseKey, SlotKey};

pub(crate) use self::barrier::Barrier;
use self::{counters::Counters, pins::Pins};
pub use self::{
    counters::Counts,
    name::MapName,
    services::{ServiceTable, ServiceView},
    table::{Plain, Table, View},
};
use crate::{LoaderError, MapError, sys};

/// The maps of an open [`Datapath`](crate::Datapath).
#[derive(Debug)]
pub struct Maps {
    /// FRONTENDS.
    pub frontends: Table<FrontendKey, Frontend>,
    /// SERVICES.
    pub services: ServiceTable,
    /// SLOTS.
    pub slots: Table<SlotKey, BackendId>,
    /// BACKENDS.
    pub backends: Table<BackendId, Backend>,
    /// REVERSE: written by the programs.
    pub reverse: View<ReverseKey, FrontendKey>,
    counters: Counters,
}

impl Maps {
    /// Of a set that is pinned in a folder and known to be complete.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoaderError> {
        let open = |name| pins::open(folder, name, 0);
        Ok(Self {
            frontends: Table::new(MapName::Frontends, open(MapName::Frontends)?),
            services: ServiceTable::new(&open(MapName::Services)?)?,
            slots: Table::new(MapName::Slots, open(MapName::Slots)?),
            backends: Table::new(MapName::Backends, open(MapName::Backends)?),
            reverse: View::new(MapName::Reverse, open(MapName::Reverse)?),
            counters: Counters::new(open(MapName::Counters)?),
        })
    }

    /// The counters: what the programs have done since the maps were made.
    pub fn counters(&self) -> Result<Counts, MapError> {
        self.counters.read()
    }
}

/// The maps that an agent has pinned, to be read.
#[derive(Debug)]
pub struct PinnedMaps {
    /// FRONTENDS.
    pub frontends: View<FrontendKey, Frontend>,
    /// SERVICES.
    pub services: ServiceView,
    /// SLOTS.
    pub slots: View<SlotKey, BackendId>,
    /// BACKENDS.
    pub backends: View<BackendId, Backend>,
    /// REVERSE.
    pub reverse: View<ReverseKey, FrontendKey>,
    counters: Counters,
}

impl PinnedMaps {
    /// The counters: what the programs have done since the maps were made.
    pub fn counters(&self) -> Result<Counts, MapError> {
        self.counters.read()
    }
}

/// Opens the pinned maps for reading, beside a running agent or after it; changes nothing.
///
/// # Errors
/// [`LoaderError::NotPinned`] if there are none, or of another layout.
pub fn read_pinned(bpffs: &Path) -> Result<PinnedMaps, LoaderError> {
    let pins = Pins::new(bpffs);
    let folder = pins.maps();
    pins::inspect(&folder).map_err(|why| LoaderError::NotPinned {
        path: folder.clone(),
        why: why.to_string(),
    })?;
    let open = |name| pins::open(&folder, name, sys::READ_ONLY);
    Ok(PinnedMaps {
        frontends: View::new(MapName::Frontends, open(MapName::Frontends)?),
        // Linux shares a mapping only with a descriptor that may write; the mapping itself is for reading.
        services: ServiceView::new(&pins::open(&folder, MapName::Services, 0)?)?,
        slots: View::new(MapName::Slots, open(MapName::Slots)?),
        backends: View::new(MapName::Backends, open(MapName::Backends)?),
        reverse: View::new(MapName::Reverse, open(MapName::Reverse)?),
        counters: Counters::new(open(MapName::Counters)?),
    })
}
