//! Writes service ports: the backends, a new generation of slots, the switch to it, the frontends; then drops the old
//! generation.
//!
//! # Guarantees
//! - A program resolves a frontend to the old set or to the new one, at every single write: nothing leads to slots
//!   before the switch, and the switch is one store.
//! - A frontend is put only where its address is in the map, its sets are written and its ranges of clients complete.
//! - A number is switched only if every frontend that names it is to have the new set. Otherwise the set gets a new
//!   number.
//! - Where something fails, the frontends keep what they had, and the service port keeps its backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Instant,
};

use lb_abi::{BackendId, Frontend, FrontendKey, ServiceId, SourceKey};

use super::{
    departed::{Bounded, Departed, is_told},
    moved::{MovedFrontend, Owners},
    ports::{Port, PortRef, Ports, SETS, SetIds, Wanted, wanted_by},
    retry::Failure,
    service_entries::Record,
    shadow::{Shadow, Staged},
};
use crate::{
    endpoint_address::{Backend, TransportAddress},
    hash::HashSet,
    maps::{LbMaps, MapError},
    names::ObjectId,
    plan::{PortId, PortPlan, ServicePlan, Set},
};

/// How many slots of new sets are put together at most, but for the last set of them.
const SLOTS: usize = 16_384;

/// How many frontends are replaced in one round. A barrier comes between two replacements, which takes the kernel some 10
/// ms. Many are replaced only when the selection of backends changes with a restart, or many Services get affinity.
pub const REPLACED_LIMIT: usize = 16;

/// All service ports, and what their writes have caused.
#[derive(Debug)]
pub(super) struct ServicePorts {
    ports: Ports,
    postponed: Postponed,
    departed: Bounded<Departed>,
    owners: Owners,
}

/// A service port whose frontends are about to be put.
#[derive(Debug)]
pub(super) struct Prepared {
    at: PortRef,
    /// The numbers that its sets had before.
    before: SetIds,
    /// The numbers of its sets, where they are written.
    ids: SetIds,
    /// The numbers whose ranges of clients are complete.
    ranged: Vec<ServiceId>,
    /// The frontends that have to be put.
    frontends: Vec<(FrontendKey, Frontend)>,
}

impl Prepared {
    /// Whether frontends have to be put.
    pub(super) fn has_frontends(&self) -> bool {
        !self.frontends.is_empty()
    }
}

/// A new set whose slots are about to be put.
struct New {
    /// The index of its service port.
    index: usize,
    port: PortRef,
    set: Set,
    id: ServiceId,
    staged: Staged,
    backends: Vec<BackendId>,
    /// Its part of the slots that are put.
    slots: Range<usize>,
}

// Rounds.

impl ServicePorts {
    /// No service port yet. Adopted frontends are deleted unless a service port claims them.
    pub(super) fn new<M: LbMaps>(shadow: &Shadow<M>) -> Self {
        Self {
            ports: Ports::new(shadow.frontends().map(|(key, _)| key)),
            postponed: Postponed::default(),
            departed: Bounded::default(),
            owners: Owners::default(),
        }
    }

    /// A round begins: some frontends may be replaced again.
    pub(super) fn begin_round(&mut self, now: Instant) {
        self.postponed.begin(now);
    }

