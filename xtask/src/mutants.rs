//! `cargo xtask mutants`: the suite against agents with one known bug each.
//!
//! Each mutant names the cases that must fail on it, and is killed if all of them do. The unmutated agent is tried as
//! well: a case that fails it can kill nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    iter,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};
use comfy_table::{Table, presets::NOTHING};
use serde_json::Value;

use crate::{e2e, steps};

/// Runs the suite against each mutant and prints mutant × case; fails if one survives.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 every mutant was killed, 1 one survived, 2 could not run.")]
pub(crate) struct Arguments {
    /// Only mutants whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Every case against every mutant, which takes an hour: shows which cases see which bugs
    #[arg(long)]
    every_case: bool,
    /// Takes the verdicts of the unmutated agent from an earlier run's report.yaml instead of trying it again
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// How many agents are tried at once, each in a cluster of its own
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Passed on to `plumbline run`
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// What the agent without a bug is called.
const UNMUTATED: &str = "none";

/// Verdict of each case, by id.
type Verdicts = BTreeMap<String, String>;

/// An agent to be tried.
struct Agent {
    /// `None`: the one without a bug.
    mutant: Option<String>,
    /// Ids of the cases that must fail on it; on the one without a bug: of those that are tried.
    caught_by: BTreeSet<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&[&e2e::PROGRAMS[..], &["mutants"]].concat())?;
    let mut mutants = list()?;
    mutants.retain(|agent| agent.name().contains(&arguments.only));
    if mutants.is_empty() {
        bail!("no mutant's name contains {:?}", arguments.only);
    }
    steps::ask_for_root("making the clusters")?;
    let (baseline, results) = match &arguments.baseline {
        Some(report) => (verdicts(report)?, side_by_side(&mutants, arguments)?),
        None => {
            let all = mutants.iter().flat_map(|agent| agent.caught_by.clone());
            let unmutated = Agent {
                mutant: None,
                caught_by: all.collect(),
            };
            mutants.insert(0, unmutated);
            let mut results = side_by_side(&mutants, arguments)?;
            mutants.remove(0);
            (results.remove(0), results)
        }
    };
    if let Some((case, verdict)) = baseline.iter().find(|(_, verdict)| failing(verdict)) {
        bail!(
            "{case} ends with {verdict} on the unmutated agent, so the suite can kill nothing: mend that first"
        );
    }
    let results: Vec<_> = mutants.into_iter().zip(results).collect();
    if arguments.every_case {
        print!("{}", matrix(&baseline, &results));
    } else {
        print!("{}", rows(&baseline, &results));
    }
    let mut killed = 0;
    for (agent, verdicts) in &results {
        let survived = survived(&agent.caught_by, &baseline, verdicts);
        killed += usize::from(survived.is_empty());
        for case in survived {
            println!("{} is not caught by {case}, which is meant to", agent.name());
        }
    }
    println!("{} mutants, {killed} killed", results.len());
    Ok(if killed == results.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Runs the suite against each agent, so many at once; the results are in the order of the agents.
fn side_by_side(agents: &[Agent], arguments: &Arguments) -> anyhow::Result<Vec<Verdicts>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<anyhow::Result<Verdicts>>>> =
        agents.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some((agent, result)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    agents.get(at).zip(results.get(at))
                } {
                    let verdicts = suite(agent, arguments);
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdicts);
                }
            });
        }
    });
    let results = results
        .into_iter()
        .map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    results
        .map(|result| result.context("a run was not started")?)
        .collect()
}

/// Of the cases that are meant to catch a mutant, those that don't: it must fail them, and the unmutated agent pass.
fn survived<'a>(caught_by: &'a BTreeSet<String>, baseline: &Verdicts, mutant: &Verdicts) -> Vec<&'a str> {
    let is = |verdicts: &Verdicts, case: &str, wanted: &str| {
        verdicts.get(case).is_some_and(|verdict| verdict == wanted)
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

fn list() -> anyhow::Result<Vec<Agent>> {
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
            Ok(Agent {
                mutant: Some(name.to_owned()),
                caught_by,
            })
        })
        .collect()
}

/// Runs the suite once and shows its verdicts as they come; all that it says is in `output.log` beside the report.
/// Its exit code says only whether it could run at all.
fn suite(agent: &Agent, arguments: &Arguments) -> anyhow::Result<Verdicts> {
    let name = agent.name();
    let out = format!("target/plumbline/mutants/{name}");
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
        .args(&arguments.run);
    if !arguments.every_case {
        let cases: Vec<&str> = agent.caught_by.iter().map(String::as_str).collect();
        command.args(["--filter", &format!("^({})$", cases.join("|"))]);
    }
    if let Some(mutant) = &agent.mutant {
        command.args(["--mutant", mutant]);
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
    for line in child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufReader::lines)
    {
        let line = line?;
        writeln!(file, "{line}")?;
        if let Some((_, verdict)) = line.split_once("s  [") {
            eprintln!("      {name}: [{verdict}");
        }
    }
    let status = child.wait()?;
    eprintln!(
        "  <== {name}: {status} after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    verdicts(&report).with_context(|| {
        format!(
            "the suite could not run against {name}; {} says why",
            log.display()
        )
    })
}

