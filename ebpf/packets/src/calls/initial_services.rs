//! The services that every case begins with; what else there is comes by changes.
//!
//! For each protocol and family a [`Group`]: three backends, a service port of all of them and one of the third alone, with
//! a ClusterIP, a node port (of IPv4 two: an IPv6 socket may have one of them), a load balancer's address and an external IP
//! that is the node's own. KEPT has the first.

use lb_abi::{Backend, BackendId, Frontend, FrontendKey, Port, Service, ServiceId, SlotKey, address_flags};

use super::{
    model::{Ids, State},
    named_address::{NamedAddress, SERVED},
    step::Group,
};

/// Backends of a group.
pub(super) const BACKENDS: u32 = 3;
/// Service ports of a group.
pub(super) const SERVICES: u32 = 2;

impl Group {
    pub(super) const ALL: [Self; 4] = [
        Self { tcp: false, v4: true },
        Self {
            tcp: false,
            v4: false,
        },
        Self { tcp: true, v4: true },
        Self { tcp: true, v4: false },
    ];

    fn index(self) -> u32 {
        u32::from(self.tcp) * 2 + u32::from(self.v4)
    }

    /// The id of one of its backends.
    pub(super) fn backend(self, index: u32) -> BackendId {
        self.index() * BACKENDS + index % BACKENDS + 1
    }

    /// The id of one of its service ports.
    pub(super) fn service(self, index: u32) -> ServiceId {
        self.index() * SERVICES + index % SERVICES + 1
    }

    /// What a backend is, at a port.
    pub(super) fn value(self, index: u32, port: u16) -> Backend {
        let places = [NamedAddress::PodA, NamedAddress::PodB, NamedAddress::Remote];
        Backend {
            address: places[index as usize % places.len()].address(self.v4),
            port: Port::new(port),
            protocol: self.protocol(),
            flags: u8::from(index < 2),
        }
    }

    pub(super) fn key(self, place: NamedAddress, port: u16) -> FrontendKey {
        FrontendKey {
            address: place.address(self.v4),
            port: Port::new(port),
            protocol: self.protocol(),
            pad: 0,
        }
    }
}

/// The largest ids.
pub(super) const MOST: u32 = 12;

/// What a case begins with, before its changes.
pub fn base(ids: Ids) -> State {
    let mut state = State::new(ids);
    for group in Group::ALL {
        for index in 0..BACKENDS {
            state
                .maps
                .backends
                .insert(group.backend(index), group.value(index, SERVED));
        }
        for (service, members) in [(0, &[0, 1, 2][..]), (1, &[2][..])] {
            let members: Vec<_> = members.iter().map(|index| group.backend(*index)).collect();
            let id = group.service(service);
            switch(&mut state, id, 1, &members);
            if service == 0 {
                let current = state.maps.services.get(&id);
                state.kept.extend(current.map(|current| (id, *current)));
            }
        }
        for (place, port, service) in [
            (NamedAddress::ClusterIp, 80, 0),
            (NamedAddress::ClusterIpAlso, 80, 1),
            (NamedAddress::LoadBalancer, 80, 1),
            (NamedAddress::Node, 80, 0),
            (NamedAddress::Unspecified, 30080, 0),
            (NamedAddress::Unspecified, 30081, 1),
        ] {
            if (port, group.v4) == (30081, false) {
                continue;
            }
            let id = group.service(service);
            let frontend = Frontend {
                internal: id,
                external: id,
                ..Frontend::default()
            };
            state.maps.frontends.insert(group.key(place, port), frontend);
        }
    }
    for v4 in [true, false] {
        for (place, flags) in [
            (NamedAddress::ClusterIp, address_flags::VIP),
            (NamedAddress::ClusterIpAlso, address_flags::VIP),
            (NamedAddress::LoadBalancer, address_flags::LOAD_BALANCER),
            (NamedAddress::Node, address_flags::NODE),
            (NamedAddress::Loopback, address_flags::NODE),
        ] {
            state.maps.addresses.insert(place.address(v4), flags);
        }
    }
    state.maps.config.node_netns = ids.node;
    state
}

/// Slots of a generation, marks of its members, and the switch to it.
pub(super) fn switch(state: &mut State, service: ServiceId, generation: u32, members: &[BackendId]) {
    for (index, backend) in (0..).zip(members) {
        let slot = SlotKey {
            service,
            generation,
            index,
        };
        let member = SlotKey::member(service, generation, *backend);
        state.maps.slots.extend([(slot, *backend), (member, *backend)]);
    }
    let slots = members.len() as u32;
    state.maps.services.insert(service, Service { generation, slots });
}
