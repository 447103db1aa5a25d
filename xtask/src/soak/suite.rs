//! `cargo xtask soak e2e`: the suite many times beside other work, in another order each time.
//!
//! One run that passes shows little of a suite: a case that judges the machine fails one run in twenty. Here what is
//! inconclusive is a finding as what failed is, no case gets a second try, and the changes that took the largest shares of their limits are
//! reported, as these would fail first on a slower machine.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, hint, io,
    num::NonZero,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{e2e, job, mutants::outcome::parsed, steps};

/// Folder of the reports, one for each run, below the workspace.
const OUT: &str = "target/plumbline/soak";
/// What the name of a recorded delay begins with (`suites/harness/src/record.rs`); its value is such as `12 of 30000 ms`.
const DELAY: &str = "delay at most: ";
/// Delays that are shown.
const NEAREST: usize = 10;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 every case of every run passed or could not run here, 1 one failed or was inconclusive, 2 a \
                  run could not be made, or no case could run."
)]
pub(super) struct Arguments {
    /// Number of runs, one after the other
    #[arg(long, default_value = "20", value_name = "N")]
    runs: NonZero<u32>,
    /// Threads that keep a processor busy beside the runs
    #[arg(long, default_value_t = 0, value_name = "N")]
    busy: u8,
    /// Seed of the first run, the next one's is one more; printed. The default is from the clock
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Arguments for `plumbline run`
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// What all runs have shown.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    /// Numbers of cases by verdict.
    verdicts: BTreeMap<String, u32>,
    /// Each case that failed or was inconclusive: the run, the case, the verdict, why.
    wrong: Vec<(u32, String, String, String)>,
    /// The delays with the largest shares of their limits.
    nearest: Vec<Near>,
}

/// A delay.
#[derive(Clone, Debug, PartialEq)]
struct Near {
    /// Share of the limit.
    share: f64,
    /// As recorded.
    delay: String,
    run: u32,
    case: String,
    what: String,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&e2e::PROGRAMS)?;
    let program = steps::programs()?.join("plumbline");
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    let seed = arguments.seed.unwrap_or_else(clock);
    let over = AtomicBool::new(false);
    let mut shown = Shown::default();
    let ran = thread::scope(|scope| -> anyhow::Result<()> {
        for _ in 0..arguments.busy {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            });
        }
        let ran = (1..=arguments.runs.get()).try_for_each(|run| {
            one(&program, arguments, run, seed, &mut shown)?;
            eprintln!("{}", shown.line(run, arguments.runs));
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        ran
    });
    // Also of the runs before one that could not be made.
    if !shown.verdicts.is_empty() {
        print!("{}", shown.table());
    }
    ran?;
    ensure!(
        shown.has_decided(),
        "no case has run: the table of each run says why"
    );
    Ok(ExitCode::from(u8::from(!shown.wrong.is_empty())))
}

/// Makes a run with this number and adds what it shows.
fn one(program: &Path, arguments: &Arguments, run: u32, seed: u64, shown: &mut Shown) -> anyhow::Result<()> {
    let out = format!("{OUT}/{run}");
    let report = steps::root().join(&out).join("report.yaml");
    // That of an earlier soak would pass for this one's.
    if let Err(error) = fs::remove_file(&report)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("failed to remove {}", report.display()));
    }
    let mut command = steps::as_root(program, "making the cluster")?;
    command
        .current_dir(steps::root())
        .args(["run", "--shuffle", "--tries", "1", "--out", &out, "--seed"])
        .arg(seed.wrapping_add(u64::from(run - 1)).to_string())
        .args(&arguments.run);
    // Its report says more than its exit code.
    steps::run(
        &format!("run {run} of {}", arguments.runs),
        &mut job::bound(command),
    )?;
    let text = fs::read_to_string(&report).with_context(|| {
        format!(
            "run {run} wrote no {}: what it printed says why",
            report.display()
        )
    })?;
    shown.add(run, &parsed(&text)?)
}

impl Shown {
    /// Adds a report.
    fn add(&mut self, run: u32, report: &Value) -> anyhow::Result<()> {
        let cases = report["cases"].as_array().context("report.yaml names no cases")?;
        for case in cases {
            let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
            let (id, verdict) = (text("id"), text("verdict"));
            if matches!(verdict.as_str(), "fail" | "inconclusive") && case["exempt"].is_null() {
                self.wrong.push((run, id.clone(), verdict.clone(), text("why")));
            }
            *self.verdicts.entry(verdict).or_default() += 1;
            for (name, value) in case["recorded"].as_object().into_iter().flatten() {
                let (Some(what), Some(delay)) = (name.strip_prefix(DELAY), value.as_str()) else {
                    continue;
                };
                self.nearest.push(Near {
                    share: share(delay).with_context(|| format!("{id} records the delay {delay:?}"))?,
                    delay: delay.to_owned(),
                    run,
                    case: id.clone(),
                    what: what.to_owned(),
                });
            }
        }
        self.nearest
            .sort_by(|one, other| other.share.total_cmp(&one.share));
        self.nearest.truncate(NEAREST);
        Ok(())
    }

