//! `plumbline report`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::Subcommand;

use super::{files, format::Report, html, junit, markdown, validate};
use crate::COULD_NOT_RUN;

/// Show a report again, or check it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
  plumbline report target/plumbline/report.yaml --html > report.html
  plumbline report validate report.yaml        exit code 0, or 2 and everything that is wrong
  plumbline report schema                      the format as JSON Schema"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A report.yaml
    file: Option<PathBuf>,
    /// As one HTML file that needs no network, on stdout
    #[arg(long, group = "format")]
    html: bool,
    /// As JUnit's XML, on stdout
    #[arg(long, group = "format")]
    junit: bool,
    /// As Markdown, on stdout: `>> "$GITHUB_STEP_SUMMARY"` shows it on the page of a workflow's run
    #[arg(long, group = "format")]
    markdown: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that files are reports: every field, counts that are those of the cases, a reason for all that is no pass,
    /// claims and features that the catalogue has
    Validate {
        /// A report.yaml each
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the format as JSON Schema
    Schema,
}

pub(crate) fn report(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let text = match (&arguments.command, &arguments.file) {
        (Some(Command::Schema), _) => schema()?,
        (Some(Command::Validate { files }), _) => return Ok(validated(files)),
        (None, Some(file)) => {
            let report = files::read(file)?;
            match (arguments.html, arguments.junit, arguments.markdown) {
                (true, ..) => html::render(&report),
                (_, true, _) => junit::render(&report)?,
                (.., true) => markdown::render(&report),
                (false, false, false) => crate::run::table(&report),
            }
        }
        (None, None) => anyhow::bail!("expected a report.yaml: `plumbline report --help`"),
    };
    // Who reads may stop reading.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(ExitCode::SUCCESS)
}

/// A line for each file that is a report, and for each thing that is wrong with one; 2, if there is any.
fn validated(files: &[PathBuf]) -> ExitCode {
    let mut wrong = false;
    for file in files {
        match validate::read(file) {
            Ok(report) => println!(
                "{}: {}, {}",
                file.display(),
                report.format,
                crate::run::counts(&report)
            ),
            Err(problems) => {
                wrong = true;
                for problem in problems {
                    eprintln!("{}: {problem}", file.display());
                }
            }
        }
    }
    ExitCode::from(if wrong { COULD_NOT_RUN } else { 0 })
}

/// The schema, as it is in `suites/reports/schema`.
pub(super) fn schema() -> anyhow::Result<String> {
    let schema = schemars::schema_for!(Report);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
