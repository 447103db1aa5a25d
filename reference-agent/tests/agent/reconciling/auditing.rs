//! Audits: the maps are compared with what was written, and changes of other programs are repaired.

use lb_abi::{Address, Backend, Frontend, Service as Value, SlotKey, SourceKey, address_flags::VIP};
use reference_agent::{
    control::Planner,
    maps::{
        Contents, LbMaps as _, Map,
        memory::{Capacities, MemoryMaps},
    },
    model::Service,
    reconcile::{Drift, WRONG_LIMIT},
    testing::{
        World,
        objects::{address, backend, service, slice},
    },
};
use rstest::rstest;

use super::{endpoints, ranged, world};

/// Something in every map.
fn filled() -> World<Planner> {
    let mut world = world();
    world.put_service(Service {
        affinity_seconds: 60,
        ..ranged(&["192.0.2.0/24", "203.0.113.7/32"])
    });
    world.put_slice(endpoints(&["10.0.0.7", "10.0.0.8"]));
    let api = |endpoints: &[&str]| slice("default/1", "kubernetes", &["TCP 6443"], endpoints);
    world.put_service(service("default/kubernetes", "10.96.0.1", &["TCP 443"]));
    world.put_slice(api(&["10.0.0.9"]));
    world.put_slice(api(&[]));
    for (map, entries) in entries(&world.contents()) {
        assert_ne!(entries, 0, "nothing in {}", map.name());
    }
    world
}

fn entries(contents: &Contents) -> [(Map, usize); 7] {
    Map::ALL.map(|map| {
        let entries = match map {
            Map::Backends => contents.backends.len(),
            Map::Slots => contents.slots.len(),
            Map::Services => contents.services.len(),
            Map::Kept => contents.kept.len(),
            Map::Sources => contents.sources.len(),
            Map::Addresses => contents.addresses.len(),
            Map::Frontends => contents.frontends.len(),
        };
        (map, entries)
    })
}

/// A round: what differed.
fn round(world: &mut World<Planner>) -> Vec<Drift> {
    let drift = Map::ALL.map(|_| world.control.audit().expect("maps in memory can be read"));
    drift
        .into_iter()
        .filter(|drift| drift.missing + drift.wrong + drift.foreign != 0)
        .collect()
}

/// Another program changes the maps.
fn disturb(world: &mut World<Planner>, change: impl FnOnce(&mut Contents)) -> Contents {
    let before = world.contents();
    let mut changed = before.clone();
    change(&mut changed);
    *world.faults().inner_mut() = MemoryMaps::with_contents(&changed);
    before
}

const fn drift(map: Map, [missing, wrong, foreign]: [usize; 3]) -> Drift {
    Drift {
        map,
        missing,
        wrong,
        foreign,
    }
}

#[test]
fn nothing_differs_where_nobody_has_changed_anything() {
    let mut world = filled();
    let writes = world.memory().writes();
    assert_eq!(round(&mut world), []);
    assert_eq!(world.memory().writes(), writes);
}

/// What the agent could not delete yet is its own doing, and no drift.
#[test]
fn nothing_differs_after_a_write_that_failed() {
    for at in 0..40 {
        let mut world = filled();
        world.faults().script((0..=at).map(|index| index == at));
        world.delete_service_unsettled("t/x");
        world.settle_within(0);
        assert_eq!(round(&mut world), [], "the write that failed: {at}");
        world.settle();
        world.assert_clean();
    }
}

