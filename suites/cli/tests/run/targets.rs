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
