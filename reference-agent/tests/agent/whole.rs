//! The whole agent without a kernel: an API server over HTTPS, watches, control loop, health, and a node in memory.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Config, Pki, Store, kubeconfig, new_token, serve};
use lb_loader::{Hook, Ownership};
use reference_agent::{
    agent::{self, AgentError, EventSender, Feed, Parts},
    control::Planner,
    dump::dump,
    model::{Event, Host},
    own::ApiServers,
    reflect,
    reports::Reports,
    testing::node::{Node, NodeDatapath},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// One API server, which can be stopped and started at its address.
pub(crate) struct Control {
    store: Store,
    pki: Pki,
    token: String,
    address: SocketAddr,
    running: Option<(
        CancellationToken,
        JoinHandle<Result<(), lab_apiserver::ServeError>>,
    )>,
}

impl Control {
    pub(crate) fn start() -> Self {
        let cidr = "10.96.0.0/16".parse().expect("a range");
        let config = Config::new(vec![cidr], vec!["10.77.0.1".parse().expect("an address")], 6443);
        let mut control = Self {
            store: Store::new(config).expect("a store"),
            pki: Pki::new().expect("an authority"),
            token: new_token(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            running: None,
        };
        control.resume();
        control
    }

    fn resume(&mut self) {
        let listener = std::net::TcpListener::bind(self.address).expect("a port");
        self.address = listener.local_addr().expect("an address");
        let tls = self.pki.server_tls(&["127.0.0.1".into()]).expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(self.token.clone(), "agent"));
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(self.store.clone(), listener, tls, auth, shutdown.clone()));
        self.running = Some((shutdown, serving));
    }

    pub(crate) async fn stop(&mut self) {
        let (shutdown, serving) = self.running.take().expect("it runs");
        shutdown.cancel();
        serving
            .await
            .expect("serve does not panic")
            .expect("serve ends well");
    }

    pub(crate) async fn client(&self) -> Client {
        let text = kubeconfig(
            &format!("https://{}", self.address),
            self.pki.ca_pem(),
            &self.token,
        );
        let config = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let config = config.expect("a config");
        let servers = ApiServers::new(&config, &[], None).await.expect("a server");
        servers.client(&config).expect("a client")
    }
}

fn parts(client: &Client, node: &Node, listener: TcpListener) -> Parts<Planner, NodeDatapath> {
    let reports = Reports::new(None);
    let mut feeds = reflect::feeds(client, &reports);
    feeds.push(Feed::new(|events: EventSender| async move {
        events
            .send(Event::Host(Host::default()))
            .await
            .expect("the agent runs");
    }));
    Parts {
        brain: Planner::default(),
        datapath: node.open(),
        feeds,
        servers: None,
        host: None,
        workers: Vec::new(),
        reports,
        listener,
        maps_at: "memory".to_owned(),
        audit_interval: Duration::from_secs(60),
    }
}

/// An agent that runs.
struct Running {
    health: SocketAddr,
    shutdown: CancellationToken,
    ended: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    async fn start(control: &Control, node: &Node) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = agent::listen(any).await.expect("a port");
        let health = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let client = control.client().await;
        let run = agent::run(parts(&client, node, listener), shutdown.clone());
        Self {
            health,
            shutdown,
            ended: tokio::spawn(run),
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.ended.await.expect("no panic").expect("ends well");
    }

    /// Code and body of a GET.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.health).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        let code = response.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        Some((code, body.to_owned()))
    }

    async fn until_readyz(&self, expected: (u16, &str)) {
        eventually(|| async {
            let seen = self.get("/readyz").await;
            (seen == Some((expected.0, expected.1.to_owned())))
                .then_some(())
                .ok_or(format!("{seen:?}"))
        })
        .await;
    }
}

/// Looks until the condition holds.
async fn eventually<F: Future<Output = Result<(), String>>>(condition: impl Fn() -> F) {
    let begin = Instant::now();
    loop {
        match condition().await {
            Ok(()) => return,
            Err(seen) => assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}; last seen: {seen}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn until_dump(node: &Node, expected: &str) {
    eventually(|| async {
        let seen = dump(&node.contents());
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
}

async fn create_service(client: &Client, name: &str, ip: &str) {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    let object = json!({
        "metadata": {"name": name},
        "spec": {"clusterIP": ip, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    create(&api, object).await;
}

async fn create_slice(client: &Client, name: &str, service: &str, addresses: &[&str]) {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address]}))
        .collect();
    let object = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}], "endpoints": endpoints,
    });
    create(&api, object).await;
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object)
        .await
        .expect("created");
}

/// The dump of the Service that is always there, and of these.
fn dumped(frontends: &[&str], addresses: &[&str]) -> String {
    let mut text = "frontends\nTCP 10.96.0.1:443 -> 10.77.0.1:6443\n".to_owned();
    text.extend(frontends.iter().map(|line| format!("{line}\n")));
    text += "addresses\n10.96.0.1 -> other ports refused\n";
    text.extend(
        addresses
            .iter()
            .map(|address| format!("{address} -> other ports refused\n")),
    );
    text
}

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
    let unsynced = "services have not been listed yet\nendpointslices have not been listed yet\nnodes have not been listed yet\n";
    agent.until_readyz((503, unsynced)).await;
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
