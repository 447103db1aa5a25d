//! Clusters of kind that can't be had: what is missing is named, with what to do, and nothing is begun. Docker and kind are
//! programs of the tests, so that nobody's are needed, or changed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use super::privileged;

/// What a program does with its arguments, in sh(1); nothing else is on the PATH. `$CALLS` is a file of what was called.
struct Fake {
    docker: Option<&'static str>,
    kind: Option<&'static str>,
}

/// A daemon that answers, and has no containers.
const EMPTY: &str = "case $1 in info) echo 29.0 ;; esac";
const NOTHING: Fake = Fake {
    docker: Some(EMPTY),
    kind: Some(""),
};

struct Row {
    what: &'static str,
    fake: Fake,
    options: &'static [&'static str],
    expected: &'static [&'static str],
    /// What may have been called.
    called: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        what: "no client of Docker",
        fake: Fake {
            docker: None,
            ..NOTHING
        },
        options: &[],
        expected: &["there is no docker on the PATH", "install Docker"],
        called: &[],
    },
    Row {
        what: "no daemon",
        fake: Fake {
            docker: Some(
                "echo 'failed to connect to the docker API at unix:///var/run/docker.sock' >&2; exit 1",
            ),
            ..NOTHING
        },
        options: &[],
        expected: &[
            "the Docker daemon does not answer",
            "docker.sock",
            "systemctl start docker",
        ],
        called: &["docker info"],
    },
    Row {
        what: "a daemon of no version",
        fake: Fake {
            docker: Some("echo"),
            ..NOTHING
        },
        options: &[],
        expected: &["the Docker daemon does not answer: it has no version"],
        called: &["docker info"],
    },
    Row {
        what: "no kind",
        fake: Fake {
            kind: None,
            ..NOTHING
        },
        options: &[],
        expected: &["there is no kind on the PATH", "kind.sigs.k8s.io"],
        called: &[],
    },
    Row {
        what: "no such cluster",
        fake: NOTHING,
        options: &["--reuse", "gone"],
        expected: &["there is no kind cluster \"gone\"", "kind get clusters"],
        called: &["docker info", "docker ps"],
    },
    Row {
        what: "somebody else's run in it",
        fake: NOTHING,
        options: &["--reuse", "busy"],
        expected: &[
            "the kind cluster \"busy\" is in use by another run",
            "wait for its end",
        ],
        called: &[],
    },
    Row {
        what: "no place for a second API server",
        fake: NOTHING,
        options: &["--nodes", "1", "--apiservers", "2"],
        expected: &["a second API server needs a worker", "--nodes 2"],
        called: &[],
    },
    Row {
        what: "a name that is none",
        fake: NOTHING,
        options: &["--reuse", "no name"],
        expected: &["\"no name\" can't be a cluster's name", "a-z"],
        called: &[],
    },
];

#[test]
fn what_a_cluster_of_kind_lacks_is_named_and_nothing_is_begun() {
    if !privileged() {
        return;
    }
    for row in ROWS {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &row.fake, row.options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{}: {said}", row.what);
        for part in row.expected {
            assert!(said.contains(part), "{}: {part:?} is not in {said}", row.what);
        }
        let left = String::from_utf8_lossy(&output.stdout);
        assert_eq!(left.trim(), "left: busy busy/lock", "{}", row.what);
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
        for call in calls.lines() {
            let is_known = row.called.iter().any(|known| call.starts_with(known));
            assert!(is_known, "{}: {call}", row.what);
        }
    }
}

/// A run in a mount namespace where no cluster has a folder but one that somebody holds; says at the end what is left there.
fn run(folder: &Path, fake: &Fake, options: &[&str]) -> Output {
    let programs = folder.join("programs");
    fs::create_dir(&programs).unwrap();
    for (name, script) in [("docker", fake.docker), ("kind", fake.kind)] {
        let Some(script) = script else { continue };
        let file = programs.join(name);
        let calls = format!("echo {name} \"$@\" >> {}", folder.join("calls").display());
        fs::write(&file, format!("#!/bin/sh\n{calls}\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = "mkdir -p /run/plumbline-kind && mount -t tmpfs none /run/plumbline-kind || exit 99
        cd /run/plumbline-kind && mkdir busy && exec 9> busy/lock && flock --exclusive 9 || exit 99
        code=0; PATH=$PROGRAMS \"$0\" \"$@\" || code=$?
        echo left: * */*; exit $code";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_plumbline")])
        .args(["run", "--provider", "kind", "--out"])
        .arg(folder.join("out"))
        .args(options)
        .env("PROGRAMS", programs)
        .output()
        .unwrap()
}
