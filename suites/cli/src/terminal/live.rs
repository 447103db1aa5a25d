//! Lines on stderr while a command runs, above a bar that is redrawn.
//!
//! A process has one stderr, and a line that is written past the bar would tear it apart. So there is one place that
//! knows the bar, and everything that prints while a run is under way prints here, log lines too.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _, stderr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    Verbosity,
    layout::{cut, one_line, width, wrap},
};
use crate::quick;

/// Interval of redrawing.
const TICK: Duration = Duration::from_millis(200);

static LIVE: Mutex<Live> = Mutex::new(Live {
    verbosity: Verbosity::Normal,
    profile: "",
    stage: String::new(),
    bar: None,
});

struct Live {
    verbosity: Verbosity,
    /// Profile of the run, which marks the lines of a quick one.
    profile: &'static str,
    stage: String,
    /// The drawn bar or spinner.
    bar: Option<ProgressBar>,
}

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a run with this profile.
pub(super) fn start(verbosity: Verbosity, profile: &'static str) {
    let mut live = live();
    live.verbosity = verbosity;
    live.profile = profile;
}

/// How much this process prints.
pub(crate) fn verbosity() -> Verbosity {
    live().verbosity
}

/// Whether stderr is a terminal on which lines can be redrawn.
pub(crate) fn draws() -> bool {
    stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Shows the stage that begins: a spinner on a terminal, otherwise a line.
pub(crate) fn stage(text: &str) {
    let mut live = live();
    text.clone_into(&mut live.stage);
    match live.verbosity {
        Verbosity::Quiet => {}
        Verbosity::Normal if draws() => live.spin(text),
        _ => live.line(&format!("{text} …")),
    }
}

/// Shows a step of the stage: on a terminal until the next one. Elsewhere only with `-v`.
pub(crate) fn step(text: &str) {
    let mut live = live();
    match live.verbosity {
        Verbosity::Quiet => {}
        Verbosity::Normal if draws() => {
            let text = format!("{}: {}", live.stage, one_line(text));
            live.spin(&text);
        }
        Verbosity::Normal => {}
        Verbosity::Verbose => live.line(&format!("  {text}")),
    }
}

/// Prints a line that matters however much is shown, such as a warning. A terminal would break it within words.
pub(crate) fn message(text: &str) {
    if draws() {
        let wrapped = |line: &str| wrap(line, "", "  ", width()).join("\n");
        let lines: Vec<String> = text.lines().map(wrapped).collect();
        live().line(&lines.join("\n"));
    } else {
        live().line(text);
    }
}

/// Replaces the drawn spinner or bar: `None` ends drawing.
pub(crate) fn draw(bar: Option<&ProgressBar>) {
    let mut live = live();
    if let Some(old) = live.bar.take() {
        old.finish_and_clear();
    }
    if let Some(bar) = bar {
        bar.enable_steady_tick(TICK);
        live.bar = Some(bar.clone());
    }
}

impl Live {
    fn line(&self, text: &str) {
        // Without a reader there is no line.
        let _ = self.write(text);
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let text = quick::marked(self.profile, text);
        match &self.bar {
            Some(bar) if AutoStream::choice(&stderr()) == ColorChoice::Never => {
                bar.println(anstream::adapter::strip_str(&text).to_string());
            }
            Some(bar) => bar.println(text),
            None => writeln!(anstream::stderr(), "{text}")?,
        }
        Ok(())
    }

    fn spin(&mut self, text: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            // A test checks the template. Without it, indicatif draws its default spinner.
            let style = ProgressStyle::with_template(SPINNER);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(TICK);
            bar
        });
        let columns = width().saturating_sub(SPINNER_COLUMNS);
        bar.set_message(cut(&quick::marked(self.profile, text), columns));
    }
}

const SPINNER: &str = "{spinner} {elapsed:>4}  {msg}";
/// Columns of the spinner before its text.
const SPINNER_COLUMNS: usize = 9;

/// Writes a line of the log.
#[derive(Debug)]
pub(crate) struct LogLine;

impl io::Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        live().write(String::from_utf8_lossy(bytes).trim_end())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spinner_has_a_template() {
        assert!(ProgressStyle::with_template(SPINNER).is_ok());
    }
}
