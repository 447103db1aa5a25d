//! `plumbline report`.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::Subcommand;
use serde_json::{Value, json};

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
    /// A report.yaml. Timelines are shown of cases whose evidence lies beside it
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
            let mut report = files::read(file)?;
            let folder = file.parent().unwrap_or(file);
            files::read_timelines(&mut report, folder)?;
            match (arguments.html, arguments.junit, arguments.markdown) {
                (true, ..) => html::render(&report),
                (_, true, _) => junit::render(&report)?,
                (.., true) => markdown::render(&report),
                (false, false, false) => super::text::table(&report, folder),
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
                super::text::counts(&report)
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

/// By what name others refer to the schema; it is at no address.
const ID: &str = "urn:plumbline:report:v2";

/// The schema, as it is in `suites/reports/schema`. It has no `format` that JSON Schema does not know: validators that are
/// strict refuse such a schema.
pub(super) fn schema() -> anyhow::Result<String> {
    let mut schema = serde_json::to_value(schemars::schema_for!(Report))?;
    standard(&mut schema);
    // As a schema again, which is written in the order that people read one.
    let mut schema = schemars::Schema::try_from(schema)?;
    schema.insert("$id".to_owned(), ID.into());
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Says what schemars says by formats of its own: an address is of one family or the other, and of numbers the type and the
/// limits say enough.
fn standard(schema: &mut Value) {
    let own = match schema.get("format").and_then(Value::as_str) {
        Some("ip") => Some(json!([{ "format": "ipv4" }, { "format": "ipv6" }])),
        Some("double" | "uint" | "uint8" | "uint16" | "uint32" | "uint64") => Some(Value::Null),
        _ => None,
    };
    match schema {
        Value::Object(fields) => {
            if let Some(families) = own {
                fields.remove("format");
                if !families.is_null() {
                    fields.insert("anyOf".to_owned(), families);
                }
            }
            fields.values_mut().for_each(standard);
        }
        Value::Array(values) => values.iter_mut().for_each(standard),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats of JSON Schema 2020-12 (validation, section 7.3) that a report can need.
    const STANDARD: [&str; 4] = ["date-time", "ipv4", "ipv6", "uri"];

    fn formats(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                // A property can have this name: its value is a schema.
                if let Some(Value::String(format)) = fields.get("format") {
                    found.push(format.clone());
                }
                fields.values().for_each(|value| formats(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| formats(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_schema_has_a_name_and_no_format_that_strict_validators_refuse() {
        let schema: Value = serde_json::from_str(&schema().unwrap()).unwrap();
        assert_eq!(schema["$id"], ID);
        let mut found = Vec::new();
        formats(&schema, &mut found);
        let strange = found.iter().find(|format| !STANDARD.contains(&format.as_str()));
        assert_eq!(strange, None);
        assert!(
            found.contains(&"ipv6".to_owned()),
            "addresses still say what they are"
        );
        assert_eq!(
            schema["properties"]["format"]["const"],
            crate::report::format::FORMAT
        );
    }
}
