//! Create, read, update; what all kinds share.

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::server::{TestServer, object, status};

fn web() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
}

#[tokio::test]
async fn an_object_reads_as_it_was_made_until_it_is_deleted() {
    let server = TestServer::new().await;
    let api = server.api::<Service>();
    let service = object(web());
    let created: Service = api
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    assert_eq!(api.get("web").await.expect("found"), created);
    let again = api
        .create(&PostParams::default(), &service)
        .await
        .expect_err("there is one");
    assert_eq!(status(&again).1, "AlreadyExists");
    let merge = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let patched = api
        .patch("web", &PatchParams::default(), &merge)
        .await
        .expect("patched");
    assert_eq!(patched.metadata.annotations.expect("annotations")["a"], "b");
    assert_ne!(
        patched.metadata.resource_version,
        created.metadata.resource_version
    );
    assert_eq!(patched.metadata.uid, created.metadata.uid);
    assert_eq!(
        patched.metadata.creation_timestamp,
        created.metadata.creation_timestamp
    );
    api.delete("web", &DeleteParams::default())
        .await
        .expect("deleted");
    assert_eq!(status(&api.get("web").await.expect_err("it is gone")).0, 404);
    let anew: Service = api
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
    assert_ne!(
        anew.metadata.uid, created.metadata.uid,
        "a new object, whatever its name"
    );
    server.end().await;
}

#[tokio::test]
async fn a_replace_of_an_old_version_conflicts() {
    let server = TestServer::new().await;
    let api = server.api::<Service>();
    let first: Service = api
        .create(&PostParams::default(), &object(web()))
        .await
        .expect("created");
    let mut second = first.clone();
    second.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let written = api
        .replace("web", &PostParams::default(), &second)
        .await
        .expect("replaced");
    let late = api
        .replace("web", &PostParams::default(), &second)
        .await
        .expect_err("it has changed since");
    let (code, reason, message) = status(&late);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert_eq!(
        message,
        "Operation cannot be fulfilled on services \"web\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    let mut unversioned = written.clone();
    unversioned.metadata.resource_version = None;
    let same = api
        .replace("web", &PostParams::default(), &unversioned)
        .await
        .expect("no version, no conflict");
    assert_eq!(
        same.metadata.resource_version, written.metadata.resource_version,
        "nothing has changed"
    );
    server.end().await;
}

#[tokio::test]
async fn names_are_given_checked_and_kept() {
    let server = TestServer::new().await;
    let generated = json!({"metadata": {"generateName": "web-"}, "spec": {"ports": [{"port": 80}]}});
    let (a, b) = (
        server.create("services", &generated).await,
        server.create("services", &generated).await,
    );
    for service in [&a, &b] {
        let name = service["metadata"]["name"].as_str().expect("a name");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    }
    assert_ne!(a["metadata"]["name"], b["metadata"]["name"]);
    let path = server.path("services");
    for (meta, code) in [
        (json!({"name": "Upper"}), 422),
        (json!({"name": "a.b"}), 422),
        (json!({"name": "a", "namespace": "other"}), 400),
        (json!({"name": "a", "labels": {"a b": "c"}}), 422),
        (json!({"name": "a", "labels": {"a": "-"}}), 422),
        (json!({"name": "a", "finalizers": ["plain"]}), 422),
        (json!({"name": "a", "ownerReferences": [{"name": "x"}]}), 422),
        (json!({"name": "a", "resourceVersion": "1"}), 500),
    ] {
        let service = json!({"metadata": meta, "spec": {"ports": [{"port": 80}]}}).to_string();
        let (found, answer) = server.raw("POST", &path, "application/json", &service).await;
        assert_eq!(found, code, "{service}: {answer}");
    }
    let name = a["metadata"]["name"].as_str().expect("a name");
    let renamed = json!({"metadata": {"name": "other"}, "spec": a["spec"]}).to_string();
    let (code, _) = server
        .raw("PUT", &format!("{path}/{name}"), "application/json", &renamed)
        .await;
    assert_eq!(code, 400);
    server.end().await;
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let server = TestServer::new().await;
    let rows = [
        (
            "/api/v1/namespaces/nope/services",
            "POST",
            "namespaces \"nope\" not found",
        ),
        (
            "/api/v1/namespaces/default/services/nope",
            "GET",
            "services \"nope\" not found",
        ),
        ("/api/v1/nodes/nope", "DELETE", "nodes \"nope\" not found"),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/nope",
            "GET",
            "endpointslices.discovery.k8s.io \"nope\" not found",
        ),
    ];
    for (path, method, message) in rows {
        let (code, status) = server
            .raw(method, path, "application/json", &web().to_string())
            .await;
        assert_eq!((code, &status["message"]), (404, &json!(message)), "{path}");
        assert_eq!(status["details"]["name"], "nope");
    }
    // A list in a namespace that does not exist is empty.
    let (code, list) = server.raw("GET", "/api/v1/namespaces/nope/pods", "", "").await;
    assert_eq!((code, &list["items"]), (200, &json!([])));
    server.end().await;
}

