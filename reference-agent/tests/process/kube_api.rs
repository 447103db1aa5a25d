//! A real control plane: etcd, kube-apiserver and kubectl, from the folder `PLUMBLINE_KUBE_API` or from PATH. It authorizes
//! by RBAC, and writes down what it was asked.

use std::{
    collections::BTreeSet,
    env, fs,
    fs::File,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testing::patience::LIMIT;

use crate::authorizer::Need;

/// Names the folder of the programs.
const FOLDER: &str = "PLUMBLINE_KUBE_API";
/// What must be in it.
const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];
/// Where the API server says that it is; an address of loopback must be this.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 250));
/// The first cluster IP: the API server's own Service.
pub(crate) const KUBERNETES: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
/// Its port at its address.
const PORT: u16 = 6443;
/// A user who may do everything.
const ADMIN: &str = "only-in-this-test";
/// How often it is asked until then.
const POLL: Duration = Duration::from_millis(100);
/// The only user whose requests are written down.
const AGENT: &str = "system:serviceaccount:kube-system:plumbline-agent";

/// The folder that has the programs. `None`, and on record: there is none.
pub(crate) fn programs_or_skip() -> Option<PathBuf> {
    let whole = |folder: &PathBuf| PROGRAMS.iter().all(|program| folder.join(program).is_file());
    if let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) {
        assert!(
            whole(&folder),
            "{FOLDER}={} must have {PROGRAMS:?}",
            folder.display()
        );
        return Some(folder);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).find(whole);
    if found.is_none() {
        let why = format!("no folder with {PROGRAMS:?}; set {FOLDER}, or put it into PATH");
        testing::skip(&testing::current(), &why);
    }
    found
}

/// One that runs until the value goes.
pub(crate) struct KubeApi {
    programs: PathBuf,
    folder: PathBuf,
    processes: [Process; 2],
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, if it could not start.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl KubeApi {
    /// `streams`: it knows streamed lists (KEP-3157).
    pub(crate) fn start(programs: &Path, within: &Path, streams: bool) -> Self {
        let folder = within.join("control-plane");
        fs::create_dir(&folder).expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).expect("written");
            file.display().to_string()
        };
        let key = rcgen::KeyPair::generate().expect("a key");
        let signing = write("signing.pem", &key.serialize_pem());
        let verifying = write("verifying.pem", &key.public_key_pem());
        let tokens = write("tokens", &format!("{ADMIN},admin,admin,system:masters\n"));
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": "Metadata", "users": [AGENT]}, {"level": "None"}],
        });
        let policy = write("policy", &policy.to_string());
        let start = |program: &str, arguments: &[String]| {
            let log = File::create(folder.join(program)).expect("a log");
            let mut command = Command::new(programs.join(program));
            command.args(arguments).env("HOME", &folder).stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
            Process(
                command
                    .spawn()
                    .unwrap_or_else(|error| panic!("{program}: {error}")),
            )
        };
        let at = |name: &str| folder.join(name).display().to_string();
        let etcd = start(
            "etcd",
            &[
                format!("--data-dir={}", at("data")),
                "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
                "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
                "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            ],
        );
        let server = start(
            "kube-apiserver",
            &[
                "--etcd-servers=http://127.0.0.1:2379".to_owned(),
                format!("--bind-address={ADDRESS}"),
                format!("--advertise-address={ADDRESS}"),
                format!("--secure-port={PORT}"),
                format!("--cert-dir={}", at("certificates")),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-signing-key-file={signing}"),
                format!("--service-account-key-file={verifying}"),
                format!("--token-auth-file={tokens}"),
                "--authorization-mode=RBAC".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108".to_owned(),
                // No controller makes the objects of the tokens that it waits for.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--audit-policy-file={policy}"),
                format!("--audit-log-path={}", at("audit")),
                format!("--feature-gates=WatchList={streams}"),
            ],
        );
        let mut api = Self {
            programs: programs.to_owned(),
            folder,
            processes: [etcd, server],
        };
        api.wait_until_up();
        api
    }

    fn wait_until_up(&mut self) {
        let begin = Instant::now();
        loop {
            // The namespaces are the last that it makes of what is needed here.
            let asked = self.kubectl(&["get", "namespaces", "default", "kube-system"], None);
            if self.authority().is_file() && asked.is_ok() {
                return;
            }
            let ended = self.processes.iter_mut().any(|Process(child)| {
                let status = child.try_wait().expect("a child");
                status.is_some()
            });
            assert!(
                begin.elapsed() < LIMIT && !ended,
                "not up: {asked:?}\n{}\n{}",
                self.said("etcd"),
                self.said("kube-apiserver")
            );
            thread::sleep(POLL);
        }
    }

    fn said(&self, program: &str) -> String {
        let log = fs::read_to_string(self.folder.join(program)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// The URL that agents are told.
    pub(crate) fn url() -> String {
        format!("https://{ADDRESS}:{PORT}")
    }

    /// The certificate by which it is known.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }

    fn kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String, String> {
        let mut command = Command::new(self.programs.join("kubectl"));
        command
            .env_clear()
            .env("HOME", &self.folder)
            .arg("--server")
            .arg(Self::url())
            .arg("--certificate-authority")
            .arg(self.authority())
            .args(["--token", ADMIN])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // One that fails may not read.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("kubectl ends");
        let [said, errors] =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        if output.status.success() {
            Ok(said)
        } else {
            Err(format!("kubectl {arguments:?}: {errors}"))
        }
    }

    /// What kubectl prints.
    ///
    /// # Panics
    /// It fails.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        self.kubectl(arguments, None)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// `kubectl apply` of objects.
    pub(crate) fn apply<'a>(&self, objects: impl IntoIterator<Item = &'a Value>) {
        let objects: Vec<&Value> = objects.into_iter().collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let applied = self.kubectl(&["apply", "-f", "-"], Some(&list));
        applied.unwrap_or_else(|error| panic!("{error}"));
    }

    /// What the agent was allowed to ask, and has asked so far; for which of it lists were streamed.
    pub(crate) fn audit(&self) -> (BTreeSet<Need>, BTreeSet<Need>) {
        let (mut asked, mut streamed) = (BTreeSet::new(), BTreeSet::new());
        let log = fs::read_to_string(self.folder.join("audit")).unwrap_or_default();
        // The last line may still be on its way.
        let events = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for event in events {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let need = Need {
                group: text(&event["objectRef"]["apiGroup"]),
                resource: text(&event["objectRef"]["resource"]),
                verb: text(&event["verb"]),
            };
            if event["annotations"]["authorization.k8s.io/decision"] != "allow" {
                continue;
            }
            let answered = event["responseStatus"]["code"] == 200;
            if answered && text(&event["requestURI"]).contains("sendInitialEvents=true") {
                streamed.insert(need.clone());
            }
            asked.insert(need);
        }
        (asked, streamed)
    }
}
