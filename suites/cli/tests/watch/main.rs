//! `plumbline watch` as a program, with the lab's API server and its faults, and with Kubernetes' own.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that can't go on has failed"
)]

mod accounts;
mod borrowed;
mod held;
mod kubernetes;
mod rights;
mod secrets;
mod watching;

use std::{net::TcpListener, sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{
    Auth, Config, Faults, Pki, Replica, ReplicaConfig, Store,
    faults::{Clients, Fault},
    kubeconfig, new_token,
};
use serde_json::{Value, json};

use watching::Watching;

/// A Service `t` and its slice, and their changes.
struct Objects {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
}

impl Objects {
    async fn new(text: &str) -> Self {
        let options = KubeConfigOptions::default();
        let config = Kubeconfig::from_yaml(text).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &options)
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        Self {
            services: Api::namespaced(client.clone(), "default"),
            slices: Api::namespaced(client, "default"),
        }
    }

    async fn create(&self) {
        let service = json!({"metadata": {"name": "t"}, "spec": {"ports": [{"name": "http", "port": 80}]}});
        let service: Service = serde_json::from_value(service).unwrap();
        self.services
            .create(&PostParams::default(), &service)
            .await
            .unwrap();
        let slice = json!({
            "metadata": {"name": "t-1", "labels": {"kubernetes.io/service-name": "t"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        self.slices.create(&PostParams::default(), &slice).await.unwrap();
    }

    async fn endpoints(&self, addresses: &[&str]) {
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"addresses": [address]}))
            .collect();
        let patch = Patch::Merge(json!({"endpoints": endpoints}));
        self.slices
            .patch("t-1", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn annotate(&self, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"note": value}}}));
        self.services
            .patch("t", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Changes that every API server must show, from creation to an annotation.
    async fn story(&self, watching: &mut Watching) {
        watching.until("list-ends", "Service", "listed: 0 objects").await;
        watching
            .until("list-ends", "EndpointSlice", "listed: 0 objects")
            .await;
        self.create().await;
        let service = watching.until("added", "Service", "spec.type is ClusterIP").await;
        assert_eq!(
            (&service["name"], &service["object"]["spec"]["type"]),
            (&json!("t"), &json!("ClusterIP"))
        );
        watching
            .until("added", "EndpointSlice", "endpoint 10.1.0.1 is there, ready")
            .await;
        self.endpoints(&[]).await;
        let emptied = watching
            .until("modified", "EndpointSlice", "endpoint 10.1.0.1 is gone")
            .await;
        // Go encodes an empty list of this field as null.
        let expected = json!(["endpoint 10.1.0.1 is gone", "endpoints is null"]);
        assert_eq!(emptied["changes"], expected, "{emptied}");
        self.annotate("a").await;
        watching.until("modified", "Service", "note").await;
    }

    async fn delete(&self, watching: &mut Watching) {
        self.slices.delete("t-1", &DeleteParams::default()).await.unwrap();
        self.services.delete("t", &DeleteParams::default()).await.unwrap();
        watching.until("deleted", "EndpointSlice", "is deleted").await;
        watching.until("deleted", "Service", "is deleted").await;
    }
}

/// The lab's API server, in this process.
struct Server {
    store: Store,
    pki: Pki,
    token: String,
    faults: Faults,
    port: u16,
}

impl Server {
    fn new() -> Self {
        // There are two TLS providers among the dependencies.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let advertise = vec!["10.77.0.1".parse().unwrap()];
        let config = Config::new(vec!["10.96.0.0/16".parse().unwrap()], advertise, 6443);
        Self {
            store: Store::new(config).unwrap(),
            pki: Pki::new().unwrap(),
            token: new_token(),
            faults: Faults::new(),
            port: 0,
        }
    }

    /// Starts a server at the port of the last one.
    fn start(&mut self) -> Replica {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).expect("a port");
        self.port = listener.local_addr().unwrap().port();
        let config = ReplicaConfig {
            listener,
            tls: self.pki.server_tls(&["127.0.0.1".into()]).unwrap(),
            auth: Arc::new(Auth::new().with_user(self.token.clone(), "admin")),
            advertise: "10.77.0.1".parse().unwrap(),
            faults: self.faults.clone(),
        };
        Replica::start(&self.store, config).unwrap()
    }

    fn kubeconfig(&self) -> String {
        kubeconfig(
            &format!("https://127.0.0.1:{}", self.port),
            self.pki.ca_pem(),
            &self.token,
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_told_through_cuts_lost_events_and_an_api_server_that_is_away() {
    let mut server = Server::new();
    let replica = server.start();
    let objects = Objects::new(&server.kubeconfig()).await;
    let mut watching = Watching::start(&server.kubeconfig(), "default/t");
    objects.story(&mut watching).await;

    let cut = Fault::CutWatches {
        after: Duration::ZERO,
    };
    let fault = server.faults.begin(Clients::All, cut).unwrap();
    watching
        .until("watch-ends", "Service", "goes on from version")
        .await;
    objects.annotate("b").await;
    drop(fault);
    watching
        .until("modified", "Service", "metadata.annotations.note is b, was a")
        .await;

    // Both watches are open again.
    objects.endpoints(&["10.1.0.9"]).await;
    watching
        .until("modified", "EndpointSlice", "endpoint 10.1.0.9 is there")
        .await;
    objects.endpoints(&[]).await;
    watching
        .until("modified", "EndpointSlice", "endpoint 10.1.0.9 is gone")
        .await;
    let fault = server.faults.begin(Clients::All, Fault::DropEvents).unwrap();
    objects.endpoints(&["10.1.0.2"]).await;
    objects.endpoints(&["10.1.0.2", "10.1.0.3"]).await;
    drop(fault);
    watching.until("expired", "EndpointSlice", "410").await;
    let missed = watching
        .until("missed-change", "EndpointSlice", "endpoint 10.1.0.2 is there")
        .await;
    assert_eq!(
        missed["changes"].as_array().unwrap().len(),
        2,
        "two writes, seen as one: {missed}"
    );

    // Both watches are open again.
    objects.endpoints(&["10.1.0.2"]).await;
    watching
        .until("modified", "EndpointSlice", "endpoint 10.1.0.3 is gone")
        .await;
    replica.stop().await.unwrap();
    watching.until("trouble", "Service", "can't be asked").await;
    let replica = server.start();
    objects.annotate("c").await;
    watching
        .until("modified", "Service", "metadata.annotations.note is c, was b")
        .await;

    objects.delete(&mut watching).await;
    watching.end();
    replica.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_own_api_server_is_watched_too_and_through_its_restart() {
    let Some(mut control_plane) = kubernetes::ControlPlane::start_or_skip() else {
        return;
    };
    let kubeconfig = control_plane.kubeconfig();
    control_plane.up().await;
    let objects = Objects::new(&kubeconfig).await;
    let mut watching = Watching::start(&kubeconfig, "default/t");
    objects.story(&mut watching).await;
    control_plane.restart_api_server();
    watching
        .until("watch-ends", "Service", "goes on from version")
        .await;
    control_plane.up().await;
    objects.annotate("b").await;
    watching
        .until("modified", "Service", "metadata.annotations.note is b, was a")
        .await;
    objects.delete(&mut watching).await;
    watching.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_is_told_and_nothing_waits() {
    let mut server = Server::new();
    let replica = server.start();
    let stranger = server.kubeconfig().replace(&server.token, "nobody");
    let (code, said) = Watching::start(&stranger, "default/t").ended();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("can't be listed in default"), "{said}");
    replica.stop().await.unwrap();
}
