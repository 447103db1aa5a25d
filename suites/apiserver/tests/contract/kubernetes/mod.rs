//! These same tests against Kubernetes' own control plane: its programs from a folder (`programs`), and its images where
//! Docker is (`images`).
//!
//! Each starts etcd, kube-apiserver and kube-controller-manager on this host's loopback, at ports of their own, and then
//! this program again: all other tests, with that server's kubeconfig. What is about the lab's own server is skipped there,
//! by name. `proxy` lets faults meet clients of that server in front of it (`behind`, `authority`). `owner` says whose a container is, and removes those whose test was killed.

mod authority;
mod behind;
mod images;
mod owner;
mod programs;
mod proxy;

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use lab_apiserver::{Pki, kubeconfig, new_token};
use tempfile::TempDir;
use testing::patience::WHOLE;
use tokio::{process::Command, time::timeout};

use crate::server::{LIMIT, REAL, client};

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const CONTROLLERS: &str = "kube-controller-manager";

/// The controllers that the tests ask for: those that the lab leaves to Kubernetes' own, which need no node.
const CONTROLLED: &str = "endpointslice-controller,endpointslice-mirroring-controller,garbage-collector-controller,\
    namespace-controller,root-ca-certificate-publisher-controller,serviceaccount-controller";

/// What a control plane is started with.
struct Plane {
    folder: TempDir,
    kubeconfig: String,
    store: u16,
    peers: u16,
    server: u16,
}

impl Plane {
    /// Writes its files, and chooses its ports. `None`: this run is about another server.
    fn new() -> Option<Self> {
        if env::var_os(REAL).is_some() {
            let why = format!("the run is about the server that {REAL} names");
            testing::skip(&testing::current(), &why);
            return None;
        }
        // Kept until all three are known, so that they differ.
        let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [store, peers, server] = ports.map(|port| port.local_addr().expect("an address").port());
        let folder = tempfile::tempdir().expect("a folder");
        let (pki, token) = (Pki::new().expect("an authority"), new_token());
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let (certificate, key) = pki.server_pem(&names).expect("a certificate");
        let kubeconfig = kubeconfig(&format!("https://127.0.0.1:{server}"), pki.ca_pem(), &token);
        for (name, text) in [
            ("ca.crt", pki.ca_pem()),
            ("server.crt", &certificate),
            ("server.key", &key),
            ("tokens.csv", &format!("{token},admin,admin,system:masters\n")),
            ("kubeconfig", &kubeconfig),
        ] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        Some(Self {
            folder,
            kubeconfig,
            store,
            peers,
            server,
        })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    fn etcd(&self, data: &str) -> Vec<String> {
        let [store, peers] = [self.store, self.peers].map(|port| format!("http://127.0.0.1:{port}"));
        vec![
            format!("--data-dir={data}"),
            format!("--listen-client-urls={store}"),
            format!("--advertise-client-urls={store}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let file = |name: &str| self.file(name);
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.store),
            // Upstream's are five minutes, and a test waits for it.
            "--etcd-compaction-interval=10s".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            // It may not be loopback, and is never used.
            "--advertise-address=10.77.0.1".to_owned(),
            format!("--secure-port={}", self.server),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            // A certificate stands for its public key.
            format!("--service-account-key-file={}", file("server.crt")),
            format!("--service-account-signing-key-file={}", file("server.key")),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        ]
    }

    fn controllers(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.file("kubeconfig")),
            format!("--controllers={CONTROLLED}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            // They are not needed, and other control planes on this host may use their ports.
            "--secure-port=0".to_owned(),
            format!("--root-ca-file={}", self.file("ca.crt")),
            format!("--service-account-private-key-file={}", self.file("server.key")),
        ]
    }

    /// Waits until the API server says that it is ready.
    async fn serves(&self) {
        self.answers("/readyz").await;
    }

    /// Waits until the controllers have begun: one of them makes this.
    async fn is_controlled(&self) {
        self.answers("/api/v1/namespaces/default/serviceaccounts/default")
            .await;
    }

    async fn answers(&self, path: &str) {
        let client = client(&self.kubeconfig).await;
        let deadline = Instant::now() + LIMIT;
        loop {
            let request = hyper::Request::get(path).body(Vec::new()).expect("a request");
            let Err(error) = client.request_text(request).await else {
                return;
            };
            assert!(Instant::now() < deadline, "no {path} within {LIMIT:?}: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs all other tests against it.
    async fn passes(&self) {
        let this: PathBuf = env::current_exe().expect("this program's path");
        let mut command = Command::new(this);
        command
            .args(["--skip", "kubernetes::", "--test-threads=4"])
            .env(REAL, self.file("kubeconfig"))
            .kill_on_drop(true);
        let output = timeout(WHOLE, command.output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("the tests did not end within {WHOLE:?}"))
            .expect("this program runs itself");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let passed = said.lines().find(|line| line.starts_with("test result: ok"));
        let passed = passed.unwrap_or_else(|| panic!("no tests ran: {said}"));
        println!("against Kubernetes' own: {passed}");
    }
}