#[rstest]
#[case(Map::Backends, |maps: &mut Contents| _ = maps.backends.remove(1))]
#[case(Map::Slots, |maps: &mut Contents| _ = maps.slots.remove(0))]
#[case(Map::Services, |maps: &mut Contents| _ = maps.services.remove(0))]
#[case(Map::Kept, |maps: &mut Contents| maps.kept.clear())]
#[case(Map::Sources, |maps: &mut Contents| _ = maps.sources.remove(0))]
#[case(Map::Addresses, |maps: &mut Contents| _ = maps.addresses.remove(0))]
#[case(Map::Frontends, |maps: &mut Contents| _ = maps.frontends.remove(0))]
fn what_is_missing_is_written_again(#[case] map: Map, #[case] change: fn(&mut Contents)) {
    let mut world = filled();
    let before = disturb(&mut world, change);
    assert_eq!(round(&mut world), [drift(map, [1, 0, 0])]);
    assert_eq!(world.contents(), before);
    assert_eq!(round(&mut world), []);
}

#[rstest]
#[case(Map::Backends, |maps: &mut Contents| maps.backends[0].1 = maps.backends[1].1)]
#[case(Map::Slots, |maps: &mut Contents| maps.slots[0].1 ^= 3)]
#[case(Map::Services, |maps: &mut Contents| maps.services[0].1.slots = 1)]
#[case(Map::Kept, |maps: &mut Contents| maps.kept[0].1.slots = 9)]
#[case(Map::Sources, |maps: &mut Contents| maps.sources[0].1 = 0)]
#[case(Map::Addresses, |maps: &mut Contents| maps.addresses[0].1 = 0)]
#[case(Map::Frontends, |maps: &mut Contents| maps.frontends[0].1 = maps.frontends[1].1)]
fn what_is_wrong_is_written_again(#[case] map: Map, #[case] change: fn(&mut Contents)) {
    let mut world = filled();
    let before = disturb(&mut world, change);
    assert_eq!(round(&mut world), [drift(map, [0, 1, 0])]);
    assert_eq!(world.contents(), before);
    assert_eq!(round(&mut world), []);
}

fn stranger() -> Backend {
    backend("TCP 10.66.6.6:80").value()
}

#[rstest]
#[case(Map::Backends, |maps: &mut Contents| maps.backends.push((60_000, stranger())))]
#[case(Map::Slots, |maps: &mut Contents| maps.slots.push((SlotKey { service: 60_000, generation: 1, index: 0 }, 1)))]
#[case(Map::Slots, |maps: &mut Contents| maps.slots.push((SlotKey::member(1, 1, 9), 9)))]
#[case(Map::Services, |maps: &mut Contents| maps.services.push((60_000, Value { generation: 1, slots: 0 })))]
#[case(Map::Kept, |maps: &mut Contents| maps.kept.push((60_000, Value { generation: 1, slots: 1 })))]
#[case(Map::Sources, |maps: &mut Contents| {
    maps.sources.push((SourceKey::range(60_000, Address::UNSPECIFIED_V6, 0), 1));
})]
#[case(Map::Addresses, |maps: &mut Contents| maps.addresses.push((Address::v4([10, 66, 6, 6]), VIP)))]
#[case(Map::Frontends, |maps: &mut Contents| {
    let value = Frontend { internal: 1, external: 1, ..Frontend::default() };
    maps.frontends.push((address("TCP 10.96.0.2:666").frontend_key(), value));
})]
fn what_is_foreign_is_removed(#[case] map: Map, #[case] change: fn(&mut Contents)) {
    let mut world = filled();
    let before = disturb(&mut world, change);
    assert_eq!(round(&mut world), [drift(map, [0, 0, 1])]);
    assert_eq!(world.contents(), before);
    world.assert_lawful();
    assert_eq!(round(&mut world), []);
}

#[test]
fn empty_maps_are_filled_again_in_order() {
    let mut world = filled();
    let before = disturb(&mut world, |maps| *maps = Contents::default());
    let found: usize = round(&mut world).iter().map(|drift| drift.missing).sum();
    assert_eq!(
        found,
        entries(&before).iter().map(|(_, entries)| entries).sum::<usize>()
    );
    assert_eq!(world.contents(), before);
    assert_eq!(world.memory().violations(), [""; 0]);
}

