//! A history, as a case leaves it.

use oracle::history::{Answer, Outcome, Stage, Transport};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{compressed::each_line, names::Kind};

fn attempt(start_us: u64, target: &str, outcome: Outcome) -> Attempt {
    Attempt {
        start_us,
        end_us: start_us + 5,
        client: "pod@node1".into(),
        target: target.into(),
        transport: Transport::Tcp,
        destination: "10.96.0.1:80".parse().unwrap(),
        local: None,
        nonce: format!("n{start_us}"),
        exchange: None,
        fragments: None,
        outcome,
    }
}

fn answered(identity: &str, nonce: &str) -> Outcome {
    let address = "10.1.0.2:8080".parse().unwrap();
    Outcome::Answered {
        answer: Answer {
            identity: identity.into(),
            source: address,
            destination: address,
            nonce: nonce.into(),
            pod: None,
        },
        peer: address,
    }
}

const SILENT: Outcome = Outcome::Timeout {
    stage: Stage::Handshake,
};

/// A case with a phase before its fault and one after it.
fn played(folder: &Path) -> History {
    let history = History::create(folder).unwrap();
    let dial = |attempt: Attempt| history.attempt(&serde_json::to_string(&attempt).unwrap(), &attempt);
    let phase = |name: &str| history.add(&Event::Phase { name: name.into() });
    phase("control");
    dial(attempt(10, "t", answered("b1/TCP/80", "n1")));
    dial(attempt(20, "t", answered("b2/TCP/80", "n2")));
    dial(attempt(30, "t", answered("b1/TCP/80", "n3")));
    dial(attempt(40, "u", SILENT));
    phase("verdict");
    history.add(&Event::Write {
        verb: "delete",
        key: Key::new(Kind::Service, "ns", "s"),
        sent_us: 50,
        resource_version: String::new(),
        body: Value::Null,
    });
    dial(attempt(60, "t", answered("b1/TCP/80", "n4")));
    history.add(&Event::Fault { what: "f".into() });
    history
}

fn lines(path: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    each_line(path, |line| all.push(serde_json::from_str(line).unwrap())).unwrap();
    all
}

fn events(path: &Path) -> Vec<String> {
    let name = |line: &Value| line["event"].as_str().unwrap().to_owned();
    lines(path).iter().map(name).collect()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_case_that_passes_leaves_what_it_did_and_counts_of_its_attempts() {
    let folder = folder();
    played(folder.path()).end(false).unwrap();
    assert!(!folder.path().join(ATTEMPTS).exists());
    let history = folder.path().join(HISTORY);
    let expected = [
        "phase", "attempts", "attempts", "phase", "write", "fault", "attempts",
    ];
    assert_eq!(events(&history), expected);
    let counted: Vec<Value> = lines(&history)
        .into_iter()
        .filter(|line| line["event"] == "attempts")
        .map(|mut line| {
            line.as_object_mut().unwrap().remove("time_us");
            line
        })
        .collect();
    let of = |phase: &str, target: &str, times: [u64; 2], outcomes: Value| {
        json!({
            "event": "attempts", "phase": phase, "client": "pod@node1", "target": target, "transport": "TCP",
            "first_us": times[0], "last_us": times[1], "outcomes": outcomes,
        })
    };
    let both = json!({"answered by b1/TCP/80": 2, "answered by b2/TCP/80": 1});
    let silent = json!({"nothing, waiting in the handshake": 1});
    let one = json!({"answered by b1/TCP/80": 1});
    let expected = [
        of("control", "t", [10, 35], both),
        of("control", "u", [40, 45], silent),
        of("verdict", "t", [60, 65], one),
    ];
    assert_eq!(counted, expected);
}

#[test]
fn a_case_that_does_not_pass_keeps_every_attempt_as_its_client_wrote_it() {
    let folder = folder();
    played(folder.path()).end(true).unwrap();
    let attempts = folder.path().join(ATTEMPTS);
    let kept = lines(&attempts);
    assert_eq!(kept.len(), 5);
    for (line, start) in kept.iter().zip([10, 20, 30, 40, 60]) {
        let read: Attempt = serde_json::from_value(line.clone()).unwrap();
        assert_eq!((read.start_us, line["event"].as_str()), (start, Some("attempt")));
        assert!(
            line["time_us"].as_u64().unwrap() > 1_000_000_000_000_000,
            "{line}"
        );
    }
    assert_eq!(events(&folder.path().join(HISTORY)).len(), 7, "and its summary");
}

#[test]
fn what_a_case_did_is_on_the_disk_though_its_process_is_killed() {
    let folder = folder();
    // It is not ended: this is what is there whenever the process goes.
    let history = played(folder.path());
    let expected = ["phase", "attempts", "attempts", "phase", "write", "fault"];
    assert_eq!(events(&folder.path().join(HISTORY)), expected);
    assert_eq!(lines(&folder.path().join(ATTEMPTS)).len(), 5, "up to the fault");
    drop(history);
}

#[test]
fn a_file_that_was_cut_off_is_read_as_far_as_it_is_whole() {
    let folder = folder();
    played(folder.path()).end(true).unwrap();
    let whole = lines(&folder.path().join(HISTORY));
    let bytes = fs::read(folder.path().join(HISTORY)).unwrap();
    let cut = folder.path().join("cut");
    for length in 0..bytes.len() {
        fs::write(&cut, &bytes[..length]).unwrap();
        let read = lines(&cut);
        assert_eq!(read, whole[..read.len()], "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn what_comes_after_the_end_is_left_out_and_is_no_error() {
    let folder = folder();
    let history = played(folder.path());
    history.end(true).unwrap();
    history.add(&Event::Fault { what: "late".into() });
    history.end(true).unwrap();
    assert_eq!(events(&folder.path().join(HISTORY)).len(), 7);
}

#[test]
fn what_could_not_be_written_is_told_at_the_end() {
    let folder = folder();
    std::os::unix::fs::symlink("/dev/full", folder.path().join(HISTORY)).unwrap();
    let error = played(folder.path()).end(true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
