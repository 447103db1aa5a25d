//! Restarts over pinned maps, as an agent left them and as it never would.

use lb_abi::{
    Address, Backend, Frontend, FrontendKey, Service, SlotKey, address_flags::VIP, backend_flags,
    frontend_flags,
};
use proptest::prelude::*;
use reference_agent::{
    control::Planner,
    maps::{Contents, LbMaps, memory::MemoryMaps},
    plan::{self, Perspective, Selection},
    resolve,
    testing::{
        World,
        objects::{address, addresses, backend, service, slice},
        synced,
    },
};
use rstest::rstest;

fn served() -> World<Planner> {
    let mut world = World::synced();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.1"]));
    world
}

fn tell_everything(world: &mut World<Planner>) {
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.1"]));
}

#[test]
fn nothing_is_written_before_all_kinds_have_synced() {
    let found = served().contents();
    let mut world = World::with(Planner::default(), &found);
    for event in synced().into_iter().take(3) {
        world.event(event);
    }
    world.put_service(service("t/z", "10.96.0.3", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.2"]));
    assert_eq!(world.contents(), found);
    assert_eq!(world.memory().writes(), 0);
}

#[test]
fn a_restart_without_changes_writes_nothing_and_keeps_every_number() {
    let found = served().contents();
    let mut world = World::with(Planner::default(), &found);
    tell_everything(&mut world);
    world.sync();
    assert_eq!(world.contents(), found);
    assert_eq!(world.memory().writes(), 0);
}

#[test]
fn what_died_while_the_agent_was_down_is_removed_after_the_sync() {
    let mut world = World::with(Planner::default(), &served().contents());
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.9"]));
    world.sync();
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.9:80"]))
    );
    world.assert_clean();
}

#[test]
fn an_adopted_generation_goes_on_and_comes_round() {
    let mut found = served().contents();
    for (key, _) in &mut found.slots {
        key.generation = u32::MAX;
    }
    for (_, value) in &mut found.services {
        value.generation = u32::MAX;
    }
    let mut world = World::with(Planner::default(), &found);
    tell_everything(&mut world);
    world.sync();
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.2"]));
    let generations: Vec<_> = world
        .contents()
        .services
        .iter()
        .map(|(_, value)| value.generation)
        .collect();
    assert_eq!(generations, [1, u32::MAX]);
    world.assert_clean();
}

/// One thing wrong in otherwise good maps.
fn corrupt(change: impl FnOnce(&mut Contents)) -> Contents {
    let mut contents = served().contents();
    change(&mut contents);
    contents
}

fn frontend(text: &str) -> FrontendKey {
    address(text).frontend_key()
}

fn to(service: u32) -> Frontend {
    Frontend {
        internal: service,
        external: service,
        flags: 0,
        affinity_seconds: 0,
    }
}

fn slot(service: u32, generation: u32, index: u32) -> SlotKey {
    SlotKey {
        service,
        generation,
        index,
    }
}

#[rstest]
#[case::frontend_of_no_service(corrupt(|maps| maps.frontends[0].1 = to(77)))]
#[case::frontend_of_service_zero(corrupt(|maps| maps.frontends[0].1 = to(0)))]
#[case::frontend_of_an_impossible_service(corrupt(|maps| maps.frontends[0].1 = to(u32::MAX)))]
#[case::frontend_of_another_selection(corrupt(|maps| maps.frontends[0].1.flags = frontend_flags::MAGLEV))]
#[case::frontend_with_a_strange_flag(corrupt(|maps| maps.frontends[0].1.flags = 1 << 31))]
#[case::frontend_with_affinity(corrupt(|maps| maps.frontends[0].1.affinity_seconds = 9))]
#[case::frontend_for_clients_inside_alone(corrupt(|maps| maps.frontends[0].1.external = 0))]
#[case::frontend_for_clients_outside_alone(corrupt(|maps| maps.frontends[0].1.internal = 0))]
#[case::frontend_of_two_services(corrupt(|maps| maps.frontends[0].1.external = 2))]
#[case::frontend_of_a_service_that_is_not_there_outside(corrupt(|maps| maps.frontends[0].1.external = 77))]
#[case::an_address_missing(corrupt(|maps| _ = maps.addresses.remove(0)))]
#[case::no_address(corrupt(|maps| maps.addresses.clear()))]
#[case::an_address_too_many(corrupt(|maps| maps.addresses.push((Address::v4([10, 96, 0, 99]), VIP))))]
#[case::an_address_without_flags(corrupt(|maps| maps.addresses[0].1 = 0))]
#[case::an_address_with_all_flags(corrupt(|maps| maps.addresses[0].1 = u32::MAX))]
#[case::an_address_of_another_kind(corrupt(|maps| maps.addresses[0].1 = !VIP))]
#[case::frontends_of_two_services_that_share_one(corrupt(|maps| maps.frontends[1].1 = maps.frontends[0].1))]
#[case::frontends_crossed(corrupt(|maps| {
    let first = maps.frontends[0].1;
    maps.frontends[0].1 = maps.frontends[1].1;
    maps.frontends[1].1 = first;
}))]
#[case::a_frontend_too_many(corrupt(|maps| {
    maps.frontends.push((frontend("UDP 10.96.0.9:53"), to(1)));
}))]
#[case::a_frontend_of_another_version(corrupt(|maps| {
    let key = FrontendKey { pad: 7, protocol: 1, ..frontend("TCP 10.96.0.1:80") };
    maps.frontends.push((key, to(1)));
}))]
#[case::a_service_without_frontends(corrupt(|maps| _ = maps.frontends.remove(0)))]
#[case::a_service_too_many(corrupt(|maps| maps.services.push((9, Service { generation: 3, slots: 2 }))))]
#[case::a_service_without_generation(corrupt(|maps| maps.services[0].1.generation = 0))]
#[case::a_service_that_names_too_many_slots(corrupt(|maps| maps.services[0].1.slots = u32::MAX))]
#[case::a_service_that_names_too_few_slots(corrupt(|maps| maps.services[0].1.slots = 1))]
#[case::a_slot_missing(corrupt(|maps| _ = maps.slots.remove(0)))]
#[case::a_slot_of_no_backend(corrupt(|maps| maps.slots[0].1 = 99))]
#[case::a_slot_of_backend_zero(corrupt(|maps| maps.slots[0].1 = 0))]
#[case::a_slot_of_an_impossible_backend(corrupt(|maps| maps.slots[0].1 = u32::MAX))]
#[case::two_slots_of_one_backend(corrupt(|maps| maps.slots[1].1 = maps.slots[0].1))]
#[case::slots_of_no_service(corrupt(|maps| maps.slots.extend([(slot(3, 1, 0), 1), (slot(3, 9, 4), 2)])))]
#[case::slots_of_an_impossible_service(corrupt(|maps| maps.slots.push((slot(u32::MAX, 1, 0), 1))))]
#[case::slots_of_the_next_generations(corrupt(|maps| {
    maps.slots.extend([(slot(1, 2, 0), 2), (slot(1, 3, 5), 2), (slot(1, u32::MAX, 0), 1)]);
}))]
#[case::a_backend_missing(corrupt(|maps| _ = maps.backends.remove(0)))]
#[case::a_backend_too_many(corrupt(|maps| {
    maps.backends.push((50, backend("TCP 1.1.1.50:80").value()));
}))]
#[case::a_backend_twice(corrupt(|maps| maps.backends[1].1 = maps.backends[0].1))]
#[case::a_backend_that_is_local_no_more(corrupt(|maps| maps.backends[0].1.flags = backend_flags::LOCAL))]
#[case::a_backend_of_another_version(corrupt(|maps| {
    maps.backends[0].1 = Backend { flags: 1 << 7, ..maps.backends[0].1 };
}))]
#[case::a_backend_of_an_impossible_number(corrupt(|maps| {
    maps.backends.push((u32::MAX, backend("TCP 1.1.1.50:80").value()));
}))]
#[case::nothing_but_slots(corrupt(|maps| {
    (maps.frontends, maps.services, maps.backends) = (Vec::new(), Vec::new(), Vec::new());
}))]
#[case::nothing_but_frontends(corrupt(|maps| {
    (maps.slots, maps.services, maps.backends) = (Vec::new(), Vec::new(), Vec::new());
}))]
fn corrupt_maps_are_repaired(#[case] found: Contents) {
    repaired(Planner::default(), &found);
}

