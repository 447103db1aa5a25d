//! Receives, stores and shows the events of a machine's first process.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Component, Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use guest::{End, Event, Plan};

use super::machine::Outcome;

/// The first process kills a program at its limit; its event must arrive within this time after it.
const GRACE: Duration = Duration::from_secs(120);
/// While a program only writes lines, one of them is shown this often.
const SHOWN_EVERY: Duration = Duration::from_secs(30);

/// Receives the events, stores them and shows progress.
pub(super) struct Listener<'a> {
    /// The events.
    pub(super) events: &'a Receiver<Event>,
    /// The kernel's release, a prefix of each shown line.
    pub(super) release: &'a str,
    /// The machine's plan.
    pub(super) plan: &'a Plan,
    /// Limit of one program.
    pub(super) limit: Duration,
    /// Start of the machine.
    pub(super) started: Instant,
    /// File for all lines.
    pub(super) output: &'a Path,
    /// Folder for files of the programs.
    pub(super) left: &'a Path,
}

impl Listener<'_> {
    /// Receives events until the end of the machine. Returns the step whose event is overdue; then the machine still
    /// runs.
    pub(super) fn listen(&self, outcome: &mut Outcome) -> anyhow::Result<Option<String>> {
        let mut output = File::create(self.output)
            .with_context(|| format!("failed to write {}", self.output.display()))?;
        let (mut shown, mut during) = (Instant::now(), "the start".to_owned());
        // A tenth of the limit for the boot; the whole limit for each program, and some time for its event.
        let mut deadline = self.started + self.limit / 10 + GRACE;
        loop {
            let event = match self
                .events
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(event) => event,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Some(format!("nothing came of {during} in time")));
                }
            };
            match &event {
                Event::Booted { kernel } => {
                    outcome.boot = Some(self.started.elapsed());
                    self.show(&format!("{kernel} is up"));
                    deadline = Instant::now() + GRACE;
                }
                Event::ModuleRefused { module, why } => self.show(&format!("{module} was refused: {why}")),
                Event::Begun { step } => {
                    during.clone_from(step);
                    shown = Instant::now();
                    deadline = Instant::now() + self.limit + GRACE;
                    self.show(&format!("{step}: {}", self.command(step)));
                }
                Event::Line { step, text } => {
                    writeln!(output, "{step}: {text}").context("failed to write what a program said")?;
                    if shown.elapsed() > SHOWN_EVERY {
                        shown = Instant::now();
                        self.show(&format!("{step}: {text}"));
                    }
                }
                Event::Ended {
                    step,
                    end,
                    milliseconds,
                } => {
                    let seconds = Duration::from_millis(*milliseconds).as_secs_f64();
                    self.show(&format!("{step}: {} after {seconds:.1} s", ended(*end)));
                    deadline = Instant::now() + GRACE;
                }
                Event::File { step, path, bytes } => {
                    deadline = deadline.max(Instant::now() + GRACE);
                    keep(&self.left.join(step), path, bytes)?;
                }
                Event::Failed { .. } | Event::Over => {}
            }
            outcome.events.push(event);
        }
    }

    fn show(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("      {}: {seconds:>6.1} s  {what}", self.release);
    }

    fn command(&self, name: &str) -> String {
        let step = self.plan.steps.iter().find(|step| step.name == name);
        step.map(|step| step.command.join(" ")).unwrap_or_default()
    }
}

/// Writes a file of the machine below a folder, at the path that it had in the machine.
fn keep(folder: &Path, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
    // Programs in the machine have chosen the path.
    let inside: PathBuf = Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let file = folder.join(inside);
    let write = || {
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&file, bytes)
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

/// How a program ended, as text.
pub(super) fn ended(end: End) -> String {
    match end {
        End::Code(0) => "done".to_owned(),
        End::Code(code) => format!("exit code {code}"),
        End::Signal(signal) => format!("ended by signal {signal}"),
        End::Limit => "killed at its time limit (--time-limit)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_left_is_kept_below_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/run/out/report.yaml", "../../run/out/evidence/a/b"] {
            keep(&folder.path().join("lab"), path, path.as_bytes()).unwrap();
            let inside = path.trim_start_matches("../").trim_start_matches('/');
            let kept = folder.path().join("lab").join(inside);
            assert_eq!(fs::read_to_string(kept).unwrap(), path);
        }
    }
}
