//! The entries of one [`ServiceId`] in the maps: one set of backends of a service port.
//!
//! # Invariants
//! - `slots` are the entries of SLOTS of `generation`, in order, and SERVICES names so many, if `intact`. Otherwise
//!   `scattered` are the entries of that generation, and no plan equals them.
//! - Slots that leave the record are returned as entries to delete: no entry is forgotten.
//! - What is kept of the current generation has no slots of its own; they become its own with the next switch.
//! - `affine` and `ranged` are at most `frontends`.

use std::collections::BTreeSet;

use lb_abi::{BackendId, Frontend, Service, ServiceId, SlotKey, SourceKey};

use crate::{hash::HashSet, resolve::source_of};

/// Entries of SLOTS.
pub(super) type Slots = Vec<(SlotKey, BackendId)>;

/// The entries of one [`ServiceId`].
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Whether SERVICES has it.
    in_map: bool,
    /// Its generation in SERVICES.
    generation: u32,
    /// The backends of its current slots, in order.
    slots: Box<[BackendId]>,
    /// Whether each of them is noted as a member.
    members: bool,
    /// Whether the slots are complete and well formed, and so can be compared with a plan.
    intact: bool,
    /// Otherwise, the entries of its current generation.
    scattered: Slots,
    /// The generation that the agent's own sockets go on using.
    kept: Option<Kept>,
    /// Its ranges of clients in the map.
    sources: BTreeSet<SourceKey>,
    /// How many frontends name it, …
    frontends: u32,
    /// … have affinity, …
    affine: u32,
    /// … or use its ranges of clients.
    ranged: u32,
}

/// A generation that is not current, or soon won't be.
#[derive(Debug)]
pub(super) struct Kept {
    generation: u32,
    /// How many slots KEPT names.
    count: u32,
    /// The backends of its slots; none if its slots are the current ones.
    slots: Box<[BackendId]>,
    /// Whether KEPT has it.
    in_map: bool,
    /// Whether its slots are complete and well formed.
    sound: bool,
}

impl Kept {
    /// An entry of an adopted KEPT. `slots`: where they are complete, those that are not current.
    pub(super) fn adopted(value: Service, slots: Option<Box<[BackendId]>>) -> Self {
        Self {
            generation: value.generation,
            count: value.slots,
            sound: slots.is_some(),
            slots: slots.unwrap_or_default(),
            in_map: true,
        }
    }

    /// Its entry of KEPT.
    pub(super) const fn value(&self) -> Service {
        Service {
            generation: self.generation,
            slots: self.count,
        }
    }

    /// Whether KEPT has it.
    pub(super) const fn is_in_map(&self) -> bool {
        self.in_map
    }

    /// Whether its slots are complete and well formed.
    pub(super) const fn is_sound(&self) -> bool {
        self.sound
    }

    /// Its entries of SLOTS; none if they are the current ones.
    fn entries(&self, id: ServiceId) -> impl Iterator<Item = (SlotKey, BackendId)> {
        entries(id, self.generation, &self.slots)
    }
}

/// Reading.
impl Record {
    /// Its entry of SERVICES.
    pub(super) fn value(&self) -> Service {
        Service {
            generation: self.generation,
            slots: count(&self.slots),
        }
    }

    /// Whether SERVICES has it.
    pub(super) const fn is_in_map(&self) -> bool {
        self.in_map
    }

    /// Whether its slots are complete and well formed.
    pub(super) const fn is_intact(&self) -> bool {
        self.intact
    }

    /// The backends of its current slots, in order.
    pub(super) fn slots(&self) -> &[BackendId] {
        &self.slots
    }

    /// Whether its slots are exactly these, and noted as members where they have to be. A backend without a number
    /// is in no slot.
    pub(super) fn holds(
        &self,
        backends: impl ExactSizeIterator<Item = Option<BackendId>>,
        members: bool,
    ) -> bool {
        self.intact
            && self.slots.len() == backends.len()
            && (self.members || !members || self.slots.is_empty())
            && self
                .slots
                .iter()
                .zip(backends)
                .all(|(&held, id)| id == Some(held))
    }

