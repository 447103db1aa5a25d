//! kind clusters that can't be made: the error names what is missing and what to do, and nothing is begun. Also, which
//! existing ones `heal` and `cleanup` handle. Docker and kind are scripts of the tests, so that the host's own are
//! neither needed nor changed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use super::privileged;

/// The script of a program in sh(1); nothing else is on the PATH. `$CALLS` is a file of its calls.
pub(crate) struct Fake {
    pub(crate) docker: Option<&'static str>,
    pub(crate) kind: Option<&'static str>,
}

/// A daemon without containers.
const EMPTY: &str = "case $1 in info) echo 29.0 ;; esac";
pub(crate) const NOTHING: Fake = Fake {
    docker: Some(EMPTY),
    kind: Some(""),
};

/// A daemon with a stopped node, which only `--all` lists.
pub(crate) const STOPPED: &str = r#"case "$*" in
    info*) echo 29.0 ;;
    ps*--all*) echo 0123 ;;
    inspect*) echo '[{"Name": "/kept-worker", "State": {"Running": false, "Pid": 0}, "NetworkSettings": {"Networks": {}},
        "Config": {"Labels": {"io.x-k8s.kind.role": "worker"}}}]' ;;
esac"#;

struct Row {
    what: &'static str,
    fake: Fake,
    options: &'static [&'static str],
    expected: &'static [&'static str],
    /// Permitted calls.
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
        what: "a cluster whose host has started again",
        fake: Fake {
            docker: Some(STOPPED),
            ..NOTHING
        },
        options: &["--reuse", "kept"],
        expected: &[
            "all nodes of the kind cluster \"kept\" should run",
            "`docker start kept-worker` starts them",
            "stays as it is",
        ],
        called: &["docker info", "docker ps", "docker inspect"],
    },
    Row {
        what: "a cluster of the name that it would have",
        fake: Fake {
            docker: Some("case $1 in info) echo 29.0 ;; ps) echo 0123 ;; esac"),
            ..NOTHING
        },
        options: &[],
        expected: &[
            "there is a kind cluster",
            "already, which stays as it is",
            "--reuse",
        ],
        called: &["docker info", "docker ps", "docker inspect"],
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
        let options = [&["run", "--provider", "kind", "--out", "out"], row.options].concat();
        let output = called(folder.path(), &row.fake, "", &options);
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

/// Clusters that a host may have: two that were kept and whose nodes are gone, and two of killed runs, one of which had
/// made its cluster.
const SEVERAL: &str =
    "mkdir kept other left dead && touch kept/kept other/kept left/kind.yaml left/lock dead/lock";

struct Named {
    what: &'static str,
    arguments: &'static [&'static str],
    code: i32,
    expected: &'static [&'static str],
    /// Folders that are removed.
    gone: &'static [&'static str],
    /// Clusters that kind deletes.
    deleted: &'static [&'static str],
}

