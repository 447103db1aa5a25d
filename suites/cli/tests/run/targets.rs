//! Other people's implementations, unmodified, in the lab.

use std::{env, fs, path::PathBuf, process::Command};

use serde_json::Value;

use super::privileged;

/// A folder with Kubernetes' own programs.
const KUBERNETES: &str = "PLUMBLINE_KUBE_API";
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
    let Some(program) = kube_proxy_program(tools) else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "--target", &format!("kube-proxy-{mode}"), "--agent"])
        .arg(program)
        .args(["--filter", CASES, "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report = fs::read(out.path().join("report.json")).unwrap_or_default();
    let report: Value = serde_json::from_slice(&report).unwrap_or_default();
    assert_eq!(output.status.code(), Some(0), "{said}\n{report:#}");
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2, "{report:#}");
    assert!(cases.iter().all(|case| case["verdict"] == "pass"), "{report:#}");
}

/// Nothing, on record, if this machine lacks kube-proxy or what it calls.
fn kube_proxy_program(tools: &[&str]) -> Option<PathBuf> {
    if !privileged() {
        return None;
    }
    let skip = |why: &str| {
        testing::skip(&testing::current(), why);
        None
    };
    let program = env::var_os(KUBERNETES).map(|folder| PathBuf::from(folder).join("kube-proxy"));
    let Some(program) = program.filter(|program| program.is_file()) else {
        return skip(&format!("{KUBERNETES} names no folder with kube-proxy"));
    };
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &&&str| env::split_paths(&folders).any(|folder| folder.join(tool).is_file());
    match tools.iter().find(|tool| !is_there(tool)) {
        Some(missing) => skip(&format!("kube-proxy calls {missing}, which is not on the PATH")),
        None => Some(program),
    }
}
