//! The work of parts: commands in turn, whose times add up to the part's.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    board::{Board, Found, Outcome},
    parts::{BUILT, Lane, Part, Work},
    plan::BASELINE,
    test_programs, tree,
};
use crate::{
    job::{self, Jobs, OnLine},
    mutants::Part as MutantPart,
    steps,
};

/// Folder of the parts' and set-ups' output, below the root of the repository. It is outside the folders of reports,
/// which a run of the suite clears.
pub(crate) const OUTPUT: &str = "target/ci";

/// Parts of the mutants, of which each run has one, so that it takes minutes: all take two processors an hour.
const MUTANT_PARTS: usize = 6;

/// A part that runs.
pub(crate) struct RunningPart<'a> {
    pub(crate) part: &'a Part,
    pub(crate) jobs: &'a Jobs,
    pub(crate) board: &'a Arc<Board>,
    /// Findings of the set-ups that the part needs.
    pub(crate) found: Found,
    /// The folder that CI keeps between runs.
    pub(crate) cache: &'a Path,
    /// The report of an earlier run on the agent without bugs, if this run has none.
    baseline: Option<PathBuf>,
    /// The file of the part's output.
    log: Arc<Mutex<File>>,
    pub(crate) wall: Duration,
    pub(crate) processor: Duration,
}

impl<'a> RunningPart<'a> {
    /// # Errors
    /// The file can't be created.
    pub(crate) fn new(
        part: &'a Part,
        jobs: &'a Jobs,
        board: &'a Arc<Board>,
        found: Found,
        cache: &'a Path,
        baseline: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let path = log_of(part.name);
        let log = File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self {
            part,
            jobs,
            board,
            found,
            cache,
            baseline,
            log: Arc::new(Mutex::new(log)),
            wall: Duration::ZERO,
            processor: Duration::ZERO,
        })
    }

    /// Runs the part.
    ///
    /// # Errors
    /// A command could not be started.
    pub(crate) fn work(&mut self) -> anyhow::Result<Outcome> {
        match &self.part.work {
            Work::Setup => self.setup(),
            Work::Cargo(arguments) => self.cargo(arguments).map(outcome_of),
            Work::Tests => self.tests(),
            Work::Suite(suite) => self.suite(suite),
            Work::Mutants => self.mutants(),
        }
    }

    /// Writes a line to the part's output.
    pub(crate) fn print(&self, line: &str) {
        write_line(self.part.lane, &self.log, line);
    }

    /// Runs a command of cargo to its end; returns whether it succeeded.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn cargo(&mut self, arguments: &[impl AsRef<std::ffi::OsStr>]) -> anyhow::Result<bool> {
        let mut command = steps::cargo();
        command.args(arguments);
        self.run(&mut command, None)
    }

    fn run(&mut self, command: &mut Command, answers: Option<File>) -> anyhow::Result<bool> {
        self.found.give(command);
        let mut job = job::job(command, self.part.lane.is_idle());
        let (lane, log, board) = (self.part.lane, Arc::clone(&self.log), Arc::clone(self.board));
        let builds_tests = matches!(self.part.work, Work::Tests);
        let on_line: OnLine = Arc::new(move |line| {
            write_line(lane, &log, line);
            if builds_tests && test_programs::is_built(line) {
                board.reach(BUILT);
            }
        });
        let ended = self.jobs.run(&mut job, answers, on_line)?;
        self.wall += ended.wall;
        self.processor += ended.processor;
        Ok(ended.success)
    }

    fn setup(&mut self) -> anyhow::Result<Outcome> {
        let path = steps::root()
            .join(OUTPUT)
            .join(format!("{}.answers", self.part.name));
        let answers = File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
        let mut command = setup_command(self.cache);
        command.arg(self.part.name);
        if !self.run(&mut command, Some(answers))? {
            return Ok(Outcome::Failed("its output says why".to_owned()));
        }
        let answers = fs::read_to_string(&path)?;
        let found = Found::parse(&answers).map_err(|line| {
            anyhow::anyhow!(
                ".ci/setup {} said {line:?}: expected has, path or set",
                self.part.name
            )
        })?;
        self.board.find(self.part.name, found);
        Ok(outcome_of(true))
    }

    /// A few failed tests run once more alone, and are named at the end.
    fn tests(&mut self) -> anyhow::Result<Outcome> {
        if self.cargo(&["xtask", "test"])? {
            return Ok(outcome_of(true));
        }
        let Some(again) = test_programs::again(&log(self.part.name)?) else {
            return Ok(outcome_of(false));
        };
        for command in again.commands {
            let shown = command.join(" ");
            self.print(&format!("=== once more, by themselves: {shown}"));
            let arguments = [vec!["test".to_owned()], command].concat();
            if !self.cargo(&arguments)? {
                return Ok(outcome_of(false));
            }
            self.board.note(format!(
                "failed beside other tests, passed by themselves: {shown}"
            ));
        }
        Ok(Outcome::Passed { with_luck: true })
    }

    /// Uses the verdicts on the agent without bugs, if this run or an earlier one of the same files has them.
    fn mutants(&mut self) -> anyhow::Result<Outcome> {
        let tried = self.board.finished(BASELINE).map(|finished| finished.outcome);
        let reports: Vec<PathBuf> = if matches!(tried, Some(Outcome::Passed { .. })) {
            ["report.yaml", "rerun-1.yaml", "rerun/report.yaml"]
                .map(|report| steps::root().join("target/plumbline").join(report))
                .into_iter()
                .filter(|report| report.is_file())
                .collect()
        } else {
            self.baseline.take().into_iter().collect()
        };
        let part =
            MutantPart::of_commit(&tree::of_commit(&steps::root(), "HEAD")?.commit, MUTANT_PARTS).to_string();
        self.print(&format!(
            "=== part {part} of the mutants; each commit has another, and all run every night"
        ));
        let mut arguments: Vec<OsString> = ["xtask", "mutants", "--part", &part].map(OsString::from).into();
        for report in reports {
            self.print(&format!(
                "=== verdicts of the unmutated agent: {}",
                report.display()
            ));
            arguments.extend(["--baseline".into(), report.into()]);
        }
        self.cargo(&arguments).map(outcome_of)
    }
}

/// The outcome of a part with a single command.
pub(crate) fn outcome_of(success: bool) -> Outcome {
    if success {
        Outcome::Passed { with_luck: false }
    } else {
        Outcome::Failed("its output says why".to_owned())
    }
}

fn write_line(lane: Lane, log: &Mutex<File>, line: &str) {
    job::print(lane.name(), line);
    // On a full disk, the part itself fails.
    let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
}

fn log_of(part: &str) -> PathBuf {
    steps::root().join(OUTPUT).join(format!("{part}.log"))
}

/// The output of a part of this run.
///
/// # Errors
/// The file can't be read.
pub(crate) fn log(part: &str) -> anyhow::Result<String> {
    let path = log_of(part);
    let octets = fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&octets).into_owned())
}

/// The command without its argument.
pub(crate) fn setup_command(cache: &Path) -> Command {
    let mut command = Command::new(steps::root().join(".ci/setup"));
    command.current_dir(steps::root()).env(super::CACHE, cache);
    command
}