/// Maps of a node with tables, with one thing wrong.
fn corrupt_tables(change: impl FnOnce(&mut Contents)) -> Contents {
    let mut world = World::with(with_tables(), &Contents::default());
    tell_everything(&mut world);
    world.sync();
    let mut contents = world.contents();
    assert_eq!(contents.slots.len(), 252);
    change(&mut contents);
    contents
}

fn with_tables() -> Planner {
    Planner::new(Perspective {
        selection: Selection::Maglev,
        ..Perspective::default()
    })
}

#[rstest]
#[case::none_at_all(served().contents())]
#[case::a_slot_missing(corrupt_tables(|maps| _ = maps.slots.remove(100)))]
#[case::a_slot_of_the_other_backend(corrupt_tables(|maps| maps.slots[100].1 ^= 3))]
#[case::a_table_backwards(corrupt_tables(|maps| {
    let mut backwards: Vec<_> = maps.slots.iter().map(|(_, backend)| *backend).take(251).collect();
    for (slot, backend) in maps.slots.iter_mut().zip(backwards.drain(..).rev()) {
        slot.1 = backend;
    }
}))]
#[case::a_table_that_ends_early(corrupt_tables(|maps| maps.services[0].1.slots = 250))]
#[case::frontends_that_do_not_say_so(corrupt_tables(|maps| maps.frontends.iter_mut().for_each(|one| one.1.flags = 0)))]
fn corrupt_tables_are_repaired(#[case] found: Contents) {
    repaired(with_tables(), &found);
}

