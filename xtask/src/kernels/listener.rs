//! What a machine's first process tells, heard, kept and shown.

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

/// The first process ends a program at its limit; this much later at the latest it has said so.
const GRACE: Duration = Duration::from_secs(120);
/// While nothing but lines of a program come, one of them is shown this often.
const SHOWN_EVERY: Duration = Duration::from_secs(30);

/// Hears what is told, writes it down and shows how it goes on.
pub(super) struct Listener<'a> {
    /// Where events come from.
    pub(super) told: &'a Receiver<Event>,
    /// The kernel's, before each line that is shown.
    pub(super) release: &'a str,
    /// What the machine does.
    pub(super) plan: &'a Plan,
    /// Of one program.
    pub(super) limit: Duration,
    /// When the machine was started.
    pub(super) started: Instant,
    /// A file of all lines.
    pub(super) output: &'a Path,
    /// A folder of files that programs left.
    pub(super) left: &'a Path,
}

impl Listener<'_> {
    /// To the end of the machine. What nothing was heard of in time; then the machine is still there.
    pub(super) fn listen(&self, outcome: &mut Outcome) -> anyhow::Result<Option<String>> {
        let mut output = File::create(self.output)
            .with_context(|| format!("failed to write {}", self.output.display()))?;
        let (mut shown, mut during) = (Instant::now(), "the start".to_owned());
        // Of the start a tenth; of each program all of it, and then the first process has said how it ended.
        let mut deadline = self.started + self.limit / 10 + GRACE;
        loop {
            let event = match self
                .told
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
                Event::File { step, path, text } => {
                    deadline = deadline.max(Instant::now() + GRACE);
                    keep(&self.left.join(step), path, text)?;
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

/// Keeps a file of the machine in a folder, below which it has the path that it had there.
fn keep(folder: &Path, path: &str, text: &str) -> anyhow::Result<()> {
    // The machine's programs chose the path.
    let inside: PathBuf = Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let file = folder.join(inside);
    let write = || {
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&file, text)
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

/// How a program ended, in words.
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
            keep(&folder.path().join("lab"), path, path).unwrap();
            let inside = path.trim_start_matches("../").trim_start_matches('/');
            let kept = folder.path().join("lab").join(inside);
            assert_eq!(fs::read_to_string(kept).unwrap(), path);
        }
    }
}
