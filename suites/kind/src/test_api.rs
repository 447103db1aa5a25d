//! An API server in this process, for tests of requests to a kind cluster.

use std::{net::TcpListener, sync::Arc};

use kube::{
    Client, Config as ClientConfig,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{
    Auth, Config, Faults, Pki, Replica, ReplicaConfig, Store, kubeconfig as kubeconfig_of, new_token,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use super::state::Folder;

/// A cluster that consists of an API server and a folder.
pub(super) struct TestApi {
    pub(super) client: Client,
    pub(super) folder: Folder,
    _replica: Replica,
    _place: TempDir,
}

impl TestApi {
    pub(super) async fn start() -> Self {
        // Another test may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let advertise = vec!["10.77.0.1".parse().expect("an address")];
        let config = Config::new(vec!["10.96.0.0/16".parse().expect("a network")], advertise, 6443);
        let (store, pki, token) = (
            Store::new(config).expect("a store"),
            Pki::new().expect("an authority"),
            new_token(),
        );
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let config = ReplicaConfig {
            listener,
            tls: pki.server_tls(&["127.0.0.1".into()]).expect("a certificate"),
            auth: Arc::new(Auth::new().with_user(token.clone(), "admin")),
            advertise: "10.77.0.1".parse().expect("an address"),
            faults: Faults::new(),
        };
        let replica = Replica::start(&store, config).expect("an API server");
        let text = kubeconfig_of(&format!("https://127.0.0.1:{port}"), pki.ca_pem(), &token);
        let text = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config = ClientConfig::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await;
        let place = tempfile::tempdir().expect("a folder");
        Self {
            client: Client::try_from(config.expect("a configuration")).expect("a client"),
            folder: Folder::at(place.path()),
            _replica: replica,
            _place: place,
        }
    }
}

pub(super) fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}
