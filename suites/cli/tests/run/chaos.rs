//! Chaos: schedules of both incidents and of faults of nodes, which the reference agent stands; an agent with the first incident's
//! bug does not stand that one's.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use oracle::chaos::{Broken, ChaosHistory, Terms, judge};
use scenarios::chaos::{
    HISTORY, SCHEDULE, read,
    schedule::{FaultKind, Schedule},
};
use testing::patience::TIMES;

use super::{
    privileged,
    support::{idle_agent, report},
};

/// A schedule that is published.
fn published(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../chaos/scenarios/schedules");
    folder.join(name).with_extension("json")
}

/// Plays a schedule briefly. Returns the exit code, and the folder with the evidence of the seed.
fn played(schedule: &Path, seed: u64, out: &Path, options: &[&str]) -> (Option<i32>, PathBuf) {
    let status = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(["chaos", "replay"])
        .arg(schedule)
        .args(["--brief", "--tries", "1", "--quiet", "--out"])
        .arg(out)
        .args(options)
        .status()
        .unwrap();
    (status.code(), out.join("evidence").join(format!("chaos-{seed}")))
}

/// The reference agent stands a schedule, whose history is in the evidence with it.
fn stands(name: &str, seed: u64) -> ChaosHistory {
    let folder = tempfile::tempdir().unwrap();
    let schedule = published(name);
    let patient = ["--timeout-scale", &TIMES.to_string()];
    let (code, evidence) = played(&schedule, seed, folder.path(), &patient);
    assert_eq!(code, Some(0), "the reference agent stands {name}");
    let history = read(&evidence.join(HISTORY)).unwrap();
    assert!(judge(&history).attempts.is_empty());
    assert!(judge(&history).judged > 1000, "{}", judge(&history).judged);
    let kept: Schedule = serde_json::from_slice(&fs::read(evidence.join(SCHEDULE)).unwrap()).unwrap();
    let given: Schedule = serde_json::from_slice(&fs::read(schedule).unwrap()).unwrap();
    assert_eq!(kept, given, "what was played is in the evidence");
    let axes = report(folder.path())["cases"][0]["axes"].clone();
    let compared =
        |axis: &&serde_json::Value| axis["name"] == "what node1 has programmed" && axis["verdict"] == "pass";
    assert!(
        axes.as_array().unwrap().iter().any(|axis| compared(&axis)),
        "{axes}"
    );
    history
}

#[test]
fn the_first_incident_is_found_by_three_writes() {
    if !privileged() {
        return;
    }
    stands("incident-1", 1);
    let folder = tempfile::tempdir().unwrap();
    let mutant = ["--mutant", "prefix-release"];
    let (code, evidence) = played(&published("incident-1"), 1, folder.path(), &mutant);
    assert_eq!(code, Some(1));
    let history = read(&evidence.join(HISTORY)).unwrap();
    let outside = judge(&history);
    let seen =
        |(broken, _, target): &(Broken, &str, &str)| *broken == Broken::Unserved && target.contains("t-ext ");
    assert!(
        !outside.attempts.is_empty() && outside.attempts.keys().all(seen),
        "{outside:?}"
    );
}

/// What an agent does that keeps them shows after T_heal: `cargo xtask mutants` waits for that.
#[test]
fn programs_of_a_former_load_are_evicted_while_services_change() {
    if privileged() {
        stands("incident-2", 2);
    }
}

/// Faults of nodes that need a network, a kernel or a second configuration of the agent. Each is in the history.
#[test]
fn nodes_change_and_fail_while_services_change() {
    if !privileged() {
        return;
    }
    let history = stands("nodes", 3);
    let made: BTreeSet<&str> = history.disturbances.iter().map(|one| &*one.fault).collect();
    let given: Schedule = serde_json::from_slice(&fs::read(published("nodes")).unwrap()).unwrap();
    assert_eq!(made, given.kinds().into_iter().map(FaultKind::name).collect());
}

/// Session affinity and traffic policies, for longer than a change may take.
#[test]
fn clients_are_bound_and_policies_are_kept_while_an_agent_dies() {
    if !privileged() {
        return;
    }
    let history = stands("terms", 6);
    let states = history.frontends.iter().flat_map(|frontend| &frontend.states);
    let terms: Vec<Terms> = states.map(|state| state.terms).collect();
    assert!(terms.iter().any(|one| one.sticks) && terms.iter().any(|one| one.may_fail));
    let folder = tempfile::tempdir().unwrap();
    let mutant = ["--mutant", "affinity-ignored"];
    let (code, evidence) = played(&published("terms"), 6, folder.path(), &mutant);
    assert_eq!(code, Some(1));
    let history = read(&evidence.join(HISTORY)).unwrap();
    let outside = judge(&history);
    let is_unbound = |(broken, ..): &(Broken, &str, &str)| *broken == Broken::Unbound;
    assert!(
        !outside.attempts.is_empty() && outside.attempts.keys().all(is_unbound),
        "{outside:?}"
    );
}

#[test]
fn a_fault_that_can_not_be_made_is_no_verdict() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let agent = idle_agent(folder.path());
    let out = folder.path().join("out");
    let (code, _) = played(&published("incident-2"), 2, &out, &["--agent", &agent]);
    assert_eq!(code, Some(1));
    let case = &report(&out)["cases"][0];
    assert_eq!(case["verdict"], "inconclusive", "{case}");
    assert!(case["why"].as_str().unwrap().contains("programs-left"), "{case}");
}
