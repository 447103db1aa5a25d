//! The whole agent without a kernel: an API server over HTTPS, watches, control loop, health, and a node in memory.

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use lb_abi::FrontendKey;
use lb_loader::{Hook, Ownership};
use reference_agent::{
    agent, api_access::STATE_FILE, datapath::Datapath as _, dump::dump, maps::LbMaps as _,
    testing::node::Node,
};
use serde_json::{Value, json};

use crate::running::{Control, KINDS, Running, create_service, create_slice, dumped, eventually, until_dump};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_objects_to_maps_over_outages_and_restarts() {
    let mut control = Control::start();
    let node = Node::new();
    node.leave(Hook::ALL[0], 7, Ownership::Earlier);
    let agent = Running::start(&control, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    assert_eq!(
        node.programs(Hook::ALL[0]),
        [1000],
        "the program of an earlier load is gone"
    );

    let client = control.client().await;
    create_service(&client, "x", "10.96.1.1").await;
    create_service(&client, "y", "10.96.1.2").await;
    create_slice(&client, "x-1", "x", &["10.0.0.1", "10.0.0.2"]).await;
    let x = "TCP 10.96.1.1:80 -> 10.0.0.1:8080 10.0.0.2:8080";
    let both = dumped(&[x, "TCP 10.96.1.2:80 -> refused"], &["10.96.1.1", "10.96.1.2"]);
    until_dump(&node, &both).await;

    // The API server is away: what is known goes on being served, and is no reason to be unready.
    control.stop().await;
    assert_eq!(agent.get("/readyz").await, Some((200, "ok\n".to_owned())));
    assert_eq!(agent.get("/healthz").await, Some((200, "ok\n".to_owned())));
    assert_eq!(dump(&node.contents()), both);

    // It comes back without the history: a deletion in the gap shows only in the list.
    control.resume();
    let gap: Api<Service> = Api::namespaced(control.client().await, "default");
    gap.delete("y", &DeleteParams::default()).await.expect("deleted");
    control.store.compact();
    let one = dumped(&[x], &["10.96.1.1"]);
    until_dump(&node, &one).await;

    // Ended, everything stays; what changes meanwhile is put in order by the next start.
    agent.stop().await;
    assert_eq!(dump(&node.contents()), one);
    assert_eq!(node.programs(Hook::ALL[0]), [1000]);
    let client = control.client().await;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    services
        .delete("x", &DeleteParams::default())
        .await
        .expect("deleted");
    create_service(&client, "z", "10.96.1.3").await;
    let agent = Running::start(&control, &node).await;
    until_dump(&node, &dumped(&["TCP 10.96.1.3:80 -> refused"], &["10.96.1.3"])).await;
    agent.until_readyz((200, "ok\n")).await;
    assert_eq!(node.programs(Hook::ALL[0]), [2000]);
    agent.stop().await;
    assert_eq!(node.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_another_proxy_gets_while_it_is_watched_is_served_no_more() {
    let control = Control::start();
    let node = Node::new();
    let client = control.client().await;
    create_service(&client, "x", "10.96.1.1").await;
    create_slice(&client, "x-1", "x", &["10.0.0.1"]).await;
    let agent = Running::start(&control, &node).await;
    let served = dumped(&["TCP 10.96.1.1:80 -> 10.0.0.1:8080"], &["10.96.1.1"]);
    until_dump(&node, &served).await;
    let services: Api<Service> = Api::namespaced(client, "default");
    let label = |value: Value| {
        let labels = json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": value}}});
        (PatchParams::default(), Patch::Merge(labels))
    };
    let (parameters, patch) = label(json!("another"));
    services.patch("x", &parameters, &patch).await.expect("labelled");
    until_dump(&node, &dumped(&[], &[])).await;
    let (parameters, patch) = label(Value::Null);
    services.patch("x", &parameters, &patch).await.expect("labelled");
    until_dump(&node, &served).await;
    agent.stop().await;
    assert_eq!(node.violations(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_agent_says_over_http_is_what_it_does() {
    let control = Control::start();
    let node = Node::new();
    let client = control.client().await;
    create_service(&client, "x", "10.96.1.1").await;
    create_slice(&client, "x-1", "x", &["10.0.0.1"]).await;
    create_slice(&client, "stray", "", &["10.0.0.2"]).await;
    let agent = Running::start(&control, &node).await;
    let served = dumped(&["TCP 10.96.1.1:80 -> 10.0.0.1:8080"], &["10.96.1.1"]);
    until_dump(&node, &served).await;
    agent.until_readyz((200, "ok\n")).await;
    assert_eq!(agent.get("/dump").await, Some((200, served.clone())));
    assert_eq!(agent.get("/plan").await, Some((200, served)));
    let (code, findings) = agent.get("/findings").await.expect("an answer");
    assert_eq!(code, 200);
    assert!(
        findings.starts_with("endpointslice default/stray: ServiceUnknown: "),
        "{findings}"
    );
    let (code, metrics) = agent.get("/metrics").await.expect("an answer");
    assert_eq!(code, 200);
    for line in [
        "plumbline_ready{} 1",
        "plumbline_findings{reason=\"ServiceUnknown\"} 1",
        "plumbline_lists_total{kind=\"service\",manner=\"streamed\"} 1",
    ] {
        assert!(
            metrics.lines().any(|one| one == line),
            "{line} is missing in\n{metrics}"
        );
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_api_server_adopted_maps_serve_and_readyz_says_what_is_missing() {
    let mut control = Control::start();
    let node = Node::new();
    let client = control.client().await;
    create_service(&client, "x", "10.96.1.1").await;
    let agent = Running::start(&control, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
    let served = dump(&node.contents());
    control.stop().await;

    let agent = Running::start(&control, &node).await;
    let why = control.unanswered("Connection refused (os error 111)");
    agent.until_unlisted(&KINDS.map(|kinds| (kinds, &*why))).await;
    assert_eq!(agent.get("/healthz").await, Some((200, "ok\n".to_owned())));
    assert_eq!(dump(&node.contents()), served);
    assert_eq!(
        node.programs(Hook::ALL[0]),
        [2000],
        "its programs are attached at once"
    );
    control.resume();
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_api_servers_are_is_remembered_though_the_maps_say_it_already_and_nothing_is_written() {
    let control = Control::start();
    let node = Node::new();
    for start in ["the first", "over the same maps"] {
        let folder = tempfile::tempdir().expect("a folder");
        let (servers, client) = control.way(folder.path()).await;
        let agent = Running::start_by(Some(servers), &client, &node).await;
        agent.until_readyz((200, "ok\n")).await;
        eventually(|| async {
            let seen = std::fs::read_to_string(folder.path().join(STATE_FILE));
            let seen = seen.map_err(|error| format!("{start}: {error}"))?;
            seen.contains("10.77.0.1:6443")
                .then_some(())
                .ok_or(format!("{start}: {seen}"))
        })
        .await;
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_program_that_stays_makes_the_agent_unready_while_it_lasts() {
    let control = Control::start();
    let node = Node::new();
    node.leave(Hook::ALL[0], 7, Ownership::Earlier);
    node.refuse_evict(true);
    let agent = Running::start(&control, &node).await;
    let reason = format!(
        "stale program 7 of an earlier load at {} of /cgroup, without a link could not be evicted: \
         failed to detach program: Operation not permitted (os error 1)\n",
        Hook::ALL[0]
    );
    agent.until_readyz((503, &reason)).await;
    node.refuse_evict(false);
    agent.until_readyz((200, "ok\n")).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_does_to_the_maps_is_found_and_repaired() {
    let control = Control::start();
    let node = Node::new();
    let client = control.client().await;
    create_service(&client, "x", "10.96.1.1").await;
    create_slice(&client, "x-1", "x", &["10.0.0.1"]).await;
    let agent = Running::start(&control, &node).await;
    let served = dumped(&["TCP 10.96.1.1:80 -> 10.0.0.1:8080"], &["10.96.1.1"]);
    until_dump(&node, &served).await;
    let frontends = node.contents().frontends;
    let mut maps = node.open().maps();
    for (key, _) in frontends {
        let key: FrontendKey = key;
        maps.delete_frontend(key).expect("deleted");
    }
    assert_ne!(dump(&node.contents()), served);
    until_dump(&node, &served).await;
    eventually(|| async {
        let (_, metrics) = agent.get("/metrics").await.ok_or("no answer")?;
        let line = "plumbline_drift_total{map=\"FRONTENDS\",what=\"missing\"} 2";
        let found = metrics.lines().any(|one| one == line);
        found.then_some(()).ok_or(metrics)
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_health_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let error = agent::listen(address)
        .await
        .expect_err("the address is in use")
        .to_string();
    assert!(
        error.starts_with(&format!("failed to listen on {address}")),
        "{error}"
    );
}
