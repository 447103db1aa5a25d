//! Widths, cut and wrapped lines, columns, paths. Widths are columns of a terminal: wide characters have two, colours
//! none.

use std::path::Path;

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use textwrap::{Options, WordSeparator, WordSplitter};

/// Columns without a terminal.
const ELSEWHERE: usize = 80;
/// Minimal columns for which text is laid out.
const LEAST: usize = 40;

/// Columns of the terminal.
pub(crate) fn width() -> usize {
    let terminal = terminal_size::terminal_size();
    terminal.map_or(ELSEWHERE, |(terminal_size::Width(columns), _)| {
        usize::from(columns).max(LEAST)
    })
}

/// Columns that a text takes.
pub(crate) fn shown_width(text: &str) -> usize {
    measure_text_width(text)
}

/// The text in this number of columns; a cut one ends with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    truncate_str(text, columns, "…").into_owned()
}

/// Text from other programs as one line without control characters.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|character: char| character.is_whitespace() || character.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Lines of these columns: the first begins with one prefix, the others with another. No word is cut, so that paths
/// and commands can be copied.
pub(crate) fn wrap(text: &str, first: &str, others: &str, columns: usize) -> Vec<String> {
    let options = Options::new(columns)
        .initial_indent(first)
        .subsequent_indent(others)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(text, options);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Where the text of a column stands.
pub(crate) type Side = Alignment;

/// Rows with aligned columns, each row cut to the width.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], sides: [Side; N], width: usize) -> String {
    const GAP: &str = "  ";
    let widest = |column: usize| rows.iter().map(|row| measure_text_width(&row[column])).max();
    let widths: [usize; N] = std::array::from_fn(|column| widest(column).unwrap_or_default());
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row
            .iter()
            .zip(sides.iter().zip(widths))
            .map(|(cell, (side, columns))| pad_str(cell, columns, *side, None))
            .collect();
        format!("{}\n", cut(cells.join(GAP).trim_end(), width))
    };
    rows.iter().map(line).collect()
}

/// A path as it is shown: relative to the working directory, if it is below it.
pub(crate) fn path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = path
        .strip_prefix(&here)
        .ok()
        .filter(|below| !below.as_os_str().is_empty());
    below.unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_fits_and_says_that_it_is_cut_whatever_its_characters_are() {
        assert_eq!(cut("release-prefix", 14), "release-prefix");
        assert_eq!(cut("release-prefix", 10), "release-p…");
        for columns in [40, 80] {
            for text in ["x".repeat(200), "界".repeat(200), "e\u{301}".repeat(200)] {
                let line = cut(&text, columns);
                assert!(line.ends_with('…'), "{line}");
                let taken = shown_width(&line);
                assert!(taken == columns || taken + 1 == columns, "{taken}: {line}");
            }
        }
        let coloured = format!("\u{1b}[31m{}\u{1b}[0m", "界".repeat(9));
        let line = cut(&coloured, 10);
        assert_eq!(anstream::adapter::strip_str(&line).to_string(), "界界界界…");
        assert!(line.ends_with("\u{1b}[0m"), "the colour ends: {line:?}");
    }

    #[test]
    fn text_of_others_is_one_line_and_moves_no_cursor() {
        assert_eq!(one_line("a\r\n b\tc\u{1b}[2Jd\u{7}  e\n"), "a b c [2Jd e");
    }

    #[test]
    fn lines_are_wrapped_between_words_and_no_path_is_cut() {
        let path = "target/plumbline/evidence/release-prefix-null-slice";
        let lines = wrap(&format!("one two three {path} four"), "  a  ", "     ", 20);
        assert_eq!(
            lines,
            [
                "  a  one two three".to_owned(),
                format!("     {path}"),
                "     four".to_owned()
            ]
        );
        let wide = wrap(&"界 ".repeat(10), "", "", 8);
        assert_eq!(wide, ["界 界 界", "界 界 界", "界 界 界", "界"]);
    }

    #[test]
    fn columns_are_aligned_also_with_colours_and_wide_characters() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let rows = [row(["\u{1b}[32ma\u{1b}[0m", "1"]), row(["界界", "22"])];
        let text = columns(&rows, [Side::Left, Side::Right], 80);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(text, "a      1\n界界  22\n");
        let narrow = columns(&rows, [Side::Left, Side::Right], 5);
        assert!(narrow.lines().all(|line| shown_width(line) <= 5), "{narrow}");
    }

    #[test]
    fn only_paths_below_the_working_directory_are_relative() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(path(&here.join("target/x")), "target/x");
        assert_eq!(path(Path::new("/elsewhere/x")), "/elsewhere/x");
        assert_eq!(path(Path::new("out/x")), "out/x");
        assert_eq!(path(&here), here.display().to_string());
    }
}
