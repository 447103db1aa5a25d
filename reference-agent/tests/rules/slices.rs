//! EndpointSlices and Nodes as the API sends them, part by part.

use reference_agent::{
    decode::{self, Decoded},
    findings::Reason,
    model::{Node, Slice},
    testing::objects::slice,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::support::{endpoint, ips, ranges, reasons, told};

/// A slice `t/x-1` of `x` with one endpoint, 1.1.1.1, and these fields of it.
fn with_endpoint(fields: &Value) -> Decoded<Slice> {
    let mut endpoint = json!({"addresses": ["1.1.1.1"]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        endpoint[field] = value.clone();
    }
    let object = json!({
        "metadata": {"namespace": "t", "name": "x-1", "labels": {"kubernetes.io/service-name": "x"}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [endpoint],
    });
    decode::slice(&object).expect("it has a name")
}

#[rstest]
#[case::nothing_said(json!({}), "1.1.1.1")]
#[case::ready(json!({"conditions": {"ready": true, "serving": true, "terminating": false}}), "1.1.1.1")]
#[case::serving_if_nothing_is_said(json!({"conditions": {"ready": false, "terminating": true}}), "~1.1.1.1")]
#[case::not_ready(json!({"conditions": {"ready": false, "serving": false}}), "!1.1.1.1")]
#[case::not_ready_and_no_more_said(json!({"conditions": {"ready": false}}), "?1.1.1.1")]
#[case::on_its_way_out(json!({"conditions": {"ready": false, "serving": true, "terminating": true}}), "~1.1.1.1")]
#[case::serving_alone(json!({"conditions": {"ready": false, "serving": true}}), "?1.1.1.1")]
#[case::nothing_known(json!({"conditions": {"ready": null, "serving": null, "terminating": null}}), "1.1.1.1")]
#[case::hints(json!({"hints": {"forZones": [{"name": "b"}, {"name": "a"}], "forNodes": [{"name": "here"}]}}), "1.1.1.1 zones:a,b nodes:here")]
#[case::no_hints(json!({"hints": {"forZones": null}}), "1.1.1.1")]
fn an_endpoint_as_it_is_said(#[case] fields: Value, #[case] expected: &str) {
    let decoded = with_endpoint(&fields);
    assert_eq!(
        (decoded.object.endpoints.as_slice(), told(&decoded)),
        (&[endpoint(expected)][..], Vec::new())
    );
}

#[rstest]
#[case::conditions(json!({"conditions": "ready"}), "endpoints[0].conditions", None)]
#[case::ready(json!({"conditions": {"ready": 1}}), "endpoints[0].conditions.ready", None)]
#[case::serving(json!({"conditions": {"serving": "no"}}), "endpoints[0].conditions.serving", None)]
#[case::terminating(json!({"conditions": {"terminating": []}}), "endpoints[0].conditions.terminating", None)]
#[case::hints(json!({"hints": 7}), "endpoints[0].hints", Some("1.1.1.1"))]
#[case::hints_for_zones(json!({"hints": {"forZones": "a"}}), "endpoints[0].hints.forZones", Some("1.1.1.1"))]
#[case::a_hint(json!({"hints": {"forZones": [{"name": 7}, {"name": "a"}]}}), "endpoints[0].hints.forZones[0].name", Some("1.1.1.1 zones:a"))]
fn an_endpoint_of_which_a_part_can_not_be_read(
    #[case] fields: Value,
    #[case] field: &str,
    #[case] expected: Option<&str>,
) {
    let decoded = with_endpoint(&fields);
    let expected: Vec<_> = expected.into_iter().map(endpoint).collect();
    assert_eq!(decoded.object.endpoints, expected);
    assert_eq!(reasons(&decoded), [(Reason::Malformed, field)]);
}

#[test]
fn a_slice_that_names_no_service_says_so() {
    let object = json!({"metadata": {"namespace": "t", "name": "x-1"}, "addressType": "IPv4"});
    let decoded = decode::slice(&object).expect("it has a name");
    assert_eq!(decoded.object.service, None);
    assert_eq!(
        told(&decoded),
        [
            "ServiceUnknown: metadata.labels[kubernetes.io/service-name]: expected the name of a Service, found null; left out"
        ]
    );
}

#[test]
fn a_slice_of_an_unknown_address_type_holds_nothing_and_says_so() {
    let mut object =
        json!({"metadata": {"namespace": "t", "name": "x-1", "labels": {"kubernetes.io/service-name": "x"}}});
    object["endpoints"] = json!([{"addresses": ["1.1.1.1"]}]);
    for (kind, reasons_expected) in [(json!("IPv8"), 1), (json!(null), 1), (json!("FQDN"), 0)] {
        object["addressType"] = kind;
        let decoded = decode::slice(&object).expect("it has a name");
        assert_eq!(
            (decoded.object.endpoints.len(), reasons(&decoded).len()),
            (0, reasons_expected)
        );
    }
}

#[test]
fn of_two_slice_ports_with_one_name_and_protocol_the_first_counts_and_ports_without_number_add_nothing() {
    let object = json!({
        "metadata": {"namespace": "t", "name": "x-1", "labels": {"kubernetes.io/service-name": "x"}}, "addressType": "IPv4",
        "ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}, {"name": "a", "port": 82, "protocol": "UDP"}, {"name": "b"}],
    });
    let decoded = decode::slice(&object).expect("it has a name");
    assert_eq!(
        decoded.object,
        slice("t/x-1", "x", &["TCP 80 a", "UDP 82 a"], &[])
    );
    assert_eq!(
        told(&decoded),
        ["PortRepeated: ports[1]: TCP port \"a\" is there already; the first one counts"]
    );
}

#[test]
fn a_node_has_a_zone_and_the_addresses_and_networks_that_are_some() {
    let object = json!({
        "metadata": {"name": "node1", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244::/129", "fd00:244:1::/64"]},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "node1"},
            {"type": "ExternalIP", "address": "nonsense"},
            {"type": "Hostname", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ]},
    });
    let decoded = decode::node(&object).expect("it has a name");
    let expected = Node {
        name: "node1".to_owned(),
        zone: Some("a".to_owned()),
        addresses: ips("10.0.0.1 192.0.2.1 fd00::1"),
        internal: ips("10.0.0.1 fd00::1"),
        pods: ranges("10.244.1.0/24 fd00:244:1::/64"),
    };
    assert_eq!(decoded.object, expected);
    assert_eq!(
        reasons(&decoded),
        [
            (Reason::Malformed, "status.addresses[2].address"),
            (Reason::Malformed, "spec.podCIDRs[1]"),
        ]
    );
}

#[rstest]
#[case::nothing(json!({"metadata": {"name": "node1"}}), None, 0)]
#[case::empty(json!({"metadata": {"name": "node1", "labels": {"topology.kubernetes.io/zone": ""}}}), None, 0)]
#[case::no_text(json!({"metadata": {"name": "node1", "labels": {"topology.kubernetes.io/zone": 7}}}), None, 1)]
fn a_zone_that_is_none_is_unknown(#[case] object: Value, #[case] zone: Option<&str>, #[case] defects: usize) {
    let decoded = decode::node(&object).expect("it has a name");
    assert_eq!(
        (decoded.object.zone.as_deref(), decoded.defects.len()),
        (zone, defects)
    );
}

#[test]
fn a_node_without_name_is_refused() {
    let refused = decode::node(&json!({"metadata": {"name": ""}})).expect_err("it has no name");
    assert_eq!(refused.field, "metadata.name");
}
