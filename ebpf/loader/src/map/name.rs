//! Which maps there are, and how each is laid out.

use std::fmt;

use lb_abi::{
    Backend, BackendId, Frontend, FrontendKey, Meta, ReverseKey, Service, ServiceId, SlotKey, capacity,
};

use crate::sys::map::{ARRAY, ARRAY_OF_MAPS, HASH, LRU_HASH, Layout, MMAPABLE, PERCPU_ARRAY};

/// A map of the datapath.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MapName {
    /// Destination → service port.
    Frontends,
    /// Service port → generation and number of slots.
    Services,
    /// Service port, generation, index → backend id.
    Slots,
    /// Backend id → address.
    Backends,
    /// Socket and backend → frontend.
    Reverse,
    /// Magic and ABI version.
    Meta,
    /// [`Counter`](lb_abi::Counter) → count.
    Counters,
    /// The map of a map whose updates wait for running programs; of this process only, never pinned.
    Barrier,
}

impl MapName {
    /// Those that programs use and that are pinned.
    pub const PINNED: [Self; 7] = [
        Self::Frontends,
        Self::Services,
        Self::Slots,
        Self::Backends,
        Self::Reverse,
        Self::Meta,
        Self::Counters,
    ];

    /// Name in the object and of the pin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontends => "FRONTENDS",
            Self::Services => "SERVICES",
            Self::Slots => "SLOTS",
            Self::Backends => "BACKENDS",
            Self::Reverse => "REVERSE",
            Self::Meta => "META",
            Self::Counters => "COUNTERS",
            Self::Barrier => "BARRIER",
        }
    }

    /// Most entries.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Frontends => capacity::FRONTENDS,
            Self::Services => capacity::SERVICES,
            Self::Slots => capacity::SLOTS,
            Self::Backends => capacity::BACKENDS,
            Self::Reverse => capacity::REVERSE,
            Self::Meta | Self::Barrier => 1,
            Self::Counters => lb_abi::COUNTERS,
        }
    }

    /// What a map must be to be this one.
    pub(crate) const fn layout(self) -> Layout {
        match self {
            Self::Frontends => layout::<FrontendKey, Frontend>(HASH, self),
            Self::Services => Layout {
                flags: MMAPABLE,
                ..layout::<ServiceId, Service>(ARRAY, self)
            },
            Self::Slots => layout::<SlotKey, BackendId>(HASH, self),
            Self::Backends => layout::<BackendId, Backend>(HASH, self),
            Self::Reverse => layout::<ReverseKey, FrontendKey>(LRU_HASH, self),
            Self::Meta => layout::<u32, Meta>(ARRAY, self),
            Self::Counters => layout::<u32, u64>(PERCPU_ARRAY, self),
            // The value is another map's descriptor.
            Self::Barrier => layout::<u32, u32>(ARRAY_OF_MAPS, self),
        }
    }
}

const fn layout<K, V>(map_type: u32, name: MapName) -> Layout {
    // `as`: TryFrom is not const; the sizes are of a few bytes.
    let (key_size, value_size) = (size_of::<K>() as u32, size_of::<V>() as u32);
    Layout {
        map_type,
        key_size,
        value_size,
        max_entries: name.capacity(),
        flags: 0,
    }
}

impl fmt::Display for MapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