#[test]
fn a_restart_over_tables_without_changes_writes_nothing() {
    let found = corrupt_tables(|_| {});
    let mut world = World::with(with_tables(), &found);
    tell_everything(&mut world);
    world.sync();
    assert_eq!(world.contents(), found);
    assert_eq!(world.memory().writes(), 0);
}

#[test]
fn a_restart_that_chooses_otherwise_keeps_every_service_and_backend_number() {
    let found = corrupt_tables(|_| {});
    let mut world = World::with(Planner::default(), &found);
    tell_everything(&mut world);
    world.sync();
    let left = world.contents();
    assert_eq!(left.slots.len(), 3);
    assert_eq!(left.backends, found.backends);
    let services = |contents: &Contents| contents.services.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(services(&left), services(&found));
    world.assert_clean();
}

/// A restart over maps puts them in order, and everything can be taken away again.
fn repaired(planner: Planner, found: &Contents) {
    let mut world = World::with(planner, found);
    tell_everything(&mut world);
    assert_eq!(world.memory().writes(), 0);
    world.sync();
    world.put_service(service("t/z", "10.96.0.3", &["TCP 80"]));
    let plan = world.control.desired().plan();
    let (resolved, defects) = resolve::resolve(&world.contents());
    assert_eq!(resolved, plan::resolve(&plan));
    assert!(defects.is_empty(), "{defects:?}");
    world.delete_service("t/x");
    world.delete_service("t/y");
    world.delete_service("t/z");
    assert_eq!(world.contents(), Contents::default(), "no number was lost");
}

/// Maps of small numbers, anything anywhere.
fn anything() -> impl Strategy<Value = Contents> {
    let ips = ["10.96.0.1", "10.96.0.2", "10.96.0.9"];
    let addresses = prop::collection::btree_map(0..ips.len(), 0..4_u32, 0..4);
    let frontends = prop::collection::btree_map(0..ips.len(), (0..6_u32, 0..6_u32, 0..3_u32), 0..3);
    let services = prop::collection::btree_map(1..5_u32, (0..3_u32, 0..4_u32), 0..4);
    let slots = prop::collection::btree_map((1..6_u32, 1..3_u32, 0..3_u32), 0..6_u32, 0..10);
    let backends = prop::collection::btree_map(1..6_u32, (1..4_u8, 0..3_u8), 0..5);
    (addresses, frontends, services, slots, backends).prop_map(
        move |(addresses, frontends, services, slots, backends)| {
            let addresses = addresses.into_iter();
            let frontends = frontends.into_iter();
            let backend = |host, flags| Backend {
                flags,
                ..backend(&format!("TCP 1.1.1.{host}:80")).value()
            };
            Contents {
                addresses: addresses
                    .map(|(ip, flags)| (address(&format!("TCP {}:80", ips[ip])).address.into(), flags))
                    .collect(),
                frontends: frontends
                    .map(|(ip, (internal, external, flags))| {
                        let value = Frontend {
                            internal,
                            external,
                            flags,
                            affinity_seconds: 0,
                        };
                        (frontend(&format!("TCP {}:80", ips[ip])), value)
                    })
                    .collect(),
                services: services
                    .into_iter()
                    .filter(|(_, value)| *value != (0, 0))
                    .map(|(id, (generation, slots))| (id, Service { generation, slots }))
                    .collect(),
                slots: slots
                    .into_iter()
                    .map(|((s, g, i), backend)| (slot(s, g, i), backend))
                    .collect(),
                backends: backends
                    .into_iter()
                    .map(|(id, (host, flags))| (id, backend(host, flags)))
                    .collect(),
                ..Contents::default()
            }
        },
    )
}

proptest! {
    // PROPTEST_CASES may ask for more.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(512)))]

    #[test]
    fn whatever_the_maps_held_they_end_as_a_fresh_agent_would_write_them(
        found in anything(),
        failures in prop::collection::vec(prop::bool::weighted(0.3), 0..20),
    ) {
        let mut world = World::with(Planner::default(), &found);
        tell_everything(&mut world);
        world.faults().script(failures);
        world.sync();
        let mut fresh = World::synced();
        tell_everything(&mut fresh);
        let dumped = |maps: &MemoryMaps| reference_agent::dump::dump(&maps.contents().expect("readable"));
        prop_assert_eq!(dumped(world.memory()), dumped(fresh.memory()));
    }
}
