//! `exec` of pods, by kubectl.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::unix::pipe,
};

use crate::{kubectl::Kubectl, pods::running, server::LIMIT};

#[tokio::test]
async fn kubectl_runs_programs_in_a_container() {
    let Some((server, node)) = running().await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    let both = kubectl
        .run(&["exec", "p", "--", "sh", "-c", "echo out; echo err >&2"])
        .await;
    assert_eq!(
        (both.success, both.out.as_str(), both.err.as_str()),
        (true, "out\n", "err\n")
    );
    let failed = kubectl
        .run(&["exec", "p", "-c", "main", "--", "sh", "-c", "exit 7"])
        .await;
    assert!(
        !failed.success && failed.err.contains("exit code 7"),
        "{failed:?}"
    );
    let absent = kubectl.run(&["exec", "p", "--", "/no/such/program"]).await;
    assert!(absent.err.contains("No such file or directory"), "{absent:?}");
    // More than any pipe or message holds, both ways at once.
    let long = "0123456789abcdef\n".repeat(64 << 10);
    let echoed = kubectl
        .with_input(&["exec", "-i", "p", "--", "cat"], &long)
        .await
        .ok();
    assert!(
        echoed == long,
        "{} bytes came back of {}",
        echoed.len(),
        long.len()
    );
    let terminal = kubectl.run(&["exec", "-t", "p", "--", "true"]).await;
    // Without a terminal of its own, kubectl does not ask for one.
    assert!(terminal.success, "{terminal:?}");
    assert_eq!(node.asked().len(), 5);
    server.end().await;
}

#[tokio::test]
async fn a_program_ends_with_its_client() {
    ends_with_its_client(Stdio::piped(), async |_| {}).await;
}

#[tokio::test]
async fn a_program_that_takes_nothing_of_its_standard_input_ends_with_its_client() {
    let endless = std::fs::File::open("/dev/zero").expect("opened");
    ends_with_its_client(endless.into(), async |kubectl| {
        // Nothing takes any more, from the program back to kubectl, when it no longer reads.
        let path = format!("/proc/{kubectl}/io");
        let read = || {
            let text = std::fs::read_to_string(&path).expect("kubectl runs");
            let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
            line.and_then(|bytes| bytes.parse::<u64>().ok())
                .expect("a number")
        };
        let (mut before, mut now) = (0, read());
        while now < 1 << 20 || now != before {
            tokio::time::sleep(Duration::from_millis(300)).await;
            before = std::mem::replace(&mut now, read());
        }
    })
    .await;
}

/// Kills a kubectl that runs a program with this standard input, when it is the time for it.
async fn ends_with_its_client(stdin: Stdio, is_time: impl AsyncFn(u32)) {
    let Some((server, _node)) = running().await else {
        return;
    };
    let Some(kubectl) = Kubectl::new(&server) else {
        return;
    };
    // The program holds the other end of this pipe open for as long as it lives.
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("pipe").display().to_string();
    let made = tokio::process::Command::new("mkfifo").arg(&fifo).status().await;
    assert!(made.expect("mkfifo").success());
    let program = format!("exec 3>{fifo}; echo begun >&3; exec sleep 600");
    let args = [
        "--namespace",
        &server.namespace,
        "exec",
        "-i",
        "p",
        "--",
        "sh",
        "-c",
        &program,
    ];
    // It waits in no thread of its own, so that a failure ends the test.
    let reader = pipe::OpenOptions::new().open_receiver(&fifo).expect("opened");
    let mut reader = BufReader::new(reader);
    let mut child = kubectl
        .command(&args)
        .stdin(stdin)
        .spawn()
        .expect("kubectl starts");
    let mut line = String::new();
    let begun = async {
        // Before the other end has opened it, it may seem to have ended.
        while reader.read_line(&mut line).await.expect("a line") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, begun).await.expect("in time");
    assert_eq!(line, "begun\n");
    let time = is_time(child.id().expect("it runs"));
    tokio::time::timeout(LIMIT, time).await.expect("in time");
    child.kill().await.expect("killed");
    let end = tokio::time::timeout(LIMIT, reader.read_line(&mut line)).await;
    assert_eq!(end.expect("the program ends").expect("an end"), 0);
    server.end().await;
}
