//! Bodies as Go clients build them, and broken ones.

use base64::{Engine, prelude::BASE64_STANDARD};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;

use super::decode;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(number: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(number << 3 | 2, &mut out);
    varint(value.len() as u64, &mut out);
    out.extend(value);
    out
}

fn number(number: u64, value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(number << 3, &mut out);
    varint(value.cast_unsigned(), &mut out);
    out
}

fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [
        b"k8s\0".to_vec(),
        bytes(1, &type_meta),
        bytes(2, object),
        bytes(3, b""),
        bytes(4, b""),
    ]
    .concat()
}

fn service() -> Vec<u8> {
    let label = [bytes(1, b"a"), bytes(2, b"")].concat();
    // Go writes what is empty, and times that are not set.
    let meta = [
        bytes(1, b"web"),
        bytes(2, b""),
        bytes(8, b""),
        bytes(11, &label),
        bytes(14, b"x/y"),
    ]
    .concat();
    let named = [number(1, 1), number(2, 0), bytes(3, b"http")].concat();
    let numbered = [number(1, 0), number(2, 9), bytes(3, b"")].concat();
    let port = |name: &[u8], at: i64, target: &[u8]| {
        [bytes(1, name), number(3, at), bytes(4, target), number(5, 0)].concat()
    };
    let spec = [
        bytes(1, &port(b"a", 80, &named)),
        bytes(1, &port(b"b", 81, &numbered)),
        bytes(3, b""),
        number(12, 0),
        number(13, 0),
        number(20, 0),
        bytes(99, b"a field of a later version"),
    ]
    .concat();
    envelope(
        "v1",
        "Service",
        &[bytes(1, &meta), bytes(2, &spec), bytes(3, &bytes(1, b""))].concat(),
    )
}

#[test]
fn a_service_is_the_json_that_the_client_would_have_sent() {
    let expected = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "labels": {"a": ""}, "finalizers": ["x/y"]},
        "spec": {
            "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": 9}],
            "allocateLoadBalancerNodePorts": false,
        },
        "status": {"loadBalancer": {}},
    });
    assert_eq!(decode(&service()), Ok(expected));
}

#[test]
fn optional_values_are_kept_even_if_they_are_zero() {
    let options = [number(1, 0), bytes(2, &bytes(1, b"u")), bytes(5, b"All")].concat();
    let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                          "preconditions": {"uid": "u"}, "dryRun": ["All"]});
    assert_eq!(decode(&envelope("v1", "DeleteOptions", &options)), Ok(expected));
    let negative = decode(&envelope("v1", "DeleteOptions", &number(1, -5))).expect("options");
    assert_eq!(negative["gracePeriodSeconds"], -5);
    let times = [
        bytes(6, &number(1, 1_767_225_600)),
        bytes(10, &[number(1, 0), number(2, 5000)].concat()),
    ]
    .concat();
    let event = decode(&envelope("v1", "Event", &times)).expect("an event");
    assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(event["eventTime"], "1970-01-01T00:00:00.000005Z");
}

#[test]
fn what_can_not_be_read_is_refused_in_words() {
    let deep = (0..40).fold(Vec::new(), |inner, _| bytes(2, &inner));
    let rows: [(Vec<u8>, &str); 6] = [
        (b"{}".to_vec(), "begins with k8s"),
        (envelope("v1", "Pod", b""), "send application/json"),
        (
            envelope("v1", "Service", &bytes(1, &bytes(1, &[0xff]))),
            "not UTF-8",
        ),
        (envelope("v1", "Service", &number(1, 5)), "another wire type"),
        (envelope("v1", "Service", &[0x0a, 0x7f]), "more bytes"),
        (
            envelope("v1", "Event", &bytes(6, &number(1, i64::MAX))),
            "impossible time",
        ),
    ];
    for (body, words) in rows {
        let error = decode(&body).expect_err(words);
        assert!(error.contains(words), "expected {words:?}, found {error:?}");
    }
    decode(&envelope("v1", "Namespace", &deep)).expect("unknown fields may be as deep as they like");
}

#[test]
fn no_body_makes_it_panic() {
    let mut random = StdRng::seed_from_u64(1);
    let good = service();
    for _ in 0..20_000 {
        let mut body = good.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(4..body.len());
            body[at] = random.random();
        }
        body.truncate(random.random_range(4..=good.len()));
        // Either answer is right; only an end of the process would be wrong.
        drop(decode(&body));
    }
}

/// Bodies as kube-apiserver 1.36 itself writes them, and the JSON that it shows for them.
#[test]
fn kinds_that_upstream_encoded_read_as_it_shows_them() {
    let rows = [
        (
            "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEmMKQwoBeBIAGgJ0MiIAKiQxNmM4ZTcxMC1mYTdlLTQyZWUtYjMzMi01OTRmOTkxNTZmZTUyBDQx\
             Mzk4AEIICKfkidgGEAASBgoBYRIBYhIJCgVlbXB0eRIAGgcKAWMSAgD/IAAaACIA",
            json!({"kind": "ConfigMap", "apiVersion": "v1", "immutable": false, "data": {"a": "b", "empty": ""},
                   "binaryData": {"c": "AP8="}}),
        ),
        (
            "azhzAAoMCgJ2MRIGU2VjcmV0El8KQwoBeBIAGgJ0MiIAKiRmYjM0OTA4ZS02ODM3LTQ3NjEtYjczYS0xZGNkM2FmYjI4MmIyBDQxNDA4\
             AEIICKfkidgGEAASBwoBYRICAP8aDWV4YW1wbGUuY29tL2EoARoAIgA=",
            json!({"kind": "Secret", "apiVersion": "v1", "immutable": true, "data": {"a": "AP8="}, "type": "example.com/a"}),
        ),
        (
            "azhzAAoUCgJ2MRIOU2VydmljZUFjY291bnQSXQpDCgF4EgAaAnQyIgAqJDQxOWJkN2Y4LTMyMDUtNDA1Yi1iMGYxLWNmNzQyZDdkNTA4\
             YjIENDE0MTgAQggIp+SJ2AYQABIPCgASABoBcyIAKgAyADoAGgMKAXAgABoAIgA=",
            json!({"kind": "ServiceAccount", "apiVersion": "v1", "secrets": [{"name": "s"}],
                   "imagePullSecrets": [{"name": "p"}], "automountServiceAccountToken": false}),
        ),
        (
            "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRJoCkMKAXgSABoCdDIiACokYzg5OTA1ZTgtN2NiMy00NzkzLTg3YzMt\
             YzVjNDM1OTAxOTg1MgQ0MTQzOABCCAin5InYBhAAEiEKAm1lEA8aCQiA8tbKBhDoByIMCILy1soGEIDKte4BKAMaACIA",
            json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": {"holderIdentity": "me",
                   "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00.000001Z",
                   "renewTime": "2026-01-01T00:00:02.500000Z", "leaseTransitions": 3}}),
        ),
    ];
    for (body, expected) in rows {
        let body = BASE64_STANDARD.decode(body).expect("base64");
        let mut object = decode(&body).expect("an object");
        let meta = object
            .as_object_mut()
            .and_then(|object| object.remove("metadata"))
            .expect("metadata");
        assert_eq!((&meta["name"], &meta["namespace"]), (&json!("x"), &json!("t2")));
        assert_eq!(object, expected);
    }
}
