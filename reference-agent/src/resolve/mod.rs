//! Map contents → how each frontend is served, and defects.
//!
//! Follows the maps as the programs do: frontend, ranges of clients, service, slots, backends. The result has no ids, so
//! that the maps of two agents can be compared; defects have them.

mod defect;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use lb_abi::{
    Address, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey, SourceKey, address_flags,
    capacity, frontend_flags,
};

use crate::{
    endpoint_address::{Backend, Range, TransportAddress},
    maps::{Contents, SOURCE},
    plan::{Selection, Serving},
};

pub use self::defect::Defect;

/// Frontends, and how each is served.
pub type Resolved = BTreeMap<TransportAddress, Serving>;

/// Resolves every frontend. One with a defect resolves to the backends that can be reached through it; one without a
/// service is left out.
pub fn resolve(contents: &Contents) -> (Resolved, BTreeSet<Defect>) {
    let index = Index::new(contents);
    let mut resolved = Resolved::new();
    let mut defects = BTreeSet::new();
    for &(key, value) in &contents.frontends {
        let (Some(frontend), Some(selection)) =
            (TransportAddress::from_frontend_key(key), selection_of(value))
        else {
            defects.insert(Defect::StrangeFrontend(key));
            continue;
        };
        if !is_unspecified(frontend.address) && !index.addresses.contains_key(&key.address) {
            defects.insert(Defect::MissingAddress(frontend));
        }
        let [internal, external] = [value.internal, value.external].map(|id| {
            let slots = index.follow(frontend, id, &mut defects);
            if value.affinity_seconds != 0 {
                index.missing_members(frontend, id, &mut defects);
            }
            slots
        });
        let (Some(internal), Some(external)) = (internal, external) else {
            continue;
        };
        let serving = Serving {
            internal,
            external,
            selection,
            affinity_seconds: value.affinity_seconds,
            silent: value.flags & frontend_flags::SILENT != 0,
            target_port: value.flags & frontend_flags::TARGET_PORT != 0,
            sources: source_of(value).map(|id| index.ranges.get(&id).cloned().unwrap_or_default()),
        };
        resolved.insert(frontend, serving);
    }
    index.orphans(contents, &mut defects);
    (resolved, defects)
}

/// Frontends with kept backends for the agent's own sockets.
pub fn kept(contents: &Contents) -> BTreeMap<TransportAddress, BTreeSet<TransportAddress>> {
    let index = Index::new(contents);
    let frontends = contents.frontends.iter();
    let kept = frontends.filter_map(|(key, value)| {
        let frontend = TransportAddress::from_frontend_key(*key)?;
        let kept = *index.kept.get(&value.internal)?;
        let slots = index.slots_of(value.internal, kept);
        let backends = slots.filter_map(|(_, id)| index.backend(id));
        Some((frontend, backends.map(|backend| backend.address).collect()))
    });
    kept.collect()
}

/// Backends without a slot, which established flows may keep.
pub fn established(contents: &Contents) -> BTreeSet<TransportAddress> {
    let carried: BTreeSet<_> = contents.slots.iter().map(|(_, backend)| *backend).collect();
    let backends = contents.backends.iter();
    backends
        .filter(|(id, _)| !carried.contains(id))
        .filter_map(|(_, value)| Backend::from_value(*value))
        .map(|backend| backend.address)
        .collect()
}

/// The ranges of the cluster's clients.
pub fn clients(contents: &Contents) -> BTreeSet<Range> {
    let ranges = contents.sources.iter().filter_map(|(key, _)| range(*key));
    ranges
        .filter(|(id, _)| *id == SourceKey::CLUSTER)
        .map(|(_, range)| range)
        .collect()
}

/// The service port, or [`SourceKey::CLUSTER`], and the range of clients of a key of SOURCES; `None`: not written by an
/// agent of this version.
pub(crate) fn range(key: SourceKey) -> Option<(ServiceId, Range)> {
    let id = ServiceId::from_be_bytes(key.service);
    let address = IpAddr::from(key.address);
    let before = if key.address.is_v4() { 32 + 96 } else { 32 };
    let length = key.prefix_length.checked_sub(before)?.try_into().ok()?;
    let range = Range::new(address, length)?;
    (SourceKey::range(id, range.address().into(), length) == key).then_some((id, range))
}

