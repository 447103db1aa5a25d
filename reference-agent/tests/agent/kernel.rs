//! The contract of [`LbMaps`], for the maps in memory and for the kernel's, and the agent's parts over the latter.
//!
//! Each test that needs the kernel has a [`Place`] of its own; where programs are attached, a cgroup of its own.

use std::{
    fs,
    net::Ipv4Addr,
    thread,
    time::{Duration, Instant},
};

use lb_abi::{
    Address, Config, Frontend, FrontendKey, Meta, Service, SlotKey, SourceKey, address_flags, capacity,
};
use lb_loader::{ALLOW_MULTI, HeldProgram, Hook, attach_legacy, programs_attached};
use reference_agent::{
    control::{Control, Planner},
    datapath::Datapath,
    hooks::{Hooks, SCAN},
    maps::{Contents, LbMaps, Map, MapError, kernel, memory::MemoryMaps},
    metrics::Metrics,
    model::Event,
    names::ObjectName,
    testing::{
        objects::{address, backend, service, slice},
        synced,
    },
};

use crate::place::Place;

fn to(service: u32) -> Frontend {
    Frontend {
        internal: service,
        external: service,
        flags: 0,
        affinity_seconds: 0,
    }
}

fn contract(mut maps: impl LbMaps) {
    let first = address("TCP 10.96.0.1:80").frontend_key();
    let second = address("UDP 10.96.0.2:53").frontend_key();
    let backend = backend("TCP 10.0.0.1:8080").value();
    let slot = SlotKey {
        service: 1,
        generation: 1,
        index: 0,
    };
    let address = first.address;
    let range = SourceKey::range(1, address, 24);
    let once = Service {
        generation: 1,
        slots: 1,
    };
    let everything = Contents {
        addresses: vec![
            (address, address_flags::VIP),
            (second.address, address_flags::NODE),
        ],
        frontends: vec![(first, to(1)), (second, to(2))],
        services: vec![
            (
                1,
                Service {
                    generation: 1,
                    slots: 1,
                },
            ),
            (
                capacity::SERVICES - 1,
                Service {
                    generation: u32::MAX,
                    slots: 0,
                },
            ),
        ],
        slots: vec![(slot, 9)],
        backends: vec![(9, backend)],
        sources: vec![(range, 1)],
        kept: vec![(1, once)],
    };
    assert_eq!(maps.contents().expect("readable"), Contents::default());
    // Deleting the absent is no error.
    let delete_all = |maps: &mut dyn LbMaps| -> Result<(), MapError> {
        maps.delete_frontend(first)?;
        maps.delete_frontend(second)?;
        maps.delete_address(address)?;
        maps.delete_address(second.address)?;
        maps.delete_kept(1)?;
        maps.barrier()?;
        maps.delete_source(range)?;
        maps.delete_service(1)?;
        maps.delete_service(capacity::SERVICES - 1)?;
        maps.delete_slot(slot)?;
        maps.delete_backend(9)
    };
    delete_all(&mut maps).expect("nothing to delete");
    // Putting twice is putting once; the last value counts.
    for _ in 0..2 {
        maps.put_backend(9, backend).expect("put");
        maps.put_slot(slot, 9).expect("put");
        maps.put_service(
            1,
            Service {
                generation: 1,
                slots: 1,
            },
        )
        .expect("put");
        maps.put_service(
            capacity::SERVICES - 1,
            Service {
                generation: u32::MAX,
                slots: 0,
            },
        )
        .expect("put");
        maps.put_source(range).expect("put");
        maps.put_kept(1, once).expect("put");
        maps.barrier().expect("programs end");
        maps.put_address(address, address_flags::NODE).expect("put");
        maps.put_address(address, address_flags::VIP).expect("put");
        maps.put_address(second.address, address_flags::NODE)
            .expect("put");
        maps.put_frontend(second, to(1)).expect("put");
        maps.put_frontend(second, to(2)).expect("put");
        maps.put_frontend(first, to(1)).expect("put");
    }
    assert_eq!(maps.contents().expect("readable"), everything);
    // A failed put changes nothing.
    maps.put_service(
        capacity::SERVICES,
        Service {
            generation: 1,
            slots: 0,
        },
    )
    .expect_err("beyond the array");
    assert_eq!(maps.contents().expect("readable"), everything);
    delete_all(&mut maps).expect("deleted");
    assert_eq!(maps.contents().expect("readable"), Contents::default());
}

