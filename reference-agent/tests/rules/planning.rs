//! Model and plan: which frontends a Service has, and who serves them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lb_abi::{address_flags, frontend_flags};

use reference_agent::{
    endpoint_address::{Backend, TransportAddress},
    maglev::{self, Scale},
    model::{Event, Host, Model, Service, Slice},
    plan::{self, Perspective, PortPlan, Selection, Set},
    testing::{
        Served,
        objects::{address, addresses, name, service, slice},
        served,
    },
};
use rstest::rstest;

fn model(services: &[Service], slices: &[Slice]) -> Model {
    let mut model = Model::default();
    for service in services {
        model.apply(Event::ServiceApplied(service.clone()));
    }
    for slice in slices {
        model.apply(Event::SliceApplied(slice.clone()));
    }
    model
}

fn planned(model: &Model) -> Served {
    served(&plan::resolve(&plan::plan(model, &Perspective::default())))
}

/// `TCP 10.96.0.1:80 -> 1.1.1.1:80 1.1.1.2:80`
fn resolved(line: &str) -> (TransportAddress, BTreeSet<TransportAddress>) {
    let (frontend, backends) = line.split_once(" ->").expect("an arrow");
    let frontend = address(frontend);
    let backends = backends.split_whitespace();
    (
        frontend,
        backends
            .map(|backend| address(&format!("{} {backend}", frontend.protocol)))
            .collect(),
    )
}

#[rstest]
#[case::union_over_slices_without_doubles(
    &["TCP 80"],
    &[slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]), slice("t/2", "x", &["TCP 80"], &["1.1.1.2", "1.1.1.3"])],
    &["TCP 10.96.0.1:80 -> 1.1.1.1:80 1.1.1.2:80 1.1.1.3:80"]
)]
#[case::ports_are_matched_by_name_and_each_slice_has_its_own_numbers(
    &["TCP 80 http"],
    &[slice("t/1", "x", &["TCP 8080 http"], &["1.1.1.1"]), slice("t/2", "x", &["TCP 9090 http"], &["1.1.1.2"])],
    &["TCP 10.96.0.1:80 -> 1.1.1.1:8080 1.1.1.2:9090"]
)]
#[case::one_port_number_with_both_protocols(
    &["TCP 53 dns-tcp", "UDP 53 dns"],
    &[slice("t/1", "x", &["TCP 5353 dns-tcp", "UDP 5354 dns"], &["1.1.1.1"])],
    &["TCP 10.96.0.1:53 -> 1.1.1.1:5353", "UDP 10.96.0.1:53 -> 1.1.1.1:5354"]
)]
#[case::a_port_of_another_protocol_does_not_match_by_name(
    &["TCP 53 dns"],
    &[slice("t/1", "x", &["UDP 53 dns"], &["1.1.1.1"])],
    &["TCP 10.96.0.1:53 ->"]
)]
#[case::what_is_not_ready_takes_no_traffic(
    &["TCP 80"],
    &[slice("t/1", "x", &["TCP 80"], &["!1.1.1.1", "1.1.1.2"])],
    &["TCP 10.96.0.1:80 -> 1.1.1.2:80"]
)]
#[case::no_slice_refuses(&["TCP 80"], &[], &["TCP 10.96.0.1:80 ->"])]
#[case::a_slice_of_another_namespace_is_not_its(
    &["TCP 80"],
    &[slice("u/1", "x", &["TCP 80"], &["1.1.1.1"])],
    &["TCP 10.96.0.1:80 ->"]
)]
#[case::a_slice_of_a_longer_name_is_not_its(
    &["TCP 80"],
    &[slice("t/1", "x-y", &["TCP 80"], &["1.1.1.1"]), slice("t/2", "", &["TCP 80"], &["1.1.1.2"])],
    &["TCP 10.96.0.1:80 ->"]
)]
fn a_service(#[case] ports: &[&str], #[case] slices: &[Slice], #[case] expected: &[&str]) {
    let model = model(&[service("t/x", "10.96.0.1", ports)], slices);
    let expected: Served = expected.iter().map(|line| resolved(line)).collect();
    assert_eq!(planned(&model), expected);
}

