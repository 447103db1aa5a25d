//! `plumbline report`.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use serde_json::{Value, json};

use super::{compare, files, format::Report, html, junit, markdown, validate};
use crate::{
    COULD_NOT_RUN, suggestions,
    terminal::{self, OutputArgs},
};

/// Show a report again, or check it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
  plumbline report target/plumbline/report.yaml --html > report.html
  plumbline report target/plumbline/report.yaml --svg CASE > timeline.svg
  plumbline report compare before.yaml after.yaml    what changed, and who keeps which claim
  plumbline report validate report.yaml        exit code 0, or 2 and everything that is wrong
  plumbline report schema                      the format as JSON Schema"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A report.yaml. Timelines are shown for cases whose evidence lies beside it
    file: Option<PathBuf>,
    /// Print one HTML file that needs no network
    #[arg(long, group = "format")]
    html: bool,
    /// Print the timeline of a case as an SVG file, for documents
    #[arg(long, group = "format", value_name = "CASE")]
    svg: Option<String>,
    /// Print JUnit XML
    #[arg(long, group = "format")]
    junit: bool,
    /// Print Markdown: `>> "$GITHUB_STEP_SUMMARY"` shows it on the page of a workflow's run
    #[arg(long, group = "format")]
    markdown: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that files are reports: known fields, counts that match the cases, a reason for every result but a pass,
    /// claims and features of the catalogue
    Validate {
        /// The report.yaml files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    Compare(compare::Arguments),
    /// Print the JSON Schema of the format
    Schema,
}

pub(crate) fn report(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.output.apply("");
    let text = match (&arguments.command, &arguments.file) {
        (Some(Command::Schema), _) => schema()?,
        (Some(Command::Validate { files }), _) => return Ok(validated(files)),
        (Some(Command::Compare(arguments)), _) => return compare::compare(arguments),
        (None, Some(file)) => {
            let mut report = files::read(file)?;
            let folder = file.parent().unwrap_or(file);
            files::read_timelines(&mut report, folder)?;
            match (
                arguments.html,
                arguments.junit,
                arguments.markdown,
                &arguments.svg,
            ) {
                (true, ..) => html::render(&report),
                (_, true, ..) => junit::render(&report, folder)?,
                (.., true, _) => markdown::render(&report),
                (.., Some(case)) => timeline(&report, case)?,
                (false, false, false, None) => {
                    super::text::table(&report, folder, arguments.output.verbosity(), terminal::width())
                }
            }
        }
        (None, None) => anyhow::bail!("expected a report.yaml: `plumbline report --help`"),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The timeline of a case as an SVG file.
fn timeline(report: &Report, id: &str) -> anyhow::Result<String> {
    let cases = &report.cases;
    let Some(case) = cases.iter().find(|case| case.id == id) else {
        let ids = cases.iter().map(|case| case.id.as_str());
        anyhow::bail!(suggestions::unknown(
            "case in the report",
            id,
            ids,
            "plumbline report FILE"
        ));
    };
    let with = cases.iter().filter(|case| case.timeline.is_some());
    let with: Vec<&str> = with.map(|case| case.id.as_str()).collect();
    html::svg(case).ok_or_else(|| {
        let others = match with.as_slice() {
            [] => "no case of this report has one: evidence lies beside the report.yaml that a run writes".to_owned(),
            cases => format!("these have one: {}", cases.join(", ")),
        };
        anyhow::anyhow!(
            "the case {id} has no timeline: expected timeline.yaml in its evidence, which cases that failed or disturb \
             others leave; {others}"
        )
    })
}

/// Prints a line for each valid report and for each problem; exit code 2, if there are problems.
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

/// Identifier of the schema; it is not published at an address.
const ID: &str = "urn:plumbline:report:v2";

/// The schema, as in `suites/reports/schema`, with standard values of `format` alone: strict validators refuse others.
pub(super) fn schema() -> anyhow::Result<String> {
    let mut schema = serde_json::to_value(schemars::schema_for!(Report))?;
    standard(&mut schema);
    // Converted back, because schemars writes keywords in a readable order.
    let mut schema = schemars::Schema::try_from(schema)?;
    schema.insert("$id".to_owned(), ID.into());
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Replaces schemars's own formats: an address is IPv4 or IPv6; for numbers, type and limits suffice.
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

    /// Formats of JSON Schema 2020-12 (validation, section 7.3) that a report may use.
    const STANDARD: [&str; 4] = ["date-time", "ipv4", "ipv6", "uri"];

    fn formats(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                // A property may be named `format`: its value is a schema.
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
