//! Verdicts for a model of the maps and of a caller.

mod binding;
mod datagrams;
mod ranges;

extern crate std;

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use lb_abi::{Frontend, Port, TCP, UDP};

use super::*;
use crate::model::{Model, NODE, NODE_PORT, NODE_PORT_V6, ONE, SERVICE, TWO, VIP, pod, slot_key, tcp};

/// Who calls.
#[derive(Default)]
struct Client {
    in_node: bool,
    own: bool,
    kept: BTreeMap<ServiceId, Service>,
    /// CHOSEN, of this socket; none: it connects.
    chosen: Option<RefCell<BTreeMap<FrontendKey, Chosen>>>,
    /// An address of a range that Services get, and whether the cluster has it otherwise.
    ranged: Option<(Address, bool)>,
    /// How often its network namespace or its cgroup was asked for.
    asked: Cell<u32>,
}

impl Client {
    fn of_node() -> Self {
        Self {
            in_node: true,
            ..Self::default()
        }
    }
    fn own(kept: Option<Service>) -> Self {
        let kept = kept.map(|service| (SERVICE, service)).into_iter().collect();
        Self {
            own: true,
            kept,
            ..Self::default()
        }
    }
    fn ask(&self) {
        self.asked.set(self.asked.get() + 1);
    }
}

impl Caller for Client {
    fn in_node_netns(&self) -> bool {
        self.ask();
        self.in_node
    }
    fn netns(&self) -> u64 {
        self.ask();
        5
    }
    fn is_own(&self) -> bool {
        self.ask();
        self.own
    }
    fn kept(&self, id: ServiceId) -> Option<Service> {
        self.kept.get(&id).copied()
    }
    fn in_service_range(&self, address: Address) -> bool {
        self.ranged.is_some_and(|(ranged, _)| ranged == address)
    }
    fn is_clusters(&self, address: Address) -> bool {
        self.ranged == Some((address, true))
    }
    fn is_datagram(&self) -> bool {
        self.chosen.is_some()
    }
    fn chosen(&self, frontend: &FrontendKey) -> Option<Chosen> {
        self.chosen.as_ref()?.borrow().get(frontend).copied()
    }
    fn keep_chosen(&self, frontend: &FrontendKey, chosen: &Chosen) {
        if let Some(all) = &self.chosen {
            all.borrow_mut().insert(*frontend, *chosen);
        }
    }
}

const TO_ONE: Target = Target {
    service: SERVICE,
    id: ONE,
    backend: pod(1),
};
const TO_TWO: Target = Target {
    service: SERVICE,
    id: TWO,
    backend: pod(2),
};

#[track_caller]
fn check(model: &Model, caller: &Client, destination: FrontendKey, expected: Verdict) {
    assert_eq!(decide(model, caller, &destination), expected);
}

#[test]
fn a_destination_that_is_nobodys_passes_and_nothing_is_asked_of_the_caller() {
    let (model, caller) = (Model::two_pods(), Client::default());
    check(
        &model,
        &caller,
        tcp(Address::v4([10, 96, 0, 2]), 80),
        Verdict::Pass,
    );
    check(&model, &caller, tcp(NODE, 80), Verdict::Pass);
    assert_eq!((model.calls.look_ups("SERVICES"), caller.asked.get()), (0, 0));
}

#[test]
fn a_port_that_a_services_address_does_not_have_is_refused() {
    let (model, caller) = (Model::two_pods(), Client::default());
    let refused = Verdict::Refuse(Refusal::NoBackend);
    check(
        &model,
        &caller,
        FrontendKey {
            port: Port::new(81),
            ..VIP
        },
        refused,
    );
    check(&model, &caller, FrontendKey { protocol: UDP, ..VIP }, refused);
}

#[test]
fn the_random_number_chooses_the_backend() {
    let (mut model, caller) = (Model::two_pods(), Client::default());
    check(&model, &caller, VIP, Verdict::Translate(TO_ONE));
    model.random = u32::MAX;
    check(&model, &caller, VIP, Verdict::Translate(TO_TWO));
    // It is read once, and so are a service's generation and slots.
    assert_eq!((model.calls.look_ups("SERVICES"), caller.asked.get()), (2, 0));
}

#[test]
fn a_frontend_that_is_none_inside_is_none() {
    let (mut model, caller) = (Model::two_pods(), Client::of_node());
    model.every_frontend(|frontend| frontend.internal = 0);
    check(&model, &caller, VIP, Verdict::Refuse(Refusal::NoBackend));
    check(&model, &caller, tcp(NODE, 30080), Verdict::Pass);
}

#[test]
fn sockets_are_clients_from_inside() {
    let (mut model, caller) = (Model::two_pods(), Client::default());
    model.every_frontend(|frontend| frontend.external = 8);
    check(&model, &caller, VIP, Verdict::Translate(TO_ONE));
    model.every_frontend(|frontend| (frontend.internal, frontend.external) = (8, SERVICE));
    check(&model, &caller, VIP, Verdict::Refuse(Refusal::Hole));
}

