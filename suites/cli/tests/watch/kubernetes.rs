//! Kubernetes' own API server over etcd, on free ports of the loopback device.

use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::KUBERNETES;
use tempfile::TempDir;
use testing::patience::LIMIT;

/// Required programs in the folder.
const PROGRAMS: [&str; 2] = ["etcd", "kube-apiserver"];
const LOOK: Duration = Duration::from_millis(100);
/// A user with all permissions; tokens are names.
const ADMIN: &str = "admin";
/// A user with default permissions, and those that a test grants.
pub(crate) const LEAST: &str = "least";

/// etcd and an API server.
pub(crate) struct ControlPlane {
    programs: PathBuf,
    folder: TempDir,
    ports: [u16; 3],
    /// Whether pods need an existing ServiceAccount.
    accounts: bool,
    etcd: Child,
    api_server: Child,
}

impl ControlPlane {
    /// `None`, with a record, if the programs are missing.
    pub(crate) fn start_or_skip() -> Option<Self> {
        Self::start(false)
    }

    /// As in most clusters, pods are refused until their namespace has the account that they run as.
    pub(crate) fn with_accounts_or_skip() -> Option<Self> {
        Self::start(true)
    }

    fn start(accounts: bool) -> Option<Self> {
        let programs = env::var_os(KUBERNETES).map(PathBuf::from);
        let whole = |folder: &PathBuf| PROGRAMS.iter().all(|program| folder.join(program).is_file());
        let Some(programs) = programs.filter(whole) else {
            let why = format!("{KUBERNETES} names no folder with {}", PROGRAMS.join(" and "));
            testing::skip(&testing::current(), &why);
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("signing.pem", key.serialize_pem());
        write("verifying.pem", key.public_key_pem());
        write(
            "tokens",
            format!("{ADMIN},{ADMIN},{ADMIN},system:masters\n{LEAST},{LEAST},{LEAST}\n"),
        );
        let ports = [(); 3].map(|()| {
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port()
        });
        let etcd = start(
            &programs,
            &folder,
            "etcd",
            &[
                format!("--data-dir={}", folder.path().join("data").display()),
                format!("--listen-client-urls=http://127.0.0.1:{}", ports[0]),
                format!("--advertise-client-urls=http://127.0.0.1:{}", ports[0]),
                format!("--listen-peer-urls=http://127.0.0.1:{}", ports[1]),
            ],
        );
        let api_server = api_server(&programs, &folder, ports, accounts);
        Some(Self {
            programs,
            folder,
            ports,
            accounts,
            etcd,
            api_server,
        })
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> String {
        self.kubeconfig_of(ADMIN)
    }

    pub(crate) fn kubeconfig_of(&self, user: &str) -> String {
        let port = self.ports[2];
        format!(
            "{{apiVersion: v1, kind: Config, current-context: a, \
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: true}}}}], \
             users: [{{name: a, user: {{token: {user}}}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
        )
    }

    /// Returns when the namespace of the test exists.
    pub(crate) async fn up(&mut self) {
        let began = Instant::now();
        loop {
            let namespaces: Api<Namespace> = Api::all(client(&self.kubeconfig()).await);
            if namespaces.get("default").await.is_ok() {
                return;
            }
            let log = fs::read_to_string(self.folder.path().join("kube-apiserver")).unwrap_or_default();
            let ended = self.api_server.try_wait().unwrap().is_some();
            assert!(
                began.elapsed() < LIMIT && !ended,
                "not up within {LIMIT:?}: {log}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills the API server, and starts another at its port.
    pub(crate) fn restart_api_server(&mut self) {
        self.api_server.kill().unwrap();
        self.api_server.wait().unwrap();
        self.api_server = api_server(&self.programs, &self.folder, self.ports, self.accounts);
    }
}

/// A client for the text of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for child in [&mut self.api_server, &mut self.etcd] {
            // The child may have failed to start.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn api_server(programs: &std::path::Path, folder: &TempDir, ports: [u16; 3], accounts: bool) -> Child {
    let plugin = if accounts { "enable" } else { "disable" };
    let at = |name: &str| folder.path().join(name).display().to_string();
    start(
        programs,
        folder,
        "kube-apiserver",
        &[
            format!("--etcd-servers=http://127.0.0.1:{}", ports[0]),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=10.0.0.250".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={}", ports[2]),
            format!("--cert-dir={}", at("certificates")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={}", at("signing.pem")),
            format!("--service-account-key-file={}", at("verifying.pem")),
            format!("--token-auth-file={}", at("tokens")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // As kubeadm and others configure it: the flag's default is false.
            "--allow-privileged=true".to_owned(),
            format!("--{plugin}-admission-plugins=ServiceAccount"),
        ],
    )
}

fn start(programs: &std::path::Path, folder: &TempDir, program: &str, arguments: &[String]) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.path().join(program))
        .unwrap();
    Command::new(programs.join(program))
        .args(arguments)
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}