#[tokio::test]
async fn lists_select_by_labels_and_fields() {
    let server = TestServer::new().await;
    for (name, app) in [("a", "x"), ("b", "y")] {
        let service =
            json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"ports": [{"port": 80}]}});
        server.create("services", &service).await;
    }
    let api = server.api::<Service>();
    let names = async |params: ListParams| -> Vec<String> {
        let list = api.list(&params).await.expect("a list");
        list.items
            .into_iter()
            .filter_map(|service| service.metadata.name)
            .collect()
    };
    assert_eq!(names(ListParams::default()).await, ["a", "b"]);
    assert_eq!(names(ListParams::default().labels("app=x")).await, ["a"]);
    assert_eq!(
        names(ListParams::default().labels("app notin (x),app")).await,
        ["b"]
    );
    assert_eq!(
        names(ListParams::default().labels("!app")).await,
        Vec::<String>::new()
    );
    assert_eq!(
        names(ListParams::default().fields("metadata.name=b")).await,
        ["b"]
    );
    assert_eq!(
        names(ListParams::default().fields("metadata.name!=b")).await,
        ["a"]
    );
    let (_, list) = server.raw("GET", &server.path("services"), "", "").await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ServiceList"), &json!("v1"))
    );
    assert!(
        list["items"][0].get("kind").is_none(),
        "items don't repeat their kind"
    );
    server.end().await;
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = TestServer::new().await;
    let load_balancer = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
                               "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let created = server.create("services", &load_balancer).await;
    assert_eq!(
        created["status"],
        json!({"loadBalancer": {}}),
        "a new object has no status"
    );
    let both = json!({"spec": {"sessionAffinity": "ClientIP"},
                      "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let (_, patched) = server.patch("services", "s/status", "merge-patch", &both).await;
    assert_eq!(patched["spec"]["sessionAffinity"], "None");
    assert_eq!(patched["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    let none = json!({"spec": {"sessionAffinity": "ClientIP"}, "status": {"loadBalancer": null}});
    let (_, patched) = server.patch("services", "s", "merge-patch", &none).await;
    assert_eq!(patched["spec"]["sessionAffinity"], "ClientIP");
    assert_eq!(patched["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    server.end().await;
}

#[tokio::test]
async fn a_pod_keeps_its_spec_and_counts_its_generations() {
    let server = TestServer::new().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "probe:1", "ports": [{"containerPort": 80}]}]}});
    let created = server.create("pods", &pod).await;
    let expected = [
        ("/metadata/generation", json!(1)),
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/terminationGracePeriodSeconds", json!(30)),
        ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
        ("/spec/containers/0/ports/0/protocol", json!("TCP")),
        ("/status", json!({"phase": "Pending", "qosClass": "BestEffort"})),
    ];
    for (pointer, value) in expected {
        assert_eq!(created.pointer(pointer), Some(&value), "{pointer}");
    }
    let moved = json!({"spec": {"nodeName": "elsewhere"}});
    assert_eq!(server.patch("pods", "p", "merge-patch", &moved).await.0, 422);
    let image = json!({"spec": {"containers": [{"name": "main", "image": "probe:2"}]}});
    let (code, patched) = server.patch("pods", "p", "strategic-merge-patch", &image).await;
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(2)));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let (_, patched) = server.patch("pods", "p", "merge-patch", &label).await;
    assert_eq!(
        patched["metadata"]["generation"], 2,
        "labels are no part of the spec"
    );
    server.end().await;
}

#[tokio::test]
async fn nodes_and_events_are_accepted() {
    let server = TestServer::new().await;
    let nodes: Api<Node> = Api::all(server.client.clone());
    let name = format!("node-of-{}", server.namespace);
    let node = object(
        json!({"metadata": {"name": name}, "spec": {"podCIDR": "10.244.1.0/24"},
                             "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
    );
    let created: Node = nodes
        .create(&PostParams::default(), &node)
        .await
        .expect("created");
    let spec = created.spec.expect("a spec");
    assert_eq!(spec.pod_cidrs, Some(vec!["10.244.1.0/24".to_owned()]));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let patched = nodes
        .patch_status(&name, &PatchParams::default(), &Patch::Strategic(ready))
        .await;
    let status = patched.expect("patched").status.expect("a status");
    assert_eq!(
        status.addresses.map(|addresses| addresses.len()),
        Some(1),
        "other fields stay"
    );
    nodes
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    let event = object(json!({"metadata": {"generateName": "e-"}, "reason": "Tested",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": server.namespace}}));
    let events = server.api::<Event>();
    let created: Event = events
        .create(&PostParams::default(), &event)
        .await
        .expect("created");
    let name = created.metadata.name.expect("a name");
    assert_eq!(
        events.get(&name).await.expect("found").reason.as_deref(),
        Some("Tested")
    );
    server.end().await;
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_ignored() {
    let server = TestServer::new().await;
    let wrong =
        json!({"metadata": {"name": "w"}, "spec": {"ports": [{"port": 80, "prot": "TCP"}], "foo": {}}});
    let post = async |validation: &str| {
        let path = format!(
            "{}?dryRun=All&fieldValidation={validation}",
            server.path("services")
        );
        server
            .raw("POST", &path, "application/json", &wrong.to_string())
            .await
    };
    let (code, status) = post("Strict").await;
    let message = status["message"].as_str().expect("a message");
    assert_eq!(code, 400);
    for field in [
        "unknown field \"spec.ports[0].prot\"",
        "unknown field \"spec.foo\"",
    ] {
        assert!(message.contains(field), "{message}");
    }
    for validation in ["Warn", "Ignore", ""] {
        let (code, made) = post(validation).await;
        assert_eq!(
            (
                code,
                made["spec"].get("foo"),
                made["spec"]["ports"][0].get("prot")
            ),
            (201, None, None)
        );
    }
    server.end().await;
}
