//! The table of service ports: the numbers, the wanted frontends and the serving backends of each.
//!
//! # Invariants
//! - A wanted frontend belongs to exactly one service port: the last one that claimed it.
//! - A frontend that a service port gives up, and every adopted one, is a candidate for deletion until it was checked.
//! - A number is of at most one set. Where a set loses its number, the number is retired.

use std::collections::{BTreeMap, BTreeSet};

use lb_abi::{BackendId, FrontendKey, ServiceId};

use super::shadow::Shadow;
use crate::{
    hash::HashMap,
    maps::LbMaps,
    names::ObjectId,
    plan::{FrontendPlan, PortId, PortName, PortPlan, Set},
};

/// Both sets.
pub(super) const SETS: [Set; 2] = [Set::Cluster, Set::Local];

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PortRef {
    service: ObjectId,
    port: PortId,
}

impl PortRef {
    pub(super) fn new(service: ObjectId, port: &PortId) -> Self {
        Self {
            service,
            port: port.clone(),
        }
    }

    /// The Service.
    pub(super) const fn service(&self) -> ObjectId {
        self.service
    }

    /// Its port.
    pub(super) const fn port(&self) -> &PortId {
        &self.port
    }

    /// Before all ports of a Service.
    fn first(service: ObjectId) -> Self {
        let port = PortId {
            name: PortName::Of("".into()),
            protocol: crate::endpoint_address::Protocol::Tcp,
            family: crate::endpoint_address::Family::V4,
        };
        Self { service, port }
    }
}

/// The frontends of a service port, and what each should be.
pub(super) type Wanted = BTreeMap<FrontendKey, FrontendPlan>;

/// The frontends that a plan has for a service port.
pub(super) fn wanted_by(plan: &PortPlan) -> Wanted {
    let frontends = plan.frontends.iter();
    frontends
        .map(|(address, frontend)| (address.frontend_key(), *frontend))
        .collect()
}

/// The numbers of the sets of a service port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetIds([Option<ServiceId>; 2]);

const fn set_index(set: Set) -> usize {
    match set {
        Set::Cluster => 0,
        Set::Local => 1,
    }
}

impl SetIds {
    /// The number of a set.
    pub(super) const fn get(&self, set: Set) -> Option<ServiceId> {
        self.0[set_index(set)]
    }

    /// Gives a set a number. The result: the one that it had.
    pub(super) const fn insert(&mut self, set: Set, id: ServiceId) -> Option<ServiceId> {
        self.0[set_index(set)].replace(id)
    }

    /// All numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = ServiceId> + use<> {
        self.0.into_iter().flatten()
    }
}

/// A service port.
#[derive(Debug, Default)]
pub(super) struct Port {
    ids: SetIds,
    /// The frontends that it should have, in order.
    wanted: Box<[FrontendKey]>,
    /// The backends that its established flows may keep, sorted.
    serving: Box<[BackendId]>,
}

impl Port {
    /// The numbers of its sets.
    pub(super) const fn ids(&self) -> SetIds {
        self.ids
    }

    /// The frontends that it should have, in order.
    pub(super) fn wanted(&self) -> &[FrontendKey] {
        &self.wanted
    }

    /// The backends that its established flows may keep, sorted.
    pub(super) fn serving(&self) -> &[BackendId] {
        &self.serving
    }
}

/// Every service port.
#[derive(Debug, Default)]
pub(super) struct Ports {
    ports: BTreeMap<PortRef, Port>,
    /// FRONTENDS, as it should be.
    wanted: HashMap<FrontendKey, PortRef>,
    /// Frontends that are maybe in the map and not wanted.
    misplaced: BTreeSet<FrontendKey>,
    /// Adopted numbers that one set may claim, and no other.
    reserved: BTreeMap<ServiceId, (PortRef, Set)>,
}

impl Ports {
    /// No service port yet, for maps with these frontends.
    pub(super) fn new(adopted: impl Iterator<Item = FrontendKey>) -> Self {
        Self {
            misplaced: adopted.collect(),
            ..Self::default()
        }
    }

    /// A service port.
    pub(super) fn get(&self, at: &PortRef) -> Option<&Port> {
        self.ports.get(at)
    }

    fn entry(&mut self, at: &PortRef) -> &mut Port {
        self.ports.entry(at.clone()).or_default()
    }

    /// The number of a set that is written.
    pub(super) fn id(&self, at: &PortRef, set: Set) -> Option<ServiceId> {
        self.get(at)?.ids.get(set)
    }

    /// The numbers of a service port.
    pub(super) fn ids(&self, at: &PortRef) -> SetIds {
        self.get(at).map_or_else(SetIds::default, Port::ids)
    }

    /// The backends that established flows of a service port may keep, sorted.
    pub(super) fn serving(&self, at: &PortRef) -> &[BackendId] {
        self.get(at).map_or(&[], Port::serving)
    }

    /// Whether a service port is the one that should have a frontend.
    pub(super) fn is_wanted_by(&self, key: &FrontendKey, at: &PortRef) -> bool {
        self.wanted.get(key) == Some(at)
    }

