//! Paragraphs and tables of the terminal's width, without colour.

use comfy_table::{ContentArrangement, Table, presets};

use crate::terminal;

/// Columns without a terminal: mail and tickets do not wrap lines of this length.
const ELSEWHERE: u16 = 110;
/// Minimal columns of a readable table.
const LEAST: u16 = 60;

/// Columns of the terminal at stdout.
pub(super) fn width() -> u16 {
    let terminal = terminal_size::terminal_size();
    terminal.map_or(ELSEWHERE, |(terminal_size::Width(columns), _)| columns.max(LEAST))
}

/// A paragraph, indented with spaces.
pub(super) fn paragraph(text: &str, indent: usize, width: u16) -> String {
    let blanks = " ".repeat(indent);
    let columns = usize::from(width).max(indent + 20);
    let lines = terminal::wrap(text, &blanks, &blanks, columns);
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// A table with a heading.
pub(super) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    indent: usize,
    width: u16,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width.saturating_sub(u16::try_from(indent).unwrap_or(u16::MAX)))
        .set_header(heading)
        .add_rows(rows);
    let blanks = " ".repeat(indent);
    let lines = table.lines().map(|line| format!("{blanks}{}\n", line.trim_end()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_broken_between_words_and_indented() {
        assert_eq!(
            paragraph("one two three four five six", 2, 22),
            "  one two three four\n  five six\n"
        );
        let long = "x".repeat(50);
        assert_eq!(
            paragraph(&format!("a {long} b"), 0, 22),
            format!("a\n{long}\nb\n"),
            "no word is cut"
        );
    }

    #[test]
    fn tables_keep_to_the_width() {
        let rows = [["1".to_owned(), "word ".repeat(40)]];
        let text = table(["ID", "WORDS"], rows, 4, 60);
        assert!(text.lines().count() > 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
