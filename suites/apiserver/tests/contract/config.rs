//! ConfigMaps, Secrets, ServiceAccounts and Leases.

use serde_json::{Value, json};

use crate::{kubectl::Kubectl, server::TestServer, watching::Watching};

/// Without what each server gives out anew.
fn plain(mut object: Value) -> Value {
    let metadata = json!({"name": object["metadata"]["name"]});
    object["metadata"] = metadata;
    object
}

async fn post(server: &TestServer, plural: &str, object: &Value) -> (u16, Value) {
    server
        .raw(
            "POST",
            &server.path(plural),
            "application/json",
            &object.to_string(),
        )
        .await
}

#[tokio::test]
async fn what_was_written_reads_back_with_its_defaults() {
    let server = TestServer::new().await;
    let lease = json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                                "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let rows = [
        (
            "configmaps",
            "ConfigMap",
            "v1",
            json!({"data": {}, "binaryData": {"b": "eA=="}}),
            json!({"binaryData": {"b": "eA=="}}),
        ),
        (
            "secrets",
            "Secret",
            "v1",
            json!({"stringData": {"a": "b", "c": "d"}, "data": {"c": "eA==", "e": "eA=="}}),
            json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA==", "e": "eA=="}}),
        ),
        (
            "serviceaccounts",
            "ServiceAccount",
            "v1",
            json!({"secrets": [{"name": "x"}], "automountServiceAccountToken": false}),
            json!({"secrets": [{"name": "x"}], "automountServiceAccountToken": false}),
        ),
        ("leases", "Lease", "coordination.k8s.io/v1", lease.clone(), lease),
        (
            "leases",
            "Lease",
            "coordination.k8s.io/v1",
            json!({}),
            json!({"spec": {}}),
        ),
    ];
    for (number, (plural, kind, version, mut object, mut expected)) in rows.into_iter().enumerate() {
        let name = format!("written-{number}");
        object["metadata"] = json!({"name": name});
        expected["metadata"] = json!({"name": name});
        expected["kind"] = kind.into();
        expected["apiVersion"] = version.into();
        let mut watching =
            Watching::of(&server, plural, &format!("fieldSelector=metadata.name%3D{name}")).await;
        assert_eq!(plain(server.create(plural, &object).await), expected);
        assert_eq!(watching.brief().await, ("ADDED".to_owned(), name.clone()));
        let path = format!("{}/{name}", server.path(plural));
        assert_eq!(plain(server.raw("GET", &path, "", "").await.1), expected);
        let (code, labelled) = server
            .patch(
                plural,
                &name,
                "merge-patch",
                &json!({"metadata": {"labels": {"a": "b"}}}),
            )
            .await;
        assert_eq!((code, plain(labelled)), (200, expected));
        assert_eq!(watching.brief().await, ("MODIFIED".to_owned(), name.clone()));
        let (code, answer) = server.raw("DELETE", &path, "", "").await;
        let answered = if kind == "ServiceAccount" { kind } else { "Status" };
        assert_eq!((code, &answer["kind"]), (200, &json!(answered)));
        assert_eq!(watching.brief().await, ("DELETED".to_owned(), name));
    }
    server.end().await;
}

#[tokio::test]
async fn what_upstream_refuses_is_refused() {
    let server = TestServer::new().await;
    let rows = [
        (
            "configmaps",
            json!({"data": {"a b": "x"}}),
            "data[a b]",
            "FieldValueInvalid",
        ),
        (
            "configmaps",
            json!({"data": {"..": "x"}}),
            "data[..]",
            "FieldValueInvalid",
        ),
        (
            "configmaps",
            json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}}),
            "data[a]",
            "FieldValueInvalid",
        ),
        (
            "secrets",
            json!({"data": {"a/b": "eA=="}}),
            "data[a/b]",
            "FieldValueInvalid",
        ),
        (
            "leases",
            json!({"spec": {"leaseDurationSeconds": 0}}),
            "spec.leaseDurationSeconds",
            "FieldValueInvalid",
        ),
        (
            "leases",
            json!({"spec": {"leaseTransitions": -1}}),
            "spec.leaseTransitions",
            "FieldValueInvalid",
        ),
    ];
    for (plural, mut object, field, reason) in rows {
        object["metadata"] = json!({"name": "refused"});
        let (code, status) = post(&server, plural, &object).await;
        let cause = &status["details"]["causes"][0];
        assert_eq!(
            (code, &cause["field"], &cause["reason"]),
            (422, &json!(field), &json!(reason)),
            "{plural} {status}"
        );
    }
    let (code, _) = post(
        &server,
        "secrets",
        &json!({"metadata": {"name": "s"}, "data": {"a": "!"}}),
    )
    .await;
    assert_eq!(code, 400, "no base64");
    server.end().await;
}

#[tokio::test]
async fn kubectl_creates_shows_and_describes_them() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let created: [&[&str]; 3] = [
        &[
            "create",
            "configmap",
            "shown",
            "--from-literal=a=b",
            "--from-literal=c=d",
        ],
        &[
            "create",
            "secret",
            "generic",
            "shown",
            "--from-literal=password=secret",
        ],
        &["create", "serviceaccount", "shown"],
    ];
    for args in created {
        kubectl.run(args).await.ok();
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "shown"},
                       "spec": {"holderIdentity": "me"}});
    kubectl
        .with_input(&["create", "-f", "-"], &lease.to_string())
        .await
        .ok();
    let rows: [(&str, &[&str], &[&str], &str); 4] = [
        ("cm", &["NAME", "DATA", "AGE"], &["shown", "2"], "BinaryData"),
        (
            "secrets",
            &["NAME", "TYPE", "DATA", "AGE"],
            &["shown", "Opaque", "1"],
            "password:  6 bytes",
        ),
        ("sa", &["NAME", "AGE"], &["shown"], "Image pull secrets"),
        (
            "leases",
            &["NAME", "HOLDER", "AGE"],
            &["shown", "me"],
            "Holder Identity:  me",
        ),
    ];
    for (kind, header, cells, described) in rows {
        let printed = kubectl.run(&["get", kind]).await.ok();
        let mut lines = printed.lines();
        assert_eq!(
            lines
                .next()
                .expect("a header")
                .split_whitespace()
                .collect::<Vec<_>>(),
            header,
            "{kind}"
        );
        let line = lines.find(|line| line.starts_with("shown")).expect("a line");
        let found: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(found[..cells.len()], *cells, "{kind}");
        let text = kubectl.run(&["describe", kind, "shown"]).await.ok();
        assert!(text.contains(described), "{kind}: {text}");
    }
    let secret = kubectl.json(&["get", "secret", "shown"]).await;
    assert_eq!(secret["data"], json!({"password": "c2VjcmV0"}));
    server.end().await;
}