    /// A Service is about to be written: the ports that its plan doesn't have are released.
    pub(super) fn begin_service<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        service: ObjectId,
        plan: &BTreeMap<PortId, PortPlan>,
    ) {
        self.postponed.remove(service);
        for port in self.ports.take_all_but(shadow, service, plan) {
            self.release(shadow, &port);
        }
    }

    /// Reserves adopted numbers, where their service ports are known, before one is claimed.
    pub(super) fn reserve<M: LbMaps>(&mut self, shadow: &Shadow<M>, chunk: &[(ObjectId, ServicePlan)]) {
        if !shadow.has_unclaimed() {
            return;
        }
        for (service, plan) in chunk {
            for (port, plan) in &plan.ports {
                let at = PortRef::new(*service, port);
                for set in SETS.into_iter().filter(|&set| plan.uses(set)) {
                    self.ports.reserve(shadow, &at, set, plan);
                }
            }
        }
    }

    /// Every plan has been seen: adopted numbers and backends without a service port may go.
    pub(super) fn release_adopted<M: LbMaps>(&mut self, shadow: &mut Shadow<M>) {
        self.ports.retire_unclaimed(shadow);
        for (id, backend) in shadow.release_adopted_backends() {
            self.departed.add_backend(0, &BTreeSet::new(), id, backend);
        }
    }

    /// Deletes frontends that are not wanted. One that is wanted and could not be put yet stays as it is.
    pub(super) fn delete_frontends<M: LbMaps>(&mut self, shadow: &mut Shadow<M>) -> Vec<MapError> {
        let mut errors = Vec::new();
        for key in self.ports.take_misplaced() {
            if shadow.frontend(&key).is_none() {
                continue;
            }
            match shadow.delete_frontend(key) {
                Ok(()) => self.owners.deleted(key),
                Err(error) => {
                    self.ports.still_misplaced(key);
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Services that are to be written in the next round.
    pub(super) fn next(&self) -> impl Iterator<Item = ObjectId> {
        self.postponed.next()
    }

    /// How many Services wait for another round.
    pub(super) fn postponed(&self) -> usize {
        self.postponed.len()
    }

    /// When the next round is to begin.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.postponed.deadline()
    }

    /// UDP backends that have left since this was called last.
    pub(super) fn take_departed(&mut self) -> Bounded<Departed> {
        std::mem::take(&mut self.departed)
    }

    /// The frontends that have moved since this was called last.
    pub(super) fn take_moved<M: LbMaps>(&mut self, shadow: &Shadow<M>) -> Bounded<MovedFrontend> {
        self.owners.take(&self.ports, shadow)
    }
}

// New sets of many service ports, in few operations on many entries.

impl ServicePorts {
    /// Puts the backends and the new sets of some Services. The result: the numbers of the sets that are written, for
    /// each service port in order; empty if there are none. A failure is not reported here: the service port tries
    /// again, alone, and reports it.
    pub(super) fn write_new_sets<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        chunk: &[(ObjectId, ServicePlan)],
    ) -> Vec<SetIds> {
        let ports = chunk.iter().flat_map(|(_, plan)| plan.ports.values());
        drop(shadow.put_backends(ports.flat_map(|port| &port.serving).copied()));
        // A set of which the maps may hold an adopted number is not new.
        if shadow.has_unclaimed() {
            return Vec::new();
        }
        let mut ids = Vec::new();
        let mut new: Vec<New> = Vec::new();
        let mut slots = Vec::new();
        for (service, plan) in chunk {
            for (port, plan) in &plan.ports {
                let index = ids.len();
                ids.push(SetIds::default());
                if slots.len() >= SLOTS || !has_usable_address(shadow, plan) {
                    continue;
                }
                let port = PortRef::new(*service, port);
                for set in SETS.into_iter().filter(|&set| plan.uses(set)) {
                    if self.ports.id(&port, set).is_some() {
                        continue;
                    }
                    let backends = plan.slots(set);
                    let known = backends.iter().map(|one| shadow.backend_id(one));
                    let Some(backends) = known.collect::<Option<Vec<BackendId>>>() else {
                        continue;
                    };
                    let Ok(id) = shadow.allocate() else { continue };
                    let first = slots.len();
                    let members = plan.affinity_seconds != 0;
                    let staged = shadow.next_slots(id, &backends, members, &mut slots);
                    new.push(New {
                        index,
                        port: port.clone(),
                        set,
                        id,
                        staged,
                        backends,
                        slots: first..slots.len(),
                    });
                }
            }
        }
        if shadow.put_slots(&slots).is_err() {
            for set in new {
                shadow.retire(set.id);
            }
            return ids;
        }
        for set in new {
            let own = &slots[set.slots];
            match shadow.switch(set.id, set.staged, set.backends.into(), own) {
                Ok(()) => {
                    self.ports.assign(shadow, &set.port, set.set, set.id);
                    ids[set.index].insert(set.set, set.id);
                }
                Err(_) => shadow.retire(set.id),
            }
        }
        ids
    }
}

/// Whether any frontend of a service port can be put.
fn has_usable_address<M: LbMaps>(shadow: &Shadow<M>, plan: &PortPlan) -> bool {
    let mut addresses = plan.frontends.keys().map(|frontend| frontend.address);
    addresses.any(|address| shadow.may_have_frontends(address.into()))
}

// One service port: everything that its frontends lead to.

impl ServicePorts {
    /// Writes everything that frontends of a service port lead to, and returns which of them are to be put then.
    ///
    /// `ahead`: the numbers of sets that are written already.
    pub(super) fn prepare<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        at: &PortRef,
        plan: &PortPlan,
        ahead: SetIds,
        failures: &mut Vec<Failure>,
    ) -> Prepared {
        let mut fail = |error| failures.push(Failure::of_port(at, error));
        let wanted = wanted_by(plan);
        self.ports.want(at, &wanted);
        let mut prepared = Prepared {
            at: at.clone(),
            before: self.ports.ids(at),
            ids: SetIds::default(),
            ranged: Vec::new(),
            frontends: Vec::new(),
        };
        for set in SETS.into_iter().filter(|&set| plan.uses(set)) {
            if let Some(id) = ahead.get(set) {
                prepared.ids.insert(set, id);
                continue;
            }
            self.claim(shadow, at, set, &wanted);
            // If no frontend can be put, the failed address is reported already.
            if self.ports.id(at, set).is_none() && !has_usable_address(shadow, plan) {
                continue;
            }
            let keep =
                plan.keep && plan.set(set).is_empty() && wanted.values().any(|one| one.internal == set);
            match self.write_set(shadow, at, plan, set, keep, &wanted) {
                Ok(id) => {
                    prepared.ids.insert(set, id);
                    shadow.set_written(id);
                    let kept = if keep {
                        shadow.keep_again(id)
                    } else {
                        shadow.unkeep(id)
                    };
                    kept.unwrap_or_else(&mut fail);
                }
                Err(error) => fail(error),
            }
        }
        for set in SETS {
            let is_ranged = wanted.values().any(|one| one.ranged && one.external == set);
            if is_ranged && let Some(id) = prepared.ids.get(set) {
                match put_ranges(shadow, id, plan) {
                    Ok(()) => prepared.ranged.push(id),
                    Err(error) => fail(error),
                }
            }
        }
        for (&key, one) in &wanted {
            let [internal, external] = [one.internal, one.external].map(|set| prepared.ids.get(set));
            let (Some(internal), Some(external)) = (internal, external) else {
                continue;
            };
            let value = Frontend {
                internal,
                external,
                flags: plan.flags(one),
                affinity_seconds: plan.affinity_seconds,
            };
            // Where the address is missing, its failure is reported already.
            let may_be_put = (!one.ranged || prepared.ranged.contains(&external))
                && shadow.may_have_frontends(key.address);
            if may_be_put && shadow.frontend(&key) != Some(&value) {
                prepared.frontends.push((key, value));
            }
        }
        prepared
    }

    /// Claims an adopted number for a set.
    fn claim<M: LbMaps>(&mut self, shadow: &mut Shadow<M>, at: &PortRef, set: Set, wanted: &Wanted) {
        if self.ports.id(at, set).is_some() {
            return;
        }
        let Some(id) = self.ports.claimable(shadow, at, wanted, set) else {
            return;
        };
        self.ports.assign(shadow, at, set, id);
        self.owners.claim(shadow, wanted, id, at);
        // Its flows were those of its slots, as far as is known.
        let slots = shadow.record(id).map_or(&[][..], Record::slots);
        let held = self.ports.serving(at).iter();
        let serving: BTreeSet<BackendId> = held.chain(slots).copied().collect();
        self.hold(shadow, at, &Vec::from_iter(serving));
    }

    /// Makes a set what it should be, under the number that the result has.
    fn write_set<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        at: &PortRef,
        plan: &PortPlan,
        set: Set,
        keep: bool,
        wanted: &Wanted,
    ) -> Result<ServiceId, MapError> {
        let slots = plan.slots(set);
        let members = plan.affinity_seconds != 0;
        let Some(id) = self.ports.id(at, set) else {
            let new = write_new_set(shadow, &slots, members)?;
            self.ports.assign(shadow, at, set, new);
            return Ok(new);
        };
        let is_exclusive = serves_only(shadow, id, wanted, set);
        let is_too_wide = opens_too_wide(shadow, id, plan, set, wanted);
        let may_stay = is_exclusive || has_ranges_of(shadow, id, plan);
        if shadow.holds(id, &slots, members) && may_stay && !is_too_wide {
            return Ok(id);
        }
        // A frontend that this port gives up, or uses for another set, must not see its new backends, and a new frontend
        // must not see its old ranges: the set gets a new number.
        if !is_exclusive || is_too_wide {
            let new = if keep {
                write_new_empty_set(shadow, id, members)?
            } else {
                write_new_set(shadow, &slots, members)?
            };
            self.ports.assign(shadow, at, set, new);
            return Ok(new);
        }
        let members = members || shadow.is_asked_for_members(id);
        if keep {
            write_empty(shadow, id, members)?;
        } else {
            let backends = put_backends(shadow, &slots)?;
            write_generation(shadow, id, &backends, members)?;
        }
        Ok(id)
    }
}