const NAMED: &[Named] = &[
    Named {
        what: "none is named",
        arguments: &["heal"],
        code: 1,
        expected: &[
            "kind cluster kept: the kind cluster",
            "kind cluster other: the kind cluster",
        ],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "one that nobody has brought up whole",
        arguments: &["heal", "--kind", "kept"],
        code: 2,
        expected: &["\"kept\" was never brought up whole", "--reuse kept"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "one of no run",
        arguments: &["heal", "--kind", "kind"],
        code: 2,
        expected: &[
            "no run has made or used a kind cluster \"kind\"",
            "kept: kept, other",
        ],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "one of a run that was killed",
        arguments: &["heal", "--kind", "left"],
        code: 2,
        expected: &["was killed", "plumbline cleanup --kind left"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "one that a run has",
        arguments: &["heal", "--kind", "busy"],
        code: 2,
        expected: &["a run is under way in it", "end it first"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "a name that is none",
        arguments: &["heal", "--kind", "no name"],
        code: 2,
        expected: &["\"no name\" can't be a cluster's name"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "a lab besides",
        arguments: &["heal", "--kind", "kept", "--lab", "a"],
        code: 2,
        expected: &["'--kind <NAME>' cannot be used with '--lab <NAME>'"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "cleanup of one of a run that was killed",
        arguments: &["cleanup", "--kind", "left"],
        code: 0,
        expected: &["the kind cluster left was dead; it is removed"],
        gone: &["left", "left/kind.yaml", "left/lock"],
        deleted: &["left"],
    },
    Named {
        what: "cleanup of what a run has left that was killed before it used somebody's",
        arguments: &["cleanup", "--kind", "dead"],
        code: 0,
        expected: &["the kind cluster dead was dead; it is removed"],
        gone: &["dead", "dead/lock"],
        deleted: &[],
    },
    Named {
        what: "cleanup of one whose nodes are gone",
        arguments: &["cleanup", "--kind", "kept"],
        code: 0,
        expected: &["the kind cluster kept was dead; it is removed"],
        gone: &["kept", "kept/kept"],
        deleted: &[],
    },
    Named {
        what: "cleanup of one of no run",
        arguments: &["cleanup", "--kind", "kind"],
        code: 0,
        expected: &["no run has left a kind cluster kind", "nothing is removed"],
        gone: &[],
        deleted: &[],
    },
    Named {
        what: "cleanup of one that a run has",
        arguments: &["cleanup", "--kind", "busy"],
        code: 0,
        expected: &["a run is under way in the kind cluster busy, which stays"],
        gone: &[],
        deleted: &[],
    },
];

#[test]
fn only_the_cluster_of_kind_that_is_named_is_healed_or_removed() {
    if !privileged() {
        return;
    }
    let all = [
        "busy",
        "dead",
        "kept",
        "left",
        "other",
        "busy/lock",
        "dead/lock",
        "kept/kept",
        "left/kind.yaml",
        "left/lock",
        "other/kept",
    ];
    for row in NAMED {
        let folder = tempfile::tempdir().unwrap();
        let output = called(folder.path(), &NOTHING, SEVERAL, row.arguments);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(row.code), "{}: {said}", row.what);
        for part in row.expected {
            assert!(said.contains(part), "{}: {part:?} is not in {said}", row.what);
        }
        let left = said.lines().find_map(|line| line.strip_prefix("left: "));
        let mut left: Vec<_> = left.unwrap().split(' ').collect();
        // Locks of the examined clusters may stay.
        left.retain(|path| !["kept/lock", "other/lock"].contains(path));
        let expected: Vec<_> = all.into_iter().filter(|path| !row.gone.contains(path)).collect();
        assert_eq!(left, expected, "{}: {said}", row.what);
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
        let deleted = calls
            .lines()
            .filter_map(|call| call.strip_prefix("kind delete cluster --name "));
        assert_eq!(deleted.collect::<Vec<_>>(), row.deleted, "{}: {calls}", row.what);
    }
}

/// Runs the program in a mount namespace without a lab, and with no clusters but one that another process holds, and
/// those that a script makes. At the end, prints what is left.
pub(crate) fn called(folder: &Path, fake: &Fake, besides: &str, arguments: &[&str]) -> Output {
    let programs = folder.join("programs");
    fs::create_dir(&programs).unwrap();
    for (name, script) in [("docker", fake.docker), ("kind", fake.kind)] {
        let Some(script) = script else { continue };
        let file = programs.join(name);
        let calls = format!("echo {name} \"$@\" >> {}", folder.join("calls").display());
        fs::write(&file, format!("#!/bin/sh\n{calls}\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = "for of in /run/plumbline /run/plumbline-kind /var/lib/plumbline; do
            mkdir -p $of && mount -t tmpfs none $of || exit 99
        done
        mkdir /var/lib/plumbline/kind && cd /var/lib/plumbline/kind && mkdir busy && exec 9> busy/lock && flock --exclusive 9 || exit 99
        eval \"$BESIDES\" || exit 99
        code=0; (cd \"$OUT\" && PATH=$PROGRAMS \"$0\" \"$@\") || code=$?
        echo left: * */*; exit $code";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_plumbline")])
        .args(arguments)
        .env("BESIDES", besides)
        .env("OUT", folder)
        .env("PROGRAMS", programs)
        .output()
        .unwrap()
}
