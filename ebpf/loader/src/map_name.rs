//! Which maps there are, and how each is laid out.

use std::fmt;

use lb_abi::{
    Address, Affinity, AffinityKey, Backend, BackendId, Chosen, ChosenKey, Config, Flow, FragmentKey,
    Frontend, FrontendKey, Held, HeldKey, Meta, Ports, Service, ServiceId, SlotKey, SocketRevnat,
    SocketRevnatKey, SourceKey, Traffic, Tuple, capacity,
};

use crate::sys::map::{
    ARRAY, ARRAY_OF_MAPS, HASH, LPM_TRIE, LRU_HASH, Layout, MMAPABLE, NO_PREALLOC, PERCPU_ARRAY,
};

/// A map of the datapath.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MapName {
    /// Destination → service ports.
    Frontends,
    /// Addresses of frontends and of the node.
    Addresses,
    /// Service port → generation and number of slots.
    Services,
    /// Service port, generation, index → backend id.
    Slots,
    /// Backend id → address.
    Backends,
    /// Service port and range of clients → 1.
    Sources,
    /// Service port → the generation that the agent's own sockets go on using.
    Kept,
    /// Unconnected socket and frontend → backend.
    Chosen,
    /// Socket and backend → frontend.
    SocketRevnat,
    /// Socket → the backend it was sent to last.
    SocketBackend,
    /// Client of a service port → backend.
    Affinity,
    /// Fragmented datagram → ports.
    Fragments,
    /// Fragment that came before the first → its frame.
    Held,
    /// Tuple → what it becomes.
    Conntrack,
    /// How the node is set up.
    Config,
    /// Magic and ABI version.
    Meta,
    /// [`Counter`](lb_abi::Counter) → count.
    Counters,
    /// Service port → connections, packets, bytes.
    ServiceTraffic,
    /// Backend id → connections, packets, bytes.
    BackendTraffic,
    /// The map of a map whose updates wait for running programs; of this process only, never pinned.
    Barrier,
}

impl MapName {
    /// Those that programs use and that are pinned.
    pub const PINNED: [Self; 19] = [
        Self::Frontends,
        Self::Addresses,
        Self::Services,
        Self::Slots,
        Self::Backends,
        Self::Sources,
        Self::Kept,
        Self::Chosen,
        Self::SocketRevnat,
        Self::SocketBackend,
        Self::Affinity,
        Self::Fragments,
        Self::Held,
        Self::Conntrack,
        Self::Config,
        Self::Meta,
        Self::Counters,
        Self::ServiceTraffic,
        Self::BackendTraffic,
    ];

