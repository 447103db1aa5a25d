//! Map contents → what a client meets, and what should not be there.
//!
//! Follows the maps as the programs do: frontend, service, slots, backends. Ids don't show in what a frontend
//! resolves to, so that the maps of two agents can be compared; they do show in defects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use lb_abi::{BackendId, FrontendKey, ServiceId, SlotKey};

use crate::{maps::Contents, transport::TransportAddress};

/// Frontends and the backends that serve them; an empty set refuses.
pub type Resolved = BTreeMap<TransportAddress, BTreeSet<TransportAddress>>;

/// Something in the maps that no complete set of writes leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A frontend that can't have been written by an agent of this version.
    StrangeFrontend(FrontendKey),
    /// A frontend whose service is not there.
    DanglingFrontend(TransportAddress, ServiceId),
    /// A frontend's service has fewer slots (the last number) than it names (the one before).
    MissingSlots(TransportAddress, ServiceId, u32, usize),
    /// A frontend's slot names a backend that is not there, or none that an agent can have written.
    DanglingSlot(TransportAddress, SlotKey, BackendId),
    /// A service that no frontend names.
    OrphanService(ServiceId),
    /// A slot that is not of its service's current generation.
    OrphanSlot(SlotKey),
    /// A backend that no slot names.
    OrphanBackend(BackendId),
    /// A backend that is there under a lower number already.
    DoubleBackend(BackendId, TransportAddress),
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
            Self::DoubleBackend(backend, address) => {
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
    let mut resolved = Resolved::new();
    let mut defects = BTreeSet::new();

    for &(key, value) in &contents.frontends {
        let Some(frontend) = TransportAddress::from_frontend_key(key) else {
            defects.insert(Defect::StrangeFrontend(key));
            continue;
        };
        let Some(service) = services.get(&value.service) else {
            defects.insert(Defect::DanglingFrontend(frontend, value.service));
            continue;
        };
        let set = resolved.entry(frontend).or_default();
        // What is there is walked, not what is named: a corrupt service may name four billion.
        let slot = |index| SlotKey {
            service: value.service,
            generation: service.generation,
            index,
        };
        let mut found = 0;
        for (&key, &id) in slots.range(slot(0)..slot(service.slots)) {
            found += 1;
            match backends
                .get(&id)
                .and_then(|backend| TransportAddress::from_backend(*backend))
            {
                Some(backend) => _ = set.insert(backend),
                None => _ = defects.insert(Defect::DanglingSlot(frontend, key, id)),
            }
        }
        if found != service.slots as usize {
            defects.insert(Defect::MissingSlots(
                frontend,
                value.service,
                service.slots,
                found,
            ));
        }
    }

    let named: BTreeSet<_> = contents
        .frontends
        .iter()
        .map(|(_, value)| value.service)
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
    let mut addresses = BTreeSet::new();
    for (&id, &backend) in &backends {
        let address = TransportAddress::from_backend(backend);
        defects.extend(
            address
                .filter(|&address| !addresses.insert(address))
                .map(|address| Defect::DoubleBackend(id, address)),
        );
    }
    (resolved, defects)
}