fn verdicts(report: &Path) -> anyhow::Result<Verdicts> {
    let text = fs::read_to_string(report).with_context(|| format!("there is no {}", report.display()))?;
    let report: Value = serde_saphyr::from_str(&text).context("report.yaml is no YAML")?;
    of_cases(&report)
}

/// Without the cases whose claim the target is known not to keep: they decide nothing.
fn of_cases(report: &Value) -> anyhow::Result<Verdicts> {
    let cases = report["cases"].as_array().context("report.yaml names no cases")?;
    cases
        .iter()
        .filter(|case| case["exempt"].is_null())
        .map(|case| {
            let text = |key: &str| {
                case[key]
                    .as_str()
                    .map(str::to_owned)
                    .with_context(|| format!("a case without {key}"))
            };
            Ok((text("id")?, text("verdict")?))
        })
        .collect()
}

impl Agent {
    fn name(&self) -> &str {
        self.mutant.as_deref().unwrap_or(UNMUTATED)
    }
}

/// A row for each case that a mutant was tried with.
fn rows(baseline: &Verdicts, mutants: &[(Agent, Verdicts)]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["MUTANT", "CASE", "VERDICT", "UNMUTATED"]);
    for (agent, verdicts) in mutants {
        for (case, verdict) in verdicts {
            let unmutated = baseline.get(case).map_or("-", String::as_str);
            table.add_row([agent.name(), case, verdict, unmutated]);
        }
    }
    format!("\n{}\n\n", table.trim_fmt())
}

/// A row for each case that some mutant was tried with, a column for each agent.
fn matrix(baseline: &Verdicts, mutants: &[(Agent, Verdicts)]) -> String {
    let tried: BTreeSet<&String> = mutants.iter().flat_map(|(_, verdicts)| verdicts.keys()).collect();
    let names = iter::once(UNMUTATED).chain(mutants.iter().map(|(agent, _)| agent.name()));
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(iter::once("").chain(names));
    for case in tried {
        let of = |verdicts: &Verdicts| verdicts.get(case).cloned().unwrap_or_else(|| "-".to_owned());
        let verdicts = iter::once(baseline).chain(mutants.iter().map(|(_, verdicts)| verdicts));
        table.add_row(iter::once(case.clone()).chain(verdicts.map(of)));
    }
    format!("\n{}\n\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(pairs: &[(&str, &str)]) -> Verdicts {
        pairs
            .iter()
            .map(|(case, verdict)| ((*case).to_owned(), (*verdict).to_owned()))
            .collect()
    }

    #[test]
    fn only_a_case_that_passes_the_unmutated_agent_kills() {
        let baseline = verdicts(&[("a", "pass"), ("b", "skipped")]);
        let caught_by = |cases: &[&str]| {
            cases
                .iter()
                .map(|case| (*case).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let [a, b] = [caught_by(&["a"]), caught_by(&["a", "b"])];
        assert!(survived(&a, &baseline, &verdicts(&[("a", "fail")])).is_empty());
        let failing = verdicts(&[("a", "fail"), ("b", "fail")]);
        assert_eq!(
            survived(&b, &baseline, &failing),
            ["b"],
            "the unmutated agent does not pass it"
        );
        assert_eq!(survived(&a, &baseline, &verdicts(&[("a", "pass")])), ["a"]);
        let inconclusive = verdicts(&[("a", "inconclusive")]);
        assert_eq!(survived(&a, &baseline, &inconclusive), ["a"], "it proves nothing");
    }

    #[test]
    fn a_case_that_its_target_is_exempt_from_decides_nothing() {
        let report = serde_json::json!({ "cases": [
            { "id": "a", "verdict": "pass" },
            { "id": "b", "verdict": "fail", "exempt": "known" },
        ] });
        assert_eq!(of_cases(&report).unwrap(), verdicts(&[("a", "pass")]));
    }

    #[test]
    fn the_matrix_shows_every_case_against_every_agent() {
        let agent = |name: &str| Agent {
            mutant: Some(name.to_owned()),
            caught_by: BTreeSet::new(),
        };
        let text = matrix(
            &verdicts(&[("a", "pass"), ("untried", "pass")]),
            &[
                (agent("m"), verdicts(&[("a", "fail")])),
                (agent("n"), verdicts(&[])),
            ],
        );
        assert!(!text.contains("untried"));
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with("a "))
            .unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["a", "pass", "fail", "-"]
        );
    }
}
