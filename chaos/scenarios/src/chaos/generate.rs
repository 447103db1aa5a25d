//! Random schedules. Pure: one seed and one wish give one schedule.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use super::{
    schedule::{
        Action, BACKENDS, Condition, Does, Endpoint, Fault, FaultKind, NODE_PORTS, SERVICES, SLICES,
        Schedule, Service, ServiceWrite, Slice, SliceWrite, home,
    },
    world::{World, of_namespace},
};

/// What schedules are wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How long they last, in milliseconds.
    pub lasts_ms: u32,
    /// Kinds of faults to choose from; without any, there are only writes.
    pub kinds: BTreeSet<FaultKind>,
    /// How many nodes there are.
    pub nodes: u8,
    /// Whether slices move from one Service to another: some targets are known not to keep `slice-relabelled`.
    pub moves: bool,
}

/// From one write to the next, on average.
const WRITE_MS: u32 = 1200;
/// From the end of a fault of the API to the next one, and of a fault of nodes to the next one, on average. One of each may be there at
/// the same time.
const QUIET_MS: u32 = 5000;
/// How long a fault lasts.
const FAULT_MS: std::ops::RangeInclusive<u32> = 1000..=8000;
/// Writes of a burst, which follow each other at once: one write of so many is one.
const BURST: u32 = 30;
const BURSTS: u32 = 25;
/// Of the whole time, the first part without a fault, and the last part without an action, as a divisor: what faults break shows
/// before the heal.
const CALM: u32 = 12;

/// The schedule of a seed.
#[must_use]
pub fn schedule(seed: u64, wish: &Wish) -> Schedule {
    let mut random = StdRng::seed_from_u64(seed);
    let end = wish.lasts_ms - wish.lasts_ms / CALM;
    let mut actions = writes(&mut random, end, wish.moves);
    actions.extend(faults(&mut random, wish, end));
    actions.sort_by_key(|action| action.at_ms);
    Schedule {
        seed,
        lasts_ms: wish.lasts_ms,
        actions,
    }
}

fn writes(random: &mut StdRng, end: u32, moves: bool) -> Vec<Action> {
    let mut world = World::first();
    let mut all = Vec::new();
    let mut at_ms = 0;
    loop {
        at_ms += random.random_range(0..=2 * WRITE_MS);
        if at_ms >= end {
            return all;
        }
        let count = if random.random_ratio(1, BURSTS) { BURST } else { 1 };
        for _ in 0..count {
            let does = write(random, &world, moves);
            for call in world.calls(&does) {
                world = world.after(&call);
            }
            all.push(Action { at_ms, does });
        }
    }
}

fn write(random: &mut StdRng, world: &World, moves: bool) -> Does {
    let service = random.random_range(0..SERVICES);
    let is_there = world.services.contains_key(&service);
    match random.random_range(0..100) {
        // What was deleted comes back soon, often at once.
        _ if !is_there && random.random_ratio(2, 3) => {
            let to = Some(terms(random, Service::default()));
            Does::Service(ServiceWrite { service, to })
        }
        0..5 => Does::Service(ServiceWrite { service, to: None }),
        5..12 => {
            let node_port = Some(random.random_range(0..NODE_PORTS));
            let before = world.services.get(&service).copied().unwrap_or_default();
            let to = Some(Service { node_port, ..before });
            Does::Service(ServiceWrite { service, to })
        }
        12..20 => {
            let before = world.services.get(&service).copied().unwrap_or_default();
            let to = Some(terms(random, before));
            Does::Service(ServiceWrite { service, to })
        }
        20..26 => Does::Annotate(service),
        number => Does::Slice(slice(random, world, number, moves)),
    }
}

/// A Service with other terms. Under a policy Local, many clients are not served: it is rare.
fn terms(random: &mut StdRng, before: Service) -> Service {
    Service {
        node_port: before.node_port,
        affinity: random.random_ratio(1, 2),
        internal_local: random.random_ratio(1, 5),
        external_local: random.random_ratio(1, 3),
    }
}

/// A change of a slice. Most lists have ready endpoints, so that most frontends serve most of the time.
fn slice(random: &mut StdRng, world: &World, number: u32, moves: bool) -> SliceWrite {
    let slice = random.random_range(0..SLICES);
    let before = world.slices.get(&slice);
    let mut of = before.map_or(slice / 2, |slice| slice.of);
    let endpoints = match number {
        26..32 => return SliceWrite { slice, to: None },
        32..38 => None,
        38..44 => Some(Vec::new()),
        44..52 => {
            let others = of_namespace(home(slice).0);
            let other = others.choose(random).copied();
            of = other.filter(|_| moves).unwrap_or(of);
            Some(endpoints(random))
        }
        _ => Some(endpoints(random)),
    };
    let mut to = Slice { of, endpoints };
    // Which of two conditions of one endpoint counts is left to implementations: rare.
    for endpoint in to.endpoints.iter_mut().flatten() {
        let others = world.slices.iter().filter(|(number, _)| **number != slice);
        let mut others = others
            .filter(|(_, other)| other.of == of)
            .flat_map(|(_, other)| other.endpoints.iter().flatten());
        if let Some(same) = others.find(|other| other.backend == endpoint.backend) {
            endpoint.condition = same.condition;
        }
    }
    SliceWrite { slice, to: Some(to) }
}

