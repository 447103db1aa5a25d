//! `plumbline run --dry-run`: what would run and what it would touch, with nothing made or changed.

use std::{
    path::Path,
    process::{Command, Output},
};

use lab::{LabCluster, LabConfig};

use super::{
    existing::{lab, namespaces},
    privileged,
};

fn dry_run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["run", "--dry-run"])
        .args(arguments)
        .current_dir(folder)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_dry_run_in_labs_makes_nothing_and_names_every_case_and_why_others_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let cases = ["kubesvc-reachable", "empty-refill-no-restart", "--nodes", "1"];
    let text = said(&dry_run(folder.path(), &cases));
    for part in [
        "would run        1 case, in a lab of this host, as no option names a cluster (--provider kind: ",
        "\n                 kubesvc-reachable\n",
        "left out         empty-refill-no-restart: skipped: needs 2 nodes (there are 1), which lab does not have\n",
        "takes            about 60 s, by what the reference agent's cases took",
        "touches          nothing but processes of this host",
        "this was a dry run: nothing was made or changed\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "not even the folder of the reports");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_is_what_a_dry_run_expects() {
    if !privileged() {
        return;
    }
    let lab = lab("expected").await;
    let config = LabConfig::new("expected").unwrap();
    let expected = LabCluster::expected(&config).unwrap();
    assert_eq!(&expected, lab.cluster().describe());
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_in_a_cluster_that_is_there_names_what_each_tier_touches_and_makes_nothing() {
    if !privileged() {
        return;
    }
    let lab = lab("dry").await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = lab.kubeconfig().to_str().unwrap().to_owned();
    let of = |tier: &'static str| {
        let (folder, kubeconfig) = (folder.path().to_owned(), kubeconfig.clone());
        tokio::task::spawn_blocking(move || {
            let options = ["clusterip-from-pod", "--kubeconfig", &kubeconfig, "--tier", tier];
            said(&dry_run(&folder, &options))
        })
    };
    let text = of("node").await.unwrap();
    for part in [
        "1 case, in the cluster that --kubeconfig names (",
        "namespaces with the label plumbline-run",
        "a privileged pod on each of the nodes node1, node2\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = of("api").await.unwrap();
    assert!(!text.contains("privileged"), "{text}");
    assert_eq!(namespaces(&lab).await, [""; 0], "nothing is made");
    lab.down().await.unwrap();
}
