//! Clients that outlive the process that started them, and their readers.

use std::{
    io::{BufRead, BufReader, Write},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use oracle::history::Attempt;
use testing::patience::LIMIT;

/// A folder that is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("probe-kept-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Attempts every ten milliseconds to a socket that answers nothing.
fn plan(silent: &UdpSocket, count: u32) -> String {
    let port = silent.local_addr().expect("address").port();
    format!(
        r#"{{"client":"c1","entries":[{{"target":"t","transport":"UDP","address":"127.0.0.1","port":{port},"count":{count},"interval_ms":10,"limit_ms":10}}]}}"#
    )
}

fn silent() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("bind")
}

fn client(folder: &Folder, plan: &str, more: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command
        .arg("client")
        .arg("--control")
        .arg(folder.socket())
        .args(more);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("start probe");
    let mut stdin = child.stdin.take().expect("stdin");
    writeln!(stdin, "{plan}").expect("a plan");
    until_there(&folder.socket());
    Running(child)
}

fn until_there(socket: &Path) {
    let begin = Instant::now();
    while !listens(socket) {
        assert!(begin.elapsed() < LIMIT, "nothing listens at {}", socket.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a connection would be accepted: the file exists from bind() on, which is before listen().
fn listens(socket: &Path) -> bool {
    /// `__SO_ACCEPTCON`.
    const LISTENING: &str = "00010000";
    let all = std::fs::read_to_string("/proc/net/unix").expect("sockets of this network namespace");
    all.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(3) == Some(LISTENING) && fields.next_back() == socket.to_str()
    })
}

fn attach(folder: &Folder, more: &[&str]) -> (Running, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command.arg("attach").arg(folder.socket()).args(more);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start probe");
    let stdout = BufReader::new(child.stdout.take().expect("stdout"));
    (Running(child), stdout)
}

fn attempts(from: impl BufRead) -> Vec<String> {
    let lines = from.lines().map(|line| line.expect("a line"));
    lines
        .map(|line| {
            let attempt: Attempt = serde_json::from_str(&line).expect("an attempt");
            attempt.nonce
        })
        .collect()
}

#[test]
fn a_reader_that_ends_is_followed_by_another_that_reads_from_any_offset() {
    let (folder, silent) = (Folder::new("reader"), silent());
    let file = folder.0.join("history.jsonl");
    let mut client = client(
        &folder,
        &plan(&silent, 100),
        &["--history", file.to_str().expect("UTF-8")],
    );
    let (mut first, mut stdout) = attach(&folder, &[]);
    let mut line = String::new();
    stdout.read_line(&mut line).expect("an attempt");
    first.0.kill().expect("killed");

    let (_second, stdout) = attach(&folder, &["--from", "0"]);
    let all = attempts(stdout);
    assert_eq!(all.len(), 100, "to the end of the plan");
    assert!(line.contains(&all[0]), "from its beginning");
    assert!(client.0.wait().expect("wait").success(), "all is read: it ends");
    assert!(!folder.socket().exists());
    let kept = std::fs::File::open(file).expect("the file");
    assert_eq!(attempts(BufReader::new(kept)), all);
}

#[test]
fn an_offset_leaves_attempts_out() {
    let (folder, silent) = (Folder::new("offset"), silent());
    let _client = client(&folder, &plan(&silent, 20), &[]);
    let (_reader, stdout) = attach(&folder, &["--from", "15"]);
    let last = attempts(stdout);
    assert_eq!(last.len(), 5);
    // Two that end at the same time may do so in either order.
    assert!(last.iter().any(|nonce| nonce.ends_with("-19")), "{last:?}");
}

#[test]
fn it_outlives_the_process_that_started_it() {
    let (folder, silent) = (Folder::new("starter"), silent());
    let script = r#"printf '%s\n' "$2" | "$1" client --control "$3" & wait"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_probe")]);
    let child = shell.arg(plan(&silent, 50)).arg(folder.socket()).spawn();
    let mut starter = Running(child.expect("start sh"));
    until_there(&folder.socket());
    starter.0.kill().expect("killed");
    starter.0.wait().expect("gone");
    let (_reader, stdout) = attach(&folder, &[]);
    assert_eq!(attempts(stdout).len(), 50);
}

#[test]
fn it_ends_on_request() {
    let (folder, silent) = (Folder::new("stopped"), silent());
    let mut stopped = client(&folder, &plan(&silent, 1_000_000), &[]);
    let (mut stop, stdout) = attach(&folder, &["--stop"]);
    assert!(attempts(stdout).is_empty());
    assert!(stop.0.wait().expect("wait").success());
    let (_reader, stdout) = attach(&folder, &[]);
    assert!(attempts(stdout).len() < 1_000_000);
    assert!(stopped.0.wait().expect("wait").success());

    let mut killed = client(&folder, &plan(&silent, 1_000_000), &[]);
    let pid = Pid::from_raw(killed.0.id().cast_signed());
    kill(pid, Signal::SIGTERM).expect("SIGTERM");
    assert!(killed.0.wait().expect("wait").success());
}

#[test]
fn a_socket_is_taken_over_from_the_dead_and_not_from_the_living() {
    let (folder, silent) = (Folder::new("socket"), silent());
    drop(std::os::unix::net::UnixListener::bind(folder.socket()).expect("bind"));
    let _client = client(&folder, &plan(&silent, 1_000_000), &[]);
    let (mut reader, mut stdout) = attach(&folder, &[]);
    stdout.read_line(&mut String::new()).expect("an attempt");

    let mut second = Command::new(env!("CARGO_BIN_EXE_probe"));
    second.arg("client").arg("--control").arg(folder.socket());
    let pipes = second.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("start probe");
    writeln!(child.stdin.take().expect("stdin"), "{}", plan(&silent, 1)).expect("a plan");
    let output = child.wait_with_output().expect("wait");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("that no other client has"), "{said}");
    reader.0.kill().expect("killed");

    let missing = Folder::new("missing");
    let (mut reader, _) = attach(&missing, &[]);
    assert_eq!(reader.0.wait().expect("wait").code(), Some(1));
}
