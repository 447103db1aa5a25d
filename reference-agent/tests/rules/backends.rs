//! Who serves: entries of all slices brought together, readiness, sets.

use reference_agent::{
    endpoint_address::Family,
    model::{Event, Slice},
    plan::BACKENDS,
    testing::objects::{service, slice},
};
use rstest::rstest;

use super::support::{findings, frontend, model, of_x, planned, served, sets, with_endpoints, x};

#[rstest]
#[case::ready_takes_traffic(&["1.1.1.1"], "1.1.1.1:8080 | refused | 1.1.1.1:8080")]
#[case::not_ready_takes_none(&["!1.1.1.1"], "refused | refused | refused")]
#[case::serving_alone_takes_none(&["?1.1.1.1"], "refused | refused | refused")]
#[case::terminating_alone_takes_none(&["-1.1.1.1"], "refused | refused | refused")]
#[case::on_its_way_out_it_serves_if_nobody_is_ready(&["~1.1.1.1"], "1.1.1.1:8080 | refused | 1.1.1.1:8080")]
#[case::on_its_way_out_it_keeps_established_flows_if_somebody_is(
    &["~1.1.1.1", "1.1.1.2"], "1.1.1.2:8080 | refused | 1.1.1.1:8080 1.1.1.2:8080"
)]
#[case::local_is_who_names_this_node(
    &["1.1.1.1 on:here", "1.1.1.2 on:there", "1.1.1.3"],
    "1.1.1.1:8080@ 1.1.1.2:8080 1.1.1.3:8080 | 1.1.1.1:8080@ | 1.1.1.1:8080@ 1.1.1.2:8080 1.1.1.3:8080"
)]
#[case::the_local_set_falls_back_by_itself(
    &["~1.1.1.1 on:here", "1.1.1.2 on:there"],
    "1.1.1.2:8080 | 1.1.1.1:8080@ | 1.1.1.1:8080@ 1.1.1.2:8080"
)]
#[case::the_local_set_does_not_fall_back_while_one_is_ready_there(
    &["~1.1.1.1 on:here", "1.1.1.2 on:here"],
    "1.1.1.2:8080@ | 1.1.1.2:8080@ | 1.1.1.1:8080@ 1.1.1.2:8080@"
)]
#[case::the_cluster_set_falls_back_to_everyone_who_serves_on_their_way_out(
    &["~1.1.1.1", "~1.1.1.2 on:here", "!1.1.1.3", "?1.1.1.4"],
    "1.1.1.1:8080 1.1.1.2:8080@ | 1.1.1.2:8080@ | 1.1.1.1:8080 1.1.1.2:8080@"
)]
fn an_endpoint(#[case] endpoints: &[&str], #[case] expected: &str) {
    assert_eq!(sets(&served(x(|_| ()), [of_x("1", endpoints)])), expected);
}

#[rstest]
#[case::ready_before_not_ready("!1.1.1.1", "1.1.1.1", "1.1.1.1:8080 | refused | 1.1.1.1:8080")]
#[case::ready_before_on_its_way_out("1.1.1.1", "~1.1.1.1", "1.1.1.1:8080 | refused | 1.1.1.1:8080")]
#[case::on_its_way_out_before_not_ready("~1.1.1.1", "!1.1.1.1", "1.1.1.1:8080 | refused | 1.1.1.1:8080")]
#[case::local_by_any_entry(
    "!1.1.1.1 on:here",
    "1.1.1.1",
    "1.1.1.1:8080@ | 1.1.1.1:8080@ | 1.1.1.1:8080@"
)]
fn an_address_is_what_its_best_entry_says(#[case] one: &str, #[case] other: &str, #[case] expected: &str) {
    assert_eq!(
        sets(&served(x(|_| ()), [of_x("1", &[one]), of_x("2", &[other])])),
        expected
    );
    assert_eq!(
        sets(&served(x(|_| ()), [of_x("1", &[other]), of_x("2", &[one])])),
        expected
    );
    assert_eq!(sets(&served(x(|_| ()), [of_x("1", &[one, other])])), expected);
}

#[test]
fn one_address_with_two_ports_is_two_backends_each_as_its_own_entries_say() {
    let other = with_endpoints(slice("t/2", "x", &["TCP 9090"], &[]), &["~1.1.1.1"]);
    let model = served(x(|_| ()), [of_x("1", &["1.1.1.1"]), other]);
    assert_eq!(sets(&model), "1.1.1.1:8080 | refused | 1.1.1.1:8080 1.1.1.1:9090");
}

#[test]
fn each_family_of_a_service_falls_back_by_itself() {
    let dual = service("t/x", "10.96.0.1,fd00:96::1", &["TCP 80"]);
    let model = served(
        dual,
        [of_x("1", &["~1.1.1.1"]), of_x("2", &["fd00::1", "~fd00::2"])],
    );
    assert_eq!(
        frontend(&model, "TCP 10.96.0.1:80").as_deref(),
        Some("1.1.1.1:8080")
    );
    assert_eq!(
        frontend(&model, "TCP [fd00:96::1]:80").as_deref(),
        Some("[fd00::1]:8080")
    );
    let plan = planned(&model, "t/x");
    let serving = plan
        .ports
        .iter()
        .map(|(port, plan)| (port.family, plan.serving.len()));
    assert_eq!(serving.collect::<Vec<_>>(), [(Family::V4, 1), (Family::V6, 2)]);
}

