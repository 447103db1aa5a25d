//! A server to test, and its clients.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Config, Pki, Store, kubeconfig, new_token, serve};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use testing::patience::LIMIT;

/// Path of a real server's kubeconfig.
pub(crate) const REAL: &str = "PLUMBLINE_APISERVER_KUBECONFIG";

/// One server with a namespace of the test's own.
pub(crate) struct TestServer {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// `None`: a real server.
    pub(crate) own: Option<Own>,
}

/// A server in this process.
pub(crate) struct Own {
    pub(crate) store: Store,
    pub(crate) pki: Pki,
    pub(crate) url: String,
    pub(crate) token: String,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), lab_apiserver::ServeError>>,
}

/// Upstream's defaults with our bounds made small by the test.
pub(crate) fn config() -> Config {
    let cidr = "10.96.0.0/16".parse().expect("a range");
    Config::new(vec![cidr], vec!["10.77.0.1".parse().expect("an address")], 6443)
}

impl Own {
    pub(crate) fn start(config: Config) -> Self {
        Self::replica(
            Store::new(config).expect("a store"),
            Pki::new().expect("an authority"),
            new_token(),
        )
    }

    /// One more server, over a store that is there.
    pub(crate) fn replica(store: Store, pki: Pki, token: String) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let tls = pki
            .server_tls(&["127.0.0.1".into(), "localhost".into()])
            .expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(token.clone(), "admin"));
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(store.clone(), listener, tls, auth, shutdown.clone()));
        Self {
            store,
            pki,
            url,
            token,
            shutdown,
            serving,
        }
    }

    /// The kubeconfig of a client with this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> String {
        kubeconfig(&self.url, self.pki.ca_pem(), token)
    }

    pub(crate) async fn client(&self, token: &str) -> Client {
        client(&self.kubeconfig(token)).await
    }

    /// Ends the server; what its `serve` returned.
    pub(crate) async fn stop(self) -> Result<(), lab_apiserver::ServeError> {
        self.shutdown.cancel();
        self.serving.await.expect("serve does not panic")
    }
}

/// A client of the server that a kubeconfig names.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    // Two TLS providers are in the tests' dependencies; the choice is made once, and later calls find it made.
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let config = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a config");
    // A 504 is an answer to look at here.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

impl TestServer {
    /// Any server: the real one if the environment names it.
    pub(crate) async fn new() -> Self {
        match std::env::var(REAL) {
            Ok(path) => {
                let text = std::fs::read_to_string(&path).expect("the kubeconfig of a real server");
                Self::over(client(&text).await, None).await
            }
            Err(_) => Self::own(config()).await,
        }
    }

    /// This crate's server, for what only it promises. `None` where the run is about a real one.
    pub(crate) async fn own_only(config: Config) -> Option<Self> {
        if std::env::var(REAL).is_ok() {
            let why = format!("a bound of the lab's own server, and {REAL} is set");
            testing::skip(&testing::current(), &why);
            return None;
        }
        Some(Self::own(config).await)
    }

    async fn own(config: Config) -> Self {
        let own = Own::start(config);
        let client = own.client(&own.token).await;
        Self::over(client, Some(own)).await
    }

    async fn over(client: Client, own: Option<Own>) -> Self {
        let api: Api<Namespace> = Api::all(client.clone());
        let namespace = object(json!({"metadata": {"generateName": "contract-"}}));
        let created = api
            .create(&PostParams::default(), &namespace)
            .await
            .expect("a namespace");
        Self {
            client,
            namespace: created.metadata.name.expect("a name"),
            own,
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Removes what the test made; a real cluster stays.
    pub(crate) async fn end(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.namespace, &DeleteParams::default())
            .await
            .expect("the namespace is deleted");
        if let Some(own) = self.own {
            own.stop().await.expect("an orderly end");
        }
    }

    /// The path of a collection in the test's namespace.
    pub(crate) fn path(&self, plural: &str) -> String {
        let base = match plural {
            "endpointslices" => "/apis/discovery.k8s.io/v1",
            "leases" => "/apis/coordination.k8s.io/v1",
            _ => "/api/v1",
        };
        format!("{base}/namespaces/{}/{plural}", self.namespace)
    }

    /// Creates an object that must be accepted; as it reads afterwards.
    pub(crate) async fn create(&self, plural: &str, object: &Value) -> Value {
        let (code, created) = self
            .raw(
                "POST",
                &self.path(plural),
                "application/json",
                &object.to_string(),
            )
            .await;
        assert_eq!(code, 201, "{created}");
        created
    }

    /// Patches an object; code and answer.
    pub(crate) async fn patch(&self, plural: &str, name: &str, format: &str, patch: &Value) -> (u16, Value) {
        let path = format!("{}/{name}", self.path(plural));
        self.raw(
            "PATCH",
            &path,
            &format!("application/{format}+json"),
            &patch.to_string(),
        )
        .await
    }

    /// A request as raw text: method, path and query, content type, body. Status code and parsed answer.
    pub(crate) async fn raw(&self, method: &str, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .body(kube::client::Body::from(body.as_bytes().to_vec()))
            .expect("a request");
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let bytes = http_body_util::BodyExt::collect(response.into_body())
            .await
            .expect("a body")
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

/// A typed object from JSON.
pub(crate) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of this kind")
}

/// The Status in an error.
pub(crate) fn status(error: &kube::Error) -> (u16, String, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("expected a Status, found {other}"),
    }
}
