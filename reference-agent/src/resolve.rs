//! Map contents → what a client meets, and what should not be there.
//!
//! Follows the maps as the programs do: frontend, service, slots, backends. Ids don't show in what a frontend
//! resolves to, so that the maps of two agents can be compared; they do show in defects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use lb_abi::{Address, BackendId, Frontend, FrontendKey, ServiceId, SlotKey, address_flags, frontend_flags};

use crate::{
    maps::Contents,
    plan::{Selection, Serving},
    transport::{Backend, TransportAddress},
};

/// Frontends, and what clients of them meet.
pub type Resolved = BTreeMap<TransportAddress, Serving>;

/// Something in the maps that no complete set of writes leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A frontend that can't have been written by an agent of this version.
    StrangeFrontend(FrontendKey),
    /// A frontend at an address that ADDRESSES doesn't have as one of services.
    MissingAddress(TransportAddress),
    /// A frontend whose service is not there.
    DanglingFrontend(TransportAddress, ServiceId),
    /// A frontend's service has fewer slots (the last number) than it names (the one before).
    MissingSlots(TransportAddress, ServiceId, u32, usize),
    /// A frontend's slot names a backend that is not there, or none that an agent can have written.
    DanglingSlot(TransportAddress, SlotKey, BackendId),
    /// An address, and its flags, that can't have been written by an agent of this version.
    StrangeAddress(Address, u32),
    /// An address that no frontend has.
    OrphanAddress(Address),
    /// A service that no frontend names.
    OrphanService(ServiceId),
    /// A slot that is not of its service's current generation.
    OrphanSlot(SlotKey),
    /// A backend that no slot names.
    OrphanBackend(BackendId),
    /// A backend that is there under a lower number already.
    DoubleBackend(BackendId, Backend),
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = |SlotKey {
                        service,
                        generation,
                        index,
                    }: &SlotKey| {
            format!("slot {index} of service {service} generation {generation}")
        };
        match self {
            Self::StrangeFrontend(key) => write!(f, "frontend {key:?}: not written by this version"),
            Self::MissingAddress(frontend) => {
                write!(f, "frontend {frontend}: its address is not known as a service's")
            }
            Self::StrangeAddress(address, flags) => {
                write!(
                    f,
                    "address {address:?} with flags {flags:#x}: not written by this version"
                )
            }
            Self::OrphanAddress(address) => write!(f, "address {address:?}: no frontend has it"),
            Self::DanglingFrontend(frontend, service) => {
                write!(f, "frontend {frontend}: its service {service} is missing")
            }
            Self::MissingSlots(frontend, service, named, found) => {
                write!(
                    f,
                    "frontend {frontend}: its service {service} names {named} slots, {found} are there"
                )
            }
            Self::DanglingSlot(frontend, key, backend) => {
                write!(
                    f,
                    "frontend {frontend}: backend {backend} of its {} is missing",
                    slot(key)
                )
            }
            Self::OrphanService(service) => write!(f, "service {service}: no frontend names it"),
            Self::OrphanSlot(key) => write!(f, "{}: not current", slot(key)),
            Self::OrphanBackend(backend) => write!(f, "backend {backend}: no slot names it"),
            Self::DoubleBackend(backend, Backend { address, .. }) => {
                write!(f, "backend {backend}: {address} has a lower number too")
            }
        }
    }
}

/// Resolves every frontend. One with a defect resolves to the backends that can be reached through it, one that
/// dangles is left out.
pub fn resolve(contents: &Contents) -> (Resolved, BTreeSet<Defect>) {
    let services: BTreeMap<_, _> = contents.services.iter().copied().collect();
    let slots: BTreeMap<_, _> = contents.slots.iter().copied().collect();
    let backends: BTreeMap<_, _> = contents.backends.iter().copied().collect();
    let addresses: BTreeMap<_, _> = contents.addresses.iter().copied().collect();
    let mut resolved = Resolved::new();
    let mut defects = BTreeSet::new();

    for &(key, value) in &contents.frontends {
        let (Some(frontend), Some((id, selection))) = (TransportAddress::from_frontend_key(key), read(value))
        else {
            defects.insert(Defect::StrangeFrontend(key));
            continue;
        };
        if !addresses.contains_key(&key.address) {
            defects.insert(Defect::MissingAddress(frontend));
        }
        let Some(service) = services.get(&id) else {
            defects.insert(Defect::DanglingFrontend(frontend, id));
            continue;
        };
        // What is there is walked, not what is named: a corrupt service may name four billion.
        let slot = |index| SlotKey {
            service: id,
            generation: service.generation,
            index,
        };
        let mut found = 0;
        let mut serving = Serving {
            selection,
            ..Serving::default()
        };
        for (&key, backend) in slots.range(slot(0)..slot(service.slots)) {
            found += 1;
            match backends
                .get(backend)
                .and_then(|value| Backend::from_value(*value))
            {
                Some(backend) => serving.internal.push(backend),
                None => _ = defects.insert(Defect::DanglingSlot(frontend, key, *backend)),
            }
        }
        serving.external.clone_from(&serving.internal);
        resolved.insert(frontend, serving);
        if found != service.slots as usize {
            defects.insert(Defect::MissingSlots(frontend, id, service.slots, found));
        }
    }

    let occupied: BTreeSet<_> = contents.frontends.iter().map(|(key, _)| key.address).collect();
    for (&address, &flags) in &addresses {
        if flags != address_flags::VIP {
            defects.insert(Defect::StrangeAddress(address, flags));
        }
        if !occupied.contains(&address) {
            defects.insert(Defect::OrphanAddress(address));
        }
    }
    let named: BTreeSet<_> = contents
        .frontends
        .iter()
        .flat_map(|(_, value)| [value.internal, value.external])
        .collect();
    let unnamed = services.keys().filter(|id| !named.contains(id));
    defects.extend(unnamed.map(|&id| Defect::OrphanService(id)));
    let current = |key: &SlotKey| {
        services
            .get(&key.service)
            .is_some_and(|service| service.generation == key.generation && key.index < service.slots)
    };
    defects.extend(
        slots
            .keys()
            .filter(|key| !current(key))
            .map(|&key| Defect::OrphanSlot(key)),
    );
    let carried: BTreeSet<_> = slots.values().collect();
    let idle = backends.keys().filter(|id| !carried.contains(id));
    defects.extend(idle.map(|&id| Defect::OrphanBackend(id)));
    let mut seen = BTreeSet::new();
    for (&id, &value) in &backends {
        let backend = Backend::from_value(value);
        defects.extend(
            backend
                .filter(|&backend| !seen.insert(backend))
                .map(|backend| Defect::DoubleBackend(id, backend)),
        );
    }
    (resolved, defects)
}

/// The service port of a frontend and how its slots are chosen; `None` for what this agent does not write.
fn read(frontend: Frontend) -> Option<(ServiceId, Selection)> {
    let Frontend {
        internal,
        external,
        flags,
        affinity_seconds,
    } = frontend;
    let selection = match flags {
        0 => Selection::Random,
        frontend_flags::MAGLEV => Selection::Maglev,
        _ => return None,
    };
    (internal == external && affinity_seconds == 0).then_some((internal, selection))
}
