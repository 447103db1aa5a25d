//! `log` and `proxy` of pods: by kubectl where it has a command for it.

use std::{pin::pin, sync::Arc};

use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
};

use crate::{
    kubectl::Kubectl,
    node::Node,
    server::{LIMIT, TestServer, config},
};

fn pod(containers: &[&str], node: Option<&str>) -> Value {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name, "image": "probe:1", "ports": [{"containerPort": 8080}]}))
        .collect();
    // No scheduler has this name, so the pod gets no node.
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "none",
        "automountServiceAccountToken": false, "containers": containers}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

/// A server with a node that runs the pod `p`.
pub(crate) async fn running() -> Option<(TestServer, Node)> {
    let server = TestServer::own_only(config()).await?;
    let node = Node::default();
    server
        .own
        .as_ref()
        .expect("our server")
        .store
        .set_kubelet(Arc::new(node.clone()));
    server.create("pods", &pod(&["main"], Some("n"))).await;
    let status = json!({"status": {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}});
    let path = format!("{}/p/status", server.path("pods"));
    let (code, _) = server
        .raw(
            "PATCH",
            &path,
            "application/merge-patch+json",
            &status.to_string(),
        )
        .await;
    assert_eq!(code, 200);
    Some((server, node))
}

#[tokio::test]
async fn a_pod_keeps_the_qos_class_that_it_was_created_with() {
    let server = TestServer::new().await;
    let mut burstable = pod(&["main"], None);
    burstable["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}});
    let created = server.create("pods", &burstable).await;
    assert_eq!(created["status"]["qosClass"], "Burstable");
    let other = json!({"status": {"phase": "Running", "qosClass": "BestEffort"}});
    let (code, answer) = server.patch("pods", "p/status", "merge-patch", &other).await;
    let said = "Pod \"p\" is invalid: status.qosClass: Invalid value: \"BestEffort\": field is immutable";
    assert_eq!((code, answer["message"].as_str()), (422, Some(said)));
    let none = json!({"status": {"phase": "Running", "qosClass": null}});
    let (code, answer) = server.patch("pods", "p/status", "merge-patch", &none).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(
        (&answer["status"]["phase"], &answer["status"]["qosClass"]),
        (&json!("Running"), &json!("Burstable"))
    );
    server.end().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_any_node_is_asked() {
    let server = TestServer::new().await;
    server.create("pods", &pod(&["a", "b"], None)).await;
    let forbidden = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
    let rows = [
        (
            "p/log",
            400,
            "a container name must be specified for pod p, choose one of: [a b]",
        ),
        ("p/log?container=c", 400, "container c is not valid for pod p"),
        (
            "p/log?container=a&tailLines=x",
            400,
            "strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        (
            "p/log?container=a&tailLines=-1",
            422,
            "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "p/log?container=a&limitBytes=0",
            422,
            "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
        ),
        (
            "p/log?container=a&sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            &format!("PodLogOptions \"p\" is invalid: []: {forbidden}"),
        ),
        ("absent/log", 404, "pods \"absent\" not found"),
        (
            "p/exec?stdout=true&command=x",
            400,
            "a container name must be specified for pod p, choose one of: [a b]",
        ),
        (
            "p/exec?container=c&stdout=true&command=x",
            400,
            "container c is not valid for pod p",
        ),
        (
            "p/exec?container=a&stdout=true&command=x",
            400,
            "pod p does not have a host assigned",
        ),
        (
            "absent/exec?container=a&stdout=true&command=x",
            404,
            "pods \"absent\" not found",
        ),
        ("p/proxy", 400, "address not allowed"),
        ("p:80/proxy/path", 400, "address not allowed"),
        ("absent:80/proxy/", 404, "pods \"absent\" not found"),
        ("q:p:80:1/proxy/", 400, "invalid pod request \"q:p:80:1\""),
    ];
    for (path, code, message) in rows {
        let (found, status) = server
            .raw("GET", &format!("{}/{path}", server.path("pods")), "", "")
            .await;
        assert_eq!(
            (found, &status["message"]),
            (code, &json!(message)),
            "{path}: {status}"
        );
    }
    let path = format!("{}/p/log?container=a", server.path("pods"));
    assert_eq!(
        server.raw("GET", &path, "", "").await,
        (204, "".into()),
        "no node runs it yet"
    );
    server.end().await;
}

#[tokio::test]
async fn a_pod_of_a_node_without_a_kubelet_is_unreachable() {
    let Some(server) = TestServer::own_only(config()).await else {
        return;
    };
    server.create("pods", &pod(&["main"], Some("n"))).await;
    for path in ["log", "exec?stdout=true&command=x"] {
        let (code, status) = server
            .raw("GET", &format!("{}/p/{path}", server.path("pods")), "", "")
            .await;
        let message = status["message"].as_str().expect("a message");
        assert!(
            code == 500 && message.starts_with("error dialing backend: "),
            "{status}"
        );
    }
    server.end().await;
}

#[tokio::test]
async fn kubectl_shows_the_lines_of_a_log_that_it_is_asked_for() {
    let Some((server, node)) = running().await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    node.write(600, "long ago");
    node.write(5, "before");
    node.write(1, "now");
    let rows: [(&[&str], &str); 5] = [
        (&["logs", "p"], "long ago\nbefore\nnow\n"),
        (&["logs", "p", "-c", "main", "--tail", "1"], "now\n"),
        (&["logs", "p", "--since", "1m"], "before\nnow\n"),
        (&["logs", "p", "--since", "1m", "--limit-bytes", "8"], "before\nn"),
        (
            &["logs", "p", "--tail", "2", "--since-time", "2020-01-01T00:00:00Z"],
            "before\nnow\n",
        ),
    ];
    for (args, expected) in rows {
        assert_eq!(kubectl.run(args).await.ok(), expected, "{args:?}");
    }
    let stamped = kubectl
        .run(&["logs", "p", "--timestamps", "--tail", "1"])
        .await
        .ok();
    let (at, text) = stamped.split_once(' ').expect("a time");
    assert!(
        at.parse::<jiff::Timestamp>().is_ok() && text == "now\n",
        "{stamped}"
    );
    let refused = kubectl.run(&["logs", "p", "--previous"]).await;
    assert!(
        refused
            .err
            .contains("previous terminated container \"main\" in pod \"p\" not found"),
        "{refused:?}"
    );
    let asked = node.asked().pop().expect("it was asked");
    assert_eq!((asked.pod.node.as_str(), asked.name.as_str()), ("n", "main"));
    server.end().await;
}

#[tokio::test]
async fn a_log_that_is_followed_ends_with_its_server_and_not_after_the_drain() {
    let Some((server, node)) = running().await else {
        return;
    };
    node.write(1, "now");
    let log: Api<Pod> = server.api();
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let lines = log.log_stream("p", &follow).await.expect("a log");
    let mut lines = pin!(futures::AsyncBufReadExt::lines(lines));
    let first = futures::StreamExt::next(&mut lines).await.expect("a line");
    assert_eq!(first.expect("read"), "now");
    server.own.expect("our server").stop().await.expect("stopped");
    // It would be cut off after two seconds, and that is an error.
    let end = futures::StreamExt::next(&mut lines).await;
    assert!(end.is_none(), "{end:?}");
}

#[tokio::test]
async fn kubectl_follows_a_log_until_its_container_ends() {
    let Some((server, node)) = running().await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    node.write(0, "first");
    let args = ["--namespace", &server.namespace, "logs", "-f", "p"];
    let mut child = kubectl.command(&args).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = async || {
        tokio::time::timeout(LIMIT, lines.next_line())
            .await
            .expect("in time")
            .expect("output")
    };
    assert_eq!(next().await.as_deref(), Some("first"));
    assert_eq!(node.followers(), 1);
    node.write(0, "second");
    assert_eq!(next().await.as_deref(), Some("second"));
    node.end_logs();
    assert_eq!(next().await, None);
    let status = tokio::time::timeout(LIMIT, child.wait()).await.expect("in time");
    assert!(status.expect("a status").success());
    server.end().await;
}

#[tokio::test]
async fn http_to_a_pod_is_passed_on() {
    let Some((server, node)) = running().await else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    node.listen(listener.local_addr().expect("an address"));
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let echo = service_fn(async |request: Request<Incoming>| {
                let header = |name| request.headers().get(name).is_some();
                let seen = json!({"method": request.method().as_str(), "uri": request.uri().to_string(),
                    "host": request.headers()["host"].to_str().unwrap_or_default(),
                    "authorization": header("authorization")});
                Ok::<_, std::convert::Infallible>(Response::new(seen.to_string()))
            });
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo);
            served.await.expect("served");
        }
    });
    let pods = server.path("pods");
    for (name, path) in [
        ("p", "proxy/a//b?c=d"),
        ("p:8080", "proxy/a//b?c=d"),
        ("http:p:8080", "proxy/a//b?c=d"),
    ] {
        let (code, seen) = server
            .raw("POST", &format!("{pods}/{name}/{path}"), "text/plain", "x")
            .await;
        let expected =
            json!({"method": "POST", "uri": "/a//b?c=d", "host": "10.1.1.1:8080", "authorization": false});
        assert_eq!((code, seen), (200, expected), "{name}");
    }
    let (code, status) = server.raw("GET", &format!("{pods}/p:81/proxy/"), "", "").await;
    let message = "error trying to reach service: dial tcp 10.1.1.1:81: connect: connection refused";
    assert_eq!((code, &status["message"]), (503, &json!(message)));
    serving.abort();
    server.end().await;
}