fn endpoints(random: &mut StdRng) -> Vec<Endpoint> {
    let count = *[1, 1, 2, 2, 3].choose(random).unwrap_or(&1);
    let mut backends: Vec<u8> = (0..BACKENDS).collect();
    let mut all = Vec::new();
    for _ in 0..count {
        let backend = backends.remove(random.random_range(0..backends.len()));
        let condition = match random.random_range(0..20) {
            0..2 => Condition::Unready,
            2..4 => Condition::Terminating,
            4 => Condition::Stopped,
            5 => Condition::Published,
            _ => Condition::Ready,
        };
        all.push(Endpoint { backend, condition });
    }
    all
}

fn faults(random: &mut StdRng, wish: &Wish, end: u32) -> Vec<Action> {
    let mut all = Vec::new();
    for of_api in [true, false] {
        let kinds: Vec<FaultKind> = wish
            .kinds
            .iter()
            .copied()
            .filter(|kind| kind.is_of_api() == of_api)
            .collect();
        let mut at_ms = wish.lasts_ms / CALM;
        while let Some(kind) = kinds.choose(random) {
            at_ms += random.random_range(0..=2 * QUIET_MS);
            if at_ms >= end {
                break;
            }
            let lasts_ms = if kind.is_of_a_moment() {
                0
            } else {
                random.random_range(FAULT_MS).min(end - at_ms)
            };
            // The API for all nodes, or for one of them, which then knows less than the others.
            let is_of_one = !kind.is_of_all() && (!of_api || random.random_ratio(1, 2));
            let fault = Fault {
                kind: *kind,
                node: is_of_one.then(|| random.random_range(1..=wish.nodes.max(1))),
                lasts_ms,
            };
            all.push(Action {
                at_ms,
                does: Does::Fault(fault),
            });
            at_ms += lasts_ms;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::world::{Client, Front};

    fn wish() -> Wish {
        Wish {
            lasts_ms: 60_000,
            kinds: FaultKind::ALL.into(),
            nodes: 2,
            moves: true,
        }
    }

    #[test]
    fn a_seed_stands_for_one_schedule_which_a_file_may_have() {
        let one = schedule(7, &wish());
        assert_eq!(one, schedule(7, &wish()));
        assert_ne!(one.actions, schedule(8, &wish()).actions);
        assert_eq!(one.clone().checked().as_ref(), Ok(&one));
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), one);
    }

    #[test]
    fn many_seeds_have_all_faults_and_leave_most_frontends_served() {
        let (mut kinds, mut terms, mut served, mut all) = (BTreeSet::new(), BTreeSet::new(), 0, 0);
        for seed in 0..50 {
            let schedule = schedule(seed, &wish());
            kinds.extend(schedule.kinds());
            let mut world = World::first();
            for action in &schedule.actions {
                for call in world.calls(&action.does) {
                    world = world.after(&call);
                    let fronts = World::fronts(true);
                    all += fronts.len();
                    let is_served =
                        |front: &&Front| !world.served(**front, Client::Pod(0), Some(1), 2).by.is_empty();
                    served += fronts.iter().filter(is_served).count();
                    terms.extend(
                        world
                            .services
                            .values()
                            .map(|one| [one.affinity, one.internal_local, one.external_local]),
                    );
                }
            }
        }
        assert_eq!(kinds, FaultKind::ALL.into());
        assert_eq!(
            terms.len(),
            8,
            "affinity, and each policy, with and without the others"
        );
        let share = f64::from(u32::try_from(served).unwrap()) / f64::from(u32::try_from(all).unwrap());
        assert!((0.6..0.97).contains(&share), "{share} of all frontends serve");
    }

    #[test]
    fn slices_stay_where_they_may_not_move() {
        let wish = Wish {
            moves: false,
            ..wish()
        };
        let mut world = World::first();
        for action in schedule(1, &wish).actions {
            for call in world.calls(&action.does) {
                world = world.after(&call);
            }
            assert!(world.slices.iter().all(|(number, slice)| slice.of == number / 2));
        }
    }

    #[test]
    fn without_kinds_there_are_only_writes() {
        let kinds = BTreeSet::new();
        let schedule = schedule(1, &Wish { kinds, ..wish() });
        assert!(schedule.kinds().is_empty());
        assert!(schedule.actions.len() > 20);
    }
}