    /// The generation that is kept for the agent's own sockets.
    pub(super) const fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Whether KEPT has it.
    pub(super) fn is_in_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(Kept::is_in_map)
    }

    /// The current value, if the agent's own sockets can go on using it.
    pub(super) fn usable_value(&self) -> Option<Service> {
        self.has_usable_slots().then(|| self.value())
    }

    /// The last backends that the agent's own sockets can use.
    pub(super) fn last_usable(&self) -> Option<&[BackendId]> {
        match &self.kept {
            _ if self.has_usable_slots() => Some(&self.slots),
            Some(kept) if kept.sound => Some(&kept.slots),
            _ => None,
        }
    }

    fn has_usable_slots(&self) -> bool {
        self.intact && !self.slots.is_empty()
    }

    /// Its ranges of clients, in the map.
    pub(super) const fn sources(&self) -> &BTreeSet<SourceKey> {
        &self.sources
    }

    /// How many frontends name it.
    pub(super) const fn frontends(&self) -> u32 {
        self.frontends
    }

    /// Whether a frontend with affinity names it, and so reads its members.
    pub(super) const fn is_affine(&self) -> bool {
        self.affine != 0
    }

    /// Whether a frontend uses its ranges of clients.
    pub(super) const fn is_ranged(&self) -> bool {
        self.ranged != 0
    }

    /// Whether it has an entry of SLOTS.
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

/// Writing. Slots that leave are returned, to be deleted.
impl Record {
    /// A number of an adopted map. `in_map`: whether SERVICES has it.
    pub(super) fn adopted(in_map: bool) -> Self {
        Self {
            in_map,
            ..Self::default()
        }
    }

    /// The current generation of an adopted number, whose slots are complete.
    pub(super) fn adopt_slots(&mut self, generation: u32, slots: Box<[BackendId]>, members: bool) {
        self.generation = generation;
        (self.slots, self.members, self.intact) = (slots, members, true);
    }

    /// The current generation of an adopted number, whose slots are not complete.
    pub(super) fn adopt_scattered(&mut self, generation: u32, scattered: Slots) {
        self.generation = generation;
        self.scattered = scattered;
    }

    /// The entry of an adopted KEPT.
    pub(super) fn adopt_kept(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// SERVICES has been switched to a generation whose slots are in the map.
    pub(super) fn switched(
        &mut self,
        id: ServiceId,
        generation: u32,
        slots: Box<[BackendId]>,
        members: bool,
    ) -> Slots {
        let leaving = self.take_current(id);
        (self.in_map, self.intact, self.members) = (true, true, members);
        (self.generation, self.slots) = (generation, slots);
        leaving
    }

    /// Its entry of SERVICES has been deleted.
    pub(super) const fn deleted(&mut self) {
        self.in_map = false;
    }

    /// Takes the current generation out, unless it is kept.
    pub(super) fn take_current(&mut self, id: ServiceId) -> Slots {
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

    /// Takes the members of the current generation out.
    pub(super) fn take_members(&mut self, id: ServiceId) -> Slots {
        match std::mem::take(&mut self.members) {
            true => members(id, self.generation, &self.slots),
            false => Slots::new(),
        }
    }

    /// The current generation is kept, instead of an older one. `in_map`: whether KEPT has it.
    pub(super) fn keep_current(&mut self, id: ServiceId, in_map: bool) -> Slots {
        let older = self.kept.take_if(|kept| kept.generation != self.generation);
        self.kept = Some(Kept {
            generation: self.generation,
            count: count(&self.slots),
            slots: Box::default(),
            in_map,
            sound: true,
        });
        older.map_or_else(Slots::new, |older| older.entries(id).collect())
    }

    /// The kept generation has been put in KEPT.
    pub(super) const fn kept_put(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.in_map = true;
        }
    }

    /// Takes the kept generation out.
    pub(super) fn take_kept(&mut self, id: ServiceId) -> Slots {
        let kept = self.kept.take();
        kept.map_or_else(Slots::new, |kept| kept.entries(id).collect())
    }

    /// A range of clients has been put.
    pub(super) fn source_put(&mut self, key: SourceKey) {
        self.sources.insert(key);
    }

    /// A range of clients has been deleted.
    pub(super) fn source_deleted(&mut self, key: &SourceKey) {
        self.sources.remove(key);
    }

    /// A frontend that names it has been put.
    pub(super) fn named(&mut self, id: ServiceId, by: &Frontend) {
        self.count_frontend(id, by, |count| *count += 1);
    }

    /// A frontend that named it has been deleted, or replaced.
    pub(super) fn unnamed(&mut self, id: ServiceId, by: &Frontend) {
        self.count_frontend(id, by, |count| *count -= 1);
    }

    fn count_frontend(&mut self, id: ServiceId, by: &Frontend, change: impl Fn(&mut u32)) {
        change(&mut self.frontends);
        if by.affinity_seconds != 0 {
            change(&mut self.affine);
        }
        if source_of(*by) == Some(id) {
            change(&mut self.ranged);
        }
    }
}

/// How many slots they are. There are never more than the map has room for.
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
pub(super) fn members(service: ServiceId, generation: u32, slots: &[BackendId]) -> Slots {
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
