//! Objects as the API sends them, and as it should not.

use reference_agent::{
    decode::{self, Decoded},
    model::{Service, Slice},
    testing::objects::{service, slice},
};
use rstest::rstest;
use serde_json::{Value, json};

fn service_object(spec: Value) -> Value {
    let mut object = json!({"metadata": {"namespace": "t", "name": "x"}});
    object["spec"] = spec;
    object
}

fn slice_object(ports: Value, endpoints: Value) -> Value {
    let labels = json!({"kubernetes.io/service-name": "x"});
    let mut object =
        json!({"metadata": {"namespace": "t", "name": "x-1", "labels": labels}, "addressType": "IPv4"});
    object["ports"] = ports;
    object["endpoints"] = endpoints;
    object
}

fn decoded_service(object: &Value) -> Decoded<Service> {
    decode::service(object).expect("it has a name")
}

fn decoded_slice(object: &Value) -> Decoded<Slice> {
    decode::slice(object).expect("it has a name")
}

fn fields(defects: &[decode::Defect]) -> Vec<&str> {
    defects.iter().map(|defect| defect.field.as_str()).collect()
}

#[test]
fn a_service_as_kube_apiserver_sends_it() {
    let object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default", "resourceVersion": "67",
            "creationTimestamp": "2026-11-21T12:59:54Z",
            "managedFields": [{"manager": "kube-apiserver", "operation": "Update"}]
        },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 60002}]
        },
        "status": {"loadBalancer": {}}
    });
    let mut expected = Service {
        created: Some(1_795_265_994),
        ..service("default/kubernetes", "10.96.0.1", &["TCP 443 https"])
    };
    expected.ports[0].target_port = Some(60002);
    assert_eq!(
        decoded_service(&object),
        Decoded {
            object: expected,
            defects: Vec::new()
        }
    );
}

#[test]
fn a_slice_as_kube_apiserver_sends_it() {
    let object = slice_object(
        json!([{"name": "https", "port": 60002, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]),
        json!([
            {"addresses": ["10.99.99.7"], "conditions": {"ready": true}},
            {"addresses": ["10.99.99.8"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.99.99.9", "10.99.99.10"], "conditions": {}},
        ]),
    );
    let mut expected = slice(
        "t/x-1",
        "x",
        &["TCP 60002 https", "UDP 53"],
        &["10.99.99.7", "!10.99.99.8", "10.99.99.9"],
    );
    expected.endpoints[1].serving = true;
    expected.endpoints[1].terminating = true;
    assert_eq!(
        decoded_slice(&object),
        Decoded {
            object: expected,
            defects: Vec::new()
        }
    );
}

#[test]
fn a_slice_emptied_by_a_stopping_api_server_is_an_empty_slice() {
    let decoded = decoded_slice(&slice_object(Value::Null, Value::Null));
    assert_eq!(
        decoded,
        Decoded {
            object: slice("t/x-1", "x", &[], &[]),
            defects: Vec::new()
        }
    );
}

#[rstest]
#[case::headless(json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}), &[])]
#[case::external_name(json!({"type": "ExternalName", "externalName": "example.org"}), &[])]
#[case::not_allocated_yet(json!({"ports": [{"port": 80}]}), &[])]
#[case::ipv6_only(json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}), &["fd00::1"])]
#[case::dual_stack(json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.96.0.7"]}), &["10.96.0.7", "fd00::1"])]
#[case::from_an_old_api_server(json!({"clusterIP": "10.96.0.7"}), &["10.96.0.7"])]
fn cluster_ips(#[case] spec: Value, #[case] expected: &[&str]) {
    let decoded = decoded_service(&service_object(spec));
    let expected: Vec<std::net::IpAddr> = expected
        .iter()
        .map(|ip| ip.parse().expect("an address"))
        .collect();
    assert_eq!(
        (decoded.object.cluster_ips, decoded.defects),
        (expected, Vec::new())
    );
}

#[test]
fn a_service_of_another_proxy_has_no_frontends() {
    let mut object = service_object(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}));
    object["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    assert!(decoded_service(&object).object.cluster_ips.is_empty());
}

#[test]
fn a_slice_of_another_address_type_holds_nothing() {
    let mut object = slice_object(json!([{"port": 80}]), json!([{"addresses": ["example.org"]}]));
    object["addressType"] = json!("FQDN");
    assert_eq!(
        decoded_slice(&object),
        Decoded {
            object: slice("t/x-1", "x", &[], &[]),
            defects: Vec::new()
        }
    );
}

#[test]
fn a_slice_of_ipv6_holds_addresses_of_its_family() {
    let endpoints = json!([
        {"addresses": ["fd00::1"]},
        {"addresses": ["1.1.1.1"]},
        {"addresses": ["::ffff:1.1.1.1"]},
    ]);
    let mut object = slice_object(json!([{"port": 80}]), endpoints);
    object["addressType"] = json!("IPv6");
    let decoded = decoded_slice(&object);
    assert_eq!(decoded.object, slice("t/x-1", "x", &["TCP 80"], &["fd00::1"]));
    let problems: Vec<_> = decoded.defects.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            r#"endpoints[1].addresses[0]: expected an IPv6 address, found "1.1.1.1"; left out"#,
            r#"endpoints[2].addresses[0]: expected an IPv6 address, found "::ffff:1.1.1.1"; left out"#,
        ]
    );
}

