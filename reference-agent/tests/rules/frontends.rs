//! The frontends of a Service, their backends, and the owner of a frontend among several Services.

use reference_agent::{
    endpoint_address::Range,
    model::{Event, FRONTENDS, Policy, Service, SourceRanges},
    testing::objects::{name, service},
};
use rstest::rstest;

use super::support::{findings, frontend, frontends, ips, model, of_x, served, x};

/// One backend here, one elsewhere.
const ENDPOINTS: [&str; 2] = ["1.1.1.1 on:here", "1.1.1.2 on:there"];
const BOTH: &str = "1.1.1.1:8080@ 1.1.1.2:8080";

/// With a frontend of every kind, in both families.
fn every_kind(service: &mut Service) {
    service.cluster_ips = ips("10.96.0.1 fd00:96::1");
    service.load_balancer_ips = ips("192.0.2.1");
    service.external_ips = ips("198.51.100.1");
    service.ports[0].node_port = Some(30080);
}

#[test]
fn every_kind_of_frontend_is_served_in_each_family_of_the_service() {
    let model = served(x(every_kind), [of_x("1", &ENDPOINTS)]);
    let expected = [
        "TCP 0.0.0.0:30080 -> 1.1.1.1:8080@ 1.1.1.2:8080",
        "TCP 10.96.0.1:80 -> 1.1.1.1:8080@ 1.1.1.2:8080",
        "TCP 192.0.2.1:80 -> 1.1.1.1:8080@ 1.1.1.2:8080",
        "TCP 198.51.100.1:80 -> 1.1.1.1:8080@ 1.1.1.2:8080",
        "TCP [::]:30080 -> refused",
        "TCP [fd00:96::1]:80 -> refused",
    ];
    assert_eq!(frontends(&model), expected);
}

#[test]
fn a_node_port_is_of_the_families_of_the_service_alone() {
    let object = x(|service| {
        service.cluster_ips = ips("fd00:96::1");
        service.ports[0].node_port = Some(30080);
    });
    let expected = ["TCP [::]:30080 -> refused", "TCP [fd00:96::1]:80 -> refused"];
    assert_eq!(frontends(&served(object, [])), expected);
}

const LOCAL_OUTSIDE: &str = "inside 1.1.1.1:8080@ 1.1.1.2:8080 | outside 1.1.1.1:8080@ (silent)";

#[rstest]
#[case::neither(Policy::Cluster, Policy::Cluster, BOTH, BOTH)]
#[case::inside(Policy::Local, Policy::Cluster, "1.1.1.1:8080@", BOTH)]
#[case::outside(Policy::Cluster, Policy::Local, BOTH, LOCAL_OUTSIDE)]
#[case::both(Policy::Local, Policy::Local, "1.1.1.1:8080@", LOCAL_OUTSIDE)]
fn a_policy_local_is_for_its_own_kind_of_frontend_and_outside_for_outside_alone(
    #[case] internal: Policy,
    #[case] external: Policy,
    #[case] cluster_ip: &str,
    #[case] others: &str,
) {
    let object = x(|service| {
        every_kind(service);
        (service.internal_policy, service.external_policy) = (internal, external);
    });
    let model = served(object, [of_x("1", &ENDPOINTS)]);
    assert_eq!(frontend(&model, "TCP 10.96.0.1:80").as_deref(), Some(cluster_ip));
    for other in ["TCP 0.0.0.0:30080", "TCP 192.0.2.1:80", "TCP 198.51.100.1:80"] {
        assert_eq!(frontend(&model, other).as_deref(), Some(others), "{other}");
    }
}

#[rstest]
#[case::nobody_here(&["1.1.1.2 on:there"], "inside 1.1.1.2:8080 | outside refused (silent)")]
#[case::somebody_on_their_way_out_elsewhere(&["~1.1.1.2 on:there"], "inside 1.1.1.2:8080 | outside refused (silent)")]
#[case::somebody_on_their_way_out_here(&["~1.1.1.1 on:here"], "1.1.1.1:8080@ (silent)")]
#[case::nobody_anywhere(&["!1.1.1.1 on:here"], "refused")]
fn outside_a_policy_local_is_silent_while_somebody_serves_somewhere(
    #[case] endpoints: &[&str],
    #[case] expected: &str,
) {
    let object = x(|service| {
        every_kind(service);
        service.external_policy = Policy::Local;
    });
    let model = served(object, [of_x("1", endpoints)]);
    assert_eq!(frontend(&model, "TCP 0.0.0.0:30080").as_deref(), Some(expected));
}

