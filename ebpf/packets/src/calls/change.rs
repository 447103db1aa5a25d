//! What a change makes of the maps.

use lb_abi::{AddressRange, Frontend, Service, ServiceId, SlotKey, SourceKey};

use super::{
    initial_services::switch,
    model::State,
    named_address::NamedAddress,
    step::{Change, Group},
};

/// Ids of a group's service ports, of which values of frontends have the numbers.
fn named(group: Group, value: Frontend) -> Frontend {
    let id = |number: ServiceId| number.checked_sub(1).map_or(0, |index| group.service(index));
    Frontend {
        internal: id(value.internal),
        external: id(value.external),
        ..value
    }
}

fn put<K: Ord, V>(map: &mut std::collections::BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

impl Change {
    /// The maps as they are then.
    pub(super) fn make(&self, state: &mut State) {
        let maps = &mut state.maps;
        match *self {
            Self::Backend { group, index, port } => {
                let value = port.map(|port| group.value(index, port));
                put(&mut maps.backends, group.backend(index), value);
            }
            Self::Switch {
                group,
                service,
                ref members,
                foreign,
            } => {
                let id = group.service(service);
                let generation = maps.services.get(&id).map_or(0, |there| there.generation) + 1;
                let of = Group {
                    v4: group.v4 != foreign,
                    ..group
                };
                let members: Vec<_> = members.iter().map(|index| of.backend(*index)).collect();
                switch(state, id, generation, &members);
            }
            Self::Unserved { group, service } => {
                maps.services.remove(&group.service(service));
            }
            Self::Torn { group, service, slot } => {
                let id = group.service(service);
                if let Some(Service { generation, .. }) = maps.services.get(&id) {
                    maps.slots.remove(&SlotKey {
                        service: id,
                        generation: *generation,
                        index: slot,
                    });
                }
            }
            Self::Frontend {
                group,
                place,
                port,
                value,
            } => {
                let value = value.map(|value| named(group, value));
                put(&mut maps.frontends, group.key(place, port), value);
            }
            // The unspecified address is node ports' key, and never one of ADDRESSES; 127.0.0.1 stands for all of loopback.
            Self::Address {
                place: NamedAddress::Unspecified | NamedAddress::LoopbackAlso,
                ..
            } => {}
            Self::Address { place, v4, flags } => put(&mut maps.addresses, place.address(v4), flags),
            Self::Kept { group, service, kept } => {
                let id = group.service(service);
                let current = maps.services.get(&id).copied().filter(|_| kept);
                put(&mut state.kept, id, current);
            }
            Self::Own(own) => maps.config.own_cgroup = if own { state.ids.cgroup } else { 0 },
            Self::Node { pod } => {
                maps.config.node_netns = if pod { state.ids.pod } else { state.ids.node };
            }
            Self::Ranges { v4, range, pod } => {
                let (network, host) = if v4 { (24, 32) } else { (112, 128) };
                maps.config.service_ranges[usize::from(v4)] = if range {
                    AddressRange::new(NamedAddress::ClusterIp.address(v4), network)
                } else {
                    AddressRange::NONE
                };
                let source =
                    SourceKey::range(SourceKey::CLUSTER, NamedAddress::ClusterIpAlso.address(v4), host);
                if pod {
                    maps.sources.insert(source);
                } else {
                    maps.sources.remove(&source);
                }
            }
            Self::Age(seconds) => {
                for affinity in maps.affinity.values_mut() {
                    affinity.seconds = affinity.seconds.wrapping_sub(seconds);
                }
            }
            Self::Forget { group, index } => {
                state
                    .chosen
                    .retain(|_, chosen| chosen.backend != group.backend(index));
            }
            Self::Live(live) => state.live = live,
        }
    }
}
