//! Other people's implementations, unmodified, in the lab.

use std::{env, path::PathBuf, process::Command};

use lab::embedded::KUBERNETES;

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
    if !has_kube_proxy(tools) {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "--target", &format!("kube-proxy-{mode}")])
        .args(["--filter", CASES, "--out"])
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

/// If this machine lacks kube-proxy or what it calls, that is on record.
fn has_kube_proxy(tools: &[&str]) -> bool {
    if !privileged() {
        return false;
    }
    let mut folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let is_there =
        |folders: &[PathBuf], program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    if let Some(missing) = tools.iter().find(|tool| !is_there(&folders, tool)) {
        let why = format!("kube-proxy calls {missing}, which is not on the PATH");
        testing::skip(&testing::current(), &why);
        return false;
    }
    folders.extend(env::var_os(KUBERNETES).map(PathBuf::from));
    if !is_there(&folders, "kube-proxy") {
        let why = format!("there is no kube-proxy on the PATH, nor in the folder that {KUBERNETES} names");
        testing::skip(&testing::current(), &why);
        return false;
    }
    true
}