    /// Notes which frontends a service port should have.
    pub(super) fn want(&mut self, at: &PortRef, wanted: &Wanted) {
        let before = self.get(at).map_or(&[][..], Port::wanted);
        if before.iter().eq(wanted.keys()) && before.iter().all(|key| self.is_wanted_by(key, at)) {
            return;
        }
        let now = wanted.keys().copied().collect();
        let before = std::mem::replace(&mut self.entry(at).wanted, now);
        for key in before {
            if !wanted.contains_key(&key) {
                self.unwant(key, at);
            }
        }
        for &key in wanted.keys() {
            self.wanted.insert(key, at.clone());
        }
    }

    fn unwant(&mut self, key: FrontendKey, by: &PortRef) {
        // Another service port may have claimed it in the meantime.
        if self.is_wanted_by(&key, by) {
            self.wanted.remove(&key);
            self.misplaced.insert(key);
        }
    }

    /// Takes out the frontends that were given up and that no other service port wants.
    pub(super) fn take_misplaced(&mut self) -> Vec<FrontendKey> {
        let misplaced = std::mem::take(&mut self.misplaced).into_iter();
        misplaced.filter(|key| !self.wanted.contains_key(key)).collect()
    }

    /// A misplaced frontend could not be deleted.
    pub(super) fn still_misplaced(&mut self, key: FrontendKey) {
        self.misplaced.insert(key);
    }

    /// Notes the backends of a service port, sorted. The result: those that it had.
    pub(super) fn set_serving(&mut self, at: &PortRef, serving: &[BackendId]) -> Box<[BackendId]> {
        std::mem::replace(&mut self.entry(at).serving, serving.into())
    }

    /// Gives a set its number; the one that it had before, if another, is retired.
    pub(super) fn assign<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        at: &PortRef,
        set: Set,
        id: ServiceId,
    ) {
        shadow.claim(id);
        let before = self.entry(at).ids.insert(set, id);
        if let Some(before) = before.filter(|&before| before != id) {
            shadow.retire(before);
        }
    }

    /// Takes the number of a set away, and retires it.
    pub(super) fn unassign<M: LbMaps>(&mut self, shadow: &mut Shadow<M>, at: &PortRef, set: Set) {
        let port = self.ports.get_mut(at);
        if let Some(id) = port.and_then(|port| port.ids.0[set_index(set)].take()) {
            shadow.retire(id);
        }
    }

    /// Takes the ports of a Service out that its plan doesn't have. Their frontends are misplaced, their numbers
    /// retired.
    pub(super) fn take_all_but<M: LbMaps>(
        &mut self,
        shadow: &mut Shadow<M>,
        service: ObjectId,
        plan: &BTreeMap<PortId, PortPlan>,
    ) -> Vec<Port> {
        let from = self.ports.range(PortRef::first(service)..);
        let of = from.take_while(|(at, _)| at.service == service);
        let gone: Vec<PortRef> = of
            .map(|(at, _)| at)
            .filter(|at| !plan.contains_key(&at.port))
            .cloned()
            .collect();
        let mut taken = Vec::with_capacity(gone.len());
        for at in gone {
            let Some(port) = self.ports.remove(&at) else {
                continue;
            };
            for id in port.ids.iter() {
                shadow.retire(id);
            }
            for &key in &port.wanted {
                self.unwant(key, &at);
            }
            taken.push(port);
        }
        taken
    }

    /// Reserves the adopted number that a service port's own frontend names for a set. Another Service may have one of
    /// the port's other frontends by now, and must not claim the number for that.
    pub(super) fn reserve<M: LbMaps>(&mut self, shadow: &Shadow<M>, at: &PortRef, set: Set, plan: &PortPlan) {
        let mut own = wanted_by(plan);
        own.retain(|_, frontend| frontend.own);
        let id = claimable(shadow, &own, set).next();
        if let Some(id) = id {
            self.reserved.entry(id).or_insert_with(|| (at.clone(), set));
        }
    }

    /// An adopted number that one of these frontends names where it should name this set: the one that is reserved for
    /// the set, or one that is not reserved.
    pub(super) fn claimable<M: LbMaps>(
        &self,
        shadow: &Shadow<M>,
        at: &PortRef,
        wanted: &Wanted,
        set: Set,
    ) -> Option<ServiceId> {
        let mut unreserved = None;
        for id in claimable(shadow, wanted, set) {
            match self.reserved.get(&id) {
                Some((port, its)) if (port, *its) == (at, set) => return Some(id),
                Some(_) => {}
                None => _ = unreserved.get_or_insert(id),
            }
        }
        unreserved
    }

    /// Every service port has had the opportunity to claim a number; the others are retired.
    pub(super) fn retire_unclaimed<M: LbMaps>(&mut self, shadow: &mut Shadow<M>) {
        shadow.retire_unclaimed();
        self.reserved.clear();
    }
}

/// The adopted numbers that these frontends name where they should name this set.
fn claimable<M: LbMaps>(shadow: &Shadow<M>, wanted: &Wanted, set: Set) -> impl Iterator<Item = ServiceId> {
    let named = wanted.iter().filter_map(move |(key, plan)| {
        let found = shadow.frontend(key)?;
        let internal = (plan.internal == set).then_some(found.internal);
        let external = (plan.external == set).then_some(found.external);
        Some([internal, external])
    });
    let ids = named.flatten().flatten();
    ids.filter(|&id| shadow.is_claimable(id))
}
