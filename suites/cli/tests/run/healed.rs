//! Faults that a run leaves on nodes when it is killed with all its processes, and how they are undone.

use std::{fs, path::Path, process::Command, time::Instant};

use cluster::Place;
use faults::{As, At, ForeignPrograms, LeftoverPrograms, Reattached, Remains, Staging};
use lab::LabCluster;
use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt as _;

use super::{
    CASE, LIMIT,
    leftovers::repair,
    privileged,
    support::{Run, lab_up, signal},
};

/// What a command would do in a lab.
fn dry_run(command: &str, lab: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args([command, "--dry-run", "--lab", lab])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_faults_have_left_on_nodes_is_undone_once_and_the_lab_is_as_before() {
    if !privileged() {
        return;
    }
    let name = format!("healed-{}", std::process::id());
    let lab = lab_up(&name).await;
    ready(&lab).await;
    let before = [left(&lab, "node1").await, left(&lab, "node2").await];

    let mut run = Run::in_lab("stale-sock-pins-hidden", &name);
    run.until(": witness");
    let (case, hidden) = (run.case(), hidden_pins(&lab).await);
    // No process may notice the end of another, as if all were killed at once.
    for pid in [run.child.id(), case] {
        signal(pid, Signal::SIGSTOP);
    }
    kill_helpers(&name, hidden);
    for pid in [case, run.child.id()] {
        signal(pid, Signal::SIGKILL);
    }
    run.child.wait().unwrap();
    leave_programs(&lab, &name).await;
    assert!(left(&lab, "node2").await.exceeds(&before[1]));

    let dry = dry_run("heal", &name);
    for expected in [
        &format!("would undo: the pins of {hidden} are hidden"),
        "would undo: node2: program ",
        "is left by a helper that was killed",
    ] {
        assert!(dry.contains(expected), "{expected}: {dry}");
    }
    assert_eq!(dry_run("heal", &name), dry, "nothing is undone by it");
    assert!(dry_run("cleanup", &name).contains("would remove the namespaces of "));
    let (code, said) = repair("heal", &name);
    assert_eq!(code, Some(0), "{said}");
    for expected in [
        &format!("the pins of {hidden} were hidden"),
        "node2: program ",
        "at connect4 of a cgroup, without a link is undone",
        "clsact ingress is undone",
        "node2: the mount at ",
    ] {
        assert!(said.contains(expected), "{expected:?}: {said}");
    }
    let (code, said) = repair("heal", &name);
    assert!(code == Some(0) && said.contains("nothing is wrong"), "{said}");
    assert_eq!(dry_run("heal", &name), "nothing to do\n");
    let (code, said) = repair("cleanup", &name);
    assert!(code == Some(0) && said.contains("are removed"), "{said}");

    ready(&lab).await;
    for node in ["node1", "node2"] {
        let mounts = on_node(&lab, node, &["cat", "/proc/self/mountinfo"]).await;
        let at_bpffs = |line: &&str| line.split(' ').nth(4) == Some("/sys/fs/bpf");
        assert_eq!(mounts.lines().filter(at_bpffs).count(), 1, "{mounts}");
        assert!(!mounts.contains("plumbline-above"), "{mounts}");
        let folder = format!("/run/plumbline/{name}/node-{node}");
        let files = fs::read_dir(&folder).into_iter().flatten().count();
        assert_eq!(files, 0, "in {folder}");
    }
    let begun = Instant::now();
    loop {
        let now = [left(&lab, "node1").await, left(&lab, "node2").await];
        if now.iter().map(but_pins).eq(before.iter().map(but_pins)) {
            break;
        }
        // Links outlive their pins for a moment.
        assert!(begun.elapsed() < LIMIT, "before: {before:?}, now: {now:?}");
    }
    let run = Run::in_lab(CASE, &name);
    let (status, case) = tokio::task::spawn_blocking(move || run.end()).await.unwrap();
    assert_eq!(
        (status.code(), case["verdict"].as_str()),
        (Some(0), Some("pass")),
        "{case}"
    );
    lab.down().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_undone_is_said_ends_the_run_and_is_undone_when_its_reason_is_gone() {
    if !privileged() {
        return;
    }
    let name = format!("unhealed-{}", std::process::id());
    let lab = lab_up(&name).await;
    ready(&lab).await;
    let mut run = Run::in_lab("stale-sock-pins-hidden", &name);
    run.until(": witness");
    let hidden = hidden_pins(&lab).await;
    // A process whose working folder is the one with the hidden pins keeps it from being removed.
    let place = Place::Host {
        node: hidden.to_owned(),
    };
    let stays = ["sh", "-c", "cd /sys/fs/bpf && echo there && exec cat"].map(str::to_owned);
    let mut busy = lab.cluster().exec(&place, &stays).await.unwrap();
    let mut there = [0; 6];
    busy.stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut there)
        .await
        .unwrap();

    let ended = tokio::task::spawn_blocking(move || run.end_with_words());
    let (status, case, said) = ended.await.unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let warnings = case["warnings"].as_array().unwrap();
    let stays_hidden = format!("healing failed: the pins of {hidden} stay hidden: ");
    let tried_again = format!("what the case did to {hidden} stays: ");
    for expected in [&stays_hidden, &tried_again] {
        let found = |warning: &serde_json::Value| warning.as_str().unwrap().starts_with(expected);
        assert!(warnings.iter().any(found), "{expected:?}: {case}");
    }
    let words = format!("has what a case did to its nodes: `plumbline heal --lab {name}` undoes it");
    assert!(said.contains(&words), "{said}");
    let (code, said) = repair("heal", &name);
    assert_eq!(code, Some(2), "its reason is not gone: {said}");

    busy.start_kill().unwrap();
    busy.wait().await.unwrap();
    let (code, said) = repair("heal", &name);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("the pins of {hidden} were hidden")),
        "{said}"
    );
    let (code, said) = repair("heal", &name);
    assert!(code == Some(0) && said.contains("nothing is wrong"), "{said}");
    let (code, said) = repair("cleanup", &name);
    assert!(code == Some(0) && said.contains("nothing else is left"), "{said}");
    lab.down().await.unwrap();
}

