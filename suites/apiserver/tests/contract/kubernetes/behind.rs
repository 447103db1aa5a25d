//! A server of Kubernetes' own behind a proxy, and those who ask it there.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use http_body_util::BodyExt as _;
use kube::Client;
use lab_apiserver::{
    Keys, Proxy,
    faults::{Clients, Fault, FaultGuard},
    kubeconfig,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::authority::Authority;
use crate::server::client;

pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A ServiceAccount, and a user and group of a certificate.
pub(super) const ACCOUNT: &str = "system:serviceaccount:default:agent";
pub(super) const PERSON: &str = "person";
pub(super) const PEOPLE: &str = "people";

/// A server behind a proxy, and those who ask it there.
pub(super) struct Behind {
    pub(super) proxy: Arc<Proxy>,
    pub(super) address: SocketAddr,
    pub(super) folder: PathBuf,
    pub(super) authority: Authority,
    pub(super) admin: Client,
    pub(super) person: Client,
    pub(super) agent: Client,
    pub(super) token: String,
}

impl Behind {
    pub(super) async fn new(authority: Authority, keys: &Keys, server: u16, folder: &Path) -> Self {
        let proxy = Arc::new(Proxy::new(keys).expect("keys of one server"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let passing = Arc::clone(&proxy);
        tokio::spawn(async move {
            loop {
                let (asking, _) = listener.accept().await.expect("a client");
                let proxy = Arc::clone(&passing);
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", server)).await.expect("a server");
                    // How a connection ends is its client's matter.
                    drop(proxy.pass(asking, server).await);
                });
            }
        });
        let admin = client(&authority.kubeconfig(address, "kubernetes-admin", "system:masters")).await;
        let bind = |name: &str, kind: &str| {
            let mut subject = json!({"kind": kind, "name": name});
            if kind == "ServiceAccount" {
                subject["namespace"] = "default".into();
            } else {
                subject["apiGroup"] = "rbac.authorization.k8s.io".into();
            }
            json!({
                "metadata": {"name": name}, "subjects": [subject],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            })
        };
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        post(&admin, bindings, &bind("agent", "ServiceAccount")).await;
        post(&admin, bindings, &bind(PEOPLE, "Group")).await;
        post(&admin, accounts, &json!({"metadata": {"name": "agent"}})).await;
        let token = post(&admin, &format!("{accounts}/agent/token"), &json!({"spec": {}})).await;
        let token = token["status"]["token"].as_str().expect("a token").to_owned();
        Self {
            person: client(&authority.kubeconfig(address, PERSON, PEOPLE)).await,
            agent: client(&kubeconfig(&format!("https://{address}"), &authority.pem, &token)).await,
            proxy,
            address,
            folder: folder.to_owned(),
            authority,
            admin,
            token,
        }
    }

    /// Begins a fault for a client.
    pub(super) fn begin(&self, user: &str, fault: Fault) -> FaultGuard {
        self.proxy
            .begin(Clients::User(user.to_owned()), fault)
            .expect("begun")
    }

    /// Creates a ConfigMap as the administrator, who is exempt from faults.
    pub(super) async fn create(&self, name: &str) -> String {
        let map = post(&self.admin, MAPS, &json!({"metadata": {"name": name}})).await;
        let version = map["metadata"]["resourceVersion"].as_str();
        version.expect("a version").to_owned()
    }

    /// A raw connection by HTTP/1.1.
    pub(super) async fn dial(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        use rustls::pki_types::{CertificateDer, pem::PemObject as _};
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).expect("PEM");
        roots.add(authority).expect("an authority");
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(self.address).await.expect("a proxy");
        let name = rustls::pki_types::ServerName::IpAddress(self.address.ip().into());
        connector.connect(name, stream).await.expect("a handshake")
    }
}

pub(super) async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let body = serde_json::to_vec(object).expect("JSON");
    let request = hyper::Request::post(path)
        .header("content-type", "application/json")
        .body(body)
        .expect("a request");
    client.request(request).await.expect("created")
}

/// The status of an answer, and its text; `None`: it broke.
pub(super) async fn get(client: &Client, path: &str) -> Option<(u16, String)> {
    let send = async || {
        let request = hyper::Request::get(path)
            .body(kube::client::Body::empty())
            .expect("a request");
        let sent = client.send(request).await;
        sent.inspect_err(|error| eprintln!("{path}: {error:?}"))
    };
    // A connection that was kept may be closed by the server in the moment in which it is used again (RFC 9112, 9.3.1).
    let response = match send().await {
        Ok(response) => response,
        Err(_) => send().await.ok()?,
    };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8(body.to_vec()).expect("text")))
}

pub(super) async fn status(client: &Client, path: &str) -> Option<u16> {
    get(client, path).await.map(|(status, _)| status)
}
