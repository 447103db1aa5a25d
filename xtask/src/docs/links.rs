//! Links of documents: those inside of the repository lead to a file and to a heading of it, those outside have the form
//! of an address.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use super::document::Document;

/// The table of contents of the book.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";

/// Every link that leads nowhere, and every page of `docs` that the book does not have.
pub(super) fn findings(root: &Path, documents: &[Document]) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|document| (document.name(), document.anchors()))
        .collect();
    let mut found = Vec::new();
    for document in documents {
        for link in document.links() {
            if let Err(why) = check(root, document.name(), link.destination(), &anchors) {
                found.push(format!(
                    "{}:{}: the link {}: {why}",
                    document.name(),
                    link.line(),
                    link.destination()
                ));
            }
        }
        for (line, reference) in document.undefined_references() {
            found.push(format!(
                "{}:{line}: the reference [{reference}] has no definition: expected a line `[{reference}]: PATH`",
                document.name()
            ));
        }
    }
    found.extend(not_in_the_book(documents));
    found
}

/// Where a link of a document leads: a path in the repository, without its fragment; `None` for another place.
///
/// # Errors
/// The path leaves the repository.
pub(super) fn path_of(document: &str, destination: &str) -> Result<Option<PathBuf>, String> {
    if scheme(destination).is_some() {
        return Ok(None);
    }
    let path = destination.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Ok(Some(PathBuf::from(document)));
    }
    if path.starts_with('/') {
        return Err("expected a path relative to the document, found one from the root".to_owned());
    }
    let mut found = Path::new(document)
        .parent()
        .unwrap_or(Path::new(""))
        .to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir if !found.pop() => {
                return Err("expected a path in the repository, found one that leaves it".to_owned());
            }
            Component::Normal(name) => found.push(name),
            _ => {}
        }
    }
    Ok(Some(found))
}

fn check(
    root: &Path,
    document: &str,
    destination: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
) -> Result<(), String> {
    let Some(path) = path_of(document, destination)? else {
        return outside(destination);
    };
    if !root.join(&path).exists() && !anchors.contains_key(&*path.to_string_lossy()) {
        return Err(format!("expected a file, found none at {}", path.display()));
    }
    let Some((_, fragment)) = destination.split_once('#') else {
        return Ok(());
    };
    let name = path.to_string_lossy();
    match anchors.get(&*name) {
        Some(known) if known.contains(fragment) => Ok(()),
        Some(known) => Err(format!(
            "{name} has no heading #{fragment}; it has {}",
            known
                .iter()
                .map(|known| format!("#{known}"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
        None => Err(format!(
            "expected a fragment of a Markdown document, found #{fragment} of {name}"
        )),
    }
}

/// `https`, for instance.
fn scheme(destination: &str) -> Option<&str> {
    let (scheme, _) = destination.split_once(':')?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_scheme.then_some(scheme)
}

/// The form of an address outside of the repository: nothing is dialled.
fn outside(destination: &str) -> Result<(), String> {
    if destination.contains(char::is_whitespace) {
        return Err("expected an address without spaces".to_owned());
    }
    let (scheme, rest) = destination.split_once(':').unwrap_or_default();
    match scheme {
        "https" | "http" => {
            let host = rest
                .strip_prefix("//")
                .and_then(|rest| rest.split(['/', '?', '#']).next());
            match host {
                Some(host) if host.contains('.') && !host.starts_with('.') && !host.ends_with('.') => Ok(()),
                _ => Err(format!("expected {scheme}://HOST/…, found no host")),
            }
        }
        "mailto" if rest.contains('@') => Ok(()),
        _ => Err("expected a path in the repository, https:, http: or mailto:".to_owned()),
    }
}

/// Pages that the book does not list.
fn not_in_the_book(documents: &[Document]) -> Vec<String> {
    let Some(summary) = documents.iter().find(|document| document.name() == SUMMARY) else {
        return vec![format!("expected the table of contents {SUMMARY}, found none")];
    };
    let links = summary.links();
    let listed: BTreeSet<PathBuf> = links
        .iter()
        .filter_map(|link| path_of(SUMMARY, link.destination()).ok().flatten())
        .collect();
    let names = documents.iter().map(Document::name);
    names
        .filter(|name| name.starts_with("docs/") && *name != SUMMARY && !listed.contains(Path::new(name)))
        .map(|name| format!("{name} is no page of the book: {SUMMARY} does not name it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[(&str, &str)]) -> Vec<String> {
        let documents: Vec<Document> = texts
            .iter()
            .map(|(name, text)| Document::new(*name, *text))
            .collect();
        findings(&crate::steps::root(), &documents)
    }

    const BOOK: (&str, &str) = (SUMMARY, "# Summary\n\n- [a](a.md)\n");

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let page = "# One\n\n[x](#one) [y](../ARCHITECTURE.md) [z](../docs/a.md#one) [folder](../suites/targets)\n\
                    [w](https://kubernetes.io/docs/) <https://lwn.net/a?b#c> [m](mailto:a@b.org)\n";
        assert_eq!(of(&[BOOK, ("docs/a.md", page)]), [""; 0]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named_with_its_line_and_with_what_was_expected() {
        for (link, expected) in [
            ("b.md", "found none at docs/b.md"),
            ("#two", "has no heading #two; it has #one"),
            ("a.md#two", "has no heading #two"),
            ("../../x.md", "one that leaves it"),
            ("/ARCHITECTURE.md", "one from the root"),
            ("../Cargo.toml#x", "expected a fragment of a Markdown document"),
            ("https:///x", "found no host"),
            ("https://localhost", "found no host"),
            ("ftp://a.b/c", "expected a path in the repository, https:"),
        ] {
            let found = of(&[BOOK, ("docs/a.md", &format!("# One\n\ntext [x]({link})\n"))]);
            assert_eq!(found.len(), 1, "{link}: {found:?}");
            assert!(
                found[0].starts_with("docs/a.md:3: ") && found[0].contains(expected),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_reference_without_a_definition_is_found() {
        let found = of(&[BOOK, ("docs/a.md", "[x][y]\n")]);
        assert!(
            found.len() == 1 && found[0].contains("docs/a.md:1: the reference [y]"),
            "{found:?}"
        );
    }

    #[test]
    fn every_page_of_docs_is_in_the_book() {
        let found = of(&[BOOK, ("docs/a.md", ""), ("docs/b.md", ""), ("suites/b.md", "")]);
        assert_eq!(
            found,
            ["docs/b.md is no page of the book: docs/SUMMARY.md does not name it"]
        );
        assert!(of(&[])[0].contains("expected the table of contents"));
    }
}