/// Kills helpers that hold programs and a mount.
async fn leave_programs(lab: &LabCluster, name: &str) {
    let mut programs = LeftoverPrograms::hold(lab.cluster(), "node2", &["connect4"], LIMIT)
        .await
        .unwrap();
    let above = Staging {
        at: At::AboveShown,
        manner: As::Multi,
    };
    let attached = programs.attach(above).await.unwrap();
    assert!(matches!(attached, Reattached::Done(ids) if ids.len() == 1));
    let nodes = &lab.cluster().describe().nodes;
    let node = nodes.iter().find(|node| node.name == "node2").unwrap();
    let device_of = *node.addresses.first().unwrap();
    let foreign = ForeignPrograms::attach(lab.cluster(), "node2", &["connect4"], device_of, LIMIT)
        .await
        .unwrap();
    kill_helpers(name, "node2");
    drop((programs, foreign));
}

/// The node on which the case has hidden the pins.
async fn hidden_pins(lab: &LabCluster) -> &'static str {
    for node in ["node1", "node2"] {
        let mounts = on_node(lab, node, &["cat", "/proc/self/mountinfo"]).await;
        if mounts.contains("plumbline-cover") {
            return node;
        }
    }
    panic!("the case has hidden no pins");
}

/// Kills all processes on a node besides its agent and its pods, and waits until they have ended.
fn kill_helpers(name: &str, node: &str) {
    let hierarchy = lb_loader::mount_points("cgroup2").unwrap();
    let system = hierarchy
        .first()
        .unwrap()
        .join(format!("plumbline-lab-{name}/{node}/system"));
    let begun = Instant::now();
    while !is_empty(&system) {
        // Repeated in each round: a process may have joined the cgroup since.
        fs::write(system.join("cgroup.kill"), "1").unwrap();
        let alive = || fs::read_to_string(system.join("cgroup.procs"));
        assert!(
            begun.elapsed() < LIMIT,
            "helpers on {node} do not die: {:?}",
            alive()
        );
        std::thread::yield_now();
    }
}

fn is_empty(cgroup: &Path) -> bool {
    let events = fs::read_to_string(cgroup.join("cgroup.events")).unwrap();
    events.lines().any(|line| line == "populated 0")
}

async fn ready(lab: &LabCluster) {
    let begun = Instant::now();
    for node in ["node1", "node2"] {
        while lab.cluster().agents().unwrap().state(node).await.unwrap().ready != Some(true) {
            assert!(begun.elapsed() < LIMIT, "the agent of {node} is not ready");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

async fn left(lab: &LabCluster, node: &str) -> Remains {
    Remains::of(lab.cluster(), node).await.unwrap()
}

/// Remains other than pins: the agent removes pins of deleted pods' devices at its next start.
fn but_pins(remains: &Remains) -> Vec<String> {
    let all = remains.to_string();
    let kinds = all.split(", ").filter(|kind| !kind.ends_with(" pins"));
    kinds.map(str::to_owned).collect()
}

async fn on_node(lab: &LabCluster, node: &str, command: &[&str]) -> String {
    let place = Place::Host {
        node: node.to_owned(),
    };
    let argv: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let child = lab.cluster().exec(&place, &argv).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(
        output.status.success(),
        "{command:?} on {node}: {:?}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}