#[test]
fn a_service_without_cluster_ip_has_no_frontend_and_no_entry() {
    let model = model(&[service("t/x", "None", &["TCP 80"])], &[]);
    assert!(plan::plan(&model, &Perspective::default()).is_empty());
}

#[test]
fn a_relabelled_slice_moves_and_marks_both_services() {
    let services = [
        service("t/x", "10.96.0.1", &["TCP 80"]),
        service("t/y", "10.96.0.2", &["TCP 80"]),
    ];
    let mut model = model(&services, &[slice("t/1", "x", &["TCP 80"], &["1.1.1.1"])]);
    let dirty = model.apply(Event::SliceApplied(slice("t/1", "y", &["TCP 80"], &["1.1.1.1"])));
    let both = ["t/x", "t/y"].map(|text| model.id(&name(text)).expect("is there"));
    assert_eq!(dirty, BTreeSet::from(both));
    let planned = planned(&model);
    assert_eq!(planned[&address("TCP 10.96.0.1:80")], addresses(&[]));
    assert_eq!(
        planned[&address("TCP 10.96.0.2:80")],
        addresses(&["TCP 1.1.1.1:80"])
    );
}

#[test]
fn a_slice_that_loses_its_label_belongs_to_nobody() {
    let services = [service("t/x", "10.96.0.1", &["TCP 80"])];
    let mut model = model(&services, &[slice("t/1", "x", &["TCP 80"], &["1.1.1.1"])]);
    model.apply(Event::SliceApplied(slice("t/1", "", &["TCP 80"], &["1.1.1.1"])));
    assert_eq!(planned(&model)[&address("TCP 10.96.0.1:80")], addresses(&[]));
}

#[test]
fn slices_may_come_before_their_service() {
    let mut model = model(&[], &[slice("t/1", "x", &["TCP 80"], &["1.1.1.1"])]);
    model.apply(Event::ServiceApplied(service("t/x", "10.96.0.1", &["TCP 80"])));
    assert_eq!(
        planned(&model)[&address("TCP 10.96.0.1:80")],
        addresses(&["TCP 1.1.1.1:80"])
    );
}

#[test]
fn an_event_marks_its_service_even_if_nothing_has_changed() {
    let (x, s) = (
        service("t/x", "10.96.0.1", &["TCP 80"]),
        slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]),
    );
    let mut model = model(std::slice::from_ref(&x), std::slice::from_ref(&s));
    let id = model.id(&x.name).expect("is there");
    assert_eq!(model.apply(Event::ServiceApplied(x)), BTreeSet::from([id]));
    assert_eq!(model.apply(Event::SliceApplied(s)), BTreeSet::from([id]));
}

#[test]
fn deleting_what_is_not_there_touches_nothing() {
    let mut model = model(&[service("t/x", "10.96.0.1", &["TCP 80"])], &[]);
    assert!(model.apply(Event::ServiceDeleted(name("t/y"))).is_empty());
    assert!(model.apply(Event::SliceDeleted(name("t/x"))).is_empty());
    assert_eq!(planned(&model).len(), 1);
}

/// Two Services with one ClusterIP: the API never has that at one time, events of two watches do.
fn rivals(older: Option<i64>, younger: Option<i64>) -> (Service, Service, [Slice; 2]) {
    let older = Service {
        created: older,
        ..service("t/old", "10.96.0.1", &["TCP 80"])
    };
    let younger = Service {
        created: younger,
        ..service("t/new", "10.96.0.1", &["TCP 80"])
    };
    let slices = [
        slice("t/1", "old", &["TCP 80"], &["1.1.1.1"]),
        slice("t/2", "new", &["TCP 80"], &["1.1.1.2"]),
    ];
    (older, younger, slices)
}