#[test]
fn endpoints_say_which_node_they_are_on_if_they_do() {
    let endpoints = json!([
        {"addresses": ["1.1.1.1"], "nodeName": "node1"},
        {"addresses": ["1.1.1.2"], "nodeName": null},
        {"addresses": ["1.1.1.3"], "nodeName": ""},
        {"addresses": ["1.1.1.4"], "nodeName": ["node1"]},
    ]);
    let decoded = decoded_slice(&slice_object(json!([{"port": 80}]), endpoints));
    let expected = ["1.1.1.1@node1", "1.1.1.2", "1.1.1.3", "1.1.1.4"];
    assert_eq!(decoded.object, slice("t/x-1", "x", &["TCP 80"], &expected));
    assert_eq!(
        decoded.defects[0].to_string(),
        r#"endpoints[3].nodeName: expected a name, found ["node1"]; left out"#
    );
    assert_eq!(decoded.defects.len(), 1);
}

#[test]
fn bad_endpoints_are_named_and_the_others_stay() {
    let endpoints = json!([
        {"addresses": ["not an address"]},
        {"addresses": []},
        {"addresses": null},
        null,
        7,
        {"addresses": ["1.1.1.1"], "conditions": {"ready": "yes"}},
        {"addresses": ["1.1.1.2"], "conditions": null},
    ]);
    let decoded = decoded_slice(&slice_object(json!([{"port": 80}]), endpoints));
    assert_eq!(decoded.object, slice("t/x-1", "x", &["TCP 80"], &["1.1.1.2"]));
    assert_eq!(
        fields(&decoded.defects),
        [
            "endpoints[0].addresses[0]",
            "endpoints[1].addresses[0]",
            "endpoints[2].addresses[0]",
            "endpoints[3].addresses[0]",
            "endpoints[4].addresses[0]",
            "endpoints[5].conditions.ready",
        ]
    );
    assert_eq!(
        decoded.defects[0].to_string(),
        r#"endpoints[0].addresses[0]: expected an IPv4 address, found "not an address"; left out"#
    );
}

#[test]
fn bad_ports_are_named_and_the_others_stay() {
    let ports = json!([
        {"name": "any"},
        {"port": null},
        {"port": 0},
        {"port": 65536},
        {"port": "80"},
        {"port": 80, "protocol": "QUIC"},
        {"port": 80, "name": 7},
        {"port": 132, "protocol": "SCTP"},
        {"port": 80, "protocol": null},
        {"port": 81, "name": "", "protocol": "UDP"},
    ]);
    let decoded = decoded_slice(&slice_object(ports.clone(), json!([])));
    let read = ["SCTP 132", "TCP 80", "UDP 81"];
    assert_eq!(decoded.object, slice("t/x-1", "x", &read, &[]));
    assert_eq!(
        fields(&decoded.defects),
        [
            "ports[2].port",
            "ports[3].port",
            "ports[4].port",
            "ports[5].protocol",
            "ports[6].name",
        ]
    );
    let spec = json!({"clusterIP": "10.96.0.7", "ports": ports});
    let decoded = decoded_service(&service_object(spec));
    assert_eq!(
        decoded.object,
        Service {
            created: None,
            ..service("t/x", "10.96.0.7", &read)
        }
    );
    assert_eq!(decoded.defects.len(), 7);
}

#[test]
fn of_two_service_ports_with_one_number_the_first_counts() {
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]);
    let decoded = decoded_service(&service_object(json!({"clusterIP": "10.96.0.7", "ports": ports})));
    assert_eq!(decoded.object.ports.len(), 1);
    assert_eq!(fields(&decoded.defects), ["spec.ports[1]"]);
}

#[rstest]
#[case::ports(json!({"clusterIP": "10.96.0.7", "ports": 80}), "spec.ports")]
#[case::cluster_ips(json!({"clusterIP": "10.96.0.7", "clusterIPs": "all"}), "spec.clusterIPs")]
#[case::cluster_ip(json!({"clusterIP": ["10.96.0.7"]}), "spec.clusterIP")]
#[case::one_of_the_cluster_ips(json!({"clusterIPs": ["10.96.0.7", "10.96.0.777"]}), "spec.clusterIPs[1]")]
fn a_service_part_of_the_wrong_kind_is_left_out(#[case] spec: Value, #[case] field: &str) {
    assert_eq!(fields(&decoded_service(&service_object(spec)).defects), [field]);
}

#[rstest]
#[case::number(json!(7))]
#[case::word(json!("yesterday"))]
fn a_creation_time_that_is_none_is_unknown(#[case] time: Value) {
    let mut object = service_object(json!({"clusterIP": "10.96.0.7"}));
    object["metadata"]["creationTimestamp"] = time;
    let decoded = decoded_service(&object);
    assert_eq!(decoded.object.created, None);
    assert_eq!(fields(&decoded.defects), ["metadata.creationTimestamp"]);
}

#[rstest]
#[case::nothing(json!(null), "metadata.namespace")]
#[case::a_list(json!([]), "metadata.namespace")]
#[case::no_name(json!({"metadata": {"namespace": "t"}}), "metadata.name")]
#[case::a_number(json!({"metadata": {"namespace": "t", "name": 7}}), "metadata.name")]
fn what_has_no_name_is_refused_and_says_so(#[case] object: Value, #[case] field: &str) {
    assert_eq!(
        decode::service(&object).map_err(|defect| defect.field),
        Err(field.to_owned())
    );
    assert_eq!(
        decode::slice(&object).map_err(|defect| defect.field),
        Err(field.to_owned())
    );
}