/// Many entries at once: more than go into one call of the kernel.
fn many(mut maps: impl LbMaps) {
    const MANY: u32 = 3000;
    let backend = backend("TCP 10.0.0.1:8080").value();
    let backends: Vec<_> = (1..=MANY).map(|id| (id, backend)).collect();
    let slot = |index| SlotKey {
        service: 1,
        generation: 1,
        index,
    };
    let slots: Vec<_> = (0..MANY).map(|index| (slot(index), index + 1)).collect();
    let mut addresses: Vec<_> = (0..MANY).map(|number| (address_of(number), 0)).collect();
    let mut frontends: Vec<_> = (0..MANY).map(|number| (frontend_of(number), to(1))).collect();
    addresses.sort_unstable();
    frontends.sort_unstable();
    maps.put_backends(&backends).expect("put");
    maps.put_slots(&slots).expect("put");
    let value = Service {
        generation: 1,
        slots: 1,
    };
    maps.put_service(1, value).expect("put");
    maps.put_addresses(&addresses).expect("put");
    maps.put_frontends(&frontends).expect("put");
    for map in Map::ALL {
        let contents = maps.contents_of(map).expect("readable");
        let found = match map {
            Map::Backends => contents.backends == backends,
            Map::Slots => contents.slots == slots,
            Map::Services => contents.services == [(1, value)],
            Map::Addresses => contents.addresses == addresses,
            Map::Frontends => contents.frontends == frontends,
            Map::Kept | Map::Sources => contents == Contents::default(),
        };
        assert!(found, "{map:?} is not as it was written");
    }
    for key in frontends.iter().map(|(key, _)| *key) {
        maps.delete_frontend(key).expect("deleted");
    }
    for (address, _) in addresses {
        maps.delete_address(address).expect("deleted");
    }
    maps.barrier().expect("programs end");
    maps.delete_service(1).expect("deleted");
    // What is absent, at the beginning, in between and at the end, holds nothing up.
    let absent = [slot(MANY), slot(MANY + 1)];
    let keys = slots.iter().map(|(key, _)| *key);
    let keys: Vec<_> = absent.into_iter().chain(keys).chain(absent).collect();
    maps.delete_slots(&keys).expect("deleted");
    let ids: Vec<_> = (0..=MANY + 1).chain([5, 7]).collect();
    maps.delete_backends(&ids).expect("deleted");
    assert_eq!(maps.contents().expect("readable"), Contents::default());
}

fn address_of(number: u32) -> Address {
    let [_, high, middle, low] = number.to_be_bytes();
    Address::v4([10, 97 + high, middle, low])
}

fn frontend_of(number: u32) -> FrontendKey {
    FrontendKey {
        address: address_of(number),
        ..address("TCP 10.96.0.1:80").frontend_key()
    }
}

fn full(mut maps: impl LbMaps) {
    let backend = backend("TCP 10.0.0.1:8080").value();
    for id in 1..=capacity::BACKENDS {
        maps.put_backend(id, backend).expect("there is room");
    }
    let error = maps
        .put_backend(capacity::BACKENDS + 1, backend)
        .expect_err("no room is left");
    assert_eq!(error.to_string(), "map BACKENDS is full (65536 entries)");
    // Of many, those before the first that does not fit are there.
    maps.delete_backends(&[5, 6]).expect("deleted");
    let ids = [3, 5, 6, capacity::BACKENDS + 1, capacity::BACKENDS + 2];
    let partial = maps
        .put_backends(&ids.map(|id| (id, backend)))
        .expect_err("there is room for two");
    assert_eq!(partial.done, 3);
    assert_eq!(partial.error.to_string(), "map BACKENDS is full (65536 entries)");
    maps.put_backend(7, backend).expect("replacing needs no room");
    maps.delete_backend(7).expect("deleted");
    maps.put_backend(capacity::BACKENDS + 1, backend)
        .expect("there is room again");
    assert_eq!(
        maps.contents().expect("readable").backends.len(),
        capacity::BACKENDS as usize
    );
}

#[test]
fn maps_in_memory_keep_the_contract() {
    contract(MemoryMaps::new());
    many(MemoryMaps::new());
    full(MemoryMaps::new());
}

#[test]
fn maps_in_the_kernel_keep_the_contract() {
    let Some(place) = Place::new("maps_in_the_kernel_keep_the_contract") else {
        return;
    };
    contract(place.open().maps());
    many(place.open().maps());
    // What the first part has left is nothing: the maps are adopted.
    full(place.open().maps());
}

fn served() -> Vec<Event> {
    let objects = [
        Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])),
        Event::ServiceApplied(service("t/y", "10.96.0.2", &["TCP 80"])),
        Event::SliceApplied(slice("t/1", "x", &["TCP 8080"], &["10.0.0.1", "10.0.0.2"])),
        Event::SliceApplied(slice("t/2", "y", &["TCP 8080"], &["10.0.0.1"])),
    ];
    objects.into_iter().chain(synced()).collect()
}

fn control(place: &Place, events: impl IntoIterator<Item = Event>) -> Control<Planner, kernel::KernelMaps> {
    let datapath = place.open();
    let mut control = Control::new(Planner::default(), datapath.maps()).expect("readable maps");
    for event in events {
        control.apply(event);
    }
    settle(&mut control);
    control
}

fn settle(control: &mut Control<Planner, kernel::KernelMaps>) {
    let mut now = Instant::now();
    control.reconcile(now);
    while let Some(deadline) = control.deadline() {
        now = now.max(deadline);
        control.reconcile(now);
        assert_eq!(control.troubles(), [""; 0]);
    }
}

