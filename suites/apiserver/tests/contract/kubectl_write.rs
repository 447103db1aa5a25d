//! kubectl's writing verbs, apart from `apply`.

use serde_json::{Value, json};

use crate::{
    kubectl::{Kubectl, pod, service},
    server::TestServer,
};

#[tokio::test]
async fn patch_label_annotate_and_replace_change_what_they_say() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let ports = json!([{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]);
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", &ports))
        .await
        .ok();
    let strategic = json!({"spec": {"ports": [{"port": 81, "targetPort": 9}]}}).to_string();
    kubectl.run(&["patch", "svc", "web", "-p", &strategic]).await.ok();
    let merge = json!({"spec": {"selector": {"app": null, "tier": "x"}}}).to_string();
    kubectl
        .run(&["patch", "svc", "web", "--type", "merge", "-p", &merge])
        .await
        .ok();
    let operations = json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 7}]).to_string();
    kubectl
        .run(&["patch", "svc", "web", "--type", "json", "-p", &operations])
        .await
        .ok();
    kubectl
        .run(&["annotate", "svc", "web", "example.com/touched=1"])
        .await
        .ok();
    kubectl.run(&["label", "svc", "web", "a=b"]).await.ok();
    let refused = kubectl.run(&["label", "svc", "web", "a=c"]).await;
    assert!(
        !refused.success && refused.err.contains("--overwrite is false"),
        "{refused:?}"
    );
    kubectl
        .run(&["label", "svc", "web", "a=c", "--overwrite"])
        .await
        .ok();
    let mut found = kubectl.json(&["get", "svc", "web"]).await;
    assert_eq!(found["spec"]["ports"][0]["targetPort"], 7);
    assert_eq!(found["spec"]["ports"][1]["targetPort"], 9);
    assert_eq!(found["spec"]["selector"], json!({"tier": "x"}));
    assert_eq!(found["metadata"]["labels"], json!({"a": "c"}));
    assert_eq!(
        found["metadata"]["annotations"],
        json!({"example.com/touched": "1"})
    );
    // What `kubectl edit` does: the whole object, changed, with its resourceVersion.
    found["spec"]["ports"][0]["targetPort"] = 6.into();
    kubectl
        .with_input(&["replace", "-f", "-"], &found.to_string())
        .await
        .ok();
    let stale = kubectl
        .with_input(&["replace", "-f", "-"], &found.to_string())
        .await;
    assert!(stale.err.contains("the object has been modified"), "{stale:?}");
    kubectl.run(&["label", "svc", "web", "a-"]).await.ok();
    let found = kubectl.json(&["get", "svc", "web"]).await;
    assert_eq!(
        (
            &found["spec"]["ports"][0]["targetPort"],
            &found["metadata"]["labels"]
        ),
        (&json!(6), &Value::Null)
    );
    server.end().await;
}

#[tokio::test]
async fn edit_writes_what_the_editor_wrote() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", &json!([{"port": 80}])))
        .await
        .ok();
    let args = ["--namespace", &server.namespace, "edit", "svc", "web"];
    let edited = kubectl
        .command(&args)
        .env("EDITOR", "/bin/sed -i s/port:.80/port:\\ 90/")
        .output()
        .await;
    let edited = edited.expect("kubectl runs");
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(
        kubectl.json(&["get", "svc", "web"]).await["spec"]["ports"][0]["port"],
        90
    );
    server.end().await;
}

#[tokio::test]
async fn delete_waits_until_the_object_is_gone() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let file = kubectl.file("web.json", &service("web", &json!([{"port": 80}])));
    kubectl.run(&["create", "-f", &file]).await.ok();
    kubectl.run(&["delete", "-f", &file]).await.ok();
    let again = kubectl.run(&["delete", "-f", &file, "--ignore-not-found"]).await;
    assert!(again.success, "{again:?}");
    kubectl
        .with_input(&["create", "-f", "-"], &pod("free", None))
        .await
        .ok();
    kubectl.run(&["delete", "pod", "free"]).await.ok();
    // No kubelet runs on this node, so the pod stays until its deletion is forced.
    kubectl
        .with_input(&["create", "-f", "-"], &pod("held", Some("no-such-node")))
        .await
        .ok();
    kubectl.run(&["delete", "pod", "held", "--wait=false"]).await.ok();
    let held = kubectl.json(&["get", "pod", "held"]).await;
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(
        kubectl
            .run(&["get", "pod", "held"])
            .await
            .ok()
            .contains("Terminating")
    );
    kubectl
        .run(&["delete", "pod", "held", "--grace-period=0", "--force"])
        .await
        .ok();
    assert!(!kubectl.run(&["get", "pod", "held"]).await.success);
    kubectl
        .with_input(&["create", "-f", "-"], &service("late", &json!([{"port": 80}])))
        .await
        .ok();
    kubectl.run(&["delete", "svc", "--all"]).await.ok();
    kubectl
        .run(&["delete", "namespace", &server.namespace])
        .await
        .ok();
    let gone = kubectl.run(&["get", "namespace", &server.namespace]).await;
    assert!(gone.err.contains("NotFound"), "{gone:?}");
}

#[tokio::test]
async fn create_makes_objects_from_flags() {
    let server = TestServer::new().await;
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    // Newer kubectls send these in protobuf.
    kubectl
        .run(&["create", "service", "clusterip", "web", "--tcp=80:8080"])
        .await
        .ok();
    kubectl
        .run(&["create", "service", "clusterip", "none", "--clusterip=None"])
        .await
        .ok();
    kubectl
        .run(&[
            "create",
            "service",
            "externalname",
            "far",
            "--external-name=example.com",
        ])
        .await
        .ok();
    kubectl
        .run(&["create", "service", "nodeport", "open", "--tcp=80:http"])
        .await
        .ok();
    let name = format!("{}-more", server.namespace);
    kubectl.run(&["create", "namespace", &name]).await.ok();
    kubectl.run(&["delete", "namespace", &name]).await.ok();
    let found = kubectl.json(&["get", "services"]).await;
    let brief: Vec<Value> = found["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|service| {
            json!([
                service["metadata"]["name"],
                service["spec"]["type"],
                service["spec"]["ports"][0]["targetPort"]
            ])
        })
        .collect();
    let expected = json!([
        ["far", "ExternalName", null],
        ["none", "ClusterIP", null],
        ["open", "NodePort", "http"],
        ["web", "ClusterIP", 8080]
    ]);
    assert_eq!(Value::from(brief), expected);
    kubectl
        .run(&["run", "free", "--image=probe:1", "--port=80"])
        .await
        .ok();
    kubectl.run(&["expose", "pod", "free", "--port=80"]).await.ok();
    let exposed = kubectl.json(&["get", "service", "free"]).await;
    assert_eq!(exposed["spec"]["selector"], json!({"run": "free"}));
    kubectl.run(&["describe", "pod", "free"]).await.ok();
    kubectl.run(&["describe", "service", "web"]).await.ok();
    server.end().await;
}
