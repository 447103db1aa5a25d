//! Faults in front of Kubernetes' own API server.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use http_body_util::BodyExt as _;
use kube::Client;
use lab_apiserver::{
    Keys,
    faults::{Clients, Fault, FaultError, Refusal},
    kubeconfig,
};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

use super::{
    API_SERVER, ETCD, Plane,
    authority::Authority,
    behind::{ACCOUNT, Behind, MAPS, PEOPLE, PERSON, get, status},
    programs,
};
use crate::{
    server::LIMIT,
    watching::{Broken, Watching},
};

#[tokio::test(flavor = "multi_thread")]
async fn faults_meet_clients_of_kubernetes_own_server_in_front_of_it() {
    let Some(folder) = programs::folder() else {
        return;
    };
    let Some(mut plane) = Plane::new() else {
        return;
    };
    let authority = Authority::new();
    let (certificate, key) =
        authority.issue("kube-apiserver", "servers", ExtendedKeyUsagePurpose::ServerAuth);
    let (front, front_key) = authority.issue("front-proxy-client", "", ExtendedKeyUsagePurpose::ClientAuth);
    for (name, text) in [
        ("ca.crt", &authority.pem),
        ("server.crt", &certificate),
        ("server.key", &key),
    ] {
        fs::write(plane.folder().join(name), text).expect("written");
    }
    let itself = SocketAddr::from(([127, 0, 0, 1], plane.server));
    plane.kubeconfig = authority.kubeconfig(itself, "kubernetes-admin", "system:masters");
    let _etcd = programs::start(&plane, &folder, ETCD, plane.etcd(&plane.file("data")));
    let mut arguments = plane.api_server();
    arguments.extend([
        format!("--client-ca-file={}", plane.file("ca.crt")),
        format!("--requestheader-client-ca-file={}", plane.file("ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]);
    let _server = programs::start(&plane, &folder, API_SERVER, arguments);
    plane.serves().await;
    let keys = Keys {
        authority: authority.pem.clone(),
        certificate,
        key,
        front_certificate: front,
        front_key,
    };
    let behind = Behind::new(authority, &keys, plane.server, plane.folder()).await;
    everybody_is_who_he_was(&behind).await;
    for (user, client) in [(PERSON, &behind.person), (ACCOUNT, &behind.agent)] {
        requests_are_refused(&behind, user, client).await;
        bodies_are_slow_or_break(&behind, user, client).await;
        watches_break_or_are_expired(&behind, user, client).await;
        events_are_late_or_lost(&behind, user, client).await;
    }
    watches_by_protobuf_are_told_in_their_form(&behind).await;
    other_protocols_pass(&behind).await;
    kubectl_asks_by_http2(&behind, &folder.join("kubectl")).await;
    let lag = behind.proxy.begin(Clients::All, Fault::Lag).err();
    assert_eq!(lag, Some(FaultError::NoCache));
}

async fn everybody_is_who_he_was(behind: &Behind) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let rows = [
        (&behind.admin, "kubernetes-admin", "system:masters"),
        (&behind.person, PERSON, PEOPLE),
        (&behind.agent, ACCOUNT, "system:serviceaccounts"),
    ];
    for (client, user, group) in rows {
        for forged in [None, Some("x-remote-user"), Some("x-remote-group")] {
            let mut request = hyper::Request::post(path).header("content-type", "application/json");
            if let Some(name) = forged {
                request = request.header(name, "system:masters");
            }
            let request = request.body(b"{}".to_vec()).expect("a request");
            let review: Value = client.request(request).await.expect("a review");
            let found = &review["status"]["userInfo"];
            assert_eq!(found["username"], user, "{forged:?}");
            let groups: Vec<&str> = found["groups"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            assert!(groups.contains(&group), "{groups:?}");
            assert_eq!(
                groups.contains(&"system:masters"),
                group == "system:masters",
                "{forged:?}"
            );
        }
    }
}

async fn requests_are_refused(behind: &Behind, user: &str, client: &Client) {
    let guard = behind.begin(
        user,
        Fault::Refuse {
            refusal: Refusal::TooManyRequests,
            retry_after: Some(7),
        },
    );
    assert_eq!(status(client, MAPS).await, Some(429), "{user}");
    assert_eq!(
        status(client, "/readyz").await,
        Some(200),
        "health is never refused"
    );
    assert_eq!(status(&behind.admin, MAPS).await, Some(200));
    drop(guard);
    assert_eq!(status(client, MAPS).await, Some(200), "{user}");
    let all = behind.proxy.begin(
        Clients::All,
        Fault::Refuse {
            refusal: Refusal::Unavailable,
            retry_after: None,
        },
    );
    assert_eq!(status(client, MAPS).await, Some(503), "{user}");
    assert_eq!(
        status(&behind.admin, MAPS).await,
        Some(200),
        "no fault meets an administrator"
    );
    drop(all);
}

async fn bodies_are_slow_or_break(behind: &Behind, user: &str, client: &Client) {
    let path = "/api/v1/namespaces/default";
    let (_, whole) = get(client, path).await.expect("an answer");
    let guard = behind.begin(
        user,
        Fault::SlowBodies {
            bytes_per_second: 1000,
        },
    );
    let begin = Instant::now();
    assert_eq!(get(client, path).await.expect("an answer").1, whole);
    let expected = Duration::from_millis(u64::try_from(whole.len()).expect("short")) / 2;
    assert!(begin.elapsed() >= expected, "{:?}", begin.elapsed());
    drop(guard);
    let guard = behind.begin(user, Fault::TruncateBodies { after: 10 });
    assert_eq!(get(client, path).await, None, "{user}");
    drop(guard);
    assert!(get(client, path).await.is_some(), "{user}");
}

async fn watches_break_or_are_expired(behind: &Behind, user: &str, client: &Client) {
    let version = behind.create(&format!("{}-1", short(user))).await;
    let query = format!("timeoutSeconds=60&resourceVersion={version}");
    let mut met = Watching::start(client, MAPS, &query).await;
    let mut spared = Watching::start(&behind.admin, MAPS, &query).await;
    let guard = behind.begin(
        user,
        Fault::CutWatches {
            after: Duration::from_millis(100),
        },
    );
    assert_eq!(met.next_or_break().await, Err(Broken), "{user}");
    drop(guard);
    let mut met = Watching::start(client, MAPS, &query).await;
    let guard = behind.begin(user, Fault::Expire);
    let told = met.next().await.expect("an event");
    assert_eq!(
        (&told["type"], &told["object"]["code"]),
        (&json!("ERROR"), &json!(410)),
        "{user}"
    );
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(status(client, &exact).await, Some(410), "{user}");
    assert_eq!(status(client, MAPS).await, Some(200), "a plain list works");
    drop(guard);
    assert_eq!(status(client, &exact).await, Some(200), "{user}");
    let name = format!("{}-2", short(user));
    behind.create(&name).await;
    assert_eq!(
        spared.brief().await,
        ("ADDED".to_owned(), name),
        "nothing met the other"
    );
}

async fn events_are_late_or_lost(behind: &Behind, user: &str, client: &Client) {
    let version = behind.create(&format!("{}-3", short(user))).await;
    let query = format!("timeoutSeconds=60&resourceVersion={version}");
    let mut met = Watching::start(client, MAPS, &query).await;
    let by = Duration::from_millis(1500);
    let guard = behind.begin(user, Fault::DelayEvents { by });
    let name = format!("{}-4", short(user));
    let begin = Instant::now();
    behind.create(&name).await;
    assert_eq!(met.brief().await, ("ADDED".to_owned(), name));
    assert!(begin.elapsed() >= by, "{:?}", begin.elapsed());
    drop(guard);
    let guard = behind.begin(user, Fault::DropEvents);
    let name = format!("{}-5", short(user));
    behind.create(&name).await;
    // The administrator's watch has it; only then the other's is known to have lost it.
    let mut spared = Watching::start(&behind.admin, MAPS, &query).await;
    while spared.brief().await.1 != name {}
    let silent = tokio::time::timeout(Duration::from_millis(500), met.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    drop(guard);
    let told = met.next().await.expect("an event");
    assert_eq!(told["object"]["code"], 410, "{user}: it lost one");
}

/// Names of objects have no colons.
fn short(user: &str) -> &str {
    user.rsplit(':').next().unwrap_or(user)
}

async fn watches_by_protobuf_are_told_in_their_form(behind: &Behind) {
    let version = behind.create("protobuf-1").await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=60&resourceVersion={version}");
    let request = hyper::Request::get(path)
        .header("accept", "application/vnd.kubernetes.protobuf;stream=watch")
        .body(kube::client::Body::empty())
        .expect("a request");
    let response = behind.agent.send(request).await.expect("an answer");
    let content_type = response.headers()["content-type"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(
        content_type.starts_with("application/vnd.kubernetes.protobuf"),
        "{content_type}"
    );
    let mut body = response.into_body();
    let mut next = async || {
        let frame = tokio::time::timeout(LIMIT, body.frame()).await.expect("in time");
        let data = frame
            .expect("an event")
            .expect("no break")
            .into_data()
            .expect("data");
        let (length, event) = data.split_at(4);
        assert_eq!(
            u32::from_be_bytes(length.try_into().expect("four bytes")) as usize,
            event.len()
        );
        String::from_utf8_lossy(event).into_owned()
    };
    behind.create("protobuf-2").await;
    let added = next().await;
    assert!(added.contains("ADDED") && added.contains("protobuf-2"), "{added}");
    let guard = behind.begin(ACCOUNT, Fault::DropEvents);
    behind.create("protobuf-3").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(guard);
    let told = next().await;
    assert!(told.contains("ERROR") && told.contains("Expired"), "{told}");
}

/// A watch by WebSocket stands for all that becomes another protocol.
async fn other_protocols_pass(behind: &Behind) {
    let version = behind.create("socket-1").await;
    let mut stream = behind.dial().await;
    let request = format!(
        "GET {MAPS}?watch=true&resourceVersion={version} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://{}\r\n\r\n",
        behind.address, behind.token, behind.address
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut read = Vec::new();
    let mut until = async |what: &str| {
        let reading = async {
            while !String::from_utf8_lossy(&read).contains(what) {
                let mut more = [0; 4096];
                let length = stream.read(&mut more).await.expect("read");
                assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&read));
                read.extend_from_slice(&more[..length]);
            }
        };
        tokio::time::timeout(LIMIT, reading).await.expect("in time");
    };
    until("101 Switching Protocols").await;
    behind.create("socket-2").await;
    until("socket-2").await;
}

async fn kubectl_asks_by_http2(behind: &Behind, kubectl: &Path) {
    let file = behind.folder.join("agent.kubeconfig");
    let text = kubeconfig(
        &format!("https://{}", behind.address),
        &behind.authority.pem,
        &behind.token,
    );
    fs::write(&file, text).expect("written");
    let ask = async || {
        let mut command = Command::new(kubectl);
        command
            .args(["get", "configmaps", "-o", "name", "--kubeconfig"])
            .arg(&file);
        command.arg("--cache-dir").arg(behind.folder.join("cache"));
        command.env_clear().output().await.expect("kubectl")
    };
    let said = ask().await;
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && text.contains("configmap/protobuf-3"),
        "{said:?}"
    );
    let guard = behind.begin(
        ACCOUNT,
        Fault::Refuse {
            refusal: Refusal::InternalError,
            retry_after: None,
        },
    );
    let said = ask().await;
    assert!(!said.status.success(), "{said:?}");
    drop(guard);
}