    /// Whether any case has run.
    fn has_decided(&self) -> bool {
        let ran = |verdict: &str| matches!(verdict, "pass" | "fail" | "inconclusive");
        self.verdicts.keys().any(|verdict| ran(verdict))
    }

    /// How it stands after a run.
    fn line(&self, run: u32, runs: NonZero<u32>) -> String {
        let verdicts = self
            .verdicts
            .iter()
            .map(|(verdict, count)| format!("{count} {verdict}"));
        let verdicts = verdicts.collect::<Vec<_>>().join(", ");
        let nearest = self.nearest.first().map_or_else(String::new, |near| {
            format!(
                "; nearest to its limit: {:.0} % in {}",
                near.share * 100.0,
                near.case
            )
        });
        format!("soak: {run} of {runs} runs, all cases so far: {verdicts}{nearest}")
    }

    /// What was wrong, and the nearest limits.
    fn table(&self) -> String {
        let mut text = String::new();
        for (run, case, verdict, why) in &self.wrong {
            let _ = writeln!(text, "run {run}: {case} {verdict}: {why}");
        }
        let _ = writeln!(text, "\nnearest to their limits:");
        for near in &self.nearest {
            let Near {
                delay,
                run,
                case,
                what,
                ..
            } = near;
            let _ = writeln!(
                text,
                "{:>4.0} %  {delay}  run {run}  {case}: {what}",
                near.share * 100.0
            );
        }
        let count: u32 = self.verdicts.values().sum();
        let _ = writeln!(
            text,
            "\n{count} cases, {} failed or inconclusive",
            self.wrong.len()
        );
        text
    }
}

/// The share of its limit that a recorded delay is, such as `12 of 30000 ms`.
fn share(delay: &str) -> Option<f64> {
    let (took, limit) = delay.strip_suffix(" ms")?.split_once(" of ")?;
    let (took, limit): (f64, f64) = (took.parse().ok()?, limit.parse().ok()?);
    Some(if limit > 0.0 { took / limit } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_did_not_pass_is_shown_and_the_nearest_limits_come_first() {
        let case = |id: &str, verdict: &str, delay: &str| {
            json!({ "id": id, "verdict": verdict, "why": "it was so",
                    "recorded": { "delay at most: served": delay, "errno": "ECONNREFUSED" } })
        };
        let mut shown = Shown::default();
        let first =
            json!({ "cases": [case("one", "pass", "300 of 30000 ms"), case("two", "skipped", "0 of 1 ms")] });
        shown.add(1, &first).expect("a report");
        let second = json!({ "cases": [case("one", "inconclusive", "900 of 1000 ms"), case("two", "fail", "5 of 10 ms")] });
        shown.add(2, &second).expect("a report");
        let wrong: Vec<_> = shown
            .wrong
            .iter()
            .map(|(run, case, ..)| (*run, case.as_str()))
            .collect();
        assert_eq!(wrong, [(2, "one"), (2, "two")]);
        let nearest: Vec<_> = shown
            .nearest
            .iter()
            .map(|near| (near.run, near.delay.as_str()))
            .collect();
        assert_eq!(nearest[..2], [(2, "900 of 1000 ms"), (2, "5 of 10 ms")]);
        let line = shown.line(2, NonZero::new(2).expect("two"));
        assert!(
            line.contains("1 fail, 1 inconclusive, 1 pass, 1 skipped; nearest to its limit: 90 % in one"),
            "{line}"
        );
        assert!(shown.table().contains("4 cases, 2 failed or inconclusive"));
        assert!(shown.has_decided());
    }

    #[test]
    fn where_no_case_could_run_nothing_is_shown() {
        let mut shown = Shown::default();
        assert!(!shown.has_decided());
        let skipped = json!({ "cases": [{ "id": "one", "verdict": "skipped", "recorded": {} }] });
        shown.add(1, &skipped).expect("a report");
        assert_eq!((shown.wrong.len(), shown.has_decided()), (0, false));
    }

    #[test]
    fn what_is_exempt_is_no_finding_and_a_delay_without_a_limit_is_an_error() {
        let mut shown = Shown::default();
        let exempt =
            json!({ "cases": [{ "id": "one", "verdict": "fail", "exempt": "known", "recorded": {} }] });
        shown.add(1, &exempt).expect("a report");
        assert_eq!(shown.wrong, []);
        let wrong = json!({ "cases": [{ "id": "one", "verdict": "pass", "recorded": { "delay at most: x": "12 ms" } }] });
        assert!(shown.add(1, &wrong).is_err());
    }
}