/// The maps, for lookups.
struct Index {
    services: BTreeMap<ServiceId, Service>,
    slots: BTreeMap<SlotKey, BackendId>,
    backends: HashMap<BackendId, lb_abi::Backend>,
    addresses: BTreeMap<Address, u32>,
    ranges: BTreeMap<ServiceId, BTreeSet<Range>>,
    kept: BTreeMap<ServiceId, Service>,
}

impl Index {
    fn new(contents: &Contents) -> Self {
        let mut ranges = BTreeMap::<ServiceId, BTreeSet<Range>>::new();
        for (id, one) in contents.sources.iter().filter_map(|(key, _)| range(*key)) {
            ranges.entry(id).or_default().insert(one);
        }
        Self {
            services: contents.services.iter().copied().collect(),
            slots: contents.slots.iter().copied().collect(),
            backends: contents.backends.iter().copied().collect(),
            addresses: contents.addresses.iter().copied().collect(),
            ranges,
            kept: contents.kept.iter().copied().collect(),
        }
    }

    fn backend(&self, id: BackendId) -> Option<Backend> {
        self.backends
            .get(&id)
            .and_then(|value| Backend::from_value(*value))
    }

    /// The existing slots of a value.
    fn slots_of(&self, service: ServiceId, value: Service) -> impl Iterator<Item = (SlotKey, BackendId)> {
        // Walks existing slots: a corrupt service may name four billion.
        let slot = |index| SlotKey {
            service,
            generation: value.generation,
            index,
        };
        let found = self.slots.range(slot(0)..slot(value.slots.min(SlotKey::MEMBER)));
        found.map(|(&key, &backend)| (key, backend))
    }

    /// The backends of one of a frontend's service ports.
    fn follow(
        &self,
        frontend: TransportAddress,
        id: ServiceId,
        defects: &mut BTreeSet<Defect>,
    ) -> Option<Vec<Backend>> {
        let Some(&service) = self.services.get(&id) else {
            defects.insert(Defect::DanglingFrontend(frontend, id));
            return None;
        };
        let mut backends = Vec::new();
        let mut found = 0;
        for (key, backend) in self.slots_of(id, service) {
            found += 1;
            match self.backend(backend) {
                Some(backend) => backends.push(backend),
                None => _ = defects.insert(Defect::DanglingSlot(frontend, key, backend)),
            }
        }
        if found != service.slots as usize {
            defects.insert(Defect::MissingSlots(frontend, id, service.slots, found));
        }
        Some(backends)
    }

    fn missing_members(&self, frontend: TransportAddress, id: ServiceId, defects: &mut BTreeSet<Defect>) {
        let Some(&service) = self.services.get(&id) else {
            return;
        };
        let slots = self.slots_of(id, service);
        let missing = slots.filter(|&(_, backend)| {
            let member = SlotKey::member(id, service.generation, backend);
            !self.slots.contains_key(&member)
        });
        defects.extend(missing.map(|(_, backend)| Defect::MissingMember(frontend, service, id, backend)));
    }