#[test]
fn a_cluster_ip_without_local_backends_refuses_and_is_not_silent() {
    let object = x(|service| {
        (service.internal_policy, service.external_policy) = (Policy::Local, Policy::Local);
    });
    let model = served(object, [of_x("1", &["1.1.1.2 on:there"])]);
    assert_eq!(frontend(&model, "TCP 10.96.0.1:80").as_deref(), Some("refused"));
}

#[test]
fn session_affinity_is_every_frontends() {
    let object = x(|service| {
        every_kind(service);
        service.affinity_seconds = 600;
    });
    let model = served(object, []);
    let lines = frontends(&model);
    assert_eq!(lines.len(), 6);
    assert!(
        lines.iter().all(|line| line.ends_with(" (affinity 600 s)")),
        "{lines:?}"
    );
}

fn ranges(texts: &[&str], unreadable: bool) -> Option<SourceRanges> {
    let ranges = texts.iter().map(|text| {
        let (address, length) = text.split_once('/').expect("a range");
        Range::new(
            address.parse().expect("an address"),
            length.parse().expect("a length"),
        )
        .expect("a range")
    });
    let ranges = ranges.collect();
    Some(SourceRanges { ranges, unreadable })
}

#[rstest]
#[case::none(None, "", "")]
#[case::of_one_family(ranges(&["203.0.113.0/24", "203.0.113.7/32"], false), " (only from 203.0.113.0/24 203.0.113.7/32)", "")]
#[case::of_the_other_family(ranges(&["2001:db8::/32"], false), "", " (only from 2001:db8::/32)")]
#[case::of_both(ranges(&["203.0.113.0/24", "2001:db8::/32"], false), " (only from 203.0.113.0/24)", " (only from 2001:db8::/32)")]
#[case::one_that_admits_nobody(ranges(&[], true), " (only from )", " (only from )")]
#[case::one_that_admits_nobody_beside_others(ranges(&["203.0.113.0/24"], true), " (only from 203.0.113.0/24)", " (only from )")]
fn ranges_of_clients_restrict_load_balancers_of_their_family(
    #[case] ranges: Option<SourceRanges>,
    #[case] v4: &str,
    #[case] v6: &str,
) {
    let object = x(|service| {
        every_kind(service);
        service.load_balancer_ips = ips("192.0.2.1 2001:db8:1::1");
        service.source_ranges = ranges;
    });
    let model = served(object, []);
    let shown = |address| frontend(&model, address).expect("a frontend");
    assert_eq!(shown("TCP 192.0.2.1:80"), format!("refused{v4}"));
    assert_eq!(shown("TCP [2001:db8:1::1]:80"), format!("refused{v6}"));
    for free in [
        "TCP 0.0.0.0:30080",
        "TCP [::]:30080",
        "TCP 10.96.0.1:80",
        "TCP [fd00:96::1]:80",
        "TCP 198.51.100.1:80",
    ] {
        assert_eq!(shown(free), "refused", "{free}");
    }
}

#[test]
fn without_a_load_balancer_there_are_no_ranges_in_the_plan() {
    let object = x(|service| service.source_ranges = ranges(&["203.0.113.0/24"], false));
    let plan = super::support::planned(&served(object, []), "t/x");
    assert!(plan.ports.values().all(|port| port.sources.is_none()));
}

#[test]
fn an_address_of_several_kinds_is_a_frontend_once_of_the_first() {
    let object = x(|service| {
        service.load_balancer_ips = ips("192.0.2.1 10.96.0.1");
        service.external_ips = ips("192.0.2.1 10.96.0.1 192.0.2.2");
        service.source_ranges = ranges(&["203.0.113.0/24"], false);
    });
    let model = served(object, []);
    let expected = [
        "TCP 10.96.0.1:80 -> refused",
        "TCP 192.0.2.1:80 -> refused (only from 203.0.113.0/24)",
        "TCP 192.0.2.2:80 -> refused",
    ];
    assert_eq!(frontends(&model), expected);
    assert_eq!(findings(&model, "t/x"), [""; 0]);
}

