//! Remains of runs that are killed with all their processes, and how they are removed.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use cluster::{ApiEndpoint, Stop};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use nix::sys::signal::Signal;

use super::{
    LIMIT, PART, privileged,
    support::{Run, lab_up, signal},
};

pub(crate) fn repair(command: &str, lab: &str) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args([command, "--lab", lab])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

async fn namespaces_of_runs(client: &Client) -> usize {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let of_runs = ListParams::default().labels("plumbline-run");
    namespaces.list(&of_runs).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_leaves_in_a_lab_is_healed_and_removed_once() {
    if !privileged() {
        return;
    }
    let name = format!("left-{}", std::process::id());
    let lab = lab_up(&name).await;
    let mut run = Run::in_lab("clusterip-from-pod", &name);
    run.until(": clients and fence");
    let deadline = Instant::now() + LIMIT;
    while namespaces_of_runs(&lab.cluster().client()).await == 0 {
        assert!(Instant::now() < deadline, "the case makes no namespace");
    }
    let (code, said) = repair("heal", &name);
    assert!(code == Some(2) && said.contains("is under way"), "{said}");
    let (code, said) = repair("cleanup", &name);
    assert!(
        code == Some(0) && said.contains("is under way, and stays"),
        "{said}"
    );

    // Neither may notice the end of the other.
    let case = run.case();
    signal(run.child.id(), Signal::SIGSTOP);
    signal(case, Signal::SIGKILL);
    signal(run.child.id(), Signal::SIGKILL);
    run.child.wait().unwrap();
    // Like a case that was killed during its fault.
    lab.cluster()
        .agents()
        .unwrap()
        .stop("node2", Stop::Kill)
        .await
        .unwrap();
    let way = ApiEndpoint {
        server: "10.96.0.1:443".parse().unwrap(),
        further: Vec::new(),
    };
    faults::redirect_agent(lab.cluster(), "node1", Some(&way))
        .await
        .unwrap();
    assert_eq!(
        lab.cluster().agents().unwrap().state("node1").await.unwrap().way,
        Some(way)
    );
    assert!(namespaces_of_runs(&lab.cluster().client()).await > 0);

    let (code, said) = repair("heal", &name);
    assert!(
        code == Some(0) && said.contains("the agent of node2 was stopped, and is started"),
        "{said}"
    );
    assert!(
        said.contains("the agent of node1 had an API endpoint of a case, and has its own again"),
        "{said}"
    );
    for node in ["node1", "node2"] {
        let agent = lab.cluster().agents().unwrap().state(node).await.unwrap();
        assert!(agent.pid.is_some() && agent.way.is_none(), "{agent:?}");
    }
    let (code, said) = repair("cleanup", &name);
    assert!(code == Some(0) && said.contains("are removed"), "{said}");
    assert_eq!(namespaces_of_runs(&lab.cluster().client()).await, 0);

    let (code, said) = repair("heal", &name);
    assert!(code == Some(0) && said.contains("nothing is wrong"), "{said}");
    let (code, said) = repair("cleanup", &name);
    assert_eq!((code, said.as_str()), (Some(0), "nothing else is left\n"));
    lab.down().await.unwrap();
}

#[test]
fn a_lab_that_died_with_its_run_is_removed_once() {
    if !privileged() {
        return;
    }
    let mut run = Run::with_an_idle_agent("clusterip-from-pod");
    run.until(PART);
    let (case, supervisor) = (run.case(), run.supervisor());
    signal(run.child.id(), Signal::SIGSTOP);
    for pid in [case, supervisor, run.child.id()] {
        signal(pid, Signal::SIGKILL);
    }
    run.child.wait().unwrap();
    let name = format!("run-{}", run.child.id());
    let folder = Path::new("/run/plumbline").join(&name);
    let (code, said) = repair("cleanup", &name);
    // Any lab that starts meanwhile removes dead ones, too.
    assert!(code == Some(0) && said.contains("nothing else is left"), "{said}");
    assert!(!folder.exists(), "{said}");
    assert_eq!(
        repair("cleanup", &name),
        (Some(0), "nothing else is left\n".to_owned())
    );
    let (code, said) = repair("heal", &name);
    assert!(code == Some(2) && said.contains("is not up"), "{said}");
}
