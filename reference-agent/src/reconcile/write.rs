//! Writes a service port: its sets of backends, its ranges of clients, then its frontends, then what is left over.

use std::collections::BTreeSet;

use lb_abi::{Frontend, FrontendKey, Service, ServiceId, SourceKey, capacity};

use super::{
    Reconciler,
    record::{Record, members},
    retry::Failure,
    written::{PortRef, Wanted, place},
};
use crate::{
    maps::{LbMaps, MapError, Partial},
    plan::{PortPlan, Set},
    resolve::source_of,
};

/// Both sets, in the order of [`place`].
pub(super) const SETS: [Set; 2] = [Set::Cluster, Set::Local];

/// A service port whose frontends are about to be put.
#[derive(Debug)]
pub(super) struct Prepared {
    at: PortRef,
    /// The numbers that its sets had before.
    before: [Option<ServiceId>; 2],
    /// The numbers of its sets, where they are written.
    ids: [Option<ServiceId>; 2],
    /// The numbers whose ranges of clients are complete.
    ranged: Vec<ServiceId>,
    /// The frontends that have to be put.
    pub(super) frontends: Vec<(FrontendKey, Frontend)>,
}

impl<M: LbMaps> Reconciler<M> {
    /// Writes everything that frontends of a service port lead to, and says which of them are to be put then. Where
    /// something fails, what it was keeps working.
    ///
    /// `ahead`: the numbers of sets that are written already.
    pub(super) fn prepare(
        &mut self,
        at: &PortRef,
        plan: &PortPlan,
        ahead: [Option<ServiceId>; 2],
        failures: &mut Vec<Failure>,
    ) -> Prepared {
        let mut fail = |error| {
            failures.push(Failure {
                port: Some(at.port.clone()),
                error,
            });
        };
        let wanted: Wanted = plan
            .frontends
            .iter()
            .map(|(address, frontend)| (address.frontend_key(), *frontend))
            .collect();
        self.written.want(at, &wanted);
        let mut prepared = Prepared {
            at: at.clone(),
            before: self.written.port(at).map_or([None; 2], |port| port.ids),
            ids: [None; 2],
            ranged: Vec::new(),
            frontends: Vec::new(),
        };
        for set in SETS {
            if !plan.uses(set) {
                continue;
            }
            if let Some(id) = ahead[place(set)] {
                prepared.ids[place(set)] = Some(id);
                continue;
            }
            self.claim(at, set, &wanted);
            if self.written.id(at, set).is_none()
                && !wanted
                    .keys()
                    .any(|key| self.written.addresses.is_place(key.address))
            {
                // None of its frontends has a place; what failed is named already.
                continue;
            }
            let keep =
                plan.keep && plan.set(set).is_empty() && wanted.values().any(|one| one.internal == set);
            match self.write_set(at, plan, set, keep, &wanted) {
                Ok(id) => {
                    prepared.ids[place(set)] = Some(id);
                    self.written.unasked.remove(&id);
                    let kept = if keep { self.keep(id) } else { self.unkeep(id) };
                    kept.unwrap_or_else(&mut fail);
                }
                Err(error) => fail(error),
            }
        }
        for set in SETS {
            let is_asked = wanted.values().any(|one| one.ranged && one.external == set);
            if is_asked && let Some(id) = prepared.ids[place(set)] {
                match self.put_sources(id, plan) {
                    Ok(()) => prepared.ranged.push(id),
                    Err(error) => fail(error),
                }
            }
        }
        for (&key, one) in &wanted {
            let [internal, external] = [one.internal, one.external].map(|set| prepared.ids[place(set)]);
            let (Some(internal), Some(external)) = (internal, external) else {
                continue;
            };
            let value = Frontend {
                internal,
                external,
                flags: plan.flags(one),
                affinity_seconds: plan.affinity_seconds,
            };
            // Where an address is not in the map, and so its frontends can't be, that is named already.
            let may_be_put = (!one.ranged || prepared.ranged.contains(&external))
                && self.written.addresses.is_place(key.address);
            if may_be_put && self.written.frontends.get(&key) != Some(&value) {
                prepared.frontends.push((key, value));
            }
        }
        prepared
    }

