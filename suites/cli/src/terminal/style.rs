//! Colours.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

/// Headings of tables and blocks.
pub(crate) const HEADING: Style = Style::new().bold();
/// What surrounds the result: labels, what was left out.
pub(crate) const OUTLINE: Style = Style::new().dimmed();

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// The colour of a verdict, by the name that it has in reports.
pub(crate) fn verdict(name: &str) -> Style {
    match name {
        "pass" => coloured(AnsiColor::Green),
        "fail" => coloured(AnsiColor::Red).bold(),
        "inconclusive" => coloured(AnsiColor::Yellow).bold(),
        "exempt" => coloured(AnsiColor::Magenta),
        _ => OUTLINE,
    }
}

/// The text with the style.
pub(crate) fn painted(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::format::Verdict;

    #[test]
    fn verdicts_that_fail_a_run_are_told_from_all_others_by_colour() {
        let of = |verdict: Verdict| super::verdict(verdict.name());
        let others = [Verdict::Pass, Verdict::Skipped, Verdict::NotSupported];
        for other in others.map(of).into_iter().chain([super::verdict("exempt")]) {
            assert_ne!(of(Verdict::Fail), other);
            assert_ne!(of(Verdict::Inconclusive), other);
        }
        assert_ne!(of(Verdict::Fail), of(Verdict::Inconclusive));
        assert_eq!(painted(of(Verdict::Pass), "x"), "\u{1b}[32mx\u{1b}[0m");
    }
}
