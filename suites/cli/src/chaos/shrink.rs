//! The fewest actions of a schedule that still show what broke: each try is a run of its own.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use harness::{execute::REPORT, report::CaseReport, verdict::Verdict};
use oracle::chaos::{Broken, judge};
use scenarios::{
    chaos::{
        HISTORY, read,
        schedule::{Action, Does, Schedule},
    },
    shrink::shrink as fewest,
};
use tokio::process::Command;

use super::run;
use crate::terminal;

/// After the last action that is needed, clients go on for so long: what broke shows at once, or with their next probes.
const AFTER_MS: u32 = 4000;
/// From one action to the next at most, where they follow each other quickly: longer than a node takes to notice.
const QUICK_MS: u32 = 400;
/// Tries of the whole schedule: what depends on chance may not show at once.
const CONFIRM: usize = 3;

/// Find the fewest actions of a schedule that still show what broke. Each try is a run in a new lab, or where the options after `--`
/// say. Exit codes: 0 it was shrunk, 1 nothing broke when it was played again, 2 it could not run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  plumbline chaos shrink target/plumbline-chaos/evidence/chaos-7/schedule.json
  plumbline chaos shrink FILE -- --target ./own.yaml --nodes 3
      options of `plumbline chaos replay`, for each try")]
pub(super) struct Arguments {
    /// The schedule: schedule.json in the evidence of a run
    file: PathBuf,
    /// Limit of runs
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=500))]
    tries: u16,
    /// Folder for tries, and for shrunk.json: a schedule that `plumbline chaos replay` plays
    #[arg(long, value_name = "FOLDER", default_value = "target/plumbline-chaos/shrink")]
    out: PathBuf,
    /// Options of `plumbline chaos replay`: target, provider …
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// What a run has shown: kinds of broken attempts, and axes that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    broken: BTreeSet<Broken>,
    axes: BTreeSet<String>,
    /// From the beginning of the schedule to the first broken attempt, in milliseconds.
    first_ms: Option<u32>,
}

impl Shown {
    fn is_any(&self) -> bool {
        !self.broken.is_empty() || !self.axes.is_empty()
    }

    /// Whether something of the other's is there, too.
    fn shares(&self, other: &Self) -> bool {
        if other.broken.is_empty() {
            !self.axes.is_disjoint(&other.axes)
        } else {
            !self.broken.is_disjoint(&other.broken)
        }
    }

    fn words(&self) -> String {
        let broken = self.broken.iter().map(|broken| broken.found().to_owned());
        let all: Vec<String> = broken.chain(self.axes.iter().cloned()).collect();
        all.join("; ")
    }
}