#[rstest]
#[case::by_age(Some(1), Some(2), "TCP 1.1.1.1:80")]
#[case::any_age_before_none(Some(9), None, "TCP 1.1.1.1:80")]
#[case::then_by_name(Some(1), Some(1), "TCP 1.1.1.2:80")]
fn the_first_claimant_has_the_frontend_in_whatever_order_they_come(
    #[case] older: Option<i64>,
    #[case] younger: Option<i64>,
    #[case] winner: &str,
) {
    let (older, younger, slices) = rivals(older, younger);
    for services in [[older.clone(), younger.clone()], [younger, older]] {
        let planned = planned(&model(&services, &slices));
        assert_eq!(
            planned,
            Served::from([(address("TCP 10.96.0.1:80"), addresses(&[winner]))])
        );
    }
}

#[test]
fn whoever_gains_or_loses_a_frontend_is_marked() {
    let (older, younger, slices) = rivals(Some(1), Some(2));
    let mut model = model(&[younger.clone(), older.clone()], &slices);
    let both = BTreeSet::from([&older, &younger].map(|service| model.id(&service.name).expect("is there")));
    assert_eq!(model.apply(Event::ServiceDeleted(older.name.clone())), both);
    assert_eq!(
        planned(&model)[&address("TCP 10.96.0.1:80")],
        addresses(&["TCP 1.1.1.2:80"])
    );
    assert_eq!(model.apply(Event::ServiceApplied(older.clone())), both);
    let moved = service("t/old", "10.96.0.9", &["TCP 80"]);
    assert_eq!(
        model.apply(Event::ServiceApplied(Service {
            created: Some(1),
            ..moved
        })),
        both
    );
}

/// What a node of this name sees, `@` for local backends: `TCP 1.1.1.1:80@`.
fn seen_from(node: &str, model: &Model) -> BTreeMap<TransportAddress, Vec<String>> {
    let perspective = Perspective {
        node: node.to_owned(),
        ..Perspective::default()
    };
    let shown = |backend: Backend| format!("{}{}", backend.address, if backend.local { "@" } else { "" });
    let resolved = plan::resolve(&plan::plan(model, &perspective)).into_iter();
    resolved
        .map(|(frontend, serving)| (frontend, serving.internal.into_iter().map(shown).collect()))
        .collect()
}

#[test]
fn a_backend_is_local_where_an_endpoint_names_this_node() {
    let services = [service("t/x", "10.96.0.1", &["TCP 80"])];
    let slices = [
        slice(
            "t/1",
            "x",
            &["TCP 80"],
            &["1.1.1.1@here", "1.1.1.2@there", "1.1.1.3"],
        ),
        // Slices may be of different ages.
        slice("t/2", "x", &["TCP 80"], &["1.1.1.2@here", "!1.1.1.3@here"]),
    ];
    let model = model(&services, &slices);
    let frontend = address("TCP 10.96.0.1:80");
    assert_eq!(
        seen_from("here", &model)[&frontend],
        ["TCP 1.1.1.1:80@", "TCP 1.1.1.2:80@", "TCP 1.1.1.3:80@"]
    );
    assert_eq!(
        seen_from("there", &model)[&frontend],
        ["TCP 1.1.1.1:80", "TCP 1.1.1.2:80@", "TCP 1.1.1.3:80"]
    );
    assert_eq!(
        seen_from("", &model)[&frontend],
        ["TCP 1.1.1.1:80", "TCP 1.1.1.2:80", "TCP 1.1.1.3:80"]
    );
}

