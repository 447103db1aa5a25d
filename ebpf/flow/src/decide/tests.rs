//! Verdicts for a model of the maps.

extern crate std;

use core::cell::Cell;
use std::collections::BTreeMap;

use lb_abi::{Address, Port, TCP, UDP};

use super::*;

/// The maps, and how often a program would have read each.
#[derive(Default)]
struct Model {
    frontends: BTreeMap<FrontendKey, Frontend>,
    services: BTreeMap<ServiceId, Service>,
    slots: BTreeMap<SlotKey, BackendId>,
    backends: BTreeMap<BackendId, Backend>,
    random: u32,
    service_reads: Cell<u32>,
}

impl Tables for Model {
    fn frontend(&self, destination: &FrontendKey) -> Option<Frontend> {
        self.frontends.get(destination).copied()
    }
    fn service(&self, id: ServiceId) -> Option<Service> {
        self.service_reads.set(self.service_reads.get() + 1);
        self.services.get(&id).copied()
    }
    fn slot(&self, key: &SlotKey) -> Option<BackendId> {
        self.slots.get(key).copied()
    }
    fn backend(&self, id: BackendId) -> Option<Backend> {
        self.backends.get(&id).copied()
    }
    fn random(&self) -> u32 {
        self.random
    }
}

const VIP: FrontendKey = FrontendKey {
    address: Address::v4([10, 96, 0, 1]),
    port: Port::new(80),
    protocol: TCP,
    pad: 0,
};

fn pod(last: u8) -> Backend {
    Backend {
        address: Address::v4([10, 244, 0, last]),
        port: Port::new(8080),
        protocol: TCP,
        pad: 0,
    }
}

/// A service 7 in generation 3, with pods 1 and 2 behind the frontend `VIP`; generation 2 had pod 9.
fn two_pods() -> Model {
    let mut model = Model::default();
    model.frontends.insert(VIP, Frontend { service: 7, flags: 0 });
    model.services.insert(
        7,
        Service {
            generation: 3,
            slots: 2,
        },
    );
    model.slots.insert(
        SlotKey {
            service: 7,
            generation: 2,
            index: 0,
        },
        99,
    );
    model.slots.insert(
        SlotKey {
            service: 7,
            generation: 3,
            index: 0,
        },
        11,
    );
    model.slots.insert(
        SlotKey {
            service: 7,
            generation: 3,
            index: 1,
        },
        12,
    );
    model.backends.extend([(11, pod(1)), (12, pod(2)), (99, pod(9))]);
    model
}

#[track_caller]
fn check(model: &Model, destination: FrontendKey, expected: Verdict) {
    assert_eq!(decide(model, &destination), expected);
}

#[test]
fn a_destination_that_is_no_frontend_passes() {
    let model = two_pods();
    check(
        &model,
        FrontendKey {
            address: Address::v4([10, 96, 0, 2]),
            ..VIP
        },
        Verdict::Pass,
    );
    check(
        &model,
        FrontendKey {
            port: Port::new(81),
            ..VIP
        },
        Verdict::Pass,
    );
    check(&model, FrontendKey { protocol: UDP, ..VIP }, Verdict::Pass);
    assert_eq!(model.service_reads.get(), 0);
}

#[test]
fn the_random_number_chooses_the_backend() {
    let mut model = two_pods();
    check(&model, VIP, Verdict::Translate(pod(1)));
    model.random = 0x7fff_ffff;
    check(&model, VIP, Verdict::Translate(pod(1)));
    model.random = 0x8000_0000;
    check(&model, VIP, Verdict::Translate(pod(2)));
    model.random = u32::MAX;
    check(&model, VIP, Verdict::Translate(pod(2)));
}

#[test]
fn only_the_current_generation_is_used() {
    let mut model = two_pods();
    model.services.insert(
        7,
        Service {
            generation: 2,
            slots: 1,
        },
    );
    check(&model, VIP, Verdict::Translate(pod(9)));
}

#[test]
fn the_service_is_read_once() {
    let model = two_pods();
    check(&model, VIP, Verdict::Translate(pod(1)));
    assert_eq!(model.service_reads.get(), 1);
}

#[test]
fn no_slots_is_refused_for_want_of_a_backend() {
    let mut model = two_pods();
    model.services.insert(
        7,
        Service {
            generation: 4,
            slots: 0,
        },
    );
    check(&model, VIP, Verdict::Refuse(Refusal::NoBackend));
}

#[test]
fn whatever_is_missing_behind_a_frontend_is_a_hole() {
    let mut no_service = two_pods();
    no_service.services.clear();
    check(&no_service, VIP, Verdict::Refuse(Refusal::Hole));

    let mut zeroed_service = two_pods();
    zeroed_service.services.insert(7, Service::default());
    check(&zeroed_service, VIP, Verdict::Refuse(Refusal::Hole));

    let mut no_slot = two_pods();
    no_slot.slots.remove(&SlotKey {
        service: 7,
        generation: 3,
        index: 0,
    });
    check(&no_slot, VIP, Verdict::Refuse(Refusal::Hole));

    let mut no_backend = two_pods();
    no_backend.backends.remove(&11);
    check(&no_backend, VIP, Verdict::Refuse(Refusal::Hole));
}

#[test]
fn two_frontends_of_one_service_share_its_backends() {
    let mut model = two_pods();
    let external = FrontendKey {
        address: Address::v4([192, 0, 2, 1]),
        ..VIP
    };
    model
        .frontends
        .insert(external, Frontend { service: 7, flags: 0 });
    model.random = u32::MAX;
    check(&model, VIP, Verdict::Translate(pod(2)));
    check(&model, external, Verdict::Translate(pod(2)));
}
