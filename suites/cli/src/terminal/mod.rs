//! What people see: how much of it, in which colours, and how wide.
//!
//! Text for people always has colours; [`print()`] and the lines of `live.rs` remove them where they are not wanted:
//! without a terminal, with `NO_COLOR`, or by `--color`.
//!
//! - `live.rs`: lines on stderr while a command runs, above a bar that is redrawn.
//! - `layout.rs`: widths, cut and wrapped lines, columns, paths. `style.rs`: the colour of each verdict.
mod layout;
mod live;
mod style;

pub(crate) use layout::{Side, columns, cut, one_line, path, shown_width, width, wrap};
pub(crate) use live::{LogLine, draw, draws, message, stage, step, verbosity};
pub(crate) use style::{HEADING, OUTLINE, painted, verdict};

use std::io::{self, Write as _};

use clap::ColorChoice;

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// The final table and failures.
    Quiet,
    /// A header, progress, and the end.
    Normal,
    /// Each step, and all that is known about the cluster and about cases that did not pass.
    Verbose,
}

/// Options of commands with much output.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Show each step, nodes, features and limits, and all details of each case that did not pass
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Show only the final table and failures
    #[arg(short, long)]
    quiet: bool,
    /// When to use colours. `auto`: on a terminal, unless NO_COLOR is set; CLICOLOR_FORCE means always
    #[arg(long, value_name = "auto|always|never", default_value_t = ColorChoice::Auto, hide_possible_values = true)]
    color: ColorChoice,
}

impl OutputArgs {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }

    /// Applies the options to everything that this process prints from now on, for a run with this profile.
    pub(crate) fn apply(&self, profile: &'static str) {
        let choice = match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
        live::start(self.verbosity(), profile);
    }
}

/// Writes to stdout. A closed pipe is no error: the reader may need only the first lines (`| head`).
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        output: OutputArgs,
    }

    #[test]
    fn options_choose_how_much_is_shown_and_do_not_contradict_each_other() {
        let of = |options: &[&str]| {
            let line = Line::try_parse_from([&["x"], options].concat());
            line.map(|line| (line.output.verbosity(), line.output.color))
        };
        let auto = ColorChoice::Auto;
        assert_eq!(of(&[]).unwrap(), (Verbosity::Normal, auto));
        assert_eq!(of(&["-v"]).unwrap(), (Verbosity::Verbose, auto));
        assert_eq!(
            of(&["-q", "--color", "never"]).unwrap(),
            (Verbosity::Quiet, ColorChoice::Never)
        );
        assert!(of(&["-q", "-v"]).is_err());
        let error = of(&["--color", "blue"]).unwrap_err().to_string();
        assert!(error.contains("auto") && error.contains("never"), "{error}");
    }
}
