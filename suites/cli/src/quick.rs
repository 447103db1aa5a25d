//! The marker of quick runs on each output line; the header, the last line and reports also say what it means.

use harness::limits::Profile;

/// Begins each line.
const MARK: &str = "quick";

/// Adds the marker to a text, if the profile is quick.
pub(crate) fn marked(profile: &str, text: &str) -> String {
    if profile != Profile::Quick.name() {
        return text.to_owned();
    }
    let mark = |line: &str| format!("{MARK}  {line}").trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(mark).collect();
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

/// Columns that the marker leaves of a line.
pub(crate) fn columns(profile: &str, all: usize) -> usize {
    all - (marked(profile, "x").len() - 1).min(all)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use harness::quick_run::NO_CONFORMANCE;

    use super::*;
    use crate::{
        report::{golden, text},
        terminal::Verbosity,
    };

    #[test]
    fn every_line_of_a_quick_run_says_what_it_is_and_no_line_of_another() {
        assert_eq!(marked("lab", "a\n\nb\n"), "a\n\nb\n");
        let quick = marked("quick", "a\n\nb");
        assert_eq!(
            quick.lines().collect::<Vec<_>>(),
            ["quick  a", "quick", "quick  b"]
        );
        assert_eq!(marked("quick", "\n"), "quick\n");
        assert_eq!((columns("quick", 80), columns("lab", 80)), (73, 80));
        let mut report = golden::report();
        let table = |report: &_, columns| text::table(report, Path::new("out"), Verbosity::Normal, columns);
        let whole = table(&report, 73);
        report.run.profile = "quick".to_owned();
        let table = table(&report, 80);
        // The last line is longer.
        assert_eq!(table.lines().count(), whole.lines().count() + 1);
        for line in table.lines() {
            assert!(line.starts_with(MARK), "{line}");
        }
        assert!(
            table.contains(&format!("\nquick  {NO_CONFORMANCE}: 7 cases")),
            "{table}"
        );
        assert!(!whole.contains(NO_CONFORMANCE));
    }
}
