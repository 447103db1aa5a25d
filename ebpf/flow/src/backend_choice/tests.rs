//! Which backend is chosen, and what is kept of it.

use super::*;
use crate::model::{Model, ONE, SERVICE, TWO, pod, slot_key};

/// A frontend with affinity of 100 s.
const STICKY: Frontend = Frontend {
    internal: SERVICE,
    external: SERVICE,
    flags: 0,
    affinity_seconds: 100,
};
const PLAIN: Frontend = Frontend {
    affinity_seconds: 0,
    ..STICKY
};
const GENERATION: Service = Service {
    generation: 3,
    slots: 2,
};
const CLIENT: AffinityKey = affinity_of_netns(SERVICE, 0x0102_0304_0506_0708);
/// Numbers whose slots are the first and the second of two.
const FIRST: u32 = 0;
const SECOND: u32 = u32::MAX;

fn kept(model: &Model) -> Option<Affinity> {
    model.affinity.borrow().get(&CLIENT).copied()
}

fn keep(model: &Model, backend: BackendId, seconds: u32) {
    model.keep_affinity(&CLIENT, &Affinity { backend, seconds });
}

#[track_caller]
fn check(model: &Model, frontend: &Frontend, number: u32, expected: Option<(BackendId, Backend)>) {
    assert_eq!(
        choose(model, frontend, SERVICE, GENERATION, &CLIENT, number),
        expected
    );
}

#[test]
fn the_number_chooses_the_slot() {
    let model = Model::two_pods();
    for (number, expected) in [
        (0, (ONE, pod(1))),
        (0x7fff_ffff, (ONE, pod(1))),
        (0x8000_0000, (TWO, pod(2))),
        (u32::MAX, (TWO, pod(2))),
    ] {
        check(&model, &PLAIN, number, Some(expected));
    }
    assert_eq!(kept(&model), None, "nothing is kept without affinity");
}

#[test]
fn only_the_generation_that_was_read_is_used() {
    let model = Model::two_pods();
    let old = Service {
        generation: 2,
        slots: 1,
    };
    assert_eq!(
        choose(&model, &PLAIN, SERVICE, old, &CLIENT, SECOND),
        Some((99, pod(9)))
    );
}

#[test]
fn a_slot_or_a_backend_that_is_not_there_is_a_hole() {
    let mut no_slot = Model::two_pods();
    no_slot.slots.remove(&slot_key(3, 1));
    let mut no_backend = Model::two_pods();
    no_backend.backends.remove(&TWO);
    for model in [no_slot, no_backend] {
        for frontend in [PLAIN, STICKY] {
            check(&model, &frontend, FIRST, Some((ONE, pod(1))));
            model.affinity.borrow_mut().clear();
            check(&model, &frontend, SECOND, None);
        }
        assert_eq!(kept(&model), None, "a hole is not kept");
    }
}

#[test]
fn a_client_keeps_its_backend_and_each_connection_renews_it() {
    let mut model = Model::two_pods();
    model.now = 1000;
    check(&model, &STICKY, SECOND, Some((TWO, pod(2))));
    assert_eq!(
        kept(&model),
        Some(Affinity {
            backend: TWO,
            seconds: 1000
        })
    );
    model.now = 1100;
    check(&model, &STICKY, FIRST, Some((TWO, pod(2))));
    assert_eq!(
        kept(&model),
        Some(Affinity {
            backend: TWO,
            seconds: 1100
        })
    );
}

#[test]
fn affinity_ends_after_its_time_and_not_before() {
    let mut model = Model::two_pods();
    model.now = 1000;
    for (ago, expected) in [(0, TWO), (99, TWO), (100, TWO), (101, ONE), (1000, ONE)] {
        keep(&model, TWO, model.now - ago);
        let chosen = choose(&model, &STICKY, SERVICE, GENERATION, &CLIENT, FIRST);
        assert_eq!(chosen.map(|(id, _)| id), Some(expected), "{ago} s ago");
        assert_eq!(
            kept(&model),
            Some(Affinity {
                backend: expected,
                seconds: 1000
            })
        );
    }
}

#[test]
fn a_time_that_another_processor_has_written_meanwhile_is_not_long_ago() {
    let mut model = Model::two_pods();
    model.now = 1000;
    keep(&model, TWO, 1001);
    check(&model, &STICKY, FIRST, Some((TWO, pod(2))));
}

#[test]
fn a_backend_that_is_no_member_of_this_generation_is_left() {
    let mut model = Model::two_pods();
    model.slots.remove(&SlotKey::member(SERVICE, 3, TWO));
    model.slots.insert(SlotKey::member(SERVICE, 2, TWO), TWO);
    assert!(
        model.backends.contains_key(&TWO),
        "though there still is such a backend"
    );
    keep(&model, TWO, 0);
    check(&model, &STICKY, FIRST, Some((ONE, pod(1))));
    assert_eq!(
        kept(&model),
        Some(Affinity {
            backend: ONE,
            seconds: 0
        })
    );
}

#[test]
fn a_member_that_is_no_backend_any_more_is_left() {
    let mut model = Model::two_pods();
    model.backends.remove(&TWO);
    keep(&model, TWO, 0);
    check(&model, &STICKY, FIRST, Some((ONE, pod(1))));
}

#[test]
fn each_service_port_and_each_client_has_its_own() {
    let address = Address::v4([10, 0, 0, 1]);
    let keys = [
        CLIENT,
        affinity_of_netns(SERVICE + 1, 0x0102_0304_0506_0708),
        affinity_of_netns(SERVICE, 0x0102_0304_0506_0709),
        affinity_of_netns(SERVICE, 0x1102_0304_0506_0708),
        affinity_of_address(SERVICE, address),
        affinity_of_address(SERVICE + 1, address),
        affinity_of_address(SERVICE, Address::v4([10, 0, 0, 2])),
    ];
    for (index, key) in keys.iter().enumerate() {
        for other in keys.iter().skip(index + 1) {
            assert_ne!(key, other);
        }
    }
}

#[test]
fn the_cookie_is_in_the_first_eight_bytes() {
    let [first, second, third, fourth] = CLIENT.client.words();
    let cookie = 0x0102_0304_0506_0708_u64.to_ne_bytes();
    assert_eq!(first.to_ne_bytes(), cookie[..4]);
    assert_eq!(second.to_ne_bytes(), cookie[4..]);
    assert_eq!((third, fourth, CLIENT.kind), (0, 0, 1));
}
