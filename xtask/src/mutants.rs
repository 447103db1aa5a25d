//! `cargo xtask mutants`: the suite against agents with one known bug each.
//!
//! The unmutated agent is one of them: a case that fails it can kill nothing.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    iter,
    path::Path,
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

use crate::{e2e, steps};

/// Runs the suite against each mutant and prints mutant × case; fails if one survives.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 every mutant was killed, 1 one survived, 2 could not run.")]
pub(crate) struct Arguments {
    /// Only mutants whose name contains this
    #[arg(long, default_value = "")]
    only: String,
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

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&[&e2e::PROGRAMS[..], &["mutants"]].concat())?;
    let mut mutants = list()?;
    mutants.retain(|name| name.contains(&arguments.only));
    if mutants.is_empty() {
        bail!("no mutant's name contains {:?}", arguments.only);
    }
    steps::ask_for_root("making the clusters")?;
    let agents: Vec<Option<&str>> = iter::once(None)
        .chain(mutants.iter().map(|name| Some(name.as_str())))
        .collect();
    let mut results = side_by_side(&agents, arguments)?.into_iter();
    let baseline = results.next().context("the unmutated agent was not run")?;
    if let Some((case, verdict)) = baseline.iter().find(|(_, verdict)| failing(verdict)) {
        bail!(
            "{case} ends with {verdict} on the unmutated agent, so the suite can kill nothing: mend that first"
        );
    }
    let results: Vec<_> = mutants.into_iter().zip(results).collect();
    print!("{}", matrix(&baseline, &results));
    let killed = results
        .iter()
        .filter(|(_, verdicts)| is_killed(&baseline, verdicts))
        .count();
    println!("{} mutants, {killed} killed", results.len());
    Ok(if killed == results.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Runs the suite against each agent, so many at once; the results are in the order of the agents.
fn side_by_side(agents: &[Option<&str>], arguments: &Arguments) -> anyhow::Result<Vec<Verdicts>> {
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
                    let verdicts = suite(*agent, &arguments.run);
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

/// A mutant is killed by a case that fails on it and passes on the unmutated agent.
fn is_killed(baseline: &Verdicts, mutant: &Verdicts) -> bool {
    mutant
        .iter()
        .any(|(case, verdict)| verdict == "fail" && baseline.get(case).is_some_and(|base| base == "pass"))
}

fn failing(verdict: &str) -> bool {
    !matches!(verdict, "pass" | "skipped" | "not-supported")
}

fn list() -> anyhow::Result<Vec<String>> {
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
            Ok(one["name"]
                .as_str()
                .context("a mutant without a name")?
                .to_owned())
        })
        .collect()
}

/// Runs the suite once and shows its verdicts as they come; all that it says is in `output.log` beside the report.
/// Its exit code says only whether it could run at all.
fn suite(mutant: Option<&str>, rest: &[String]) -> anyhow::Result<Verdicts> {
    let name = mutant.unwrap_or(UNMUTATED);
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
        .args(rest);
    if let Some(mutant) = mutant {
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
    let cases = report["cases"].as_array().context("report.yaml names no cases")?;
    cases
        .iter()
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

/// Rows are cases, columns agents.
fn matrix(baseline: &Verdicts, mutants: &[(String, Verdicts)]) -> String {
    let first = baseline.keys().map(String::len).max().unwrap_or(0);
    let mut text = format!("\n{:first$}  {:>12}", "", UNMUTATED);
    for (name, _) in mutants {
        text.push_str(&format!("  {name:>16}"));
    }
    for (case, verdict) in baseline {
        text.push_str(&format!("\n{case:first$}  {verdict:>12}"));
        for (_, verdicts) in mutants {
            text.push_str(&format!(
                "  {:>16}",
                verdicts.get(case).map_or("-", String::as_str)
            ));
        }
    }
    text.push_str("\n\n");
    text
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
        assert!(is_killed(
            &baseline,
            &verdicts(&[("a", "fail"), ("b", "skipped")])
        ));
        assert!(!is_killed(&baseline, &verdicts(&[("a", "pass"), ("b", "fail")])));
        assert!(
            !is_killed(&baseline, &verdicts(&[("a", "inconclusive")])),
            "inconclusive proves nothing"
        );
    }

    #[test]
    fn the_matrix_shows_every_case_against_every_agent() {
        let text = matrix(
            &verdicts(&[("a", "pass")]),
            &[
                ("m".into(), verdicts(&[("a", "fail")])),
                ("n".into(), verdicts(&[])),
            ],
        );
        let row = text.lines().find(|line| line.starts_with('a')).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["a", "pass", "fail", "-"]
        );
    }
}