/// Whether every frontend that names a number is one of these, and names it where it should name this set: one store
/// then switches all of them, and no other.
fn serves_only<M: LbMaps>(shadow: &Shadow<M>, id: ServiceId, wanted: &Wanted, set: Set) -> bool {
    let mut named = 0;
    for (key, plan) in wanted {
        let Some(found) = shadow.frontend(key) else {
            continue;
        };
        let [internal, external] = [found.internal == id, found.external == id];
        if (internal && plan.internal != set) || (external && plan.external != set) {
            return false;
        }
        named += u32::from(internal || external);
    }
    shadow
        .record(id)
        .is_some_and(|record| record.frontends() == named)
}

/// Whether frontends that use the ranges of a number find those of a plan already: another port's frontend must not be
/// opened to this port's clients.
fn has_ranges_of<M: LbMaps>(shadow: &Shadow<M>, id: ServiceId, plan: &PortPlan) -> bool {
    let record = shadow.record(id);
    record.is_some_and(|record| !record.is_ranged() || *record.sources() == ranges(id, plan))
}

/// Whether a frontend that does not use the ranges of a number yet is to do so, while there are more of them than a
/// plan has: it would admit clients that it admits neither now nor then.
fn opens_too_wide<M: LbMaps>(
    shadow: &Shadow<M>,
    id: ServiceId,
    plan: &PortPlan,
    set: Set,
    wanted: &Wanted,
) -> bool {
    let Some(sources) = shadow.record(id).map(Record::sources) else {
        return false;
    };
    !sources.is_empty()
        && wanted
            .iter()
            .any(|(key, one)| one.ranged && one.external == set && !shadow.uses_ranges_of(key, id))
        && !sources.is_subset(&ranges(id, plan))
}

