//! Services as the API sends them, part by part.

use reference_agent::{
    decode::{self, Decoded},
    findings::Reason,
    model::{Policy, Service, SourceRanges},
    testing::objects::{name, slice},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::support::{ips, reasons, told};

/// With a cluster IP of each family, a port, and these fields of the spec.
fn object(fields: &Value) -> Value {
    let mut object = json!({
        "metadata": {"namespace": "t", "name": "x"},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:96::1"],
            "ports": [{"port": 80, "nodePort": 30080}],
        },
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn decoded(object: &Value) -> Decoded<Service> {
    decode::service(object).expect("it has a name")
}

fn read(fields: &Value) -> Decoded<Service> {
    decoded(&object(fields))
}

/// With a load balancer's status.
fn balanced(fields: &Value, ingress: &Value) -> Decoded<Service> {
    let mut object = object(fields);
    object["spec"]["type"] = json!("LoadBalancer");
    object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    decoded(&object)
}

#[rstest]
#[case::cluster_ip(json!({"type": "ClusterIP"}), None)]
#[case::absent(json!({}), None)]
#[case::node_port(json!({"type": "NodePort"}), Some(30080))]
#[case::load_balancer(json!({"type": "LoadBalancer"}), Some(30080))]
#[case::none_allocated(json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 0}]}), None)]
#[case::nothing_said(json!({"type": "NodePort", "ports": [{"port": 80}]}), None)]
fn node_ports_are_of_two_types(#[case] fields: Value, #[case] expected: Option<u16>) {
    let decoded = read(&fields);
    assert_eq!(decoded.object.ports[0].node_port, expected);
    assert_eq!(told(&decoded), [""; 0]);
}

#[test]
fn a_node_port_that_is_none_is_left_out_and_the_port_stays() {
    let decoded = read(&json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 70000}]}));
    assert_eq!(
        (decoded.object.ports.len(), decoded.object.ports[0].node_port),
        (1, None)
    );
    assert_eq!(
        told(&decoded),
        ["Malformed: spec.ports[0].nodePort: expected a number from 1 to 65535, found 70000; left out"]
    );
}

#[test]
fn of_two_ports_with_one_node_port_the_first_has_it() {
    let ports = json!([
        {"name": "a", "port": 80, "nodePort": 30080},
        {"name": "b", "port": 81, "nodePort": 30080},
        {"name": "c", "port": 82, "nodePort": 30080, "protocol": "UDP"},
    ]);
    let decoded = read(&json!({"type": "NodePort", "ports": ports}));
    let node_ports: Vec<_> = decoded.object.ports.iter().map(|port| port.node_port).collect();
    assert_eq!(node_ports, [Some(30080), None, Some(30080)]);
    assert_eq!(
        told(&decoded),
        ["PortRepeated: spec.ports[1].nodePort: TCP 30080 is there already; the first one counts"]
    );
}

#[rstest]
#[case::kind("type", Some("NodePort"))]
#[case::outside("externalTrafficPolicy", Some("Local"))]
#[case::inside("internalTrafficPolicy", Some("Local"))]
#[case::affinity("sessionAffinity", Some("ClientIP"))]
fn an_unknown_value_of_an_enumeration_counts_as_its_default_and_is_told(
    #[case] field: &str,
    #[case] known: Option<&str>,
) {
    let default = read(&json!({})).object;
    let without = |value: Value| {
        let decoded = read(&json!({field: value}));
        (decoded.object == default, reasons(&decoded).len())
    };
    assert_eq!(
        without(json!(known)),
        (false, 0),
        "a value that is known makes a difference"
    );
    assert_eq!(without(json!("Sideways")), (true, 1));
    assert_eq!(without(json!(7)), (true, 1));
    assert_eq!(without(json!(null)), (true, 0));
    assert_eq!(without(json!("")), (true, 0));
    let decoded = read(&json!({field: "Sideways"}));
    assert_eq!(
        reasons(&decoded),
        [(Reason::Malformed, format!("spec.{field}").as_str())]
    );
    let end = r#"found "Sideways"; taken for the default"#;
    assert!(told(&decoded)[0].ends_with(end), "{:?}", told(&decoded));
}

