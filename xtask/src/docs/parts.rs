//! Generated parts of documents that people write: what stands between `<!-- generated: NAME -->` and
//! `<!-- /generated -->`.

use anyhow::bail;

/// The parts that there are.
const NAMES: [&str; 5] = ["coverage", "results", "targets", "commands", "claims"];

/// The line that ends a part.
const END: &str = "<!-- /generated -->";

/// The document with its parts filled.
///
/// # Errors
/// `part` knows no part of that name, or the end of one is missing.
pub(super) fn filled(
    document: &str,
    text: &str,
    mut part: impl FnMut(&str) -> Option<anyhow::Result<String>>,
) -> anyhow::Result<String> {
    let mut filled = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        filled += line;
        filled.push('\n');
        let name = line
            .strip_prefix("<!-- generated: ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        let Some(name) = name else {
            continue;
        };
        if !lines.any(|line| line == END) {
            bail!("{document}: expected the line `{END}` after `{line}`, found none");
        }
        let Some(generated) = part(name) else {
            bail!(
                "{document}: there is no generated part {name:?}; there are {}",
                NAMES.join(", ")
            );
        };
        // An empty line ends HTML, so that what follows is Markdown.
        filled += &format!("\n{}\n\n{END}\n", generated?.trim_end());
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<String> {
        filled("a.md", text, |name| {
            (name == "results").then(|| Ok("| new |\n".to_owned()))
        })
    }

    #[test]
    fn a_part_is_replaced_and_all_else_stays() {
        let text = "# A\n\n<!-- generated: results -->\n| old |\n<!-- /generated -->\n\nend\n";
        let expected = "# A\n\n<!-- generated: results -->\n\n| new |\n\n<!-- /generated -->\n\nend\n";
        assert_eq!(of(text).unwrap(), expected);
        assert_eq!(of(expected).unwrap(), expected);
        assert_eq!(of("# A\n").unwrap(), "# A\n");
    }

    #[test]
    fn an_unknown_part_and_one_without_an_end_are_named() {
        let unknown = of("<!-- generated: result -->\n<!-- /generated -->\n")
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("a.md: there is no generated part \"result\"; there are coverage"),
            "{unknown}"
        );
        let open = of("<!-- generated: results -->\ntext\n").unwrap_err().to_string();
        assert!(open.contains("expected the line `<!-- /generated -->`"), "{open}");
    }
}
