//! Other people's implementations, unmodified, in the lab.

use std::{env, path::PathBuf, process::Command};

use lab::embedded::KUBERNETES;
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
