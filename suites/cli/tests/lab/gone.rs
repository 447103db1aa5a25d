//! A lab leaves nothing: the host is afterwards as it was before, however the lab ended.

use cluster::Place;
use lab::{AgentCommand, Downed, IpFamilies, LabCluster, LabConfig};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    host::Host,
    support::{TestLab, cgroup, eventually, name, node},
    traces::Traces,
};

fn with_the_reference_agent(config: &mut LabConfig) {
    let program = config.plumbline.with_file_name("reference-agent");
    config.agent = AgentCommand::of_target("reference", Some(&program)).expect("built");
    config.families = IpFamilies::Dual;
}

async fn all_ready(lab: &LabCluster) {
    for node in ["node1", "node2"] {
        super::support::agent_is_ready(lab, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_labs_in_a_row_with_agents_and_pods_leave_the_host_as_it_was() {
    let before = Host::now();
    for _ in 0..2 {
        let Some(test) = TestLab::up_with("row", with_the_reference_agent).await else {
            return;
        };
        all_ready(&test.lab).await;
        test.server("b1", "node1", false).await;
        test.server("h2", "node2", true).await;
        let (_, pins) = test.shell(&node("node1"), "ls /sys/fs/bpf").await;
        assert!(
            pins.contains("plumbline"),
            "the agent has pinned in its node's bpffs: {pins:?}"
        );
        let traces = Traces::of(&name("row"));
        test.lab.down().await.expect("down");
        traces.are_gone().await;
        before.is_unchanged();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_with_agents_that_is_killed_leaves_the_host_as_it_was_and_another_lab_up() {
    let before = Host::now();
    let Some(other) = TestLab::up_with("beside", with_the_reference_agent).await else {
        return;
    };
    let test = TestLab::up_with("kill9", with_the_reference_agent)
        .await
        .expect("root");
    all_ready(&test.lab).await;
    test.server("b1", "node1", false).await;
    let traces = Traces::of(&name("kill9"));
    let supervisor = test.lab.status().await.expect("status").supervisor;
    kill(Pid::from_raw(supervisor.cast_signed()), Signal::SIGKILL).expect("SIGKILL");
    eventually("the end of all processes", || traces.ended()).await;
    drop(test.lab);
    // Another test's `up` may have removed it meanwhile.
    assert_ne!(lab::down(&name("kill9")).await.expect("down"), Downed::Up);
    traces.are_gone().await;
    before.is_unchanged();

    all_ready(&other.lab).await;
    let traces = Traces::of(&name("beside"));
    other.lab.down().await.expect("down");
    traces.are_gone().await;
    before.is_unchanged();
}

/// A container has mount, process and network namespaces of its own; here the network namespace is that of another
/// lab's outside client, whose loopback device is up as a container's is.
#[tokio::test(flavor = "multi_thread")]
async fn a_lab_comes_up_and_goes_down_in_a_container() {
    let Some(outer) = TestLab::up("outer").await else {
        return;
    };
    let before = Host::now();
    let inner = name("inner");
    let plumbline = env!("CARGO_BIN_EXE_plumbline");
    let script = format!(
        "set -e; p() {{ {plumbline} lab \"$@\"; }}\n\
         p up --name {inner}; p status --name {inner}\n\
         p exec --name {inner} node2 -- cat /proc/self/cgroup\n\
         p down --name {inner}; p up --name {inner}; p down --name {inner}\n\
         p down --name {inner}"
    );
    let argv = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &script,
    ];
    let child = outer
        .lab
        .cluster()
        .exec(&Place::Outside, &argv.map(str::to_owned))
        .await;
    let output = child.expect("start").wait_with_output().await.expect("wait");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{complained}");
    assert_eq!(said.matches("ready, process").count(), 2, "{said}");
    assert!(
        said.contains(&format!("plumbline-lab-{inner}/node2/system")),
        "{said}"
    );
    assert!(said.contains("is not up, and has left nothing"), "{said}");
    assert!(!cgroup(&inner).exists());
    before.is_unchanged();
}
