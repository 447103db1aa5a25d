//! The program itself: readiness, log, signals, exit codes.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStderr, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use oracle::history::{Attempt, Outcome, Served};
use probe::serve::{NOT_READY, READY};

/// A running program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn probe(arguments: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    let pipes = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running(pipes.spawn().expect("start probe"))
}

fn line(child: &mut Running) -> String {
    let mut line = String::new();
    let stderr: &mut ChildStderr = child.0.stderr.as_mut().expect("stderr");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    line
}

fn terminate(child: &Running) {
    kill(Pid::from_raw(child.0.id().cast_signed()), Signal::SIGTERM).expect("SIGTERM");
}

fn plan(port: u16, count: u32, interval_ms: u32) -> String {
    format!(
        r#"{{"client":"c1","entries":[{{"target":"t","transport":"TCP","address":"127.0.0.1","port":{port},"count":{count},"interval_ms":{interval_ms},"limit_ms":5000}}]}}"#
    )
}

fn serve() -> (Running, u16) {
    let mut server = probe(&["serve", "--name", "b1", "--address", "127.0.0.1", "--tcp", "0"]);
    let ready = line(&mut server);
    assert!(ready.starts_with(READY), "{ready:?}");
    let port = ready
        .trim()
        .rsplit('/')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    (server, port)
}

#[test]
fn client_and_server_log_the_same_nonce() {
    let (mut server, port) = serve();
    let mut client = probe(&["client"]);
    // End of input after the plan is not the end of the client.
    let mut stdin = client.0.stdin.take().expect("stdin");
    writeln!(stdin, "{}", plan(port, 3, 0)).expect("write");
    drop(stdin);
    let stdout = BufReader::new(client.0.stdout.take().expect("stdout"));
    let attempts: Vec<Attempt> = stdout
        .lines()
        .map(|line| serde_json::from_str(&line.expect("line")).expect("attempt"))
        .collect();
    assert!(client.0.wait().expect("wait").success());
    assert_eq!(attempts.len(), 3);

    terminate(&server);
    assert!(server.0.wait().expect("wait").success(), "SIGTERM is a good end");
    let stdout = BufReader::new(server.0.stdout.take().expect("stdout"));
    let served: Vec<Served> = stdout
        .lines()
        .map(|line| serde_json::from_str(&line.expect("line")).expect("served"))
        .collect();
    let logged: Vec<_> = served.into_iter().map(|served| served.answer).collect();
    let answered: Vec<_> = attempts
        .into_iter()
        .map(|attempt| match attempt.outcome {
            Outcome::Answered { answer, .. } => answer,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(logged, answered);
}

#[test]
fn a_server_that_lingers_serves_on_after_sigterm_and_is_not_ready() {
    let address = ["--address", "127.0.0.1", "--tcp", "0"];
    let mut server = probe(&[&["serve", "--name", "b1", "--linger", "500"][..], &address].concat());
    let mut stderr = BufReader::new(server.0.stderr.take().expect("stderr"));
    let mut ready = String::new();
    stderr.read_line(&mut ready).expect("a line");
    assert!(ready.starts_with(READY), "{ready:?}");
    let port: u16 = ready
        .trim()
        .rsplit('/')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    terminate(&server);
    let mut last = String::new();
    stderr.read_line(&mut last).expect("a line");
    assert!(last.starts_with(NOT_READY), "{last:?}");

    let mut client = probe(&["client"]);
    writeln!(client.0.stdin.as_mut().expect("stdin"), "{}", plan(port, 1, 0)).expect("write");
    let mut line = String::new();
    let stdout = client.0.stdout.take().expect("stdout");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let attempt: Attempt = serde_json::from_str(&line).expect("an attempt");
    assert!(matches!(attempt.outcome, Outcome::Answered { .. }), "{attempt:?}");
    assert!(server.0.wait().expect("wait").success(), "and ends well");

    let mut server = probe(&[&["serve", "--name", "b2", "--not-ready"][..], &address].concat());
    assert!(self::line(&mut server).starts_with(NOT_READY));
}

#[test]
fn sigterm_ends_a_client_with_what_is_there() {
    let (_server, port) = serve();
    let mut client = probe(&["client"]);
    writeln!(
        client.0.stdin.as_mut().expect("stdin"),
        "{}",
        plan(port, 1_000_000, 5)
    )
    .expect("write");
    let mut stdout = BufReader::new(client.0.stdout.take().expect("stdout"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line as it happens");
    terminate(&client);
    for rest in stdout.lines() {
        serde_json::from_str::<Attempt>(&rest.expect("line")).expect("no line is cut");
    }
    assert!(client.0.wait().expect("wait").success());
}

#[test]
fn a_client_whose_reader_is_gone_ends_with_a_message() {
    let (_server, port) = serve();
    let mut client = probe(&["client"]);
    drop(client.0.stdout.take());
    writeln!(
        client.0.stdin.as_mut().expect("stdin"),
        "{}",
        plan(port, 1_000_000, 1)
    )
    .expect("write");
    assert_eq!(client.0.wait().expect("wait").code(), Some(1));
    assert!(line(&mut client).contains("failed to write an attempt"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (_server, port) = serve();
    let mut second = probe(&[
        "serve",
        "--name",
        "b2",
        "--address",
        "127.0.0.1",
        "--tcp",
        &port.to_string(),
    ]);
    assert_eq!(second.0.wait().expect("wait").code(), Some(1));
    let said = line(&mut second);
    assert!(
        said.contains(&format!("failed to listen on 127.0.0.1:{port}/TCP")),
        "{said}"
    );
}

#[test]
fn a_server_without_ports_is_refused() {
    let mut server = probe(&["serve", "--name", "b1"]);
    assert_eq!(server.0.wait().expect("wait").code(), Some(2));
    assert!(line(&mut server).contains("required"));
}
