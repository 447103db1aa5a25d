//! Interrupted starts and ends: by a concurrent `down`, by SIGKILL, by another start.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use cluster::target::program::Need;
use lab::{Downed, LabCluster, LabConfig, LabError, Lifetime};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    host::Host,
    support::{LIMIT, TestLab, cgroup, config, name, privileged},
    traces::Traces,
};

/// Kills a lab's supervisor by SIGKILL; returns whether there was one.
fn kill_supervisor(lab: &str) -> bool {
    let procs = fs::read_to_string(cgroup(lab).join("control/cgroup.procs")).unwrap_or_default();
    let pid = procs.lines().next().and_then(|line| line.parse().ok());
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

/// Removes the remains, and checks that nothing else is left.
async fn nothing_is_left(lab: &str, before: &Host) {
    lab::down(lab).await.expect("down");
    // A cgroup can be removed only without processes.
    assert!(!cgroup(lab).exists(), "the cgroup of {lab}");
    assert!(
        !Path::new("/run/plumbline").join(lab).exists(),
        "the folder of {lab}"
    );
    before.is_unchanged();
}

/// A lab whose start takes as long as its limit.
fn slow(config: &mut LabConfig) {
    config.agent.program.needs = vec![Need {
        what: "time".to_owned(),
        run: ["sleep", "60"].map(str::to_owned).to_vec(),
    }];
}

async fn up(config: LabConfig) -> Result<LabCluster, LabError> {
    LabCluster::up(&config, Lifetime::WithCaller, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_is_starting_says_so_and_whoever_takes_it_down_ends_its_start() {
    if !privileged() {
        return;
    }
    let before = Host::now();
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&name("unwanted"), folder.path());
    slow(&mut config);
    let starting = tokio::spawn(up(config.clone()));
    let deadline = Instant::now() + LIMIT;
    let by = loop {
        match LabCluster::attach(&config.name).await {
            Err(LabError::Starting { pid, .. }) => break pid,
            Err(LabError::NotUp { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => panic!("expected Starting, found {other:?}"),
        }
    };
    // A concurrent start of the same lab fails at once.
    match up(config.clone()).await {
        Err(LabError::Starting { name, pid }) => assert_eq!((name, pid), (config.name.clone(), by)),
        other => panic!("expected Starting, found {other:?}"),
    }
    assert_eq!(lab::down(&config.name).await.expect("down"), Downed::Up);
    let error = starting.await.expect("no panic").expect_err("it was taken down");
    let said = error.to_string();
    assert!(
        said.contains("another process took it down while it was starting"),
        "{said}"
    );
    nothing_is_left(&config.name, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_in_each_step_of_its_start_leaves_nothing_that_down_does_not_remove() {
    if !privileged() {
        return;
    }
    let before = Host::now();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&name("early"), folder.path());
    for step in ["underlay", "1 API servers", "2 nodes", "agents: fake"] {
        let mut killed = false;
        let up = LabCluster::up(&config, Lifetime::WithCaller, |began| {
            if began == step {
                killed = kill_supervisor(&config.name);
            }
        });
        let result = up.await;
        assert!(killed, "there was no step {step:?}, or no supervisor in it");
        // The supervisor has ended, or, if it had just started, does not answer.
        result.expect_err("it was killed");
        nothing_is_left(&config.name, &before).await;
    }
    // A start after which only the next start cleans up.
    let up = LabCluster::up(&config, Lifetime::WithCaller, |began| {
        if began == "2 nodes" {
            kill_supervisor(&config.name);
        }
    });
    up.await.expect_err("it was killed");
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
        .await
        .expect("up");
    let traces = Traces::of(&config.name);
    lab.down().await.expect("down");
    traces.are_gone().await;
    before.is_unchanged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_while_its_lab_goes_down_leaves_nothing_that_down_does_not_remove() {
    let before = Host::now();
    for after in [0, 1, 3, 10, 30].map(Duration::from_millis) {
        let Some(test) = TestLab::up("late").await else {
            return;
        };
        test.server("b1", "node1", false).await;
        let lab = name("late");
        let traces = Traces::of(&lab);
        let down = tokio::spawn({
            let lab = lab.clone();
            async move { lab::down(&lab).await }
        });
        // No wait for a condition: the moment of the kill.
        tokio::time::sleep(after).await;
        kill_supervisor(&lab);
        down.await
            .expect("no panic")
            .expect("whoever takes it down removes what is left");
        traces.are_gone().await;
        nothing_is_left(&lab, &before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labs_that_start_at_the_same_time_do_not_meet_and_one_name_is_one_lab() {
    if !privileged() {
        return;
    }
    let before = Host::now();
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [first, second] = [("side-a", &folders[0]), ("side-b", &folders[1])]
        .map(|(test, folder)| config(&name(test), folder.path()));
    let (one, again, other) = tokio::join!(up(first.clone()), up(first.clone()), up(second));
    let other = other.expect("a lab of another name");
    let (lab, refused) = match (one, again) {
        (Ok(lab), Err(refused)) | (Err(refused), Ok(lab)) => (lab, refused),
        neither_or_both => panic!("expected one of the two, found {neither_or_both:?}"),
    };
    let by = lab.status().await.expect("status").supervisor;
    match refused {
        LabError::AlreadyUp { name, pid } | LabError::Starting { name, pid } => {
            assert_eq!((name, pid), (first.name.clone(), by));
        }
        other => panic!("expected AlreadyUp or Starting, found {other:?}"),
    }
    let (one, two) = tokio::join!(lab.down(), other.down());
    one.expect("down");
    two.expect("down");
    before.is_unchanged();
}