    /// Takes a number over that the maps of an earlier start have for a set.
    fn claim(&mut self, at: &PortRef, set: Set, wanted: &Wanted) {
        if self.written.id(at, set).is_some() {
            return;
        }
        let Some(id) = self.written.adoptable(at, wanted, set) else {
            return;
        };
        self.written.assign(at, set, id);
        self.own_adopted(at, wanted, id);
        // As far as can be known, its flows were those of its slots.
        let slots = self.written.records[&id].slots.iter();
        let held = self.written.port(at).into_iter().flat_map(|port| &port.serving);
        let mut serving: Vec<_> = held.chain(slots).copied().collect();
        serving.sort_unstable();
        serving.dedup();
        self.hold(at, &serving);
    }

    /// Makes a set what it should be, under the number that the result has.
    fn write_set(
        &mut self,
        at: &PortRef,
        plan: &PortPlan,
        set: Set,
        keep: bool,
        wanted: &Wanted,
    ) -> Result<ServiceId, MapError> {
        let slots = plan.slots(set);
        let members = plan.affinity_seconds != 0;
        Ok(match self.written.id(at, set) {
            Some(id)
                if self.written.holds(id, &slots, members)
                    && (self.written.serves_only(id, wanted, set) || self.has_ranges_of(id, plan))
                    && !self.opens_too_wide(id, plan, set, wanted) =>
            {
                id
            }
            // A frontend that this port gives up, or uses otherwise, must not see its new backends, and one that comes
            // must not see its old ranges: a number of their own for them.
            Some(id)
                if !self.written.serves_only(id, wanted, set)
                    || self.opens_too_wide(id, plan, set, wanted) =>
            {
                let new = if keep {
                    self.build_kept(id, members)?
                } else {
                    self.build(&slots, members)?
                };
                self.written.assign(at, set, new);
                new
            }
            Some(id) => {
                // While frontends have affinity, they ask for members.
                let members = members || self.written.records[&id].affine != 0;
                if keep {
                    self.stage_empty(id, members)?;
                } else {
                    let backends = self.put_backends(&slots)?;
                    self.stage(id, &backends, members)?;
                }
                id
            }
            None => {
                let new = self.build(&slots, members)?;
                self.written.assign(at, set, new);
                new
            }
        })
    }

    /// Whether whoever asks for the ranges of a number finds those of a plan already: another port's frontend must not
    /// be opened to its clients.
    fn has_ranges_of(&self, id: ServiceId, plan: &PortPlan) -> bool {
        let record = &self.written.records[&id];
        record.ranged == 0 || record.sources == ranges(id, plan).collect()
    }

    /// Whether a frontend that does not ask for the ranges of a number yet is to do so, while there are more of them than
    /// a plan says: clients would get in that it admits neither now nor then.
    fn opens_too_wide(&self, id: ServiceId, plan: &PortPlan, set: Set, wanted: &Wanted) -> bool {
        let sources = &self.written.records[&id].sources;
        let asks = |key| {
            let frontend = self.written.frontends.get(key);
            frontend.is_some_and(|frontend| source_of(*frontend) == Some(id))
        };
        !sources.is_empty()
            && wanted
                .iter()
                .any(|(key, one)| one.ranged && one.external == set && !asks(key))
            && !sources.is_subset(&ranges(id, plan).collect())
    }

    /// The ranges of clients that a number lacks.
    fn put_sources(&mut self, id: ServiceId, plan: &PortPlan) -> Result<(), MapError> {
        for key in ranges(id, plan) {
            self.written.leaving_sources.remove(&key);
            let Some(record) = self.written.records.get_mut(&id) else {
                continue;
            };
            if !record.sources.contains(&key) {
                self.maps.put_source(key)?;
                record.sources.insert(key);
            }
        }
        Ok(())
    }