/// What fills a map keeps what is missing out, until it has gone.
#[test]
fn what_fills_a_map_is_removed_though_what_is_missing_there_finds_no_room() {
    let mut world = filled();
    let before = world.contents();
    let mut changed = before.clone();
    changed.slots.remove(0);
    let capacity = changed.slots.len() + 2;
    changed
        .slots
        .extend([6, 7].map(|index| (SlotKey::member(60_000, 1, index), 1)));
    let mut full = MemoryMaps::with_contents(&changed);
    full.set_capacities(Capacities {
        slots: u32::try_from(capacity).expect("few"),
        ..Capacities::default()
    });
    *world.faults().inner_mut() = full;
    let failed = Map::ALL.iter().filter(|_| world.control.audit().is_err());
    assert_eq!(failed.count(), 1, "it finds no room");
    assert_eq!(round(&mut world), [drift(Map::Slots, [1, 0, 0])]);
    assert_eq!(world.contents(), before);
    assert_eq!(round(&mut world), []);
}

#[test]
fn a_number_that_was_foreign_and_is_ours_by_now_stays() {
    let mut world = filled();
    let next = world
        .contents()
        .backends
        .iter()
        .map(|(id, _)| *id)
        .max()
        .unwrap_or(0)
        + 1;
    disturb(&mut world, |maps| maps.backends.push((next, stranger())));
    // It is seen, and before the round ends the number is handed out.
    world.control.audit().expect("readable");
    world.put_slice(endpoints(&["10.0.0.7", "10.0.0.8", "10.0.0.11"]));
    for _ in 1..Map::ALL.len() {
        world.control.audit().expect("readable");
    }
    let mut own = world.contents().backends.into_iter();
    let own = own.find(|(id, _)| *id == next);
    assert_eq!(own, Some((next, backend("TCP 10.0.0.11:8080").value())));
    assert_eq!(round(&mut world), []);
    world.assert_clean();
}

#[test]
fn many_wrong_entries_are_repaired_in_several_calls_and_the_other_maps_have_their_turn() {
    let mut world = world();
    let many: Vec<String> = (1..=WRONG_LIMIT + 4)
        .map(|index| format!("10.0.1.{index}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.put_service(service("t/x", "10.96.0.2", &["TCP 80"]));
    world.put_slice(endpoints(&many));
    let before = disturb(&mut world, |maps| {
        maps.backends
            .iter_mut()
            .for_each(|(_, backend)| *backend = stranger());
    });
    let found = [round(&mut world), round(&mut world)];
    assert_eq!(
        found,
        [
            vec![
                drift(Map::Backends, [0, WRONG_LIMIT + 4, 0]),
                drift(Map::Backends, [0, 4, 0])
            ],
            vec![]
        ]
    );
    assert_eq!(world.contents(), before);
    // Another program that writes as fast does not keep the audit at one map.
    let all_wrong = |maps: &mut Contents| {
        maps.backends
            .iter_mut()
            .for_each(|(_, backend)| *backend = stranger());
    };
    let mut maps = Vec::new();
    for _ in 0..=Map::ALL.len() + 1 {
        disturb(&mut world, all_wrong);
        maps.push(world.control.audit().expect("readable").map);
    }
    let mut expected = vec![Map::Frontends, Map::Backends, Map::Backends];
    expected.extend(&Map::ALL[1..]);
    assert_eq!(maps, expected);
}

#[test]
fn statistics_count_what_is_in_the_maps() {
    let world = filled();
    let statistics = world.control.statistics();
    for ((map, entries), pressure) in entries(&world.contents()).into_iter().zip(statistics.maps) {
        assert_eq!(
            (pressure.map, pressure.entries, pressure.capacity),
            (map.name(), entries, map.capacity())
        );
    }
    assert_eq!(statistics.services, 2);
    assert_eq!(
        world.maps().contents().expect("readable").slots.len(),
        statistics.slots
    );
}