/// Puts the ranges of clients that a number lacks.
fn put_ranges<M: LbMaps>(shadow: &mut Shadow<M>, id: ServiceId, plan: &PortPlan) -> Result<(), MapError> {
    for key in ranges_in_order(id, plan) {
        shadow.put_range(id, key)?;
    }
    Ok(())
}

/// The ranges of clients that a plan has for a number.
fn ranges(id: ServiceId, plan: &PortPlan) -> BTreeSet<SourceKey> {
    ranges_in_order(id, plan).collect()
}

fn ranges_in_order(id: ServiceId, plan: &PortPlan) -> impl Iterator<Item = SourceKey> {
    let ranges = plan.sources.iter().flatten();
    ranges.map(move |range| SourceKey::range(id, range.address().into(), range.length()))
}

// Sets: backends, slots of a new generation, and the switch to it.

/// Puts the backends of slots. The result: the number of each.
fn put_backends<M: LbMaps>(shadow: &mut Shadow<M>, slots: &[Backend]) -> Result<Vec<BackendId>, MapError> {
    shadow.put_backends(slots.iter().copied())?;
    Ok(ids_of(shadow, slots).collect())
}

/// The numbers of those of these backends that are in the map.
fn ids_of<'a, M: LbMaps>(
    shadow: &'a Shadow<M>,
    backends: impl IntoIterator<Item = &'a Backend>,
) -> impl Iterator<Item = BackendId> {
    let backends = backends.into_iter();
    backends.filter_map(|backend| shadow.backend_id(backend))
}

/// Writes a new generation of slots, and switches to it. The one before leaves, unless it is kept.
fn write_generation<M: LbMaps>(
    shadow: &mut Shadow<M>,
    id: ServiceId,
    backends: &[BackendId],
    members: bool,
) -> Result<(), MapError> {
    let mut new = Vec::new();
    let staged = shadow.next_slots(id, backends, members, &mut new);
    shadow.put_slots(&new)?;
    shadow.switch(id, staged, backends.into(), &new)
}

/// Switches a number to no slots, and keeps those that it had for the agent's own sockets. KEPT is written before the
/// switch, so that at each moment they find the one or the other. Where KEPT can't be written, the number is switched
/// all the same, and the slots wait for KEPT.
fn write_empty<M: LbMaps>(shadow: &mut Shadow<M>, id: ServiceId, members: bool) -> Result<(), MapError> {
    shadow.keep_current(id)?;
    write_generation(shadow, id, &[], members)
}