#[test]
fn policies_are_read() {
    let object = read(&json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Cluster"})).object;
    assert_eq!(
        (object.external_policy, object.internal_policy),
        (Policy::Local, Policy::Cluster)
    );
    let object = read(&json!({"externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Local"})).object;
    assert_eq!(
        (object.external_policy, object.internal_policy),
        (Policy::Cluster, Policy::Local)
    );
}

#[rstest]
#[case::none(json!({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}}}), 0, 0)]
#[case::by_default(json!({"sessionAffinity": "ClientIP"}), 10_800, 0)]
#[case::shortest(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}), 1, 0)]
#[case::longest(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86400}}}), 86_400, 0)]
#[case::too_short(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}), 10_800, 1)]
#[case::too_long(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}), 10_800, 1)]
#[case::no_number(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": "long"}}}), 10_800, 1)]
fn session_affinity(#[case] fields: Value, #[case] seconds: u32, #[case] defects: usize) {
    let decoded = read(&fields);
    assert_eq!(
        (decoded.object.affinity_seconds, decoded.defects.len()),
        (seconds, defects)
    );
}

#[rstest]
#[case::an_address(json!([{"ip": "192.0.2.1"}]), "192.0.2.1", &[])]
#[case::both_families(json!([{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]), "192.0.2.1 2001:db8::1", &[])]
#[case::mode_vip(json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]), "192.0.2.1", &[])]
#[case::mode_proxy_is_left_alone(json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]), "", &[])]
#[case::an_unknown_mode_leaves_its_address_out(json!([{"ip": "192.0.2.1", "ipMode": "Odd"}, {"ip": "192.0.2.2"}]), "192.0.2.2",
    &["Malformed: status.loadBalancer.ingress[0].ipMode: expected VIP or Proxy, found \"Odd\"; left out"])]
#[case::a_hostname_is_no_address(json!([{"hostname": "lb.example.org"}]), "", &[])]
#[case::no_address_at_all(json!([{"ip": 7}, null]), "", &[
    "Malformed: status.loadBalancer.ingress[0].ip: expected an IP address, found 7; left out",
    "Malformed: status.loadBalancer.ingress[1].ip: expected an IP address, found null; left out",
])]
#[case::nobodys_address(json!([{"ip": "127.0.0.1"}]), "", &[
    "FrontendRefused: status.loadBalancer.ingress[0].ip: expected an IP address that can be reached, found \"127.0.0.1\"; left out",
])]
#[case::no_list(json!("192.0.2.1"), "", &["Malformed: status.loadBalancer.ingress: expected a list, found \"192.0.2.1\"; left out"])]
fn load_balancers(#[case] ingress: Value, #[case] expected: &str, #[case] defects: &[&str]) {
    let decoded = balanced(&json!({}), &ingress);
    assert_eq!(decoded.object.load_balancer_ips, ips(expected));
    assert_eq!(told(&decoded), defects);
}

#[test]
fn other_types_have_no_load_balancers_ranges_and_health_checks() {
    let mut object = object(&json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
        "loadBalancerSourceRanges": ["192.0.2.0/24", "nonsense"],
    }));
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    let Decoded { object, defects } = decoded(&object);
    assert!(object.load_balancer_ips.is_empty() && object.source_ranges.is_none());
    assert_eq!((object.health_check_port, defects), (None, Vec::new()));
}

#[rstest]
#[case::unspecified("0.0.0.0")]
#[case::loopback("127.1.2.3")]
#[case::multicast("224.0.0.1")]
#[case::broadcast("255.255.255.255")]
#[case::unspecified_v6("::")]
#[case::loopback_v6("::1")]
#[case::multicast_v6("ff02::1")]
#[case::mapped("::ffff:192.0.2.1")]
fn an_address_that_nobody_can_be_reached_at_is_no_frontends_and_no_backends(#[case] address: &str) {
    let decoded = read(&json!({"externalIPs": [address, "198.51.100.1"]}));
    assert_eq!(decoded.object.external_ips, ips("198.51.100.1"));
    assert_eq!(
        reasons(&decoded),
        [(Reason::FrontendRefused, "spec.externalIPs[0]")]
    );

    let decoded = read(&json!({"clusterIPs": [address, "10.96.0.1"]}));
    assert_eq!(decoded.object.cluster_ips, ips("10.96.0.1"));
    assert_eq!(
        reasons(&decoded),
        [(Reason::FrontendRefused, "spec.clusterIPs[0]")]
    );

    let (kind, other) = if address.contains(':') {
        ("IPv6", "fd00::1")
    } else {
        ("IPv4", "1.1.1.1")
    };
    let object = json!({
        "metadata": {"namespace": "t", "name": "x-1", "labels": {"kubernetes.io/service-name": "x"}},
        "addressType": kind, "ports": [{"port": 80}],
        "endpoints": [{"addresses": [address]}, {"addresses": [other]}],
    });
    let decoded = decode::slice(&object).expect("it has a name");
    assert_eq!(decoded.object, slice("t/x-1", "x", &["TCP 80"], &[other]));
    assert_eq!(
        reasons(&decoded),
        [(Reason::EndpointRefused, "endpoints[0].addresses[0]")]
    );
}

