//! Compares the maps with their shadow, one by one, and repairs changes of other programs.

use std::hash::Hash;

use super::shadow::Shadow;
use crate::{
    hash::HashMap,
    maps::{Contents, LbMaps, Map, MapError},
};

/// How many wrong entries of a map are repaired in one call: a barrier comes between two, which takes some 10 ms. The next call goes
/// on with the others.
pub const WRONG_LIMIT: usize = 16;

/// The differences found in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Which map.
    pub map: Map,
    /// Entries that were written and are not there; written again.
    pub missing: usize,
    /// Entries that have another value than was written; written again.
    pub wrong: usize,
    /// Entries that were not written; removed at the end of the round.
    pub foreign: usize,
}

/// The state of a round.
#[derive(Debug, Default)]
pub(super) struct Audit {
    next: usize,
    /// Wrong entries of this map that the last call has left.
    left: usize,
    /// Entries of this round's maps that the agent has not written.
    foreign: Contents,
}

/// The difference of one map.
struct Difference<K, V> {
    missing: Vec<(K, V)>,
    wrong: Vec<(K, V)>,
    foreign: Vec<(K, V)>,
}

impl Audit {
    /// Compares the next map; again the same one, if the last call has left wrong entries there. A map comes after those that its entries refer to. Foreign entries are deleted at the end of
    /// the round, in the opposite order.
    pub(super) fn compare_next<M: LbMaps>(&mut self, shadow: &mut Shadow<M>) -> Result<Drift, MapError> {
        let map = Map::ALL[self.next];
        let drift = self.compare(map, shadow);
        let left = drift
            .as_ref()
            .map_or(0, |drift| drift.wrong.saturating_sub(WRONG_LIMIT));
        // Not where another program writes as fast: the other maps have their turn.
        if left > 0 && (self.left == 0 || left < self.left) {
            self.left = left;
            return drift;
        }
        self.left = 0;
        // A map that can't be read is compared in the next round.
        self.next = (self.next + 1) % Map::ALL.len();
        if self.next == 0 {
            let foreign = std::mem::take(&mut self.foreign);
            shadow.delete_foreign(&foreign)?;
        }
        drift
    }

    fn compare<M: LbMaps>(&mut self, map: Map, shadow: &mut Shadow<M>) -> Result<Drift, MapError> {
        let found = shadow.maps().contents_of(map)?;
        // What is foreign is noted before anything is put: what fills a map has to go where nothing can be put any more.
        match map {
            Map::Backends => {
                let difference = compare(found.backends, shadow.backends(), |id| shadow.has_backend(*id));
                let drift = difference.drift(map);
                self.foreign.backends = difference.foreign;
                shadow.restore_backends(&difference.missing)?;
                for (id, value) in difference.wrong.into_iter().take(WRONG_LIMIT) {
                    shadow.correct_backend(id, value)?;
                }
                Ok(drift)
            }
            Map::Slots => {
                let difference = compare(found.slots, shadow.slots(), |key| shadow.is_slot_to_delete(key));
                let drift = difference.drift(map);
                self.foreign.slots = difference.foreign;
                shadow.restore_slots(&difference.missing)?;
                for (key, backend) in difference.wrong.into_iter().take(WRONG_LIMIT) {
                    shadow.correct_slot(key, backend)?;
                }
                Ok(drift)
            }
            Map::Services => {
                let difference = compare(found.services, shadow.services(), |id| shadow.has_service(*id));
                let drift = difference.drift(map);
                self.foreign.services = difference.foreign;
                for (id, value) in difference.missing.into_iter().chain(difference.wrong) {
                    shadow.correct_service(id, value)?;
                }
                Ok(drift)
            }
            Map::Kept => {
                let difference = compare(found.kept, shadow.kept(), |_| false);
                let drift = difference.drift(map);
                self.foreign.kept = difference.foreign;
                for (id, value) in difference.missing.into_iter().chain(difference.wrong) {
                    shadow.correct_kept(id, value)?;
                }
                Ok(drift)
            }
            Map::Sources => {
                let difference = compare(found.sources, shadow.sources(), |key| {
                    shadow.is_source_to_delete(key)
                });
                let drift = difference.drift(map);
                self.foreign.sources = difference.foreign;
                for (key, _) in difference.missing.into_iter().chain(difference.wrong) {
                    shadow.correct_source(key)?;
                }
                Ok(drift)
            }
            Map::Addresses => {
                let difference = compare(found.addresses, shadow.addresses(), |_| false);
                let drift = difference.drift(map);
                self.foreign.addresses = difference.foreign;
                let wrong = difference.wrong.into_iter().take(WRONG_LIMIT);
                for (address, flags) in difference.missing.into_iter().chain(wrong) {
                    shadow.put_address(address, flags)?;
                }
                Ok(drift)
            }
            Map::Frontends => {
                let difference = compare(found.frontends, shadow.frontends(), |_| false);
                let drift = difference.drift(map);
                self.foreign.frontends = difference.foreign;
                shadow.restore_frontends(&difference.missing)?;
                for frontend in difference.wrong.into_iter().take(WRONG_LIMIT) {
                    shadow.correct_frontend(frontend)?;
                }
                Ok(drift)
            }
        }
    }
}

impl<K, V> Difference<K, V> {
    fn drift(&self, map: Map) -> Drift {
        Drift {
            map,
            missing: self.missing.len(),
            wrong: self.wrong.len(),
            foreign: self.foreign.len(),
        }
    }
}

/// Compares found with expected entries. A tolerated entry may exist or not.
fn compare<K: Copy + Eq + Hash, V: PartialEq>(
    found: Vec<(K, V)>,
    expected: impl Iterator<Item = (K, V)>,
    tolerated: impl Fn(&K) -> bool,
) -> Difference<K, V> {
    let mut found: HashMap<K, V> = found.into_iter().collect();
    let mut difference = Difference {
        missing: Vec::new(),
        wrong: Vec::new(),
        foreign: Vec::new(),
    };
    for (key, value) in expected {
        match found.remove(&key) {
            None => difference.missing.push((key, value)),
            Some(other) if other != value => difference.wrong.push((key, value)),
            Some(_) => {}
        }
    }
    found.retain(|key, _| !tolerated(key));
    difference.foreign = found.into_iter().collect();
    difference
}
