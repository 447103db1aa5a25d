//! `cargo xtask mutants`: the suite against agents with one known bug each.
//!
//! Each mutant names the cases that must fail on it, and is killed if all of them do. The unmutated agent is tried as
//! well: a case that fails it can kill nothing. A mutant and a case are a run with a lab of its own; so many are under way
//! at once, what takes the unmutated agent longest first; what decided nothing is tried once more.
//!
//! `outcome.rs`: what came of it; `table.rs`: what is printed.
pub(crate) mod outcome;
mod table;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    num::NonZero,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use self::{
    outcome::{Outcome, Outcomes, joined, outcomes},
    table::{matrix, rows},
};
use crate::{e2e, steps};

/// Runs the suite against each mutant and prints mutant × case; fails if one survives.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 every mutant was killed, 1 one survived, 2 it or a trial could not run."
)]
pub(crate) struct Arguments {
    /// Only mutants whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Every case against every mutant, which takes hours: shows which cases see which bugs
    #[arg(long)]
    every_case: bool,
    /// Takes the verdicts of the unmutated agent from an earlier run's report.yaml instead of trying it again. May be given
    /// again for that of its undecided cases, which were run once more: one that failed in any has failed
    #[arg(long, value_name = "FILE")]
    baseline: Vec<PathBuf>,
    /// How many are tried at once, each in a cluster of its own; the default follows from processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Passed on to `plumbline run`
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// What the agent without a bug is called.
const UNMUTATED: &str = "none";
/// Where reports go, below the workspace.
const OUT: &str = "target/plumbline/mutants";
/// Trials for each processor. `plumbline run` has two cases for each and says why; a case that fails waits for most of its
/// time until T_heal has passed. What that leaves undecided is tried once more, one for each processor.
const PER_PROCESSOR: usize = 4;

/// An agent with a bug.
struct Mutant {
    name: String,
    /// Ids of the cases and rows that must fail on it.
    caught_by: BTreeSet<String>,
    /// The case to run for a row that is none.
    through: BTreeMap<String, String>,
}

/// A run of the suite.
struct Trial<'a> {
    /// `None`: the agent without a bug.
    mutant: Option<&'a Mutant>,
    /// What is run and judged; `None`: all.
    cases: Option<BTreeSet<&'a str>>,
    /// Run in their place.
    through: Option<&'a str>,
    /// Folder of its report, below [`OUT`].
    folder: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&[&e2e::PROGRAMS[..], &["mutants"]].concat())?;
    let mut mutants = list()?;
    mutants.retain(|mutant| mutant.name.contains(&arguments.only));
    if mutants.is_empty() {
        bail!("no mutant's name contains {:?}", arguments.only);
    }
    steps::ask_for_root("making the clusters")?;
    let baseline = if arguments.baseline.is_empty() {
        let named = mutants.iter().flat_map(|mutant| &mutant.caught_by);
        let unmutated = Trial {
            mutant: None,
            cases: (!arguments.every_case).then(|| named.map(String::as_str).collect()),
            through: None,
            folder: UNMUTATED.to_owned(),
        };
        unmutated.run(&arguments.run)?
    } else {
        joined(&arguments.baseline)?
    };
    if let Some((case, Outcome { verdict, .. })) =
        baseline.iter().find(|(_, outcome)| failing(&outcome.verdict))
    {
        bail!(
            "{case} ends with {verdict} on the unmutated agent, so the suite can kill nothing: mend that first"
        );
    }
    let trials = trials(&mutants, &baseline, arguments.every_case);
    let mut by_mutant: BTreeMap<&str, Outcomes> = BTreeMap::new();
    let mut not_run: BTreeMap<&str, anyhow::Error> = BTreeMap::new();
    let jobs = arguments.jobs.map_or_else(default_jobs, NonZero::get);
    let (decided, open): (Vec<_>, Vec<_>) =
        side_by_side(&trials.iter().collect::<Vec<_>>(), jobs, &arguments.run)
            .into_iter()
            .partition(|(_, tried)| tried.as_ref().is_ok_and(is_decided));
    let open: Vec<&Trial<'_>> = open.into_iter().map(|(trial, _)| trial).collect();
    if !open.is_empty() {
        eprintln!(
            "  ==> {} trials once more, fewer at once: they decided nothing",
            open.len()
        );
    }
    let again = side_by_side(&open, jobs.div_ceil(PER_PROCESSOR), &arguments.run);
    for (trial, tried) in decided.into_iter().chain(again) {
        match tried {
            Ok(outcomes) => by_mutant.entry(trial.name()).or_default().extend(outcomes),
            Err(error) => drop(not_run.insert(&trial.folder, error)),
        }
    }
    let results: Vec<(&Mutant, Outcomes)> = mutants
        .iter()
        .map(|mutant| (mutant, by_mutant.remove(&*mutant.name).unwrap_or_default()))
        .collect();
    if arguments.every_case {
        print!("{}", matrix(&baseline, &results));
    } else {
        print!("{}", rows(&baseline, &results));
    }
    let mut killed = 0;
    for (mutant, outcomes) in &results {
        let survived = survived(&mutant.caught_by, &baseline, outcomes);
        killed += usize::from(survived.is_empty());
        for case in survived {
            if !not_run.contains_key(&*folder(mutant, case)) {
                println!("{} is not caught by {case}, which is meant to", mutant.name);
            }
        }
    }
    for (folder, error) in &not_run {
        println!("{folder} has shown nothing: {error:#}");
    }
    println!("{} mutants, {killed} killed", results.len());
    Ok(match (not_run.is_empty(), killed == results.len()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
        (false, _) => ExitCode::from(2),
    })
}

