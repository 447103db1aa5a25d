//! Who owns which field after a write.

use serde_json::{Value, json};

use crate::{applying::apply, server::TestServer};

/// Who owns what: `MANAGER OPERATION [SUBRESOURCE]`, and the fields, by name.
///
/// Not in the order of the object's entries: times have whole seconds, so that depends on whether a second ended between
/// two writes.
///
/// # Panics
/// Entries aren't in upstream's order: appliers before updaters, then by time, then by manager.
pub(crate) fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.map(Vec::as_slice).unwrap_or_default();
    // One without a time, as `kubectl` has it for its annotation, comes first.
    let in_order =
        entries.is_sorted_by_key(|entry| ["operation", "time", "manager"].map(|field| entry[field].as_str()));
    assert!(in_order, "{entries:?}");
    let owners = entries.iter().map(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        assert_eq!(text("fieldsType"), "FieldsV1");
        let who = format!(
            "{} {} {}",
            text("manager"),
            text("operation"),
            text("subresource")
        );
        (who.trim_end().to_owned(), entry["fieldsV1"].clone())
    });
    // A real cluster's controllers own some of what they watch.
    let owners = owners.filter(|(who, _)| !who.starts_with("kube-controller-manager"));
    by_name(owners.collect())
}

fn by_name(mut owners: Vec<(String, Value)>) -> Vec<(String, Value)> {
    owners.sort_by(|(a, _), (b, _)| a.cmp(b));
    owners
}

/// Owners to expect.
pub(crate) fn owned(all: &[(&str, Value)]) -> Vec<(String, Value)> {
    let owners = all
        .iter()
        .map(|(who, fields)| ((*who).to_owned(), fields.clone()));
    by_name(owners.collect())
}

#[tokio::test]
async fn the_creator_of_an_object_owns_its_fields() {
    let server = TestServer::new().await;
    let container = json!({".": {}, "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
        "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
        "f:readinessProbe": {".": {}, "f:failureThreshold": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}},
            "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {}}});
    let port = json!({".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}});
    let services = server.path("services");
    let rows = [
        (
            services.as_str(),
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
            json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:internalTrafficPolicy": {},
                "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": port}, "f:selector": {},
                "f:sessionAffinity": {}, "f:type": {}}}),
        ),
        (
            &server.path("endpointslices"),
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]}),
            json!({"f:addressType": {}, "f:endpoints": {}, "f:ports": {}}),
        ),
        (
            &server.path("pods"),
            json!({"spec": {"schedulerName": "none", "automountServiceAccountToken": false, "containers": [
                {"name": "c", "image": "i:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
                 "readinessProbe": {"httpGet": {"port": 80}}}]}}),
            json!({"f:spec": {"f:automountServiceAccountToken": {}, "f:containers": {"k:{\"name\":\"c\"}": container},
                "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}}),
        ),
        (
            &server.path("configmaps"),
            json!({"metadata": {"finalizers": ["a.b/c"]}, "data": {"a": "b"}}),
            json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:finalizers": {".": {}, "v:\"a.b/c\"": {}}}}),
        ),
        (
            "/api/v1/namespaces",
            json!({}),
            json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}}),
        ),
        (
            "/api/v1/nodes",
            json!({"spec": {"podCIDRs": ["10.1.0.0/24"], "podCIDR": "10.1.0.0/24"}}),
            json!({"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {".": {}, "v:\"10.1.0.0/24\"": {}}}}),
        ),
    ];
    for (path, mut object, fields) in rows {
        // Where there are no namespaces, other runs may have left something.
        object["metadata"]["name"] = format!("owned-{}", server.namespace).into();
        let dry = format!("{path}?fieldManager=m&dryRun=All");
        let (code, created) = server
            .raw("POST", &dry, "application/json", &object.to_string())
            .await;
        assert_eq!(
            (code, owners(&created)),
            (201, owned(&[("m Update", fields)])),
            "{path}"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn a_status_has_owners_of_its_own() {
    let server = TestServer::new().await;
    let pod = json!({"metadata": {"name": "x"}, "spec": {"schedulerName": "none", "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "i:1"}]}});
    server.create("pods", &pod).await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                                   "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}});
    let path = format!("{}/x/status?fieldManager=kubelet", server.path("pods"));
    let (code, updated) = server
        .raw(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            &status.to_string(),
        )
        .await;
    assert_eq!(code, 200, "{updated}");
    let condition =
        json!({".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}});
    let fields = json!({"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": condition}, "f:phase": {},
        "f:podIP": {}, "f:podIPs": {".": {}, "k:{\"ip\":\"10.1.1.1\"}": {".": {}, "f:ip": {}}}}});
    let expected = ("kubelet Update status".to_owned(), fields);
    assert!(owners(&updated).contains(&expected), "{:?}", owners(&updated));
    let config = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    let (code, status) = apply(&server, "pods", "fieldManager=m", config).await;
    let message = "Apply failed with 1 conflict: conflict with \"unknown\" using v1: .spec.containers[name=\"c\"].image";
    assert_eq!((code, &status["message"]), (409, &json!(message)));
    server
        .raw(
            "DELETE",
            &format!("{}/x?gracePeriodSeconds=0", server.path("pods")),
            "",
            "",
        )
        .await;
    server.end().await;
}
