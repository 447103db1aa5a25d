//! What wrong inputs print, whole: what was expected, what was found, and what to do. Each ends with exit code 2.

use std::{
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use super::{
    kind::{Fake, NOTHING, called},
    privileged,
};

/// Bytes of a file that is too large for a target, a kubeconfig and a report; its holes take no room on the disk.
const TOO_LARGE: u64 = 129 << 20;

/// Command lines whose errors need neither root nor a host with anything.
const LINES: &[&str] = &[
    // Names of the catalogue.
    "run release-prefix-nul-slice",
    "run release-isolaton",
    "run cilium",
    "run ^release-",
    "run --filter zzz",
    "run --filter relaese-name-lattice",
    "run --claims clusterip-from-pot",
    "run --features teleport",
    "run --exempt slice-union",
    "run clusterip-from-pod --filter ^release-",
    "run release-name-lattice --skip A",
    "list release-prefix",
    // Targets.
    "run --target kube-proxy-nftable",
    "run --target ./missing.yaml",
    "run --target ./typo.yaml",
    "run --target ./empty.yaml",
    "run --target ./large.yaml",
    "run --target cilium",
    "run --provider lab --target cilium",
    "run --provider kind --target ./lab.yaml",
    "targets show cillium",
    "targets kind ./lab.yaml",
    "targets install cilium --api own-control-plane",
    "compare --against nothing",
    "bench --target nothing",
    "bench --target reference --target reference",
    "bench --services 0",
    "bench --services 1000,10",
    "bench --way sideways",
    "bench --work guess",
    // Where to run.
    "run --kubeconfig missing.yaml",
    "run --kubeconfig typo.yaml",
    "run --kubeconfig large.yaml",
    "run --provider lab --kubeconfig typo.yaml",
    "run --kubeconfig typo.yaml --mutant prefix-release",
    "run --tier node",
    "run --quick --kubeconfig typo.yaml",
    "run --kubernetes 1.36",
    "run --load own:1 --dry-run",
    "run --target cilium --reuse own --dry-run",
    "run --target calico-iptables --provider kind --ipv6 --dry-run",
    // Results and limits.
    "run --out typo.yaml",
    "run --rerun-failed",
    "run --nodes 12",
    "run --timeout-scale 0.5",
    "report missing.yaml",
    "report typo.yaml",
    "report large.yaml",
    "watch kubernetes",
    // Commands.
    "runn",
    "run --provder kind",
];

/// A target file of the lab alone.
const LAB: &str = "lab: {program: p, run: [], cleanup: [], ready: {port: 1, path: /}}\n";

/// A folder with the files that the command lines name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("typo.yaml", "features: [sctp]\nclutser:\n  agent: {}\n");
    put("empty.yaml", "features: []\n");
    put("lab.yaml", LAB);
    let large = File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len(TOO_LARGE).unwrap();
    folder
}

fn plumbline(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(line.split(' '))
        .current_dir(folder)
        // Neither Docker nor kind.
        .env("PATH", folder)
        .env("HOME", folder)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KIND_NODE_IMAGE")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The command line and its error; the names of folders are those of each run.
fn written(line: &str, folder: &Path, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
    let error = String::from_utf8_lossy(&output.stderr);
    let error = error.replace(&*folder.to_string_lossy(), "FOLDER");
    assert!(!error.contains("panicked"), "{line}: {error}");
    format!("$ plumbline {line}\n{error}\n")
}

#[test]
fn wrong_inputs_print_what_was_expected_and_what_to_do() {
    assert!(LINES.len() >= 20);
    let folder = folder();
    let mut all = String::new();
    for line in LINES {
        all += &written(line, folder.path(), &plumbline(folder.path(), line));
    }
    insta::assert_snapshot!(all);
}

/// Docker and kind that can't pull an image.
const UNPULLED: Fake = Fake {
    docker: NOTHING.docker,
    kind: Some(
        "case $1 in create) echo 'ERROR: failed to create cluster: failed to pull image \"kindest/node:v9.9.9\"' >&2; exit 1 ;; esac",
    ),
};

/// Makes a kubectl that does nothing.
const KUBECTL: &str = "printf '#!/bin/sh\\n' > $PROGRAMS/kubectl; chmod +x $PROGRAMS/kubectl";

/// A target file for kind alone.
const CLUSTER: &str = "cluster: {agent: {namespace: n, daemon-set: d, container: c, labels: {app: d}}}\n";

#[test]
fn a_host_that_lacks_something_is_told_what() {
    if !privileged() {
        return;
    }
    let mut all = String::new();
    for (fake, line) in [
        (NOTHING, "run --provider kind --target own.yaml"),
        (UNPULLED, "run --target ./own.yaml --kubernetes 9.9.9"),
        (
            Fake {
                docker: Some("echo 'failed to connect to the docker API' >&2; exit 1"),
                ..NOTHING
            },
            "run --target ./own.yaml",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("own.yaml"), CLUSTER).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let besides = if all.is_empty() { ":" } else { KUBECTL };
        let mut output = called(folder.path(), &fake, besides, &words);
        let left = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(left.trim(), "left: busy busy/lock", "{line}");
        output.stdout.clear();
        all += &written(line, folder.path(), &output);
    }
    insta::assert_snapshot!(without_numbers(&all));
}

/// Without the numbers of processes in names of clusters.
fn without_numbers(text: &str) -> String {
    let mut words = text.split("plumbline-");
    let mut all = words.next().unwrap_or_default().to_owned();
    for word in words {
        let rest = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let number = if rest.len() < word.len() { "PID" } else { "" };
        let _ = write!(all, "plumbline-{number}{rest}");
    }
    all
}

#[test]
fn without_root_the_command_that_has_it_is_named() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("plumbline");
    fs::copy(env!("CARGO_BIN_EXE_plumbline"), &program).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups"])
            .arg(&program)
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("KIND_NODE_IMAGE")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let named = format!("`sudo {} run clusterip-from-pod`\n", program.display());
    assert_eq!(
        run(&["run", "clusterip-from-pod"]),
        format!(
            "plumbline: a lab is made of namespaces, cgroups and eBPF programs, which needs root: {named}"
        )
    );
    let kind = run(&["run", "--provider", "kind", "clusterip-from-pod"]);
    assert!(
        kind.starts_with("plumbline: a kind cluster is used through "),
        "{kind}"
    );
    assert!(!folder.path().join("target").exists(), "nothing is made");
}
