//! Agents, started in a cgroup of their own below the one that they attach to, and what they leave on a node.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lb_loader::{Hook, programs_attached};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use testing::patience::LIMIT;

use crate::{
    place::Place,
    trace::{Moment, Traced},
};

/// The program under test, as it is shipped.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_reference-agent");
/// The agent's health endpoint, in the test's own network namespace.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9440);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(10);

/// One node of which agents are started, one at a time.
pub(crate) struct Node {
    /// How agents find the API server.
    arguments: Vec<OsString>,
    /// All that agents are told, if not what the test was told.
    environment: Option<Vec<(String, String)>>,
    bpffs: PathBuf,
    cgroup: PathBuf,
    log: PathBuf,
}

/// What an agent leaves on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// The dump of the maps.
    pub(crate) dump: String,
    /// Every file below the bpffs.
    pub(crate) pins: BTreeSet<PathBuf>,
    /// How many programs run at each hook.
    pub(crate) programs: BTreeMap<&'static str, usize>,
}

impl Node {
    /// Agents attach to the cgroup.
    pub(crate) fn new(place: &Place, name: &str, cgroup: PathBuf, kubeconfig: &Path) -> Self {
        fs::create_dir(cgroup.join("agent")).expect("a cgroup");
        Self {
            arguments: vec!["--kubeconfig".into(), kubeconfig.into()],
            environment: None,
            bpffs: place.bpffs(name),
            cgroup,
            log: place.folder.join(format!("{name}.log")),
        }
    }

    /// Agents find their configuration in a file, and the API server as pods do.
    pub(crate) fn in_pod(
        place: &Place,
        name: &str,
        cgroup: PathBuf,
        config: &Path,
        environment: &[(&str, String)],
    ) -> Self {
        let environment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        Self {
            arguments: vec!["--config".into(), config.into()],
            environment: Some(environment.collect()),
            ..Self::new(place, name, cgroup, Path::new(""))
        }
    }

    /// The same node, whose agents do not probe: its port is the kernel's choice, so what two of them write is never the
    /// same, and while they connect there is always something to collect.
    pub(crate) fn without_probe(mut self) -> Self {
        self.arguments.extend(["--probe", "off"].map(OsString::from));
        self
    }

    /// The same node, whose cgroup is seen there.
    pub(crate) fn at(self, cgroup: PathBuf) -> Self {
        Self { cgroup, ..self }
    }

    /// A file or folder of the pins.
    pub(crate) fn pin(&self, path: &str) -> PathBuf {
        self.bpffs.join("plumbline/v1").join(path)
    }

    /// Starts an agent.
    pub(crate) fn start(&self, program: &Path) -> Running {
        let mut child = self
            .command(program)
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(b"go\n").expect("it reads");
        Running(child)
    }

    /// Starts an agent under a tracer.
    pub(crate) fn trace(&self, moment: Moment, counting: bool) -> Traced {
        Traced::start(self.command(Path::new(PROGRAM)), moment, counting)
    }

    /// A shell that enters the cgroup and waits for a line before it becomes the agent.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo 0 > "$0" && read -r line && exec "$@""#])
            .arg(self.cgroup.join("agent/cgroup.procs"))
            .arg(program)
            .args(["run", "--node", "here"])
            .args(&self.arguments)
            .args(["--listen", &LISTEN.to_string()])
            .arg("--state")
            .arg(self.log.with_extension("state"));
        self.place(&mut command);
        if let Some(environment) = &self.environment {
            command.env_clear().envs(environment.iter().cloned());
        }
        let log = File::options().create(true).append(true).open(&self.log);
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        command
    }

    fn place(&self, command: &mut Command) {
        command
            .arg("--bpffs")
            .arg(&self.bpffs)
            .arg("--cgroup")
            .arg(&self.cgroup);
    }

    /// Takes everything away, as users do.
    pub(crate) fn clean_up(&self) {
        let mut command = Command::new(PROGRAM);
        command.arg("cleanup");
        self.place(&mut command);
        let output = command.output().expect("it starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Waits until the agent is ready and what it has written is this; what was there last, otherwise.
    pub(crate) fn settle(&self, expected: &str) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            match self.settled(expected) {
                Err(_) if begin.elapsed() < LIMIT => thread::sleep(POLL),
                found => return found,
            }
        }
    }

    /// Whether it is so now; what there is, otherwise.
    pub(crate) fn settled(&self, expected: &str) -> Result<(), String> {
        let ready = self.get("/readyz");
        let dump = self.dump();
        if ready.as_ref().is_some_and(|(code, _)| *code == 200) && dump == expected {
            return Ok(());
        }
        Err(format!(
            "readyz: {ready:?}\nexpected:\n{expected}\nfound:\n{dump}"
        ))
    }

    /// Waits until the agent is ready, whatever it has written.
    pub(crate) fn ready(&self) {
        let begin = Instant::now();
        loop {
            let ready = self.get("/readyz");
            if ready.as_ref().is_some_and(|(code, _)| *code == 200) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "not ready: {ready:?}\n{}", self.said());
            thread::sleep(POLL);
        }
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < LIMIT, "never: {what}\n{}", self.said());
            thread::sleep(POLL);
        }
    }

    /// Status code and body of a GET from the agent.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        Self::get_from(LISTEN, path)
    }

    /// The same from another address.
    pub(crate) fn get_from(address: SocketAddr, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let code = response.split(' ').nth(1)?.parse().ok()?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        Some((code, body.to_owned()))
    }

    /// What `dump` prints; what it says, if it fails.
    pub(crate) fn dump(&self) -> String {
        let mut command = Command::new(PROGRAM);
        let output = command.arg("dump").arg("--bpffs").arg(&self.bpffs).output();
        let output = output.expect("it starts");
        let said = if output.status.success() {
            output.stdout
        } else {
            output.stderr
        };
        String::from_utf8_lossy(&said).into_owned()
    }

    /// What agents have left so far.
    pub(crate) fn left(&self) -> Left {
        let mut pins = BTreeSet::new();
        list(&self.bpffs, &self.bpffs, &mut pins);
        let count = |hook: Hook| {
            programs_attached(&self.cgroup, hook, false)
                .expect("the kernel says")
                .len()
        };
        Left {
            dump: self.dump(),
            pins,
            programs: Hook::ALL
                .into_iter()
                .map(|hook| (hook.name(), count(hook)))
                .collect(),
        }
    }

    /// What the agents of this node have said of late.
    pub(crate) fn said(&self) -> String {
        const LINES: usize = 60;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

fn list(root: &Path, folder: &Path, pins: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            list(root, &path, pins);
        } else {
            pins.insert(path.strip_prefix(root).expect("below it").to_owned());
        }
    }
}

/// An agent that runs; it is killed with the value.
pub(crate) struct Running(Child);

impl Running {
    /// An agent that was started.
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it with a signal and waits until it is gone.
    pub(crate) fn end(mut self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it runs");
        let status = self.0.wait().expect("a child");
        assert!(
            signal == Signal::SIGKILL || status.success(),
            "the agent ended with {status} after {signal}"
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