    /// Name in the object and of the pin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontends => "FRONTENDS",
            Self::Addresses => "ADDRESSES",
            Self::Services => "SERVICES",
            Self::Slots => "SLOTS",
            Self::Backends => "BACKENDS",
            Self::Sources => "SOURCES",
            Self::Kept => "KEPT",
            Self::Chosen => "CHOSEN",
            Self::SocketRevnat => "SOCKET_REVNAT",
            Self::SocketBackend => "SOCKET_BACKEND",
            Self::Affinity => "AFFINITY",
            Self::Fragments => "FRAGMENTS",
            Self::Held => "HELD",
            Self::Conntrack => "CONNTRACK",
            Self::Config => "CONFIG",
            Self::Meta => "META",
            Self::Counters => "COUNTERS",
            Self::ServiceTraffic => "SERVICE_TRAFFIC",
            Self::BackendTraffic => "BACKEND_TRAFFIC",
            Self::Barrier => "BARRIER",
        }
    }

    /// Those with an entry for a socket that talks to a service, which are made with one size.
    pub(crate) const PER_SOCKET: [Self; 3] = [Self::Chosen, Self::SocketRevnat, Self::SocketBackend];

    /// Least entries: as many as [`capacity`](Self::capacity), but for CONNTRACK, CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND.
    pub(crate) const fn least(self) -> u32 {
        match self {
            Self::Conntrack => capacity::CONNTRACK_LEAST,
            Self::Chosen | Self::SocketRevnat | Self::SocketBackend => capacity::SOCKETS_LEAST,
            _ => self.capacity(),
        }
    }

    /// Most entries; of CONNTRACK, CHOSEN, SOCKET_REVNAT and SOCKET_BACKEND, whose size is the loader's choice, most that there can be.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Frontends => capacity::FRONTENDS,
            Self::Addresses => capacity::ADDRESSES,
            Self::Services | Self::ServiceTraffic => capacity::SERVICES,
            Self::Slots => capacity::SLOTS,
            Self::Backends | Self::BackendTraffic => capacity::BACKENDS,
            Self::Sources => capacity::SOURCES,
            Self::Kept => capacity::KEPT,
            Self::Chosen | Self::SocketRevnat | Self::SocketBackend => capacity::SOCKETS_MOST,
            Self::Affinity => capacity::AFFINITY,
            Self::Fragments => capacity::FRAGMENTS,
            Self::Held => capacity::HELD,
            Self::Conntrack => capacity::CONNTRACK_MOST,
            Self::Config | Self::Meta | Self::Barrier => 1,
            Self::Counters => lb_abi::COUNTERS,
        }
    }

    /// What a map must be to be this one.
    pub(crate) const fn layout(self) -> Layout {
        match self {
            Self::Frontends => layout::<FrontendKey, Frontend>(HASH, self),
            Self::Addresses => layout::<Address, u32>(HASH, self),
            Self::Services => mapped(layout::<ServiceId, Service>(ARRAY, self)),
            Self::Slots => layout::<SlotKey, BackendId>(HASH, self),
            Self::Backends => layout::<BackendId, Backend>(HASH, self),
            Self::Sources => Layout {
                flags: NO_PREALLOC,
                ..layout::<SourceKey, u32>(LPM_TRIE, self)
            },
            Self::Kept => layout::<ServiceId, Service>(HASH, self),
            Self::Chosen => layout::<ChosenKey, Chosen>(LRU_HASH, self),
            Self::SocketRevnat => layout::<SocketRevnatKey, SocketRevnat>(LRU_HASH, self),
            Self::SocketBackend => layout::<u64, Backend>(LRU_HASH, self),
            Self::Affinity => layout::<AffinityKey, Affinity>(LRU_HASH, self),
            Self::Fragments => layout::<FragmentKey, Ports>(LRU_HASH, self),
            Self::Held => layout::<HeldKey, Held>(LRU_HASH, self),
            Self::Conntrack => layout::<Tuple, Flow>(LRU_HASH, self),
            Self::Config => layout::<u32, Config>(ARRAY, self),
            Self::Meta => layout::<u32, Meta>(ARRAY, self),
            Self::Counters => layout::<u32, u64>(PERCPU_ARRAY, self),
            Self::ServiceTraffic => mapped(layout::<ServiceId, Traffic>(ARRAY, self)),
            Self::BackendTraffic => mapped(layout::<BackendId, Traffic>(ARRAY, self)),
            // The value is another map's descriptor.
            Self::Barrier => layout::<u32, u32>(ARRAY_OF_MAPS, self),
        }
    }

    /// Whether a map with this layout can be this one.
    pub(crate) fn fits(self, found: Layout) -> bool {
        let of_this_size = Layout {
            max_entries: found.max_entries,
            ..self.layout()
        };
        (self.least()..=self.capacity()).contains(&found.max_entries) && found == of_this_size
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

/// Of an array that is mapped into memory.
const fn mapped(layout: Layout) -> Layout {
    Layout {
        flags: MMAPABLE,
        ..layout
    }
}

impl fmt::Display for MapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_connections_and_sockets_fit_in_any_size_from_least_to_most_and_others_in_one() {
        for name in MapName::PINNED {
            let sized = matches!(
                name,
                MapName::Conntrack | MapName::Chosen | MapName::SocketRevnat | MapName::SocketBackend
            );
            assert_eq!(name.least() < name.capacity(), sized, "{name}");
            let of = |max_entries| Layout {
                max_entries,
                ..name.layout()
            };
            for (entries, fits) in [
                (name.least() - 1, false),
                (name.least(), true),
                (name.capacity(), true),
                (name.capacity() + 1, false),
            ] {
                assert_eq!(name.fits(of(entries)), fits, "{name} of {entries}");
            }
            let another = Layout {
                value_size: name.layout().value_size + 8,
                ..of(name.least())
            };
            assert!(!name.fits(another), "{name}");
        }
    }
}
