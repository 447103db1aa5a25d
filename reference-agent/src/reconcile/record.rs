//! A set of backends of a service port: what is in the maps under one [`ServiceId`].

use std::collections::BTreeSet;

use crate::hash::HashSet;

use lb_abi::{BackendId, Frontend, Service, ServiceId, SlotKey, SourceKey};

/// What is under one [`ServiceId`].
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Whether SERVICES has it.
    pub(super) in_map: bool,
    /// Its generation in SERVICES.
    pub(super) generation: u32,
    /// The backends of its current slots, in order.
    pub(super) slots: Box<[BackendId]>,
    /// Whether each of them is noted as a member.
    pub(super) members: bool,
    /// Whether the slots are complete and well formed, and so can be compared with a plan.
    pub(super) intact: bool,
    /// Otherwise, what is there of its current generation.
    pub(super) scattered: Vec<(SlotKey, BackendId)>,
    /// What the agent's own sockets go on using.
    pub(super) kept: Option<Kept>,
    /// Its ranges of clients, in the map.
    pub(super) sources: BTreeSet<SourceKey>,
    /// How many frontends name it, …
    pub(super) frontends: u32,
    /// … have affinity, …
    pub(super) affine: u32,
    /// … or ask for its ranges of clients.
    pub(super) ranged: u32,
}

/// A generation that is not current, or soon won't be.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) generation: u32,
    /// How many slots KEPT names.
    pub(super) count: u32,
    /// The backends of its slots; none if its slots are the current ones.
    pub(super) slots: Box<[BackendId]>,
    /// Whether KEPT has it.
    pub(super) in_map: bool,
    /// Whether its slots are complete and well formed.
    pub(super) sound: bool,
}

impl Kept {
    /// As KEPT has it.
    pub(super) const fn value(&self) -> Service {
        Service {
            generation: self.generation,
            slots: self.count,
        }
    }

    /// Its entries of SLOTS; none if they are the current ones.
    pub(super) fn entries(&self, id: ServiceId) -> impl Iterator<Item = (SlotKey, BackendId)> {
        entries(id, self.generation, &self.slots)
    }
}

impl Record {
    /// As SERVICES has it.
    pub(super) fn value(&self) -> Service {
        Service {
            generation: self.generation,
            slots: count(&self.slots),
        }
    }

    /// Whether KEPT has it.
    pub(super) fn is_in_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.in_map)
    }

    /// Whether an entry of SLOTS is one of its.
    pub(super) fn has_entry(&self, key: SlotKey) -> bool {
        let SlotKey {
            generation, index, ..
        } = key;
        let is_slot = |slots: &[BackendId]| index < count(slots);
        let current = generation == self.generation
            && if index & SlotKey::MEMBER == 0 {
                is_slot(&self.slots)
            } else {
                self.members && self.slots.contains(&(index & !SlotKey::MEMBER))
            };
        let kept = self.kept.as_ref();
        current
            || kept.is_some_and(|kept| generation == kept.generation && is_slot(&kept.slots))
            || self.scattered.iter().any(|(one, _)| *one == key)
    }

    /// Takes the current generation out, as entries of SLOTS that are to go; what is kept of it stays.
    pub(super) fn take_current(&mut self, id: ServiceId) -> Vec<(SlotKey, BackendId)> {
        let slots = std::mem::take(&mut self.slots);
        let mut leaving = std::mem::take(&mut self.scattered);
        if std::mem::take(&mut self.members) {
            leaving.extend(members(id, self.generation, &slots));
        }
        match &mut self.kept {
            Some(kept) if kept.generation == self.generation && kept.sound => kept.slots = slots,
            _ => leaving.extend(entries(id, self.generation, &slots)),
        }
        leaving
    }

    /// Takes what is kept out, as entries of SLOTS that are to go.
    pub(super) fn take_kept(&mut self, id: ServiceId) -> Vec<(SlotKey, BackendId)> {
        let kept = self.kept.take();
        kept.map_or_else(Vec::new, |kept| kept.entries(id).collect())
    }

    /// Every entry of SLOTS that it has.
    pub(super) fn all_entries(&self, id: ServiceId) -> impl Iterator<Item = (SlotKey, BackendId)> {
        let members = self.members.then(|| members(id, self.generation, &self.slots));
        let kept = self.kept.iter();
        entries(id, self.generation, &self.slots)
            .chain(members.into_iter().flatten())
            .chain(kept.flat_map(move |kept| kept.entries(id)))
            .chain(self.scattered.iter().copied())
    }
}

/// Of so many slots. There are never more than the map has room for.
pub(super) fn count(slots: &[BackendId]) -> u32 {
    u32::try_from(slots.len()).unwrap_or(u32::MAX)
}

/// The entries of SLOTS of a generation.
pub(super) fn entries(
    service: ServiceId,
    generation: u32,
    slots: &[BackendId],
) -> impl Iterator<Item = (SlotKey, BackendId)> {
    (0..).zip(slots).map(move |(index, &backend)| {
        let key = SlotKey {
            service,
            generation,
            index,
        };
        (key, backend)
    })
}

/// The entries of SLOTS that note the members of a generation.
pub(super) fn members(service: ServiceId, generation: u32, slots: &[BackendId]) -> Vec<(SlotKey, BackendId)> {
    let mut seen = HashSet::with_capacity_and_hasher(slots.len(), Default::default());
    let distinct = slots.iter().filter(|&&backend| seen.insert(backend));
    distinct
        .map(|&backend| (SlotKey::member(service, generation, backend), backend))
        .collect()
}

/// The service ports that a frontend names, each once.
pub(super) fn services_of(frontend: &Frontend) -> impl Iterator<Item = ServiceId> + use<> {
    let Frontend {
        internal, external, ..
    } = *frontend;
    let external = Some(external).filter(|&external| external != internal);
    [Some(internal), external]
        .into_iter()
        .flatten()
        .filter(|&id| id != 0)
}
