//! Entries that change behind the agent's back.

use lb_abi::{
    Address, Backend, Frontend, FrontendKey, Port, Service, SlotKey, SourceKey, TCP, address_flags,
};
use reference_agent::maps::{Contents, Map};

/// What is done to an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    Remove,
    Change,
    Add,
}

/// A number of a service port and of a backend that no history comes to.
const FOREIGN: u32 = 65_000;

/// Does it to one entry of a map, or to the maps as they are if that has none.
pub(super) fn disturb(contents: &mut Contents, map: Map, entry: u16, what: Disturbance) {
    let entry = usize::from(entry);
    let address = Address::v4([203, 0, 113, 99]);
    let to = Frontend {
        internal: FOREIGN,
        external: FOREIGN,
        ..Frontend::default()
    };
    let key = FrontendKey {
        address,
        port: Port::new(1),
        protocol: TCP,
        pad: 0,
    };
    let slot = SlotKey {
        service: FOREIGN,
        generation: 1,
        index: 0,
    };
    let service = Service {
        generation: 1,
        slots: 0,
    };
    let backend = Backend {
        address,
        port: Port::new(1),
        protocol: TCP,
        flags: 0,
    };
    let again = |service: &mut Service| service.generation = service.generation.wrapping_add(1).max(1);
    match map {
        Map::Addresses => change(
            &mut contents.addresses,
            entry,
            what,
            (address, address_flags::VIP),
            |flags| *flags ^= address_flags::VIP,
        ),
        Map::Frontends => change(&mut contents.frontends, entry, what, (key, to), |value| {
            value.affinity_seconds += 1;
        }),
        Map::Services => change(&mut contents.services, entry, what, (FOREIGN, service), again),
        Map::Kept => change(&mut contents.kept, entry, what, (FOREIGN, service), again),
        Map::Slots => change(&mut contents.slots, entry, what, (slot, 1), |backend| {
            *backend += 1;
        }),
        Map::Backends => change(&mut contents.backends, entry, what, (FOREIGN, backend), |value| {
            value.port = Port::new(value.port.get().wrapping_add(1));
        }),
        Map::Sources => change(
            &mut contents.sources,
            entry,
            what,
            (SourceKey::range(FOREIGN, address, 32), 1),
            |value| *value += 1,
        ),
    }
}

fn change<K, V>(
    entries: &mut Vec<(K, V)>,
    entry: usize,
    what: Disturbance,
    foreign: (K, V),
    alter: impl Fn(&mut V),
) {
    match what {
        Disturbance::Add => entries.push(foreign),
        _ if entries.is_empty() => {}
        Disturbance::Remove => _ = entries.remove(entry % entries.len()),
        Disturbance::Change => {
            let entry = entry % entries.len();
            alter(&mut entries[entry].1);
        }
    }
}
