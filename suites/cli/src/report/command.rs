//! `plumbline report`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::Subcommand;

use super::{files, format::Report, html, junit};

/// Show a report again, or check it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
  plumbline report target/plumbline/report.yaml --html > report.html
  plumbline report validate report.yaml        exit code 0, or 2 and what is wrong, and where
  plumbline report schema                      the format as JSON Schema"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A report.yaml
    file: Option<PathBuf>,
    /// As one HTML file that needs no network, on stdout
    #[arg(long, conflicts_with = "junit")]
    html: bool,
    /// As JUnit's XML, on stdout
    #[arg(long)]
    junit: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that a file is a report: every field, and that its counts are those of its cases
    Validate {
        /// A report.yaml
        file: PathBuf,
    },
    /// Print the format as JSON Schema
    Schema,
}

pub(crate) fn report(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let text = match (&arguments.command, &arguments.file) {
        (Some(Command::Schema), _) => schema()?,
        (Some(Command::Validate { file }), _) => {
            let report = files::read(file)?;
            format!(
                "{}: {}, {}\n",
                file.display(),
                report.format,
                crate::run::counts(&report)
            )
        }
        (None, Some(file)) => {
            let report = files::read(file)?;
            match (arguments.html, arguments.junit) {
                (true, _) => html::render(&report),
                (_, true) => junit::render(&report)?,
                (false, false) => crate::run::table(&report),
            }
        }
        (None, None) => anyhow::bail!("expected a report.yaml: `plumbline report --help`"),
    };
    // Who reads may stop reading.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(ExitCode::SUCCESS)
}

/// The schema, as it is in `schema.json`.
pub(super) fn schema() -> anyhow::Result<String> {
    let schema = schemars::schema_for!(Report);
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
