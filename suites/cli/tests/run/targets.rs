//! Other projects' implementations, unmodified, in the lab.

use std::{env, path::PathBuf, process::Command};

use lab::KUBERNETES;
use testing::patience::TIMES;

use super::{privileged, support::report};

/// What kube-proxy must pass: that a Service works, and that one without endpoints refuses.
const CASES: &str = "^clusterip-(from-pod|no-endpoints-refused)$";

#[test]
fn kube_proxy_by_iptables_passes_the_cases_of_a_cluster_ip() {
    kube_proxy("iptables", &["iptables", "iptables-save", "iptables-restore"]);
}

#[test]
fn kube_proxy_by_nftables_passes_the_cases_of_a_cluster_ip() {
    kube_proxy("nftables", &["nft"]);
}

/// A short scenario without differences: longer ones are for the nightly run.
#[test]
fn the_reference_does_what_kube_proxy_does() {
    let folder = PathBuf::from(env::var_os(KUBERNETES).unwrap_or_default());
    if !privileged() || !testing::programs_or_skip(&testing::current(), &["nft", "kube-proxy"], &[folder]) {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["compare", "--seed", "102", "--steps", "12"])
        .args(["--timeout-scale", &TIMES.to_string(), "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(output.status.code(), Some(0), "{said:?}");
    assert!(
        said[0].starts_with("1 scenario, ") && said[0].contains(" 0 differ,"),
        "{said:?}"
    );
    assert!(said[1].contains("seed 102: the same in "), "{said:?}");
}

/// Names that begin alike, as chaos has them: what leaves a slice of `t` is still an endpoint of `t-ext`.
const BEGIN_ALIKE: &str = r#"{"seed": 1, "steps": [
    {"chaos": [
        {"at_ms": 0, "do": {"service": {"service": 0, "to": {}}}},
        {"at_ms": 0, "do": {"service": {"service": 1, "to": {}}}},
        {"at_ms": 0, "do": {"slice": {"slice": 0, "to": {"of": 0, "endpoints": [{"backend": 0}]}}}},
        {"at_ms": 0, "do": {"slice": {"slice": 2, "to": {"of": 1, "endpoints": [{"backend": 0}]}}}}
    ]},
    {"chaos": [
        {"at_ms": 0, "do": {"fault": {"kind": "agent-killed", "lasts_ms": 0}}}
    ]},
    {"chaos": [
        {"at_ms": 0, "do": {"slice": {"slice": 0, "to": {"of": 0, "endpoints": null}}}},
        {"at_ms": 0, "do": {"annotate": 1}}
    ]},
    {"dial": {"from": "pod2", "protocol": "tcp", "to": {"cluster-ip": {"service": 101}}}}
]}"#;

#[test]
fn what_chaos_writes_tells_a_known_bug_from_the_reference() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [steps, target] = ["steps.json", "mutant.yaml"].map(|name| folder.path().join(name));
    std::fs::write(&steps, BEGIN_ALIKE).unwrap();
    let shown = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["targets", "show", "reference"])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let mutant = shown
        .replace("program: reference-agent", "program: plumbline-mutant")
        .replace("    - run\n", "    - --mutant=prefix-release\n    - run\n");
    std::fs::write(&target, mutant).unwrap();
    for (target, code, expected) in [
        ("reference", 0, "1 scenario, "),
        (target.to_str().unwrap(), 1, "seed 1: a difference, shown by "),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args([
                "compare",
                "--target",
                target,
                "--against",
                "reference",
                "--shrinks",
                "0",
            ])
            .args(["--timeout-scale", &TIMES.to_string(), "--replay"])
            .arg(&steps)
            .arg("--out")
            .arg(folder.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(output.status.code(), Some(code), "{said:?}");
        assert!(said[0].contains(expected), "{said:?}");
    }
}

#[test]
fn what_can_not_be_compared_is_an_error_of_its_own() {
    let compare = |options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .arg("compare")
            .args(options)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.json");
    let name = file.to_str().unwrap();
    for (text, expected) in [
        ("{}", "is no file of steps"),
        (r#"{"seed": 1, "steps": []}"#, "has no steps"),
        (r#"{"seed": 1, "steps": [{"close": {"socket": 3}}]}"#, "step 1 of"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, said) = compare(&["--replay", name]);
        assert!(
            code == Some(2) && said.contains(expected),
            "{text}: {code:?} {said}"
        );
    }
    let (code, said) = compare(&["--against", "nothing"]);
    assert!(
        code == Some(2) && said.contains("there is no target nothing"),
        "{code:?} {said}"
    );
}

fn kube_proxy(mode: &str, tools: &[&str]) {
    let folder = PathBuf::from(env::var_os(KUBERNETES).unwrap_or_default());
    let programs = [tools, &["kube-proxy"]].concat();
    if !privileged() || !testing::programs_or_skip(&testing::current(), &programs, &[folder]) {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "--target", &format!("kube-proxy-{mode}")])
        .args(["--timeout-scale", &TIMES.to_string(), "--filter", CASES, "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
    let report = report(out.path());
    assert_eq!(output.status.code(), Some(0), "{said}\n{report:#}");
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2, "{report:#}");
    assert!(cases.iter().all(|case| case["verdict"] == "pass"), "{report:#}");
}
