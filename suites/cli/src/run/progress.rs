//! Progress output: a line for each running case on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal as _, stderr},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use harness::{case::Case, limits::Profile, report::CaseReport};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::seconds;
use crate::quick::marked;

/// Progress of a run.
#[derive(Debug)]
pub(super) struct Progress {
    bars: Option<MultiProgress>,
    profile: &'static str,
    began: Instant,
    total: usize,
    done: AtomicUsize,
}

/// Progress of a case.
#[derive(Debug)]
pub(super) struct Line<'a> {
    progress: &'a Progress,
    id: &'static str,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(total: usize, profile: Profile) -> Self {
        let bars = stderr().is_terminal().then(MultiProgress::new);
        Self {
            bars,
            profile: profile.name(),
            began: Instant::now(),
            total,
            done: AtomicUsize::new(0),
        }
    }

    /// Starts the line of a case in a lab of this name.
    pub(super) fn begin(&self, case: &Case, lab: &str) -> Line<'_> {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {prefix}  {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(marked(self.profile, &format!("{} in {lab}", case.id)));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let line = Line {
            progress: self,
            id: case.id,
            bar,
        };
        line.phase(&format!("starts in {lab}"));
        line
    }

    pub(super) fn end(&self) {
        if let Some(bars) = &self.bars {
            // A closed terminal needs no clearing.
            let _ = bars.clear();
        }
    }

    fn print(&self, text: &str) {
        match &self.bars {
            Some(bars) => {
                let _ = bars.println(marked(self.profile, text));
            }
            None => {
                let line = format!("{:>7}  {text}", seconds(self.began.elapsed()));
                eprintln!("{}", marked(self.profile, &line));
            }
        }
    }
}

impl Line<'_> {
    pub(super) fn phase(&self, phase: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(phase.to_owned()),
            None => self.progress.print(&format!("{}: {phase}", self.id)),
        }
    }

    /// Reports that the case is inconclusive and will be tried again.
    pub(super) fn undecided(&self, report: &CaseReport) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let took = seconds(Duration::from_secs_f64(report.seconds));
        let why = report.verdict.why();
        self.progress.print(&format!(
            "{} is inconclusive after {took} and will be tried again: {why}",
            self.id
        ));
    }

    pub(super) fn end(&self, report: &CaseReport, is_exempt: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let done = self.progress.done.fetch_add(1, Ordering::Relaxed) + 1;
        let took = seconds(Duration::from_secs_f64(report.seconds));
        let name = report.verdict.name().to_uppercase();
        let name = if is_exempt {
            format!("{name}, exempt,")
        } else {
            name
        };
        self.progress.print(&format!(
            "[{done}/{}] {name} {} ({took})",
            self.progress.total, self.id
        ));
    }
}