/// One for each mutant and each of its cases; what took longest first.
fn trials<'a>(mutants: &'a [Mutant], baseline: &'a Outcomes, every_case: bool) -> Vec<Trial<'a>> {
    let mut pairs: Vec<(&Mutant, &str)> = Vec::new();
    for mutant in mutants {
        let every = baseline.keys().filter(|_| every_case);
        let cases: BTreeSet<&String> = mutant.caught_by.iter().chain(every).collect();
        pairs.extend(cases.into_iter().map(|case| (mutant, case.as_str())));
    }
    pairs.sort_by_key(|(_, case)| Reverse(baseline.get(*case).map(|outcome| outcome.took)));
    let trial = |(mutant, case): (&'a Mutant, &'a str)| Trial {
        mutant: Some(mutant),
        cases: Some(BTreeSet::from([case])),
        through: mutant.through.get(case).map(String::as_str),
        folder: folder(mutant, case),
    };
    pairs.into_iter().map(trial).collect()
}

/// Where the report of a mutant and a case goes, below [`OUT`].
fn folder(mutant: &Mutant, case: &str) -> String {
    format!("{}/{case}", mutant.name)
}

/// Whether a trial says anything about its mutant. A machine that is used up decides nothing, and costs a second trial.
fn is_decided(outcomes: &Outcomes) -> bool {
    !outcomes.is_empty() && outcomes.values().all(|outcome| outcome.verdict != "inconclusive")
}

/// Runs so many trials at once, all of them, whatever comes of one.
fn side_by_side<'a, 'b>(
    trials: &[&'b Trial<'a>],
    jobs: usize,
    more: &[String],
) -> Vec<(&'b Trial<'a>, anyhow::Result<Outcomes>)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcomes = trial.run(more);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((trial, outcomes));
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, usize::from) * PER_PROCESSOR
}

/// Of the cases that are meant to catch a mutant, those that don't: it must fail them, and the unmutated agent pass.
fn survived<'a>(caught_by: &'a BTreeSet<String>, baseline: &Outcomes, mutant: &Outcomes) -> Vec<&'a str> {
    let is = |outcomes: &Outcomes, case: &str, wanted: &str| {
        outcomes
            .get(case)
            .is_some_and(|outcome| outcome.verdict == wanted)
    };
    caught_by
        .iter()
        .map(String::as_str)
        .filter(|case| !is(mutant, case, "fail") || !is(baseline, case, "pass"))
        .collect()
}

fn failing(verdict: &str) -> bool {
    !matches!(verdict, "pass" | "skipped" | "not-supported")
}

fn list() -> anyhow::Result<Vec<Mutant>> {
    let program = steps::programs()?.join("plumbline-mutant");
    let output = Command::new(&program)
        .args(["list", "--json"])
        .output()
        .context("failed to start plumbline-mutant")?;
    let listed: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("plumbline-mutant list printed no JSON")?;
    listed
        .iter()
        .map(|one| {
            let name = one["name"].as_str().context("a mutant without a name")?;
            let cases = one["caught_by"].as_array();
            let caught_by: BTreeSet<String> = cases
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            if caught_by.is_empty() {
                bail!("the mutant {name} names no case that must fail on it");
            }
            let through = one["through"].as_object().into_iter().flatten();
            let run = |(row, case): (&String, &Value)| Some((row.clone(), case.as_str()?.to_owned()));
            Ok(Mutant {
                name: name.to_owned(),
                caught_by,
                through: through.filter_map(run).collect(),
            })
        })
        .collect()
}

