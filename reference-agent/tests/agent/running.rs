//! An agent that runs without a kernel, beside an API server over HTTPS that can be stopped.

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Config, Pki, Store, kubeconfig, new_token, serve};
use reference_agent::{
    agent::{self, AgentError, Parts},
    api_access::ApiServers,
    control::Planner,
    dump::dump,
    feed::{EventSender, Feed},
    model::{Event, Host},
    reflect,
    reports::Reports,
    testing::node::{Node, NodeDatapath},
};
use serde_json::{Value, json};
use testing::patience::LIMIT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What is listed, in the order of `/readyz`.
pub(crate) const KINDS: [&str; 4] = ["services", "endpointslices", "nodes", "servicecidrs"];

/// One API server, which can be stopped and started at its address.
pub(crate) struct Control {
    pub(crate) store: Store,
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

    pub(crate) fn resume(&mut self) {
        let listener = std::net::TcpListener::bind(self.address).expect("a port");
        self.address = listener.local_addr().expect("an address");
        let tls = self.pki.server_tls(&["127.0.0.1".into()]).expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(self.token.clone(), "agent"));
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(self.store.clone(), listener, tls, auth, shutdown.clone()));
        self.running = Some((shutdown, serving));
    }

    pub(crate) fn authority(&self) -> &str {
        self.pki.ca_pem()
    }

    /// The error of a request without a server at the address.
    pub(crate) fn unanswered(&self, why: &str) -> String {
        format!(
            "client error (Connect): no API server answers: {}: {why}",
            self.address
        )
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
        self.client_with(self.authority(), &self.token).await
    }

    /// A client that trusts this authority, and says that it is whose token this is.
    pub(crate) async fn client_with(&self, authority: &str, token: &str) -> Client {
        self.way_with(authority, token, None).await.1
    }

    /// The agent's own way, with what it remembers in this folder.
    pub(crate) async fn way(&self, state: &Path) -> (ApiServers, Client) {
        self.way_with(self.authority(), &self.token, Some(state)).await
    }

    async fn way_with(&self, authority: &str, token: &str, state: Option<&Path>) -> (ApiServers, Client) {
        let text = kubeconfig(&format!("https://{}", self.address), authority, token);
        let config = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let config = config.expect("a config");
        let servers = ApiServers::new(&config, &[], state).await.expect("a server");
        let client = servers.client(&config).expect("a client");
        (servers, client)
    }
}

fn parts(client: &Client, node: &Node, listener: TcpListener) -> Parts<Planner, NodeDatapath> {
    let reports = Reports::new(None);
    let mut feeds = reflect::feeds(client, &reports, &mut rand::rng());
    feeds.push(reflect::service_cidrs(client, &reports, &mut rand::rng()));
    feeds.push(Feed::new(|events: EventSender| async move {
        events
            .send(Event::Host(Host::default()))
            .await
            .expect("the agent runs");
    }));
    Parts {
        desired: Planner::default(),
        datapath: node.open(),
        feeds,
        servers: None,
        host: None,
        pod_network: None,
        workers: Vec::new(),
        reports,
        listener,
        maps_at: "memory".to_owned(),
        audit_interval: Duration::from_secs(1),
    }
}

/// An agent that runs.
pub(crate) struct Running {
    health: SocketAddr,
    pub(crate) reports: Reports,
    shutdown: CancellationToken,
    ended: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    pub(crate) async fn start(control: &Control, node: &Node) -> Self {
        Self::start_with(&control.client().await, node).await
    }

    pub(crate) async fn start_with(client: &Client, node: &Node) -> Self {
        Self::start_by(None, client, node).await
    }

    /// One that tells these where API servers are.
    pub(crate) async fn start_by(servers: Option<ApiServers>, client: &Client, node: &Node) -> Self {
        Self::begin(servers, Planner::default(), client, node).await
    }

    /// One that plans so.
    pub(crate) async fn start_as(planner: Planner, client: &Client, node: &Node) -> Self {
        Self::begin(None, planner, client, node).await
    }

    async fn begin(servers: Option<ApiServers>, desired: Planner, client: &Client, node: &Node) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = agent::listen(any).await.expect("a port");
        let health = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let parts = Parts {
            desired,
            servers,
            ..parts(client, node, listener)
        };
        let reports = parts.reports.clone();
        let run = agent::run(parts, shutdown.clone());
        Self {
            health,
            reports,
            shutdown,
            ended: tokio::spawn(run),
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.ended.await.expect("no panic").expect("ends well");
    }

    /// Code and body of a GET.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.health).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        let code = response.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        Some((code, body.to_owned()))
    }

    /// Waits until `/readyz` says of these kinds and no other that their list does not come, and why.
    pub(crate) async fn until_unlisted(&self, expected: &[(&str, &str)]) {
        let unlisted = |(kinds, why): &(&str, &str)| {
            format!("{kinds} have not been listed yet: the request failed: {why}")
        };
        let expected: Vec<String> = expected.iter().map(unlisted).collect();
        eventually(|| async {
            let (code, text) = self.get("/readyz").await.ok_or("no answer")?;
            let seen = text
                .lines()
                .filter(|line| line.contains("have not been listed yet"));
            (code == 503 && seen.eq(&expected)).then_some(()).ok_or(text)
        })
        .await;
    }

    pub(crate) async fn until_readyz(&self, expected: (u16, &str)) {
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
pub(crate) async fn eventually<F: Future<Output = Result<(), String>>>(condition: impl Fn() -> F) {
    let begin = Instant::now();
    loop {
        match condition().await {
            Ok(()) => return,
            Err(seen) => assert!(begin.elapsed() < LIMIT, "not within {LIMIT:?}; last seen: {seen}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) async fn until_dump(node: &Node, expected: &str) {
    eventually(|| async {
        let seen = dump(&node.contents());
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
}

pub(crate) async fn create_service(client: &Client, name: &str, ip: &str) {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    let object = json!({
        "metadata": {"name": name},
        "spec": {"clusterIP": ip, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    create(&api, object).await;
}

pub(crate) async fn create_slice(client: &Client, name: &str, service: &str, addresses: &[&str]) {
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
pub(crate) fn dumped(frontends: &[&str], addresses: &[&str]) -> String {
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
