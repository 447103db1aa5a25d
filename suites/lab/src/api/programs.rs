//! Kubernetes' own control plane: etcd, kube-apiserver and kube-controller-manager of a release.
//!
//! They run in the API servers' network namespace and a cgroup of their own. Two kinds of features are off: those
//! that the lab's kubelets lack (heartbeats, so no node lifecycle controller; tokens in pods), and RBAC, which a lab
//! with one user does not need. Scheduler and load balancers are the lab's.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use cluster::{
    Stop,
    spawn::{self, Placement},
};
use kube::Client;
use tokio::{process::Child, task::JoinSet};

use super::access::Access;
use crate::{
    IpFamilies, LabError,
    cgroup::Cgroup,
    dir::{LabDir, tail},
    error::io_error,
    netns::NetNs,
    process_end::{describe, stop},
    program::{API_SERVER, CONTROLLERS, ETCD},
    topology::MOST_API_SERVERS,
};

/// Address of etcd: the loopback of the namespace, which is not shared.
const STORE: &str = "http://127.0.0.1:2379";
const PEERS: &str = "http://127.0.0.1:2380";

/// Controllers for pods and Services, and for workload objects.
const CONTROLLED: &str = "daemonset-controller,deployment-controller,endpointslice-controller,\
    endpointslice-mirroring-controller,garbage-collector-controller,job-controller,namespace-controller,\
    replicaset-controller,root-ca-certificate-publisher-controller,serviceaccount-controller,statefulset-controller";

/// The programs of one lab, with their start parameters.
pub(super) struct Programs {
    folder: PathBuf,
    families: IpFamilies,
    net: Arc<NetNs>,
    cgroup: Cgroup,
    dir: LabDir,
}

impl Programs {
    /// Writes the programs' files, and starts etcd.
    pub(super) async fn start(
        folder: &Path,
        families: IpFamilies,
        net: Arc<NetNs>,
        cgroup: Cgroup,
        dir: &LabDir,
        access: &Access,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, LabError> {
        cgroup.create()?;
        let programs = Self {
            folder: folder.to_owned(),
            families,
            net,
            cgroup,
            dir: dir.clone(),
        };
        let files = dir.control_plane();
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        builder
            .create(&files)
            .map_err(io_error(format!("make {}", files.display())))?;
        let mut texts = vec![
            ("ca.crt".to_owned(), access.ca_pem().to_owned()),
            ("tokens.csv".to_owned(), access.token_file()),
        ];
        for number in 1..=MOST_API_SERVERS {
            let (certificate, key) = access.server_pem(number)?;
            texts.push((format!("server-{number}.crt"), certificate));
            texts.push((format!("server-{number}.key"), key));
        }
        for (name, text) in texts {
            let path = files.join(name);
            let mut options = OpenOptions::new();
            options.create_new(true).write(true).mode(0o600);
            let written = options
                .open(&path)
                .and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(io_error(format!("write {}", path.display())))?;
        }
        let arguments = [
            format!("--data-dir={}", files.join("etcd").display()),
            format!("--listen-client-urls={STORE}"),
            format!("--advertise-client-urls={STORE}"),
            format!("--listen-peer-urls={PEERS}"),
            format!("--initial-advertise-peer-urls={PEERS}"),
            format!("--initial-cluster=default={PEERS}"),
            // The store lives only as long as the lab.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        keep(ETCD, programs.run(ETCD, ETCD, &arguments).await?, tasks);
        Ok(programs)
    }

    /// Starts an API server.
    pub(super) async fn api_server(
        &self,
        number: u8,
        address: SocketAddr,
        advertise: IpAddr,
    ) -> Result<Child, LabError> {
        let file = |name: &str| self.dir.control_plane().join(name).display().to_string();
        let ranges = self.families.services();
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let arguments = [
            format!("--etcd-servers={STORE}"),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!("--advertise-address={advertise}"),
            format!("--tls-cert-file={}", file(&format!("server-{number}.crt"))),
            format!("--tls-private-key-file={}", file(&format!("server-{number}.key"))),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=AlwaysAllow".to_owned(),
            format!("--service-cluster-ip-range={}", ranges.join(",")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            // One key for all users, as nothing is protected here. A certificate stands for its public key.
            format!("--service-account-key-file={}", file("server-1.crt")),
            format!("--service-account-signing-key-file={}", file("server-1.key")),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        ];
        self.run(API_SERVER, &format!("{API_SERVER}-{number}"), &arguments)
            .await
    }

    /// Why an API server ended by itself, with the end of its log.
    pub(super) fn ended(&self, number: u8) -> LabError {
        LabError::Host {
            what: format!("run {API_SERVER}"),
            why: format!("it ended by itself{}", self.log(number)),
            remedy: "Check that the programs are of one release, or leave out --control-plane",
        }
    }

    /// The end of what an API server logged.
    pub(super) fn log(&self, number: u8) -> String {
        tail(&self.dir.program_log(&format!("{API_SERVER}-{number}")))
    }

    /// Starts the controllers.
    pub(super) async fn controllers(
        &self,
        server: SocketAddr,
        access: &Access,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), LabError> {
        let kubeconfig = self.dir.control_plane().join("controllers.kubeconfig");
        access.write(&kubeconfig, server, cluster::users::CONTROLLERS)?;
        let file = |name: &str| self.dir.control_plane().join(name).display().to_string();
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={CONTROLLED}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--service-account-private-key-file={}", file("server-1.key")),
        ];
        keep(
            CONTROLLERS,
            self.run(CONTROLLERS, CONTROLLERS, &arguments).await?,
            tasks,
        );
        Ok(())
    }

    async fn run(&self, program: &str, log: &str, arguments: &[String]) -> Result<Child, LabError> {
        let log = self.dir.program_log(log);
        let open = || {
            let opened = OpenOptions::new().create(true).append(true).open(&log);
            opened.map_err(io_error(format!("open {}", log.display())))
        };
        let mut command = Command::new(self.folder.join(program));
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?);
        let net = self.net.file().try_clone();
        let placement = Placement {
            net: Some(net.map_err(io_error("duplicate a descriptor"))?),
            mnt: None,
            cgroup: Some(self.cgroup.procs()?),
            ..Placement::default()
        };
        spawn::spawn(command, placement)
            .await
            .map_err(io_error(format!("start {program}")))
    }
}

/// Ends an API server.
pub(super) async fn end(mut child: Child, how: Stop) {
    let end = stop(&mut child, how).await;
    tracing::info!(end, "{API_SERVER} ended");
}

/// Takes the lab down when the program ends by itself.
fn keep(name: &'static str, mut child: Child, tasks: &mut JoinSet<()>) {
    tasks.spawn(async move {
        let end = child.wait().await;
        let end = end.map_or_else(|error| error.to_string(), describe);
        tracing::error!(end, "{name} ended by itself");
    });
}

/// Whether the API server is ready.
pub async fn is_ready(client: &Client) -> bool {
    // /readyz is 200 after all post-start hooks: default/kubernetes and the namespaces exist.
    let request = http::Request::get("/readyz").body(Vec::new());
    match request {
        Ok(request) => client.request_text(request).await.is_ok(),
        Err(_) => false,
    }
}