pub(super) async fn shrink(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let schedule = run::read(&arguments.file)?;
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("failed to make {}", arguments.out.display()))?;
    let all = schedule.actions.len();
    let mut known = Shown::default();
    for number in 1..=CONFIRM {
        terminal::message(&format!(
            "{all} actions: does it show again? ({number} of {CONFIRM})"
        ));
        known = play(&arguments, &schedule).await?;
        if known.is_any() {
            break;
        }
    }
    if !known.is_any() {
        println!("nothing broke in {CONFIRM} runs of {}", arguments.file.display());
        return Ok(ExitCode::from(1));
    }
    println!("shows: {}", known.words());
    let cut = |actions: &[_], ends: u32| Schedule {
        seed: schedule.seed,
        lasts_ms: ends.saturating_add(AFTER_MS).min(schedule.lasts_ms),
        actions: Vec::from(actions),
    };
    let ends = |actions: &[Action]| {
        // What a fault breaks shows until its end.
        actions.iter().map(Action::ends_ms).max().unwrap_or_default()
    };
    let file = arguments.out.join("shrunk.json");
    let mut failed = None;
    let mut shows = async |actions: &[Action]| {
        terminal::message(&format!("{} of {all} actions?", actions.len()));
        let schedule = cut(actions, ends(actions));
        match play(&arguments, &schedule).await {
            Ok(shown) => {
                let shows = shown.shares(&known);
                // Kept at once: an interrupted search has found something, too.
                if shows && let Err(error) = write(&file, &schedule) {
                    failed.get_or_insert(error);
                }
                shows
            }
            Err(error) => {
                failed.get_or_insert(error);
                false
            }
        }
    };
    let mut tries = usize::from(arguments.tries);
    let mut best = schedule.actions.clone();
    for guess in guesses(&best, known.first_ms) {
        if tries == 0 {
            break;
        }
        tries -= 1;
        if shows(&guess).await {
            best = guess;
            break;
        }
    }
    let actions = fewest(best, &[], tries, <[_]>::to_vec, &mut shows).await;
    if let (Some(error), true) = (failed, actions.len() == all) {
        return Err(error);
    }
    let shrunk = cut(&actions, ends(&actions));
    write(&file, &shrunk)?;
    println!("{} of {all} actions show it:", actions.len());
    run::print(&shrunk);
    let options = arguments.options.join(" ");
    println!("again: plumbline chaos replay {} {options}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Schedules that probably suffice and take less time, the most daring first: only writes until it broke, in quick succession; the same
/// with faults; everything until it broke.
fn guesses(actions: &[Action], first_ms: Option<u32>) -> Vec<Vec<Action>> {
    let until: Vec<Action> = match first_ms {
        Some(first) => actions
            .iter()
            .filter(|action| action.at_ms <= first)
            .cloned()
            .collect(),
        None => actions.to_vec(),
    };
    let writes = until
        .iter()
        .filter(|action| !matches!(action.does, Does::Fault(_)))
        .cloned()
        .collect();
    let mut all = vec![quickly(writes), quickly(until.clone()), until];
    all.dedup();
    all.retain(|guess| !guess.is_empty() && guess != actions);
    all
}

/// The same actions, each soon after the one before.
fn quickly(mut actions: Vec<Action>) -> Vec<Action> {
    let (mut before, mut at_ms) = (0, 0);
    for action in &mut actions {
        at_ms += action.at_ms.saturating_sub(before).min(QUICK_MS);
        before = action.at_ms;
        action.at_ms = at_ms;
    }
    actions
}

/// Plays a schedule in a process of its own.
async fn play(arguments: &Arguments, schedule: &Schedule) -> anyhow::Result<Shown> {
    let out = arguments.out.join("try");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("failed to remove {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    let file = arguments.out.join("try.json");
    write(&file, schedule)?;
    let ended = Command::new("/proc/self/exe")
        .arg0("plumbline")
        .args(["chaos", "replay"])
        .arg(&file)
        .args(&arguments.options)
        .args(["--brief", "--tries", "1", "--evidence", "all", "--quiet", "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("failed to start a try")?;
    match ended.code() {
        Some(0 | 1) => shown(&run::evidence(&out, schedule.seed)?),
        _ => bail!(
            "a try ended with {ended}: `plumbline chaos replay {}` shows why",
            file.display()
        ),
    }
}

/// What a run has shown, by its evidence.
fn shown(folder: &Path) -> anyhow::Result<Shown> {
    let text = fs::read(folder.join(REPORT))
        .with_context(|| format!("failed to read the report in {}", folder.display()))?;
    let report: CaseReport = serde_json::from_slice(&text).context("the report of a try is none")?;
    let mut shown = Shown::default();
    for axis in report.axes {
        if matches!(axis.verdict, Verdict::Fail { .. }) {
            shown.axes.insert(axis.name);
        }
    }
    let file = folder.join(HISTORY);
    if file.exists() {
        let history = read(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let outside = judge(&history);
        shown.broken = outside.attempts.keys().map(|(broken, ..)| *broken).collect();
        let first = outside.attempts.values().flatten().map(|one| one.start_us).min();
        shown.first_ms = first
            .map(|first| u32::try_from(first.saturating_sub(history.began_us) / 1000).unwrap_or(u32::MAX));
    }
    Ok(shown)
}

fn write(file: &Path, schedule: &Schedule) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(schedule)?;
    fs::write(file, text + "\n").with_context(|| format!("failed to write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use scenarios::chaos::schedule::{Fault, FaultKind};

    use super::*;

    #[test]
    fn guesses_end_when_it_broke_and_leave_faults_out_first() {
        let at = |at_ms, does| Action { at_ms, does };
        let fault = Does::Fault(Fault {
            kind: FaultKind::AgentKilled,
            node: None,
            lasts_ms: 0,
        });
        let all = vec![
            at(1000, Does::Annotate(0)),
            at(1100, fault.clone()),
            at(5000, Does::Annotate(1)),
            at(9000, Does::Annotate(2)),
        ];
        let expected = vec![
            vec![at(400, Does::Annotate(0)), at(800, Does::Annotate(1))],
            vec![
                at(400, Does::Annotate(0)),
                at(500, fault),
                at(900, Does::Annotate(1)),
            ],
            all[..3].to_vec(),
        ];
        assert_eq!(guesses(&all, Some(6000)), expected);
        assert!(guesses(&[], None).is_empty());
    }

    #[test]
    fn a_try_shows_it_if_it_breaks_in_the_same_way() {
        let shown = |broken: &[Broken], axes: &[&str]| Shown {
            broken: broken.iter().copied().collect(),
            axes: axes.iter().map(|axis| (*axis).to_owned()).collect(),
            first_ms: None,
        };
        let known = shown(&[Broken::Unserved], &["while faults come and go"]);
        assert!(known.shares(&known));
        assert!(!shown(&[Broken::Stale], &["while faults come and go"]).shares(&known));
        let healed = shown(&[], &["when all is healed"]);
        assert!(shown(&[Broken::Stale], &["when all is healed"]).shares(&healed));
        assert!(!Shown::default().is_any());
    }
}
