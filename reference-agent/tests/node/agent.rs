//! The agent as a process, beside an API server that the test writes to.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Config, Pki, ServeError, Store, kubeconfig, new_token, serve};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reference_agent::api_access::ApiServers;
use tokio::{
    runtime::{Handle, Runtime},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::place::Place;

pub(crate) use testing::patience::LIMIT;

/// The program under test, as it is shipped.
const PROGRAM: &str = env!("CARGO_BIN_EXE_reference-agent");
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(10);
/// Its health endpoint.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9440);

/// An API server of the test's own.
pub(crate) struct Api {
    runtime: Runtime,
    store: Store,
    pki: Pki,
    token: String,
}

impl Api {
    pub(crate) fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let ranges = ["10.96.0.0/16", "fd00:96::/108"].map(|range| range.parse().expect("a range"));
        let config = Config::new(ranges.into(), vec![Ipv4Addr::new(10, 77, 0, 1).into()], 6443);
        let store = runtime.block_on(async { Store::new(config).expect("a store") });
        Self {
            runtime,
            store,
            pki: Pki::new().expect("an authority"),
            token: new_token(),
        }
    }

    /// Serves at an address until it is stopped; with a certificate for these names.
    pub(crate) fn serve(&self, address: SocketAddr, names: &[&str]) -> Serving {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let tls = self.pki.server_tls(&names).expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(self.token.clone(), "agent"));
        let listener = std::net::TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let serving = serve(self.store.clone(), listener, tls, auth, shutdown.clone());
        Serving {
            address,
            shutdown,
            ended: self.runtime.spawn(serving),
            runtime: self.runtime.handle().clone(),
        }
    }

    /// A kubeconfig that leads to an address.
    pub(crate) fn kubeconfig(&self, address: SocketAddr) -> String {
        kubeconfig(&format!("https://{address}"), self.pki.ca_pem(), &self.token)
    }

    /// Does something with a client of the server at this address.
    pub(crate) fn with<T>(&self, address: SocketAddr, work: impl AsyncFnOnce(Client) -> T) -> T {
        self.runtime.block_on(async {
            let config = Kubeconfig::from_yaml(&self.kubeconfig(address)).expect("a kubeconfig");
            let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
            let config = config.expect("a config");
            let servers = ApiServers::new(&config, &[], None).await.expect("a server");
            work(servers.client(&config).expect("a client")).await
        })
    }
}

/// One replica of the API server.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    shutdown: CancellationToken,
    ended: JoinHandle<Result<(), ServeError>>,
    runtime: Handle,
}

impl Serving {
    /// Ends it; its port is free and its connections are closed when this returns.
    pub(crate) fn stop(self) {
        self.shutdown.cancel();
        let ended = self.runtime.block_on(self.ended).expect("it does not panic");
        ended.expect("it ends well");
    }
}

/// Where agents are started, one at a time.
pub(crate) struct Node {
    bpffs: PathBuf,
    cgroup: PathBuf,
    folder: PathBuf,
}

impl Node {
    /// `covered`: the programs see the sockets of the test itself, and of what it calls pods; otherwise packets alone.
    pub(crate) fn new(place: &Place, covered: bool) -> Self {
        let cgroup = if covered {
            place.cgroup.clone()
        } else {
            place.cgroup("node")
        };
        fs::create_dir(cgroup.join("agent")).expect("a cgroup");
        Self {
            bpffs: place.bpffs("bpf"),
            cgroup,
            folder: place.folder.clone(),
        }
    }

    /// Starts an agent that reads this kubeconfig.
    pub(crate) fn start(&self, kubeconfig: &str, arguments: &[&str]) -> Agent<'_> {
        let file = self.folder.join("kubeconfig");
        fs::write(&file, kubeconfig).expect("written");
        self.start_from("--kubeconfig", &file, arguments)
    }

    /// Starts an agent that takes objects from what an option names.
    pub(crate) fn start_from(&self, option: &str, source: &Path, arguments: &[&str]) -> Agent<'_> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .expect("a log");
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo 0 > "$0" && exec "$@""#])
            .arg(self.cgroup.join("agent/cgroup.procs"))
            .arg(PROGRAM)
            .args(["run", "--node", "here", option])
            .arg(source)
            .args(["--listen", &LISTEN.to_string(), "--bpffs"])
            .arg(&self.bpffs)
            .arg("--cgroup")
            .arg(&self.cgroup)
            .arg("--state")
            .arg(self.folder.join("state"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Agent {
            process: command.spawn().expect("it starts"),
            node: self,
        }
    }

    /// Runs another command of the program on this node's maps: exit code, stdout and stderr.
    pub(crate) fn command(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(PROGRAM);
        let output = command.args(arguments).arg("--bpffs").arg(&self.bpffs).output();
        let output = output.expect("it starts");
        let [said, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said, errors)
    }

    /// What `dump` prints; what it says, if it fails.
    pub(crate) fn dump(&self) -> String {
        match self.command(&["dump"]) {
            (Some(0), dump, _) => dump,
            (.., errors) => errors,
        }
    }

    /// The node's cgroup.
    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// The same cgroup is found at another place from now on.
    pub(crate) fn move_to(&mut self, cgroup: PathBuf) {
        self.cgroup = cgroup;
    }

    /// Where its pins go.
    pub(crate) fn bpffs(&self) -> &Path {
        &self.bpffs
    }

    /// Takes everything away, as users do; what is remembered of API servers stays.
    pub(crate) fn clean_up(&self) {
        let mut command = Command::new(PROGRAM);
        command.arg("cleanup").arg("--bpffs").arg(&self.bpffs);
        let output = command
            .arg("--cgroup")
            .arg(&self.cgroup)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }

    /// What the agents of this node have said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// What they have said of late.
    pub(crate) fn said(&self) -> String {
        const LINES: usize = 60;
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Looks until the dump has these lines.
    #[track_caller]
    pub(crate) fn until_dumped(&self, lines: &[&str]) {
        let has = || {
            let dump = self.dump();
            let missing = lines
                .iter()
                .find(|line| !dump.lines().any(|found| found == **line));
            missing.map_or(Ok(()), |line| Err(format!("no line {line:?} in\n{dump}")))
        };
        self.eventually(has);
    }

    /// Looks until something holds.
    #[track_caller]
    pub(crate) fn eventually<T>(&self, mut holds: impl FnMut() -> Result<T, String>) -> T {
        let begin = Instant::now();
        loop {
            match holds() {
                Ok(value) => return value,
                Err(seen) if begin.elapsed() > LIMIT => {
                    panic!(
                        "not within {LIMIT:?}; last seen: {seen}\nthe agent said:\n{}",
                        self.said()
                    )
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }
}

/// An agent that runs; it is killed with the value.
pub(crate) struct Agent<'a> {
    process: Child,
    node: &'a Node,
}

impl Agent<'_> {
    /// Ends it with a signal and waits until it is gone.
    pub(crate) fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).expect("it runs");
        self.process.wait().expect("a child");
    }

    /// Bytes of memory that were resident at once, at the most (VmHWM of proc_pid_status(5)).
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        kibibytes.expect("VmHWM").parse::<u64>().expect("a number") << 10
    }

    /// Waits until it is ready.
    #[track_caller]
    pub(crate) fn ready(&self) {
        self.node.eventually(|| match self.get("/readyz") {
            Some((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Status code and body of a GET.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(LISTEN).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let code = response.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        Some((code, body.to_owned()))
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