    /// After its frontends were put, or not: what nothing leads to any more may leave.
    pub(super) fn finish(&mut self, prepared: &Prepared, plan: &PortPlan, failures: &mut Vec<Failure>) {
        let at = &prepared.at;
        for set in SETS {
            let Some(id) = self.written.id(at, set) else {
                continue;
            };
            let written = prepared.ids[place(set)] == Some(id);
            let used = plan.uses(set);
            let Some(record) = self.written.records.get_mut(&id) else {
                continue;
            };
            let complete = prepared.ranged.contains(&id);
            if complete || record.ranged == 0 {
                let wanted: BTreeSet<_> = ranges(id, plan).filter(|_| complete).collect();
                self.written
                    .leaving_sources
                    .extend(record.sources.difference(&wanted));
            }
            if plan.affinity_seconds == 0 && record.affine == 0 && record.members {
                let members = members(id, record.generation, &record.slots);
                record.members = false;
                self.written.leaving_slots.extend(members);
            }
            if (written && record.frontends == 0 && !self.postponed.has(at.service)) || !used {
                // Nothing leads there, or nothing shall: no reason to keep the room.
                self.written.unassign(at, set);
            }
        }
        let complete = SETS.iter().all(|&set| {
            let used = plan.uses(set);
            !used || prepared.ids[place(set)].is_some()
        });
        if !complete {
            self.hold_too(at, plan);
        } else if let Err(error) = self.serve(at, plan, prepared.before) {
            failures.push(Failure {
                port: Some(at.port.clone()),
                error,
            });
        }
    }

    /// Puts frontends of many service ports, each with the place of its failures. First those that are new, at once;
    /// those that take the place of others free memory, and the next may only be put when nobody reads that: so many
    /// of them wait for another round.
    pub(super) fn place(&mut self, prepared: &[(Prepared, usize)], failures: &mut [Vec<Failure>]) {
        let all = prepared.iter().flat_map(|(prepared, owner)| {
            let frontends = prepared.frontends.iter();
            frontends.map(move |&frontend| (frontend, &prepared.at, *owner))
        });
        let (replacing, new): (Vec<_>, Vec<_>) = all
            .filter(|((key, _), at, _)| self.written.wanted.get(key) == Some(*at))
            .partition(|((key, _), ..)| self.written.frontends.contains_key(key));
        let mut fail = |owner: usize, at: &PortRef, error| {
            let port = Some(at.port.clone());
            failures[owner].push(Failure { port, error });
        };
        let entries: Vec<_> = new.iter().map(|(entry, ..)| *entry).collect();
        let mut done = 0;
        while done < entries.len() {
            let result = self.put_frontends(&entries[done..]);
            let count = result
                .as_ref()
                .map_or_else(|partial| partial.done, |()| entries.len() - done);
            for &((key, value), at, _) in &new[done..done + count] {
                self.frontend_put(key, value, at);
            }
            done += count;
            if let Err(partial) = result {
                let (_, at, owner) = new[done];
                fail(owner, at, partial.error);
                done += 1;
            }
        }
        for ((key, value), at, owner) in replacing {
            if !self.postponed.take_turn() {
                self.postponed.add(at.service);
                continue;
            }
            match self.put_frontends(&[(key, value)]) {
                Ok(()) => self.frontend_put(key, value, at),
                Err(partial) => fail(owner, at, partial.error),
            }
        }
    }

    pub(super) fn put_frontends(&mut self, entries: &[(FrontendKey, Frontend)]) -> Result<(), Partial> {
        if self.written.frontend_freed {
            self.barrier().map_err(|error| Partial { done: 0, error })?;
        }
        self.writes += entries.len() as u64;
        self.maps.put_frontends(entries)
    }

    /// A number that nobody has.
    pub(super) fn allocate(&mut self) -> Result<ServiceId, MapError> {
        let full = MapError::Full {
            map: "SERVICES",
            capacity: capacity::SERVICES,
        };
        let id = self.written.ids.allocate().ok_or(full)?;
        self.written.records.insert(id, Record::default());
        Ok(id)
    }

    /// Switches a service port: one store.
    pub(super) fn switch(&mut self, id: ServiceId, value: Service) -> Result<(), MapError> {
        self.writes += 1;
        self.maps.put_service(id, value)
    }
}

/// The ranges of clients that a plan has for a number.
fn ranges(id: ServiceId, plan: &PortPlan) -> impl Iterator<Item = SourceKey> {
    let ranges = plan.sources.iter().flatten();
    ranges.map(move |range| SourceKey::range(id, range.address().into(), range.length()))
}