#[test]
fn a_cluster_ip_of_any_service_is_no_backend_while_it_is_one() {
    let services = ["t/y 10.96.0.2", "t/z 10.96.0.2"].map(|text| {
        let (name, ip) = text.split_once(' ').expect("two parts");
        service(name, ip, &["TCP 80"])
    });
    let slices = [of_x("1", &["10.96.0.2", "1.1.1.1"]), of_x("2", &["10.96.0.2"])];
    let mut model = served(x(|_| ()), slices);
    let whole = "1.1.1.1:8080 10.96.0.2:8080 | refused | 1.1.1.1:8080 10.96.0.2:8080";
    assert_eq!((sets(&model).as_str(), findings(&model, "t/x").len()), (whole, 0));
    for service in services.clone() {
        model.apply(Event::ServiceApplied(service));
        assert_eq!(sets(&model), "1.1.1.1:8080 | refused | 1.1.1.1:8080");
    }
    assert_eq!(
        findings(&model, "t/x"),
        [
            "EndpointRefused: endpoints: expected addresses of pods or machines, found 1 that are Services' cluster IPs, \
             such as 10.96.0.2; left out"
        ]
    );
    let [y, z] = services.map(|service| service.name);
    model.apply(Event::ServiceDeleted(y));
    assert_eq!(
        sets(&model),
        "1.1.1.1:8080 | refused | 1.1.1.1:8080",
        "it is the other's still"
    );
    model.apply(Event::ServiceDeleted(z));
    assert_eq!((sets(&model).as_str(), findings(&model, "t/x").len()), (whole, 0));
}

/// So many endpoints, the highest address first.
fn crowd(count: usize, mark: &str) -> Vec<Slice> {
    let addresses: Vec<_> = (0..count)
        .rev()
        .map(|index| {
            let [_, high, middle, low] = u32::try_from(index).expect("few").to_be_bytes();
            format!("{mark}1.{high}.{middle}.{low}")
        })
        .collect();
    let chunks = addresses.chunks(1000).enumerate();
    chunks
        .map(|(index, chunk)| {
            let endpoints: Vec<_> = chunk.iter().map(String::as_str).collect();
            of_x(&index.to_string(), &endpoints)
        })
        .collect()
}

#[test]
fn as_many_backends_as_a_set_can_have_are_taken_whole() {
    let model = served(x(|_| ()), crowd(BACKENDS, ""));
    assert_eq!(
        planned(&model, "t/x")
            .ports
            .values()
            .next()
            .expect("a port")
            .cluster
            .len(),
        BACKENDS
    );
    assert_eq!(findings(&model, "t/x"), [""; 0]);
}

#[test]
fn of_more_backends_than_a_set_can_have_the_lowest_addresses_are_taken_and_it_is_told() {
    let model = served(x(|_| ()), crowd(BACKENDS + 1, ""));
    let port = planned(&model, "t/x").ports.into_values().next().expect("a port");
    assert_eq!(port.cluster.len(), BACKENDS);
    assert_eq!(port.serving, port.cluster);
    let [first, last] =
        [port.cluster.first(), port.cluster.last()].map(|one| one.expect("not empty").address.to_string());
    assert_eq!(
        (first.as_str(), last.as_str()),
        ("TCP 1.0.0.0:8080", "TCP 1.0.63.255:8080")
    );
    assert_eq!(
        findings(&model, "t/x"),
        [
            "EndpointsClipped: endpoints of port TCP (IPv4): expected at most 16384, found 16385; those of the highest \
             addresses are left out"
        ]
    );
}

#[test]
fn whoever_is_in_a_set_keeps_established_flows_however_many_are_on_their_way_out() {
    let mut slices = crowd(BACKENDS, "~");
    slices.push(of_x("ready", &["9.9.9.9 on:here"]));
    let port = planned(&served(x(|_| ()), slices), "t/x")
        .ports
        .into_values()
        .next()
        .expect("a port");
    assert_eq!((port.cluster.len(), port.serving.len()), (1, BACKENDS + 1));
    assert!(port.serving.is_superset(&port.cluster));
}

#[test]
fn numbers_of_service_ports_mean_nothing_for_backends() {
    let object = service("t/x", "10.96.0.1", &["TCP 80 http", "TCP 81 admin"]);
    let slices = [with_endpoints(
        slice("t/1", "x", &["TCP 81 http", "TCP 80 other"], &[]),
        &["1.1.1.1"],
    )];
    let model = served(object, slices);
    assert_eq!(
        frontend(&model, "TCP 10.96.0.1:80").as_deref(),
        Some("1.1.1.1:81")
    );
    assert_eq!(frontend(&model, "TCP 10.96.0.1:81").as_deref(), Some("refused"));
}

#[test]
fn slices_of_a_service_that_is_not_there_are_nobodys() {
    let model = model([Event::SliceApplied(of_x("1", &["1.1.1.1"]))]);
    assert_eq!(
        planned(&model, "t/x"),
        reference_agent::plan::ServicePlan::default()
    );
}

#[test]
fn a_cluster_ip_is_looked_out_for_only_while_an_endpoint_has_it() {
    let y = service("t/y", "10.96.0.2", &["TCP 80"]);
    let mut model = served(y, [of_x("1", &["10.96.0.2", "1.1.1.1"])]);
    assert_eq!(model.refused().len(), 1);
    model.apply(Event::SliceApplied(of_x("1", &["1.1.1.1"])));
    assert!(model.refused().is_empty());
    model.apply(Event::SliceApplied(of_x("1", &["1.1.1.1", "10.96.0.2"])));
    assert_eq!(model.refused().len(), 1);
}