/// `t/KIND`, which wants TCP 192.0.2.1:80, or a node port, in one way, and is so old.
fn claimant(kind: &str, created: i64) -> Service {
    let mut object = service(&format!("t/{kind}"), "10.96.1.1", &["TCP 80"]);
    object.created = Some(created);
    match kind {
        "cluster-ip" => object.cluster_ips = ips("192.0.2.1"),
        "load-balancer" => object.load_balancer_ips = ips("192.0.2.1"),
        "external-ip" => object.external_ips = ips("192.0.2.1"),
        other => panic!("{other} is no kind"),
    }
    if kind != "cluster-ip" {
        object.cluster_ips = ips(&format!("10.96.1.{}", 10 + kind.len()));
    }
    object
}

#[rstest]
#[case::cluster_ip_before_load_balancer("cluster-ip", "load-balancer")]
#[case::cluster_ip_before_external_ip("cluster-ip", "external-ip")]
#[case::load_balancer_before_external_ip("load-balancer", "external-ip")]
fn of_services_that_want_one_frontend_the_kind_decides_before_age(
    #[case] winner: &str,
    #[case] loser: &str,
    #[values(false, true)] loser_first: bool,
) {
    let mut services = vec![claimant(winner, 9), claimant(loser, 1)];
    if loser_first {
        services.reverse();
    }
    let model = model(services.into_iter().map(Event::ServiceApplied));
    let owner = model.owner(&reference_agent::testing::objects::address("TCP 192.0.2.1:80"));
    assert_eq!(owner, model.id(&name(&format!("t/{winner}"))));
    let told = findings(&model, &format!("t/{loser}"));
    assert_eq!(told.len(), 1);
    let end = format!(": TCP 192.0.2.1:80 is Service t/{winner}'s, which comes first; left out");
    assert!(
        told[0].starts_with("FrontendTaken: s") && told[0].ends_with(&end),
        "{}",
        told[0]
    );
    assert_eq!(findings(&model, &format!("t/{winner}")), [""; 0]);
}

#[test]
fn a_node_port_of_two_services_is_the_older_ones() {
    let wants = |text: &str, ip: &str, created| {
        let mut object = service(text, ip, &["TCP 80"]);
        object.created = Some(created);
        object.ports[0].node_port = Some(30080);
        Event::ServiceApplied(object)
    };
    let mut model = model([wants("t/a", "10.96.0.1", 2), wants("t/b", "10.96.0.2", 1)]);
    let told = "FrontendTaken: spec.ports[].nodePort: TCP 0.0.0.0:30080 is Service t/b's, which comes first; left out";
    assert_eq!(findings(&model, "t/a"), [told]);
    assert_eq!(findings(&model, "t/b"), [""; 0]);
    model.apply(Event::ServiceDeleted(name("t/b")));
    assert_eq!(findings(&model, "t/a"), [""; 0]);
    assert!(frontend(&model, "TCP 0.0.0.0:30080").is_some());
}

#[test]
fn one_node_port_with_two_protocols_is_two_frontends() {
    let mut object = service("t/x", "10.96.0.1", &["TCP 53 tcp", "UDP 53 udp"]);
    object
        .ports
        .iter_mut()
        .for_each(|port| port.node_port = Some(30053));
    let model = served(object, []);
    assert_eq!(
        frontends(&model),
        [
            "TCP 0.0.0.0:30053 -> refused",
            "TCP 10.96.0.1:53 -> refused",
            "UDP 0.0.0.0:30053 -> refused",
            "UDP 10.96.0.1:53 -> refused"
        ]
    );
}

#[test]
fn a_service_that_asks_for_too_many_frontends_gets_the_first_and_is_told() {
    let many = |ports: usize| {
        let ports: Vec<_> = (1..=ports).map(|port| format!("TCP {port} p{port}")).collect();
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        served(service("t/x", "10.96.0.1", &ports), [])
    };
    let whole = many(FRONTENDS);
    assert_eq!(
        (frontends(&whole).len(), findings(&whole, "t/x").len()),
        (FRONTENDS, 0)
    );
    let clipped = many(FRONTENDS + 2);
    assert_eq!(frontends(&clipped).len(), FRONTENDS);
    assert_eq!(
        findings(&clipped, "t/x"),
        [
            "FrontendRefused: spec: expected at most 4096 frontends (addresses times ports), found 2 more; left out"
        ]
    );
    assert_eq!(
        frontend(&clipped, &format!("TCP 10.96.0.1:{}", FRONTENDS + 1)),
        None
    );
}