impl<'a> Trial<'a> {
    fn name(&self) -> &'a str {
        self.mutant.map_or(UNMUTATED, |mutant| &mutant.name)
    }

    /// Runs the suite and shows its verdicts as they come; all that it says is in `output.log` beside the report. Its exit
    /// code says only whether it could run at all.
    fn run(&self, more: &[String]) -> anyhow::Result<Outcomes> {
        let name = self.name();
        let out = format!("{OUT}/{}", self.folder);
        let folder = steps::root().join(&out);
        fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
        let report = folder.join("report.yaml");
        let _ = fs::remove_file(&report);
        let program = steps::programs()?.join("plumbline");
        let mut command = steps::as_root(&program, "making the cluster")?;
        command
            .arg("run")
            .args(["--out", &out])
            .current_dir(steps::root())
            .args(more);
        if let Some(cases) = &self.cases {
            let cases: Vec<&str> = match self.through {
                Some(case) => vec![case],
                None => cases.iter().copied().collect(),
            };
            command.args(["--filter", &format!("^({})$", cases.join("|"))]);
        }
        if let Some(mutant) = self.mutant {
            command.args(["--mutant", &mutant.name]);
        }
        let log = folder.join("output.log");
        let mut file = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
        let errors = file.try_clone()?;
        eprintln!("  ==> {name}: starts; all it says goes to {out}/output.log");
        let begin = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("failed to start plumbline")?;
        let said = child.stdout.take().map(BufReader::new);
        for line in said.into_iter().flat_map(BufReader::lines) {
            writeln!(file, "{}", line?)?;
        }
        let status = child.wait()?;
        let mut outcomes = outcomes(&report).with_context(|| {
            format!(
                "the suite could not run against {name}; {} says why",
                log.display()
            )
        })?;
        // Rows that are judged over cases of others are there as soon as one of these was run.
        outcomes.retain(|id, _| {
            let is_asked = |cases: &BTreeSet<&str>| cases.contains(&**id);
            self.cases.as_ref().is_none_or(is_asked)
        });
        let seconds = begin.elapsed().as_secs_f64();
        for (case, outcome) in &outcomes {
            eprintln!("  <== {name}: {} {case}", outcome.verdict.to_uppercase());
        }
        eprintln!("  <== {name}: {status} after {seconds:.1} s");
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each has taken as many seconds as there were before it.
    pub(super) fn outcomes(pairs: &[(&str, &str)]) -> Outcomes {
        let outcome = |(before, (case, verdict)): (usize, &(&str, &str))| {
            let verdict = (*verdict).to_owned();
            let took = Duration::from_secs(before as u64);
            ((*case).to_owned(), Outcome { verdict, took })
        };
        pairs.iter().enumerate().map(outcome).collect()
    }

    pub(super) fn mutant(name: &str, caught_by: &[&str]) -> Mutant {
        Mutant {
            name: name.to_owned(),
            caught_by: caught_by.iter().map(|case| (*case).to_owned()).collect(),
            through: BTreeMap::new(),
        }
    }

    #[test]
    fn only_a_case_that_passes_the_unmutated_agent_kills() {
        let baseline = outcomes(&[("a", "pass"), ("b", "skipped")]);
        let [a, b] = [mutant("m", &["a"]).caught_by, mutant("m", &["a", "b"]).caught_by];
        assert!(survived(&a, &baseline, &outcomes(&[("a", "fail")])).is_empty());
        let failing = outcomes(&[("a", "fail"), ("b", "fail")]);
        assert_eq!(
            survived(&b, &baseline, &failing),
            ["b"],
            "the unmutated agent does not pass it"
        );
        assert_eq!(survived(&a, &baseline, &outcomes(&[("a", "pass")])), ["a"]);
        let inconclusive = outcomes(&[("a", "inconclusive")]);
        assert_eq!(survived(&a, &baseline, &inconclusive), ["a"], "it proves nothing");
    }

    #[test]
    fn what_was_not_run_or_not_decided_is_tried_again_and_what_survived_is_not() {
        assert!(!is_decided(&outcomes(&[])));
        assert!(!is_decided(&outcomes(&[("a", "fail"), ("b", "inconclusive")])));
        for verdict in ["fail", "pass", "skipped"] {
            assert!(is_decided(&outcomes(&[("a", verdict)])), "{verdict}");
        }
    }

    #[test]
    fn every_mutant_meets_its_cases_or_all_of_them_the_longest_first() {
        let mutants = [mutant("m", &["a", "b"]), mutant("n", &["c"])];
        let baseline = outcomes(&[("a", "pass"), ("b", "pass"), ("c", "pass"), ("d", "skipped")]);
        let folders = |every_case| -> Vec<String> {
            let trials = trials(&mutants, &baseline, every_case);
            trials.into_iter().map(|trial| trial.folder).collect()
        };
        assert_eq!(folders(false), ["n/c", "m/b", "m/a"]);
        assert_eq!(folders(true).len(), 8);
    }
}