#[test]
fn an_address_of_a_family_that_the_service_does_not_have_is_no_frontends() {
    let only = json!({"clusterIPs": ["10.96.0.1"], "externalIPs": ["2001:db8::1", "198.51.100.1"]});
    let decoded = balanced(&only, &json!([{"ip": "2001:db8::2"}, {"ip": "192.0.2.1"}]));
    assert_eq!(decoded.object.external_ips, ips("198.51.100.1"));
    assert_eq!(decoded.object.load_balancer_ips, ips("192.0.2.1"));
    let end = "expected an IPv4 address, as the Service's cluster IPs are, found";
    assert_eq!(
        told(&decoded),
        [
            format!("FrontendRefused: spec.externalIPs[0]: {end} \"2001:db8::1\"; left out"),
            format!("FrontendRefused: status.loadBalancer.ingress[0].ip: {end} \"2001:db8::2\"; left out"),
        ]
    );
}

#[rstest]
#[case::absent(json!(null), None, &[])]
#[case::empty(json!([]), None, &[])]
#[case::host_bits_are_cleared(json!(["192.0.2.7/24"]), Some((&["192.0.2.0/24"][..], false)), &[])]
#[case::both_families(json!(["2001:db8::/32", "192.0.2.0/24"]), Some((&["192.0.2.0/24", "2001:db8::/32"][..], false)), &[])]
#[case::blanks_around(json!([" 192.0.2.0/24 "]), Some((&["192.0.2.0/24"][..], false)), &[])]
#[case::all(json!(["0.0.0.0/0", "::/0"]), Some((&["0.0.0.0/0", "::/0"][..], false)), &[])]
#[case::an_address_alone(json!(["192.0.2.7"]), Some((&[][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::too_long(json!(["192.0.2.0/33"]), Some((&[][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::a_sign(json!(["192.0.2.0/+24"]), Some((&[][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::no_length(json!(["192.0.2.0/"]), Some((&[][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::mapped(json!(["::ffff:192.0.2.0/120"]), Some((&[][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::no_text(json!([7, "192.0.2.0/24"]), Some((&["192.0.2.0/24"][..], true)), &["spec.loadBalancerSourceRanges[0]"])]
#[case::no_list(json!("192.0.2.0/24"), Some((&[][..], true)), &["spec.loadBalancerSourceRanges"])]
fn ranges_of_clients(
    #[case] list: Value,
    #[case] expected: Option<(&[&str], bool)>,
    #[case] fields: &[&str],
) {
    let decoded = balanced(&json!({"loadBalancerSourceRanges": list}), &json!([]));
    let shown = decoded
        .object
        .source_ranges
        .as_ref()
        .map(|SourceRanges { ranges, unreadable }| {
            (
                ranges.iter().map(ToString::to_string).collect::<Vec<_>>(),
                *unreadable,
            )
        });
    let expected =
        expected.map(|(ranges, unreadable)| (ranges.iter().map(ToString::to_string).collect(), unreadable));
    assert_eq!(shown, expected);
    let refused: Vec<_> = fields
        .iter()
        .map(|field| (Reason::RangeRefused, *field))
        .collect();
    assert_eq!(reasons(&decoded), refused);
}

#[rstest]
#[case::local(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}), Some(32000), 0)]
#[case::cluster(json!({"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 32000}), None, 0)]
#[case::none(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 0}), None, 0)]
#[case::nonsense(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": -1}), None, 1)]
fn health_check_node_ports(#[case] fields: Value, #[case] expected: Option<u16>, #[case] defects: usize) {
    let decoded = balanced(&fields, &json!([]));
    assert_eq!(
        (decoded.object.health_check_port, decoded.defects.len()),
        (expected, defects)
    );
}

#[rstest]
#[case::another_proxys(json!({"labels": {"service.kubernetes.io/service-proxy-name": ""}}), json!({}))]
#[case::external_name(json!({}), json!({"type": "ExternalName"}))]
#[case::headless(json!({}), json!({"clusterIP": "None", "clusterIPs": ["None"]}))]
fn what_is_not_balanced_is_nothing_but_its_name_however_odd_it_is(
    #[case] metadata: Value,
    #[case] fields: Value,
) {
    let mut object = object(&fields);
    for (field, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][field] = value.clone();
    }
    object["spec"]["externalIPs"] = json!(["198.51.100.1", "nonsense"]);
    object["spec"]["ports"] = json!(7);
    let expected = Decoded {
        object: Service::new(name("t/x")),
        defects: Vec::new(),
    };
    assert_eq!(decoded(&object), expected);
}
