//! A generated file, and the small parts that Markdown is made of.

use std::path::{Component, Path};

/// A file that this command writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// In the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What stands first in a page that is generated as a whole.
pub(super) const NOTICE: &str =
    "<!-- Written by `cargo xtask docs`. Change what it is made from, and run that. -->\n\n";

/// The path of one file of the repository as a link in another one.
pub(super) fn link(from: &str, to: &str) -> String {
    let from: Vec<Component<'_>> = Path::new(from)
        .parent()
        .unwrap_or(Path::new(""))
        .components()
        .collect();
    let to: Vec<Component<'_>> = Path::new(to).components().collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from[common..].iter().map(|_| "..".to_owned());
    let down = to[common..]
        .iter()
        .map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// A table.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(|cell| cell_text(cell)).collect();
    let mut text = line(&header);
    text += &line(&header.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    for row in rows {
        text += &line(&row.iter().map(|cell| cell_text(cell)).collect::<Vec<_>>());
    }
    text
}

fn cell_text(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}

/// `one`, `two`, … up to nine.
pub(super) fn in_words(number: usize) -> String {
    const WORDS: [&str; 10] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    ];
    WORDS
        .get(number)
        .map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

/// The text with a capital letter first.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_document() {
        for (from, to, expected) in [
            ("README.md", "docs/claims/a.md", "docs/claims/a.md"),
            ("docs/a.md", "docs/claims/b.md", "claims/b.md"),
            ("docs/claims/a.md", "docs/claims/b.md", "b.md"),
            ("docs/claims/a.md", "suites/x.rs", "../../suites/x.rs"),
        ] {
            assert_eq!(link(from, to), expected);
        }
    }

    #[test]
    fn a_cell_of_a_table_is_one_line() {
        let text = table(&["A", "B"], &[vec!["x|y".to_owned(), "1\n2".to_owned()]]);
        assert_eq!(text, "| A | B |\n| --- | --- |\n| x\\|y | 1 2 |\n");
    }

    #[test]
    fn numbers_and_sentences_begin_as_in_a_text() {
        assert_eq!((in_words(2), in_words(12)), ("two".to_owned(), "12".to_owned()));
        assert_eq!(capitalised("a Service"), "A Service");
    }
}
