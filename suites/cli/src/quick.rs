//! The marker of quick runs on each output line and in reports.

use harness::{limits::Profile, quick_run::NO_CONFORMANCE};

/// Adds the marker to a text, if the profile is quick.
pub(crate) fn marked(profile: &str, text: &str) -> String {
    if profile != Profile::Quick.name() {
        return text.to_owned();
    }
    let mark = |line: &str| format!("{NO_CONFORMANCE}  {line}").trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(mark).collect();
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::report::{golden, text};

    #[test]
    fn every_line_of_a_quick_run_says_what_it_is_and_no_line_of_another() {
        assert_eq!(marked("lab", "a\n\nb\n"), "a\n\nb\n");
        let quick = marked("quick", "a\n\nb");
        assert_eq!(
            quick.lines().collect::<Vec<_>>(),
            [
                "quick, no conformance  a",
                "quick, no conformance",
                "quick, no conformance  b"
            ]
        );
        assert_eq!(marked("quick", "\n"), "quick, no conformance\n");
        let mut report = golden::report();
        let whole = text::table(&report, Path::new("out"));
        report.run.profile = "quick".to_owned();
        let table = text::table(&report, Path::new("out"));
        assert_eq!(table.lines().count(), whole.lines().count());
        for line in table.lines() {
            assert!(line.starts_with(NO_CONFORMANCE), "{line}");
        }
        assert!(!whole.contains(NO_CONFORMANCE));
    }
}
