//! Targets by their files, with a script as the program.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use cluster::{Stop, Variant, target::program::Need};
use lab::{AgentCommand, LabCluster, Lifetime};

use super::support::{TestLab, cgroup, config, eventually, name, privileged};

/// A target whose program is this script, and which declares these tools.
fn target(folder: &Path, tools: &str, script: &str) -> AgentCommand {
    let program = folder.join("proxy");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("write");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it executable");
    let file = folder.join("target.yaml");
    let text = format!(
        "lab:\n  program: proxy\n  tools: [{tools}]\n  run: [--on, '${{node}}', '--api=${{kubeconfig}}', '${{state}}']\n  \
         cleanup: [--wipe, '${{cgroup}}', '${{bpffs}}']\n  ready: {{ port: 10256, path: /healthz }}\n"
    );
    let other = folder.join("other");
    fs::copy(&program, &other).expect("copy");
    let other = format!(
        "  other-release: {{ program: {}, run: [--other, '${{node}}'] }}\n",
        other.display()
    );
    fs::write(&file, text + &other).expect("write");
    AgentCommand::of_target(&file.to_string_lossy(), Some(&program)).expect("a target")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_of_ones_own_is_run_and_cleaned_as_its_file_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = folder.path().join("told");
    let script = format!(
        "echo \"$@\" >> {}\ncase $1 in --on|--other) exec sleep infinity ;; esac",
        said.display()
    );
    let agent = target(folder.path(), "sh", &script);
    let Some(test) = TestLab::up_with("target", |config| config.agent = agent).await else {
        return;
    };
    let told = |line: String| {
        let text = fs::read_to_string(&said).unwrap_or_default();
        text.lines().any(|one| one == line)
    };
    let run = "/run/plumbline/".to_owned() + &name("target");
    for node in ["node1", "node2"] {
        let line = format!("--on {node} --api={run}/kubeconfig-{node} {run}/logs/agent-{node}.state");
        eventually("the start of the program", || told(line.clone())).await;
    }
    let (agents, other) = (test.agents(), Some(Variant::OtherRelease));
    agents.start("node2", other).await.expect("start");
    eventually("the start of the other release", || {
        told("--other node2".to_owned())
    })
    .await;
    assert_eq!(agents.state("node2").await.expect("a state").variant, other);
    test.agents().stop("node1", Stop::Term).await.expect("stop");
    test.agents().clean_up("node1").await.expect("wipe");
    assert!(told("--wipe /sys/fs/cgroup /sys/fs/bpf".to_owned()));
    // A program that can't print its version gives no evidence, and no error.
    let evidence = folder.path().join("evidence");
    test.lab.cluster().evidence(&evidence).await.expect("evidence");
    assert!(evidence.join("objects/pods.json").is_file() && !evidence.join("dump-node1.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_whose_tools_are_missing_is_named_before_anything_is_made() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&name("tools"), folder.path());
    config.agent = target(folder.path(), "sh, no-such-tool", "exec sleep infinity");
    let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect_err("it lacks a tool")
        .to_string();
    assert!(
        error.contains("calls no-such-tool, which is not on the PATH"),
        "{error}"
    );
    assert!(!cgroup(&config.name).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_lacks_for_a_target_is_named_with_what_was_tried() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&name("needs"), folder.path());
    let need = |what: &str, script: &str| Need {
        what: what.to_owned(),
        run: ["sh", "-c", script].map(str::to_owned).to_vec(),
    };
    // Tried in a namespace without the host's devices.
    config.agent.program.needs = vec![
        need("to be alone", "! grep -q eth0 /proc/net/dev"),
        need("xt_none (CONFIG_NONE)", "echo no such match >&2; exit 1"),
        need("what is not tried", "exit 0"),
    ];
    let silent = vec![need("a name (package names)", "exit 2")];
    for (needs, named, said) in [
        (
            config.agent.program.needs.clone(),
            "xt_none (CONFIG_NONE)",
            "no such match",
        ),
        (silent, "a name (package names)", "nothing (exit status: 2)"),
    ] {
        config.agent.program.needs = needs;
        let error = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
            .await
            .expect_err("the host lacks something")
            .to_string();
        assert!(
            error.contains(&format!("needs {named}, which this host lacks"))
                && error.contains(&format!("said: {said}. ")),
            "{error}"
        );
    }
    assert!(!cgroup(&config.name).exists());
}
