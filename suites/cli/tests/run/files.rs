//! Files that a user names: an error names the path if it is no regular file, which is not read.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Output},
};

const NO_FILE: &str = "expected a regular file or a pipe, found a character device";

fn plumbline(line: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_plumbline");
    Command::new(program).args(line.split(' ')).output().unwrap()
}

/// A device that ends at once: an endless one would take all memory if it were read.
#[test]
fn a_device_in_place_of_a_file_is_named_by_every_command() {
    let out = tempfile::tempdir().unwrap();
    symlink("/dev/null", out.path().join("report.yaml")).unwrap();
    let out = out.path().display();
    for (line, code) in [
        ("targets check /dev/null", 2),
        ("targets kind /dev/null", 2),
        ("targets install /dev/null --api own:6443", 2),
        ("report /dev/null", 2),
        ("report validate /dev/null", 2),
        ("watch default/kubernetes --kubeconfig /dev/null", 2),
        ("heal --kubeconfig /dev/null", 2),
        ("cleanup --kubeconfig /dev/null", 2),
        (
            r#"exec-in-pod {"connection":{"kubeconfig":"/dev/null","context":null},"namespace":"n","pod":"p","argv":["true"]}"#,
            255,
        ),
        (
            &format!("run --provider existing --kubeconfig /dev/null --out {out}"),
            2,
        ),
        (
            &format!("run --provider existing --target /dev/null --out {out}"),
            2,
        ),
        ("case clusterip-from-pod /dev/null", 2),
    ] {
        let output = plumbline(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(
            said.contains("/dev/null") && said.contains(NO_FILE),
            "{line}: {said}"
        );
    }
    let output = plumbline(&format!("run --provider existing --rerun-failed --out {out}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("{out}/report.yaml: {NO_FILE}")), "{said}");
}

#[test]
fn a_pipe_is_as_good_as_a_file() {
    let script = "\"$0\" targets show reference | \"$0\" targets check /dev/stdin";
    let checked = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_plumbline")])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout),
        "/dev/stdin: a target\n",
        "{checked:?}"
    );
}

#[test]
fn a_kubeconfig_that_can_not_be_used_is_named_and_none_of_its_lines_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    fs::write(&file, "users: [{name: a, user: {token: secret}}]\nfoo: [\n").unwrap();
    let file = file.display();
    for line in [
        format!("watch default/kubernetes --kubeconfig {file}"),
        format!("cleanup --kubeconfig {file}"),
    ] {
        let output = plumbline(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        let expected =
            format!("plumbline: failed to use the kubeconfig {file}: expected a kubeconfig in YAML: ");
        assert!(said.starts_with(&expected) && !said.contains("secret"), "{said}");
    }
}
