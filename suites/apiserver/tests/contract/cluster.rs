//! Several replicas over one store, each to be stopped and started, with faults for their clients.

use std::{net::SocketAddr, sync::Arc};

use kube::Client;
use lab_apiserver::{
    Auth, Config, Faults, Pki, Replica, ReplicaConfig, RestingReconciler, Store, kubeconfig,
};
use serde_json::{Value, json};

use crate::server::{REAL, client};

/// A control plane of our own.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pki: Pki,
}

/// Users that faults tell apart; a token is the name with `-token`.
pub(crate) const USERS: [&str; 2] = ["admin", "watcher"];

/// Quick leases; nothing is advertised but by replicas.
pub(crate) fn config() -> Config {
    let cidr = "10.96.0.0/16".parse().expect("a range");
    let mut config = Config::new(vec![cidr], Vec::new(), 60002);
    config.reconcile_interval = std::time::Duration::from_millis(300);
    config.lease = std::time::Duration::from_millis(450);
    config
}

impl Cluster {
    /// `None` where the run is about a real server: its faults are not ours to make.
    pub(crate) fn new(config: Config) -> Option<Self> {
        if std::env::var(REAL).is_ok() {
            let why = format!("replicas and faults of the lab's own server, and {REAL} is set");
            testing::skip(&testing::current(), &why);
            return None;
        }
        Some(Self {
            store: Store::new(config).expect("a store"),
            faults: Faults::new(),
            pki: Pki::new().expect("an authority"),
        })
    }

    /// A replica at an address of its own (port 0) or at the one of an earlier replica.
    pub(crate) fn start(&self, address: SocketAddr, advertise: [u8; 4]) -> Replica {
        let tls = self.pki.server_tls(&["127.0.0.1".into()]).expect("a certificate");
        let auth = USERS.into_iter().fold(Auth::new(), |auth, user| {
            auth.with_user(format!("{user}-token"), user)
        });
        let config = ReplicaConfig {
            listener: std::net::TcpListener::bind(address).expect("a port"),
            tls,
            auth: Arc::new(auth),
            advertise: advertise.into(),
            faults: self.faults.clone(),
        };
        Replica::start(&self.store, config).expect("a replica")
    }

    /// Keeps all replicas from writing `default/kubernetes`.
    pub(crate) fn rest_reconciler(&self) -> RestingReconciler {
        self.store.rest_reconciler()
    }

    /// One replica on a free port.
    pub(crate) fn one(&self) -> Replica {
        self.start(anywhere(), [10, 99, 99, 7])
    }

    pub(crate) async fn client(&self, address: SocketAddr, user: &str) -> Client {
        let token = format!("{user}-token");
        client(&kubeconfig(
            &format!("https://{address}"),
            self.pki.ca_pem(),
            &token,
        ))
        .await
    }
}

/// A free port on the loopback.
pub(crate) fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The EndpointSlices of the namespace `default`.
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// Sends a request; status code, `Retry-After` and answer, or what went wrong under way.
pub(crate) async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<(u16, Option<String>, Value), String> {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(text.into_bytes()))
        .expect("a request");
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    let code = response.status().as_u16();
    let retry = response
        .headers()
        .get("retry-after")
        .map(|value| value.to_str().expect("text").to_owned());
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    let bytes = body.map_err(|error| error.to_string())?.to_bytes();
    Ok((code, retry, serde_json::from_slice(&bytes).expect("JSON")))
}

/// Creates an empty slice in the namespace `default`; its version.
pub(crate) async fn create(client: &Client, name: &str) -> u64 {
    let slice = json!({"metadata": {"name": name}, "addressType": "IPv4", "endpoints": []});
    let (code, _, created) = ask(client, "POST", SLICES, &slice).await.expect("an answer");
    assert_eq!(code, 201, "{created}");
    let version = created["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version");
    version.parse().expect("a number")
}

/// The names in a list of slices.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items").iter();
    items
        .map(|item| item["metadata"]["name"].as_str().expect("a name"))
        .collect()
}
