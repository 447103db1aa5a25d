//! Progress output. On a terminal: a bar, and a line for each running case, both redrawn; of cases that ended, only
//! those that did not pass stay. Elsewhere: a line for each case that has ended. With `-v` each phase of each case too.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anstream::{AutoStream, ColorChoice};
use harness::{case::Case, limits::Profile, report::CaseReport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{
    estimate::{Expected, Under, about},
    seconds,
};
use crate::{
    quick,
    report::format,
    terminal::{self, OUTLINE, Verbosity, painted},
};

/// Columns of the bar, at least.
const BAR: usize = 6;

/// Progress of a run.
#[derive(Debug)]
pub(super) struct Progress {
    cases: Arc<Mutex<Cases>>,
    drawn: Option<Drawn>,
    verbosity: Verbosity,
    profile: Profile,
}

/// The bar on a terminal.
#[derive(Debug)]
struct Drawn {
    bar: ProgressBar,
    size: Size,
    has_colours: bool,
}

/// Columns and rows of a terminal.
type Size = fn() -> (usize, usize);

/// Progress of a case.
#[derive(Debug)]
pub(super) struct Line<'a> {
    progress: &'a Progress,
    id: &'static str,
}

/// The cases of the run.
#[derive(Debug)]
struct Cases {
    expected: Expected,
    profile: Profile,
    interrupted: CancellationToken,
    began: Instant,
    ended: Vec<&'static str>,
    /// How many of the ended cases have which verdict, for those that are no pass.
    not_passed: Vec<(&'static str, usize)>,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    id: &'static str,
    since: Instant,
    phase: String,
}

/// Where progress is drawn.
struct Screen {
    target: ProgressDrawTarget,
    size: Size,
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    has_colours: bool,
}

impl Screen {
    fn stderr() -> Self {
        Self {
            target: ProgressDrawTarget::stderr(),
            size: || {
                let (rows, columns) = console::Term::stderr().size();
                (columns.into(), rows.into())
            },
            now: Arc::new(Instant::now),
            has_colours: AutoStream::choice(&std::io::stderr()) != ColorChoice::Never,
        }
    }
}

impl Progress {
    /// No case has begun.
    pub(super) fn new(profile: Profile, interrupted: &CancellationToken, expected: Expected) -> Self {
        let verbosity = terminal::verbosity();
        let is_drawn = verbosity > Verbosity::Quiet && terminal::draws();
        let screen = is_drawn.then(Screen::stderr);
        let progress = Self::on(screen, verbosity, profile, interrupted.clone(), expected);
        terminal::draw(progress.drawn.as_ref().map(|drawn| &drawn.bar));
        progress
    }

    fn on(
        screen: Option<Screen>,
        verbosity: Verbosity,
        profile: Profile,
        interrupted: CancellationToken,
        expected: Expected,
    ) -> Self {
        let total = expected.count();
        let cases = Arc::new(Mutex::new(Cases {
            expected,
            profile,
            interrupted,
            began: Instant::now(),
            ended: Vec::new(),
            not_passed: Vec::new(),
            running: Vec::new(),
        }));
        let drawn = screen.map(|screen| {
            let bar = ProgressBar::with_draw_target(Some(total as u64), screen.target);
            let shared = Arc::clone(&cases);
            let (size, now, has_colours) = (screen.size, screen.now, screen.has_colours);
            let lines = move |_: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                let (columns, rows) = size();
                let cases = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let text = cases.lines(now(), columns, rows);
                // What can't be written now is drawn by the next tick.
                let _ = out.write_str(&coloured(&text, has_colours));
            };
            // A test checks the template. Without it, indicatif draws its default bar.
            if let Ok(style) = ProgressStyle::with_template(&template(profile, screen.has_colours)) {
                bar.set_style(style.progress_chars("━╸─").with_key("lines", lines));
            }
            Drawn {
                bar,
                size,
                has_colours,
            }
        });
        Self {
            cases,
            drawn,
            verbosity,
            profile,
        }
    }

    /// Starts the line of a case in a lab of this name.
    pub(super) fn begin(&self, case: &Case, lab: &str) -> Line<'_> {
        self.cases().running.push(Running {
            id: case.id,
            since: Instant::now(),
            phase: "starts".to_owned(),
        });
        self.details(&format!("{}: starts in {lab}", case.id));
        Line {
            progress: self,
            id: case.id,
        }
    }

    /// Ends drawing.
    pub(super) fn end(&self) {
        if self.drawn.is_some() {
            terminal::draw(None);
        }
    }

    fn cases(&self) -> MutexGuard<'_, Cases> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line of which only `-v` has all.
    fn details(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose {
            let at = seconds(self.cases().began.elapsed());
            self.print(&format!("{at:>9}  {}", terminal::one_line(text)));
        }
    }

    fn print(&self, text: &str) {
        let profile = self.profile.name();
        match &self.drawn {
            Some(Drawn {
                bar,
                size,
                has_colours,
            }) => {
                // Details are read whole, everything else at a glance.
                let columns = match self.verbosity {
                    Verbosity::Verbose => usize::MAX,
                    _ => quick::columns(profile, size().0),
                };
                let line = quick::marked(profile, &terminal::cut(text, columns));
                bar.println(coloured(&line, *has_colours));
            }
            None => terminal::message(text),
        }
    }
}

/// The text, without its colours if there are none.
fn coloured(text: &str, has_colours: bool) -> String {
    match has_colours {
        true => text.to_owned(),
        false => anstream::adapter::strip_str(text).to_string(),
    }
}

