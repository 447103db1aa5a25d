//! A real kubectl. It is taken from `PLUMBLINE_KUBECTL`, or from PATH.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::server::{LIMIT, REAL, TestServer};

/// kubectl with a home of its own, in the test's namespace.
pub(crate) struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
    namespace: String,
}

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// Of a run that had to succeed.
    pub(crate) fn ok(self) -> String {
        assert!(self.success, "kubectl failed: {self:?}");
        self.out
    }
}

fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PLUMBLINE_KUBECTL") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("kubectl"))
        .find(|file| file.is_file())
}

impl Kubectl {
    /// `None`, loudly, where there is no kubectl.
    pub(crate) fn new(server: &TestServer) -> Option<Self> {
        let Some(program) = find() else {
            let why = "kubectl not found; set PLUMBLINE_KUBECTL, or put kubectl into PATH";
            testing::skip(&testing::current(), why);
            return None;
        };
        let home = tempfile::tempdir().expect("a folder");
        let config = match &server.own {
            Some(own) => own.kubeconfig(&own.token),
            None => {
                std::fs::read_to_string(std::env::var(REAL).expect("a real server")).expect("a kubeconfig")
            }
        };
        std::fs::write(home.path().join("config"), config).expect("written");
        Some(Self {
            program,
            home,
            namespace: server.namespace.clone(),
        })
    }

    /// A run to be started, without a namespace.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A file for `-f`.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = Path::new(self.home.path()).join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// Runs it in the test's namespace, with a text on its standard input.
    pub(crate) async fn with_input(&self, args: &[&str], input: &str) -> Printed {
        let all: Vec<&str> = ["--namespace", &self.namespace]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let mut child = self.command(&all).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // At once, or each could wait for the other to read.
        let feed = async move { stdin.write_all(input.as_bytes()).await };
        let both = async { tokio::join!(feed, child.wait_with_output()) };
        let both = tokio::time::timeout(LIMIT, both).await;
        let (fed, output) = both.unwrap_or_else(|_| panic!("kubectl {args:?} ends in time"));
        fed.expect("written");
        let output = output.expect("its output");
        Printed {
            success: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Printed {
        self.with_input(args, "").await
    }

    /// Runs it; what it printed as JSON.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.run(&args).await.ok()).expect("JSON")
    }
}

/// The manifest of a service that selects `app: NAME`.
pub(crate) fn service(name: &str, ports: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
           "spec": {"selector": {"app": name}, "ports": ports}})
    .to_string()
}

/// The manifest of a pod.
pub(crate) fn pod(name: &str, node: Option<&str>) -> String {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "probe:1", "ports": [{"containerPort": 8080}]}],
                 "automountServiceAccountToken": false}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod.to_string()
}