#[test]
fn the_kernels_maps_are_written_dumped_and_adopted() {
    let Some(place) = Place::new("the_kernels_maps_are_written_dumped_and_adopted") else {
        return;
    };
    let mut first = control(&place, served());
    let whole = "frontends\nTCP 10.96.0.1:80 -> 10.0.0.1:8080 10.0.0.2:8080\nTCP 10.96.0.2:80 -> 10.0.0.1:8080\naddresses\n10.96.0.1 -> other ports refused\n10.96.0.2 -> other ports refused\n";
    assert_eq!(place.dump(), whole);
    first.apply(Event::SliceApplied(slice(
        "t/1",
        "x",
        &["TCP 8080"],
        &["10.0.0.2"],
    )));
    first.apply(Event::SliceDeleted(ObjectName::new("t", "2")));
    settle(&mut first);
    assert_eq!(
        place.dump(),
        "frontends\nTCP 10.96.0.1:80 -> 10.0.0.2:8080\nTCP 10.96.0.2:80 -> refused\naddresses\n10.96.0.1 -> other ports refused\n10.96.0.2 -> other ports refused\n"
    );
    drop(first);
    control(&place, served());
    assert_eq!(place.dump(), whole);
    control(&place, served().into_iter().skip(4));
    assert_eq!(place.dump(), "frontends\naddresses\n");
}

#[test]
fn hooks_attach_evict_what_an_earlier_load_left_and_leave_the_rest() {
    let Some(mut place) = Place::new("hooks_attach_evict_what_an_earlier_load_left_and_leave_the_rest")
    else {
        return;
    };
    let own = testing::cgroup::OwnCgroup::create();
    own.path().clone_into(&mut place.cgroup);
    let running = |hook| programs_attached(own.path(), hook, false).expect("the cgroup can be asked");
    let connect = Hook::Connect6;

    // An earlier load, attached by a link and once more the legacy way, whose pins are gone.
    let now = Instant::now();
    let mut hooks = Hooks::new(place.open(), Metrics::new(), now);
    hooks.scan(true, now);
    for hook in Hook::ALL {
        assert_eq!(running(hook).len(), 1, "programs at {hook}");
    }
    let [earlier] = running(connect)[..] else {
        panic!("one program: {:?}", running(connect))
    };
    let held = HeldProgram::by_id(earlier).expect("it runs");
    drop(hooks);
    attach_legacy(own.path(), connect, &held, ALLOW_MULTI).expect("attached");
    fs::remove_dir_all(place.bpffs().join("plumbline")).expect("the pins are removed");
    // The link goes with its pin, when a worker of the kernel comes to it; the legacy attachment stays.
    let begin = Instant::now();
    while running(connect) != [earlier] {
        assert!(
            begin.elapsed() < testing::patience::LIMIT,
            "{:?}",
            running(connect)
        );
        thread::sleep(Duration::from_millis(1));
    }

    let mut hooks = Hooks::new(place.open(), Metrics::new(), now);
    hooks.scan(false, now);
    assert_eq!(
        running(connect),
        [earlier],
        "new maps know nothing yet: the old program serves better"
    );
    hooks.scan(true, now);
    let [current] = running(connect)[..] else {
        panic!("one program: {:?}", running(connect))
    };
    assert_ne!(current, earlier);
    assert_eq!(hooks.reasons(), [""; 0]);

    // It comes back while the agent runs.
    attach_legacy(own.path(), connect, &held, ALLOW_MULTI).expect("attached");
    hooks.scan(true, now + SCAN);
    assert_eq!(running(connect), [current]);
    drop(hooks);
    assert_eq!(
        running(connect),
        [current],
        "an agent that ends leaves everything attached"
    );
    doctor::cleanup(place.bpffs(), own.path()).expect("cleaned");
    for hook in Hook::ALL {
        assert_eq!(running(hook), [0; 0], "programs at {hook}");
    }
}

#[test]
fn a_configuration_that_another_program_has_changed_is_written_again() {
    let Some(place) = Place::new("a_configuration_that_another_program_has_changed_is_written_again") else {
        return;
    };
    let mut datapath = place.open();
    let address = Some(Ipv4Addr::new(192, 0, 2, 1));
    datapath.set_addresses(address, None).expect("it is written");
    let config = || {
        let maps = lb_loader::read_pinned(place.bpffs()).expect("pinned maps");
        maps.config().expect("CONFIG is read")
    };
    let right = config();
    let maps = place.bpffs().join("plumbline/v1/maps");
    let overwrite = |map: &str, value: &[u8]| {
        lb_loader::put_pinned(&maps.join(map), &[0; 4], value).expect("it is overwritten");
    };
    overwrite("CONFIG", &[0; size_of::<Config>()]);
    assert_ne!(config(), right);
    datapath.set_addresses(address, None).expect("it is written");
    assert_eq!(config(), right, "all of it");
    // Without its magic, the programs take the maps for another version's.
    overwrite("META", &[0; size_of::<Meta>()]);
    assert!(lb_loader::read_pinned(place.bpffs()).is_err());
    datapath.set_addresses(address, None).expect("it is written");
    assert_eq!(config(), right);
}