#[test]
fn node_ports_answer_at_loopback_in_the_nodes_own_network_namespace() {
    let model = Model::two_pods();
    for address in [
        Address::LOOPBACK_V4,
        Address::v4([127, 3, 2, 1]),
        Address::UNSPECIFIED_V4,
    ] {
        let destination = tcp(address, 30080);
        check(
            &model,
            &Client::of_node(),
            destination,
            Verdict::Translate(TO_ONE),
        );
        check(&model, &Client::default(), destination, Verdict::Pass);
    }
    check(
        &model,
        &Client::default(),
        tcp(NODE, 30080),
        Verdict::Translate(TO_ONE),
    );
}

#[test]
fn source_ranges_are_left_to_who_sees_the_source_whatever_is_behind() {
    let (mut model, caller) = (Model::two_pods(), Client::default());
    model.every_frontend(|frontend| frontend.flags = frontend_flags::SOURCE_RANGES);
    check(&model, &caller, VIP, Verdict::Defer);
    model.switch(4, 0);
    check(&model, &caller, VIP, Verdict::Defer);
    check(&model, &Client::own(None), VIP, Verdict::Defer);
}

#[test]
fn no_slots_is_refused_for_want_of_a_backend() {
    let mut model = Model::two_pods();
    model.switch(4, 0);
    check(
        &model,
        &Client::default(),
        VIP,
        Verdict::Refuse(Refusal::NoBackend),
    );
}

/// Everything that can be missing behind a frontend.
fn holes() -> [Model; 5] {
    core::array::from_fn(|which| {
        let mut model = Model::two_pods();
        match which {
            0 => model.services.clear(),
            1 => model.switch(0, 2),
            2 => drop(model.slots.remove(&slot_key(3, 0))),
            3 => drop(model.backends.remove(&ONE)),
            _ => {
                let other = Backend {
                    address: Address::LOOPBACK_V6,
                    ..pod(1)
                };
                model.backends.insert(ONE, other);
            }
        }
        model
    })
}

#[test]
fn whatever_is_missing_behind_a_frontend_is_a_hole() {
    for model in holes() {
        check(&model, &Client::default(), VIP, Verdict::Refuse(Refusal::Hole));
    }
}

#[test]
fn the_agent_goes_on_with_the_backends_that_it_had() {
    let kept = Some(Service {
        generation: 2,
        slots: 1,
    });
    let old = Target {
        service: SERVICE,
        id: 99,
        backend: pod(9),
    };
    let mut empty = Model::two_pods();
    empty.switch(4, 0);
    check(&empty, &Client::own(kept), VIP, Verdict::Kept(old));
    for model in holes() {
        check(&model, &Client::own(kept), VIP, Verdict::Kept(old));
    }
    // As long as there are others, it sees what everybody sees.
    check(
        &Model::two_pods(),
        &Client::own(kept),
        VIP,
        Verdict::Translate(TO_ONE),
    );
}

#[test]
fn the_agent_passes_where_nothing_is_kept_or_that_has_a_hole() {
    let mut model = Model::two_pods();
    model.switch(4, 0);
    for kept in [
        None,
        Some(Service::default()),
        Some(Service {
            generation: 2,
            slots: 0,
        }),
        Some(Service {
            generation: 1,
            slots: 1,
        }),
    ] {
        check(&model, &Client::own(kept), VIP, Verdict::OwnPass);
    }
}

#[test]
fn the_agent_is_refused_a_port_that_is_no_services() {
    let unknown = FrontendKey {
        port: Port::new(81),
        ..VIP
    };
    check(
        &Model::two_pods(),
        &Client::own(None),
        unknown,
        Verdict::Refuse(Refusal::NoBackend),
    );
}

#[test]
fn the_client_of_affinity_is_the_network_namespace() {
    let (mut model, caller) = (Model::two_pods(), Client::default());
    model.every_frontend(|frontend| frontend.affinity_seconds = 10);
    check(&model, &caller, VIP, Verdict::Translate(TO_ONE));
    assert!(
        model
            .affinity
            .borrow()
            .contains_key(&affinity_of_netns(SERVICE, 5))
    );
    model.random = u32::MAX;
    check(&model, &caller, VIP, Verdict::Translate(TO_ONE));
}

#[test]
fn two_frontends_of_one_service_share_its_backends() {
    let (mut model, caller) = (Model::two_pods(), Client::default());
    let other = FrontendKey {
        address: Address::v4([192, 0, 2, 1]),
        protocol: TCP,
        ..VIP
    };
    let frontend = Frontend {
        internal: SERVICE,
        ..Frontend::default()
    };
    model.frontends.insert(other, frontend);
    check(&model, &caller, VIP, Verdict::Translate(TO_ONE));
    check(&model, &caller, other, Verdict::Translate(TO_ONE));
}
