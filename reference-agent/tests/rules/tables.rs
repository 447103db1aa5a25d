//! How large Maglev's tables are: as all of them fit into half of SLOTS, by what every node is told alike.

use reference_agent::{
    maglev::SCALES,
    model::{Event, Model, Policy, Service},
    names::ObjectId,
    plan::{self, Perspective, Selection, Set},
    testing::objects::{name, service, slice},
};

use super::support::{here, with_endpoints};

fn with_tables(slots: u32) -> Perspective {
    Perspective {
        selection: Selection::Maglev,
        slots,
        ..here()
    }
}

/// The number of tables, and the slots that they would take with the largest scale, of a Service with these endpoints.
fn counted(service: Service, endpoints: &[&str]) -> (usize, usize) {
    let mut model = Model::default();
    let bare = slice("t/1", "x", &["TCP 80"], &[]);
    model.apply(Event::SliceApplied(with_endpoints(bare, endpoints)));
    model.apply(Event::ServiceApplied(service));
    (model.tables().count(), model.tables().wanted())
}

#[test]
fn counted_are_sets_of_backends_by_what_every_node_is_told_alike() {
    let two = ["1.1.1.1", "1.1.1.2 on:here"];
    let plain = |ips: &str, ports: &[&str]| service("t/x", ips, ports);
    assert_eq!(counted(plain("10.96.0.1", &["TCP 80"]), &[]), (1, 0));
    assert_eq!(counted(plain("10.96.0.1", &["TCP 80"]), &["1.1.1.1"]), (1, 1));
    assert_eq!(counted(plain("10.96.0.1", &["TCP 80"]), &two), (1, 251));
    // Not balanced here.
    assert_eq!(counted(plain("", &["TCP 80"]), &two), (0, 0));
    let ports = ["TCP 80 http", "TCP 81 admin", "UDP 80 dns"];
    assert_eq!(counted(plain("10.96.0.1", &ports), &two), (3, 753));
    // Each family has its own endpoints.
    let both = plain("10.96.0.1,fd00:96::1", &["TCP 80"]);
    assert_eq!(counted(both, &two), (2, 251));
    for policies in [(Policy::Local, Policy::Cluster), (Policy::Cluster, Policy::Local)] {
        let mut local = plain("10.96.0.1", &["TCP 80"]);
        (local.internal_policy, local.external_policy) = policies;
        assert_eq!(counted(local, &two), (2, 502));
    }
    let mut sticky = plain("10.96.0.1", &["TCP 80"]);
    sticky.affinity_seconds = 10_800;
    assert_eq!(counted(sticky, &two), (1, 253), "a member of each");
    // Who is not ready may be so the next moment; hints are about some nodes only.
    let some = ["!1.1.1.1", "1.1.1.2 zones:a", "-1.1.1.3"];
    assert_eq!(counted(plain("10.96.0.1", &["TCP 80"]), &some), (1, 1021));
}

#[test]
fn a_service_or_endpoint_too_many_makes_all_tables_smaller_and_all_are_larger_again_without_it() {
    let mut model = Model::default();
    // Half of it is one table of 1021 and one of 251.
    let here = with_tables(2 * (1021 + 251));
    let mut apply = |event| {
        let dirty = plan::apply(&mut model, &here, event);
        let sizes: Vec<_> = ["t/x", "t/y", "t/z"]
            .into_iter()
            .filter_map(|text| model.id(&name(text)))
            .flat_map(|id| plan::plan_service(&model, &here, id).ports.into_values())
            .map(|port| port.slots(Set::Cluster).len())
            .collect();
        (dirty.len(), dirty.contains(&ObjectId::NODE), sizes)
    };
    let slice_of = |name: &str, service, endpoints: &[&str]| {
        Event::SliceApplied(slice(name, service, &["TCP 80"], endpoints))
    };
    let service_at = |name, ip| Event::ServiceApplied(service(name, ip, &["TCP 80"]));
    for (name, ip) in [("t/x", "10.96.0.1"), ("t/y", "10.96.0.2"), ("t/z", "10.96.0.3")] {
        apply(service_at(name, ip));
    }
    apply(slice_of("t/1", "x", &["1.1.1.1", "1.1.1.2", "1.1.1.3"]));
    let fit = vec![1021, 251, 0];
    assert_eq!(
        apply(slice_of("t/2", "y", &["1.1.1.1", "1.1.1.2"])),
        (1, false, fit.clone()),
        "they just fit"
    );
    // Three Services and the node itself are looked at again.
    let one = || slice_of("t/3", "z", &["1.1.1.1"]);
    assert_eq!(apply(one()), (4, true, vec![251, 61, 1]));
    assert_eq!(
        apply(one()),
        (1, false, vec![251, 61, 1]),
        "nothing else has changed"
    );
    assert_eq!(apply(slice_of("t/3", "z", &[])), (4, true, fit.clone()));
    apply(one());
    assert_eq!(
        apply(Event::ServiceDeleted(name("t/z"))),
        (4, true, vec![1021, 251])
    );
    assert_eq!(apply(service_at("t/z", "10.96.0.3")), (4, true, vec![251, 61, 1]));
}

#[test]
fn without_tables_no_service_is_looked_at_again_for_others() {
    let mut model = Model::default();
    let random = Perspective { slots: 2, ..here() };
    for count in 1..100 {
        let event = Event::ServiceApplied(service(&format!("t/{count}"), "10.96.0.1", &["TCP 80"]));
        plan::apply(&mut model, &random, event);
        let endpoints: Vec<_> = (0..count).map(|last| format!("1.1.1.{last}")).collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        let of = count.to_string();
        let event = Event::SliceApplied(slice(&format!("t/{count}"), &of, &["TCP 80"], &endpoints));
        assert_eq!(plan::apply(&mut model, &random, event).len(), 1);
        assert_eq!(random.scale(&model), None);
    }
}

#[test]
fn every_scale_is_come_to_in_turn() {
    let mut model = Model::default();
    let mut seen = Vec::new();
    for count in 0..100 {
        let of = count.to_string();
        let endpoints = ["1.1.1.1", "1.1.1.2", "1.1.1.3"];
        model.apply(Event::ServiceApplied(service(
            &format!("t/{count}"),
            &format!("10.96.0.{count}"),
            &["TCP 80"],
        )));
        model.apply(Event::SliceApplied(slice(
            &format!("t/{count}"),
            &of,
            &["TCP 80"],
            &endpoints,
        )));
        seen.push(model.tables().scale(8192));
    }
    // 4096 slots: four tables of 1021, sixteen of 251, 67 of 61.
    let counts = SCALES.map(|scale| seen.iter().filter(|one| **one == scale).count());
    assert_eq!(counts, [4, 12, 51, 33]);
    assert!(seen.is_sorted_by_key(|scale| std::cmp::Reverse(scale.slots_per_backend())));
}
