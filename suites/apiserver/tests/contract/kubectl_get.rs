//! `kubectl get`: tables, other formats, watches.

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{
    kubectl::{Kubectl, pod, service},
    server::{LIMIT, TestServer},
};

/// The words of a line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn get_prints_tables_yaml_and_json() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let made = kubectl
        .with_input(&["create", "-f", "-"], &service("web", &json!([{"port": 80}])))
        .await
        .ok();
    assert_eq!(made, "service/web created\n");
    let text = kubectl.run(&["get", "services"]).await.ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        words(lines[0]),
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    );
    let row = words(lines[1]);
    assert_eq!(
        (row[0], row[1], row[3], row[4]),
        ("web", "ClusterIP", "<none>", "80/TCP")
    );
    let wide = kubectl.run(&["get", "svc", "web", "-o", "wide"]).await.ok();
    assert!(
        wide.lines().next().is_some_and(|line| line.ends_with("SELECTOR")),
        "{wide}"
    );
    assert!(wide.contains("app=web"), "{wide}");
    let yaml = kubectl.run(&["get", "svc", "web", "-o", "yaml"]).await.ok();
    assert!(yaml.starts_with("apiVersion: v1\nkind: Service\n"), "{yaml}");
    let list = kubectl.json(&["get", "svc"]).await;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("List"), &json!("Service"))
    );
    let name = kubectl
        .run(&["get", "svc", "-o", "name", "-l", "!nothing"])
        .await
        .ok();
    assert_eq!(name, "service/web\n");
    let none = kubectl.run(&["get", "pods"]).await;
    assert!(
        none.success && none.err.contains("No resources found"),
        "{none:?}"
    );
    let missing = kubectl.run(&["get", "svc", "nope"]).await;
    assert_eq!(
        missing.err,
        "Error from server (NotFound): services \"nope\" not found\n"
    );
    let unknown = kubectl.run(&["get", "gizmos"]).await;
    assert!(
        unknown
            .err
            .contains("the server doesn't have a resource type \"gizmos\""),
        "{unknown:?}"
    );
    server.end().await;
}

#[tokio::test]
async fn every_kind_has_a_table() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &pod("one", None))
        .await
        .ok();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.1.1"]}, {"addresses": ["10.1.1.2"]}, {"addresses": ["10.1.1.3"]},
                      {"addresses": ["10.1.1.4"]}],
        "ports": [{"port": 80}, {"port": 81, "name": "b"}]});
    kubectl
        .with_input(&["create", "-f", "-"], &slice.to_string())
        .await
        .ok();
    let cases: [(&[&str], &str, &str); 4] = [
        (
            &["get", "pods", "-o", "wide"],
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
            "one 0/1 Pending 0 * <none> <none> <none> <none>",
        ),
        (
            &["get", "endpointslices"],
            "NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
            "web IPv4 80,81 10.1.1.1,10.1.1.2,10.1.1.3 + 1 more... *",
        ),
        (
            &["get", "namespace", "default"],
            "NAME STATUS AGE",
            "default Active *",
        ),
        (&["get", "po", "one", "--no-headers"], "one 0/1 Pending 0 *", ""),
    ];
    for (args, header, row) in cases {
        let text = kubectl.run(args).await.ok();
        for (line, expected) in text.lines().zip([header, row]) {
            let (found, expected) = (words(line), words(expected));
            let same = found.len() == expected.len()
                && found
                    .iter()
                    .zip(&expected)
                    .all(|(found, expected)| *expected == "*" || found == expected);
            assert!(same, "{args:?}: expected {expected:?}, found {found:?}");
        }
    }
    server.end().await;
}

#[tokio::test]
async fn get_watch_follows_a_service() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", &json!([{"port": 80}])))
        .await
        .ok();
    let args = ["--namespace", &server.namespace, "get", "svc", "-w"];
    let mut child = kubectl.command(&args).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(LIMIT, lines.next_line())
            .await
            .expect("a line in time");
        line.expect("readable").expect("kubectl goes on")
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.contains("80/TCP"));
    let patch = json!({"spec": {"ports": [{"port": 81, "name": "more"}, {"port": 80, "name": "web"}]}});
    kubectl
        .run(&["patch", "svc", "web", "--type", "merge", "-p", &patch.to_string()])
        .await
        .ok();
    assert!(next().await.contains("81/TCP,80/TCP"));
    child.kill().await.expect("it ends");
    server.end().await;
}