    /// Entries that nothing refers to.
    fn orphans(&self, contents: &Contents, defects: &mut BTreeSet<Defect>) {
        let frontends = &contents.frontends;
        let occupied: BTreeSet<_> = frontends.iter().map(|(key, _)| key.address).collect();
        for (&address, &flags) in &self.addresses {
            if flags & !address_flags::ALL != 0 {
                defects.insert(Defect::StrangeAddress(address, flags));
            }
            if flags & address_flags::NODE == 0 && !occupied.contains(&address) {
                defects.insert(Defect::OrphanAddress(address));
            }
        }
        let both = |(_, value): &(FrontendKey, Frontend)| [value.internal, value.external];
        let named: BTreeSet<_> = frontends.iter().flat_map(both).collect();
        let affine = frontends.iter().filter(|(_, value)| value.affinity_seconds != 0);
        let affine: BTreeSet<_> = affine.flat_map(both).collect();
        let unnamed = self.services.keys().filter(|id| !named.contains(id));
        defects.extend(unnamed.map(|&id| Defect::OrphanService(id)));
        for (&id, &value) in &self.kept {
            let has_backends = self.services.get(&id).is_none_or(|service| service.slots != 0);
            if has_backends || !named.contains(&id) {
                defects.insert(Defect::NeedlessKept(id));
            }
            let there = self
                .slots_of(id, value)
                .filter(|&(_, backend)| self.backend(backend).is_some());
            if value.slots == 0 || there.count() != value.slots as usize {
                defects.insert(Defect::DanglingKept(id, value));
            }
        }
        self.idle_slots(&affine, defects);
        self.idle_sources(contents, defects);
        let mut seen = BTreeSet::new();
        for &(id, value) in &contents.backends {
            match Backend::from_value(value).filter(|_| (1..capacity::BACKENDS).contains(&id)) {
                None => _ = defects.insert(Defect::StrangeBackend(id)),
                Some(backend) if !seen.insert(backend) => {
                    defects.insert(Defect::DoubleBackend(id, backend));
                }
                Some(_) => {}
            }
        }
    }

    fn idle_slots(&self, affine: &BTreeSet<ServiceId>, defects: &mut BTreeSet<Defect>) {
        let current = |map: &BTreeMap<ServiceId, Service>, key: &SlotKey| {
            map.get(&key.service)
                .is_some_and(|value| value.generation == key.generation && key.index < value.slots)
        };
        let mut members = BTreeSet::new();
        for (key, &backend) in &self.slots {
            if key.index & SlotKey::MEMBER != 0 {
                continue;
            }
            if current(&self.services, key) {
                members.insert(SlotKey::member(key.service, key.generation, backend));
            } else if !current(&self.kept, key) {
                defects.insert(Defect::OrphanSlot(*key));
            }
        }
        for (key, &backend) in &self.slots {
            let member = key.index & SlotKey::MEMBER != 0;
            let asked_for = affine.contains(&key.service)
                && members.contains(key)
                && key.index == backend | SlotKey::MEMBER;
            if member && !asked_for {
                defects.insert(Defect::OrphanMember(*key));
            }
        }
    }

    fn idle_sources(&self, contents: &Contents, defects: &mut BTreeSet<Defect>) {
        let asked_for: BTreeSet<_> = contents
            .frontends
            .iter()
            .filter_map(|(_, value)| source_of(*value))
            .collect();
        for &(key, value) in &contents.sources {
            match range(key).filter(|_| value == SOURCE) {
                None => _ = defects.insert(Defect::StrangeSource(key, value)),
                Some((id, _)) if id == SourceKey::CLUSTER || asked_for.contains(&id) => {}
                Some((id, range)) => _ = defects.insert(Defect::OrphanSource(id, range)),
            }
        }
    }
}

/// How a frontend's slots are chosen; `None`: not written by an agent of this version.
const fn selection_of(frontend: Frontend) -> Option<Selection> {
    let Frontend {
        internal,
        external,
        flags,
        ..
    } = frontend;
    if internal == 0 || external == 0 || flags & !frontend_flags::ALL != 0 {
        None
    } else if flags & frontend_flags::MAGLEV != 0 {
        Some(Selection::Maglev)
    } else {
        Some(Selection::Random)
    }
}

/// The service port whose ranges of clients a frontend uses; `None`: it serves all clients.
pub(crate) const fn source_of(frontend: Frontend) -> Option<ServiceId> {
    if frontend.flags & frontend_flags::SOURCE_RANGES == 0 {
        None
    } else if frontend.external != 0 {
        Some(frontend.external)
    } else {
        Some(frontend.internal)
    }
}

/// Whether it is the address of node ports, which is not in ADDRESSES.
fn is_unspecified(address: IpAddr) -> bool {
    address.is_unspecified()
}