#[test]
fn a_backend_at_an_address_of_this_host_is_local_whatever_node_it_names() {
    let services = [service("t/x", "10.96.0.1", &["TCP 80"])];
    let slices = [slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2@there"])];
    let mut model = model(&services, &slices);
    let marked = model.id(&services[0].name).expect("is there");
    let frontend = address("TCP 10.96.0.1:80");
    for (own, seen) in [
        ("1.1.1.1", ["TCP 1.1.1.1:80@", "TCP 1.1.1.2:80"]),
        ("1.1.1.2", ["TCP 1.1.1.1:80", "TCP 1.1.1.2:80@"]),
        ("1.1.1.3", ["TCP 1.1.1.1:80", "TCP 1.1.1.2:80"]),
    ] {
        let host = Host {
            addresses: [own.parse().expect("an address")].into(),
            ..Host::default()
        };
        assert!(model.apply(Event::Host(host)).contains(&marked), "{own}");
        assert_eq!(seen_from("here", &model)[&frontend], seen, "{own}");
    }
}

#[test]
fn each_family_is_served_by_its_own() {
    let services = [
        service("t/x", "10.96.0.1,fd00:96::1", &["TCP 80"]),
        service("t/y", "fd00:96::2", &["TCP 80"]),
    ];
    let slices = [
        slice("t/1", "x", &["TCP 80"], &["1.1.1.1"]),
        slice("t/2", "x", &["TCP 8080"], &["fd00::1"]),
        slice("t/3", "y", &["TCP 80"], &["1.1.1.1"]),
    ];
    let expected = [
        ("TCP 10.96.0.1:80", addresses(&["TCP 1.1.1.1:80"])),
        ("TCP [fd00:96::1]:80", addresses(&["TCP [fd00::1]:8080"])),
        ("TCP [fd00:96::2]:80", addresses(&[])),
    ];
    let expected: Served = expected
        .map(|(frontend, backends)| (address(frontend), backends))
        .into();
    assert_eq!(planned(&model(&services, &slices)), expected);
}

#[test]
fn addresses_are_those_of_the_frontends_of_all_services() {
    let services = [
        service("t/x", "10.96.0.1,fd00:96::1", &["TCP 80", "UDP 80 dns"]),
        // Shares one, by another port.
        service("t/y", "10.96.0.1", &["TCP 81"]),
        // Claims a frontend that is another's, and has none.
        service("t/z", "10.96.0.1", &["TCP 80"]),
        service("t/without-ports", "10.96.0.2", &[]),
        service("t/headless", "None", &["TCP 80"]),
    ];
    let mut model = model(&services, &[]);
    let perspective = Perspective::default();
    let vips = |texts: &[&str]| -> BTreeMap<IpAddr, u32> {
        let addresses = texts.iter().map(|text| text.parse().expect("an address"));
        addresses.map(|address| (address, address_flags::VIP)).collect()
    };
    let planned = plan::plan(&model, &perspective);
    assert_eq!(plan::addresses(&planned), vips(&["10.96.0.1", "fd00:96::1"]));
    let of = |text: &str| model.id(&name(text)).expect("is there");
    assert_eq!(planned[&of("t/y")].addresses, vips(&["10.96.0.1"]));
    let lost = &planned[&of("t/z")];
    assert!(lost.ports.is_empty() && lost.addresses.is_empty(), "{lost:?}");
    model.apply(Event::ServiceDeleted(name("t/x")));
    let planned = plan::plan(&model, &perspective);
    assert_eq!(plan::addresses(&planned), vips(&["10.96.0.1"]));
}

#[test]
fn with_maglev_the_slots_are_the_table_and_frontends_say_so() {
    let services = [service("t/x", "10.96.0.1", &["TCP 80"])];
    let slices = [slice(
        "t/1",
        "x",
        &["TCP 80"],
        &["1.1.1.1@here", "1.1.1.2", "1.1.1.3"],
    )];
    let model = model(&services, &slices);
    let id = model.id(&name("t/x")).expect("is there");
    let planned = |selection| {
        let perspective = Perspective {
            node: "here".to_owned(),
            selection,
            ..Perspective::default()
        };
        let [port] = plan::plan_service(&model, &perspective, id)
            .ports
            .into_values()
            .collect::<Vec<_>>()
            .try_into()
            .expect("one port");
        port
    };
    let flags = |port: &PortPlan| port.flags(&port.frontends[&address("TCP 10.96.0.1:80")]);
    let random = planned(Selection::Random);
    assert_eq!((random.slots(Set::Cluster).len(), flags(&random)), (3, 0));
    let hashed = planned(Selection::Maglev);
    let table = maglev::table(
        Scale::default(),
        addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.2:80", "TCP 1.1.1.3:80"]),
    );
    let slots = hashed.slots(Set::Cluster);
    assert!(slots.iter().map(|backend| &backend.address).eq(&table));
    assert_eq!((slots.len(), flags(&hashed)), (1021, frontend_flags::MAGLEV));
    let local: BTreeSet<_> = slots.iter().filter(|backend| backend.local).collect();
    assert_eq!(local.len(), 1, "{local:?}");
}
