//! A run of the suite against one agent.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::Stdio,
    time::Instant,
};

use anyhow::Context as _;

use super::{
    Mutant, OUT, UNMUTATED,
    outcome::{Outcomes, outcomes},
};
use crate::steps;

/// A run of the suite.
pub(super) struct Trial<'a> {
    /// `None`: the agent without a bug.
    pub(super) mutant: Option<&'a Mutant>,
    /// What is judged; `None`: all.
    pub(super) cases: Option<BTreeSet<&'a str>>,
}

impl<'a> Trial<'a> {
    /// The agent's.
    pub(super) fn name(&self) -> &'a str {
        self.mutant.map_or(UNMUTATED, |mutant| &mutant.name)
    }

    /// What is left to be tried of it: the cases that decided nothing. A machine that is used up decides nothing.
    pub(super) fn open(&self, tried: &anyhow::Result<Outcomes>) -> Option<Self> {
        let cases = match (tried, &self.cases) {
            (Ok(outcomes), Some(cases)) => {
                let is_open = |case: &&&str| {
                    let outcome = outcomes.get(**case);
                    outcome.is_none_or(|outcome| outcome.verdict == "inconclusive")
                };
                let open: BTreeSet<&str> = cases.iter().filter(is_open).copied().collect();
                (!open.is_empty()).then_some(Some(open))
            }
            (Ok(_), None) => None,
            (Err(_), cases) => Some(cases.clone()),
        };
        Some(Self {
            mutant: self.mutant,
            cases: cases?,
        })
    }

    /// Where its report is.
    pub(super) fn report(&self) -> PathBuf {
        steps::root().join(OUT).join(self.name()).join("report.yaml")
    }

    /// Runs the suite and shows its verdicts as they come; all that it says is in `output.log` beside the report. Its exit
    /// code says only whether it could run at all.
    pub(super) fn run(&self, more: &[String]) -> anyhow::Result<Outcomes> {
        let name = self.name();
        let out = format!("{OUT}/{name}");
        let folder = steps::root().join(&out);
        fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
        let report = self.report();
        let _ = fs::remove_file(&report);
        let program = steps::programs()?.join("plumbline");
        let mut command = steps::as_root(&program, "making the cluster")?;
        command
            .arg("run")
            .args(["--out", &out])
            .current_dir(steps::root())
            .args(more);
        if let Some(cases) = &self.cases {
            let through = self.mutant.map(|mutant| &mutant.through);
            let run = |case: &&'a str| {
                through
                    .and_then(|through| through.get(*case))
                    .map_or(*case, String::as_str)
            };
            let cases: Vec<&str> = cases.iter().map(run).collect();
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