/// Writes slots under a new number.
fn write_new_set<M: LbMaps>(
    shadow: &mut Shadow<M>,
    slots: &[Backend],
    members: bool,
) -> Result<ServiceId, MapError> {
    let backends = put_backends(shadow, slots)?;
    write_new_generation(shadow, &backends, members)
}

fn write_new_generation<M: LbMaps>(
    shadow: &mut Shadow<M>,
    backends: &[BackendId],
    members: bool,
) -> Result<ServiceId, MapError> {
    let id = shadow.allocate()?;
    write_generation(shadow, id, backends, members).inspect_err(|_| shadow.retire(id))?;
    Ok(id)
}

/// Writes no slots under a new number, which keeps what another number has for the agent's own sockets.
fn write_new_empty_set<M: LbMaps>(
    shadow: &mut Shadow<M>,
    of: ServiceId,
    members: bool,
) -> Result<ServiceId, MapError> {
    let last = shadow.record(of).and_then(Record::last_usable);
    let Some(last) = last.map(<[_]>::to_vec) else {
        return write_new_generation(shadow, &[], members);
    };
    let id = write_new_generation(shadow, &last, false)?;
    write_empty(shadow, id, members).inspect_err(|_| shadow.retire(id))?;
    Ok(id)
}

// Frontends, and what they no longer use.

impl ServicePorts {
    /// Puts frontends of many service ports, each with the index of its failures. New ones come first, in one
    /// operation. A replaced one frees memory, so that a barrier comes before the next: some wait for another round.
    pub(super) fn put_frontends<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        prepared: &[(Prepared, usize)],
        failures: &mut [Vec<Failure>],
    ) {
        let all = prepared.iter().flat_map(|(prepared, index)| {
            let frontends = prepared.frontends.iter();
            frontends.map(move |&frontend| (frontend, &prepared.at, *index))
        });
        let (replacing, new): (Vec<_>, Vec<_>) = all
            .filter(|((key, _), at, _)| self.ports.is_wanted_by(key, at))
            .partition(|((key, _), ..)| shadow.frontend(key).is_some());
        let mut fail = |index: usize, at: &PortRef, error| failures[index].push(Failure::of_port(at, error));
        let entries: Vec<_> = new.iter().map(|(entry, ..)| *entry).collect();
        let mut done = 0;
        while done < entries.len() {
            let result = shadow.put_frontends(&entries[done..]);
            let count = result
                .as_ref()
                .map_or_else(|partial| partial.done, |()| entries.len() - done);
            for &((key, _), at, _) in &new[done..done + count] {
                // At an address of this node, a node port may have answered.
                self.owners.put(key, at, shadow.is_node_address(key.address));
            }
            done += count;
            if let Err(partial) = result {
                let (_, at, index) = new[done];
                fail(index, at, partial.error);
                done += 1;
            }
        }
        for (entry, at, index) in replacing {
            if !self.postponed.take_turn() {
                self.postponed.add(at.service());
                continue;
            }
            match shadow.put_frontends(&[entry]) {
                Ok(()) => self.owners.put(entry.0, at, true),
                Err(partial) => fail(index, at, partial.error),
            }
        }
    }

    /// After its frontends were put, or not: drops what no frontend uses any more.
    pub(super) fn finish<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        prepared: &Prepared,
        plan: &PortPlan,
        failures: &mut Vec<Failure>,
    ) {
        let at = &prepared.at;
        for set in SETS {
            let Some(id) = self.ports.id(at, set) else {
                continue;
            };
            let Some(record) = shadow.record(id) else {
                continue;
            };
            let is_unnamed = record.frontends() == 0;
            let (is_ranged, is_affine) = (record.is_ranged(), record.is_affine());
            if prepared.ranged.contains(&id) {
                shadow.drop_ranges_but(id, &ranges(id, plan));
            } else if !is_ranged {
                shadow.drop_ranges_but(id, &BTreeSet::new());
            }
            if plan.affinity_seconds == 0 && !is_affine {
                shadow.drop_members(id);
            }
            let is_written = prepared.ids.get(set) == Some(id);
            let is_idle = is_written && is_unnamed && !self.postponed.has(at.service());
            if is_idle || !plan.uses(set) {
                // No frontend uses it, or will.
                self.ports.unassign(shadow, at, set);
            }
        }
        let is_complete = SETS
            .iter()
            .all(|&set| !plan.uses(set) || prepared.ids.get(set).is_some());
        if !is_complete {
            self.hold_also(shadow, at, plan);
        } else if let Err(error) = self.serve(shadow, at, plan, prepared.before) {
            failures.push(Failure::of_port(at, error));
        }
    }
}