/// The bar, and beside and below it the lines of [`Cases::lines`].
fn template(profile: Profile, has_colours: bool) -> String {
    let pass = terminal::verdict("pass");
    let bar = match has_colours {
        true => painted(pass, "{wide_bar}"),
        false => "{wide_bar}".to_owned(),
    };
    quick::marked(profile.name(), &format!("{bar} {{pos}}/{{len}}{{lines}}"))
}

impl Cases {
    /// The rest of the bar's line, and a line for each running case.
    fn lines(&self, now: Instant, columns: usize, rows: usize) -> String {
        let columns = quick::columns(self.profile.name(), columns);
        let mut text = self.beside_bar(now, columns);
        // The bar has one line, and the cursor may need another.
        let room = rows.saturating_sub(2).max(1);
        let shown = match self.running.len() > room {
            true => room - 1,
            false => self.running.len(),
        };
        let widest = self
            .running
            .iter()
            .map(|case| case.id.len())
            .max()
            .unwrap_or_default();
        for Running { id, since, phase } in self.running.iter().take(shown) {
            let took = now.saturating_duration_since(*since).as_secs();
            let line = format!("{took:>5} s  {id:<widest$}  {}", painted(OUTLINE, phase));
            self.add(&mut text, &terminal::cut(&line, columns));
        }
        let more = self.running.len() - shown;
        if more > 0 {
            self.add(&mut text, &format!("       … and {more} more"));
        }
        text
    }

    fn add(&self, text: &mut String, line: &str) {
        let _ = write!(text, "\n{}", quick::marked(self.profile.name(), line));
    }

    /// The verdicts that are no pass, the time that has passed and the time left, as far as they fit beside a bar.
    fn beside_bar(&self, now: Instant, columns: usize) -> String {
        let not_passed = self.not_passed.iter().map(|(name, count)| {
            let words = format!("{count} {}", name.replace("fail", "failed"));
            painted(terminal::verdict(name), words)
        });
        let not_passed: Vec<String> = not_passed.collect();
        let elapsed = now.saturating_duration_since(self.began);
        let running = self.running.iter().map(|case| (case.id, case.since));
        let under = Under {
            elapsed,
            ended: &self.ended,
            running: running.collect(),
            now,
        };
        let left = match self.interrupted.is_cancelled() {
            true => Some("interrupted: cases are ended".to_owned()),
            false => self
                .expected
                .left(&under)
                .map(|left| format!("{} left", about(left))),
        };
        let total = self.expected.count().to_string().len();
        let mut room = columns.saturating_sub(BAR + 2 * (total + 1));
        // The most important first.
        let parts = [not_passed.join(", "), left.unwrap_or_default(), clock(elapsed)];
        let [not_passed, left, clock] = parts.map(|part| {
            let takes = terminal::shown_width(&part) + 2;
            if part.is_empty() || takes > room {
                return String::new();
            }
            room -= takes;
            format!("  {part}")
        });
        [not_passed, clock, left].concat()
    }
}

/// `1:05`: as short as a running clock needs it.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

impl Line<'_> {
    pub(super) fn phase(&self, phase: &str) {
        let phase = terminal::one_line(phase);
        if let Some(case) = self
            .progress
            .cases()
            .running
            .iter_mut()
            .find(|case| case.id == self.id)
        {
            case.phase.clone_from(&phase);
        }
        self.progress.details(&format!("{}: {phase}", self.id));
    }

    /// Reports that the case is inconclusive and will be tried again.
    pub(super) fn undecided(&self, report: &CaseReport) {
        self.progress.cases().running.retain(|case| case.id != self.id);
        let took = seconds(Duration::from_secs_f64(report.seconds));
        let why = report.verdict.why();
        self.progress.details(&format!(
            "{} is inconclusive after {took} and will be tried again: {why}",
            self.id
        ));
    }

    /// `exempt` is the reason of an exempt case.
    pub(super) fn end(&self, report: &CaseReport, exempt: Option<&str>) {
        let (name, why) = match exempt {
            Some(reason) => ("exempt", reason),
            None => (report.verdict.name(), report.verdict.why()),
        };
        let is_pass = name == "pass";
        let (done, total) = {
            let mut cases = self.progress.cases();
            cases.running.retain(|case| case.id != self.id);
            cases.ended.push(self.id);
            if !is_pass {
                match cases.not_passed.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, count)) => *count += 1,
                    None => cases.not_passed.push((name, 1)),
                }
            }
            (cases.ended.len(), cases.expected.count())
        };
        if let Some(Drawn { bar, .. }) = &self.progress.drawn {
            bar.set_position(done as u64);
        }
        let is_shown = match (self.progress.verbosity, &self.progress.drawn) {
            (Verbosity::Quiet, _) => false,
            (Verbosity::Normal, Some(_)) => !is_pass,
            _ => true,
        };
        if is_shown {
            let text = ended((done, total), name, self.id, report.seconds, why);
            self.progress.print(&text);
        }
    }
}

/// The line of a case of a report that has ended, one of so many.
pub(crate) fn ended_line(count: (usize, usize), case: &format::Case) -> String {
    let why = case.exempt.as_ref().unwrap_or(&case.why);
    ended(count, case.label(), &case.id, case.seconds, why)
}

fn ended((done, total): (usize, usize), verdict: &str, id: &str, took: f64, why: &str) -> String {
    let took = seconds(Duration::from_secs_f64(took));
    let label = painted(
        terminal::verdict(verdict),
        verdict.to_uppercase().replace('-', " "),
    );
    let why = match verdict {
        "pass" => String::new(),
        _ => format!(": {}", terminal::one_line(why)),
    };
    format!("[{done}/{total}] {label} {id} ({took}){why}")
}

#[cfg(test)]
mod tests;
