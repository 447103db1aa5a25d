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
    DUAL, Mutant, OUT, UNMUTATED,
    outcome::{Outcomes, outcomes},
};
use crate::{job, steps};

/// A run of the suite.
pub(super) struct Trial<'a> {
    /// `None` for the agent without a bug.
    pub(super) mutant: Option<&'a Mutant>,
    /// The cases; `None` for all.
    pub(super) cases: Option<BTreeSet<&'a str>>,
    /// In a lab of both families.
    pub(super) dual: bool,
}

impl<'a> Trial<'a> {
    /// The agent's name.
    pub(super) fn name(&self) -> &'a str {
        self.mutant.map_or(UNMUTATED, |mutant| &mutant.name)
    }

    /// A run of the inconclusive cases, if there are any: an overloaded machine decides nothing.
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
            dual: self.dual,
        })
    }

    /// Path of the report.
    pub(super) fn report(&self) -> PathBuf {
        steps::root().join(OUT).join(self.name()).join("report.yaml")
    }

    /// Runs the suite and shows its verdicts as they arrive; `output.log` beside the report has all output. The exit
    /// code only tells whether the suite could run.
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
        if self.dual {
            command.arg(DUAL);
        }
        if let Some(mutant) = self.mutant {
            command.args(["--mutant", &mutant.name]);
        }
        let log = folder.join("output.log");
        let mut file = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
        let errors = file.try_clone()?;
        eprintln!("  ==> {name}: starts; all it says goes to {out}/output.log");
        let begin = Instant::now();
        let mut child = job::bound(command)
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
        // A row that is judged over other cases is reported as soon as one of these has run.
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