// The backends that established flows keep, and those that leave them.

impl ServicePorts {
    /// After the switch: the plan's backends are those that the service port's established flows may keep.
    ///
    /// `before`: the numbers that the service port had before.
    fn serve<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        at: &PortRef,
        plan: &PortPlan,
        before: SetIds,
    ) -> Result<(), MapError> {
        let put = shadow.put_backends(plan.serving.iter().copied());
        let mut serving: Vec<BackendId> = ids_of(shadow, &plan.serving).collect();
        serving.sort_unstable();
        if let Some(port) = self.ports.get(at)
            && port.serving() != serving
        {
            let addresses: HashSet<_> = plan.serving.iter().map(|backend| backend.address).collect();
            let held = port.serving().iter();
            let held = held.filter_map(|&id| Some((id, shadow.backend(id)?)));
            let gone: Vec<_> = held
                .filter(|(_, backend)| is_told(backend) && !addresses.contains(&backend.address))
                .collect();
            let ids: BTreeSet<ServiceId> = before.iter().chain(port.ids().iter()).collect();
            for (id, backend) in gone {
                let frontends = plan.frontends.keys().copied().collect();
                for &service in &ids {
                    self.departed.add_backend(service, &frontends, id, backend);
                }
            }
            self.hold(shadow, at, &serving);
        }
        put
    }

    /// While a service port is not written, it keeps the backends that it had, and those of its plan that are in the
    /// map, so that they are there when the write succeeds.
    fn hold_also<M: LbMaps>(&mut self, shadow: &mut Shadow<M>, at: &PortRef, plan: &PortPlan) {
        let held = self.ports.serving(at).iter().copied();
        let serving: BTreeSet<BackendId> = held.chain(ids_of(shadow, &plan.serving)).collect();
        self.hold(shadow, at, &Vec::from_iter(serving));
    }

    /// Notes the backends that the established flows of a service port may keep; sorted.
    fn hold<M: LbMaps>(&mut self, shadow: &mut Shadow<M>, at: &PortRef, serving: &[BackendId]) {
        for &id in serving {
            shadow.hold_backend(id);
        }
        for id in self.ports.set_serving(at, serving) {
            shadow.drop_backend(id);
        }
    }

    /// A service port is gone, and its backends have left it.
    fn release<M: LbMaps>(&mut self, shadow: &mut Shadow<M>, port: &Port) {
        let frontends = port.wanted().iter();
        let frontends = frontends
            .filter_map(|key| TransportAddress::from_frontend_key(*key))
            .collect();
        for &id in port.serving() {
            if let Some(backend) = shadow.backend(id).filter(is_told) {
                for service in port.ids().iter() {
                    self.departed.add_backend(service, &frontends, id, backend);
                }
            }
            shadow.drop_backend(id);
        }
    }
}

// Services that wait for another round, so that one round does not delay the events that come meanwhile.

/// The Services that wait, and how much this round may still do. Bounded by the number of Services.
#[derive(Debug, Default)]
struct Postponed {
    services: BTreeSet<ObjectId>,
    /// How many frontends were replaced in this round.
    replaced: usize,
    /// When it began.
    round: Option<Instant>,
}

impl Postponed {
    fn begin(&mut self, now: Instant) {
        self.replaced = 0;
        self.round = Some(now);
    }

    /// Whether one more frontend may be replaced in this round.
    fn take_turn(&mut self) -> bool {
        let is_free = self.replaced < REPLACED_LIMIT;
        self.replaced += usize::from(is_free);
        is_free
    }

    fn add(&mut self, service: ObjectId) {
        self.services.insert(service);
    }

    fn remove(&mut self, service: ObjectId) {
        self.services.remove(&service);
    }

    fn has(&self, service: ObjectId) -> bool {
        self.services.contains(&service)
    }

    /// The Services of the next round: each has at least one turn to take.
    fn next(&self) -> impl Iterator<Item = ObjectId> {
        self.services.iter().copied().take(REPLACED_LIMIT)
    }

    fn len(&self) -> usize {
        self.services.len()
    }

    /// When the next round is to begin: at once, after what has come in the meantime.
    fn deadline(&self) -> Option<Instant> {
        self.round.filter(|_| !self.services.is_empty())
    }
}
