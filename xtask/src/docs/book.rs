//! The book of `docs`, built by mdBook.
//!
//! Pages link to files outside of `docs`, which a book does not have. In the copy that is built, these links lead to the
//! repository on GitHub, if its workflow builds the book, and otherwise to this work tree.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::{document::Document, links};
use crate::{steps, tidy};

/// How to get mdBook. Its library has parts under a licence that this workspace does not permit, so it is no dependency.
const INSTALL: &str = "cargo install mdbook@0.5.4 --locked";

/// Builds the book; returns its first page.
///
/// # Errors
/// mdBook is not installed, or fails; a file can't be copied.
pub(super) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    if !steps::on_path("mdbook") {
        bail!(
            "expected mdbook on the PATH, which builds the book: `{INSTALL}`, or leave it out with --no-book"
        );
    }
    let folder = root.join("target/docs");
    let (copy, html) = (folder.join("src"), folder.join("html"));
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("failed to empty {}", copy.display()))?;
    }
    let repository = repository();
    for path in tidy::files(&root.join("docs"))? {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let to = copy.join(name.strip_prefix("docs").unwrap_or(name));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).with_context(|| format!("failed to make {}", parent.display()))?;
        }
        let written = if name.extension().is_some_and(|end| end == "md") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            let document = Document::new(name.to_string_lossy(), text);
            fs::write(&to, with_links_of_the_book(&document, repository.as_deref()))
        } else {
            fs::copy(&path, &to).map(drop)
        };
        written.with_context(|| format!("failed to write {}", to.display()))?;
    }
    let mut command = Command::new("mdbook");
    command.arg("build").arg("--dest-dir").arg(&html).arg(&copy);
    steps::must("book", &mut command)?;
    Ok(html.join("index.html"))
}

/// Where GitHub shows files of this commit, in one of its workflows.
fn repository() -> Option<String> {
    let get = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let (server, repository) = (get("GITHUB_SERVER_URL")?, get("GITHUB_REPOSITORY")?);
    Some(format!("{server}/{repository}/blob/{}", get("GITHUB_SHA")?))
}

/// The page with links that hold in the book: those to what is not in `docs` lead to the repository, or out of
/// `target/docs/html`.
fn with_links_of_the_book(document: &Document, repository: Option<&str>) -> String {
    let mut text = document.text().to_owned();
    // From the last to the first, so that ranges stay right.
    for link in document.links().iter().rev() {
        let Ok(Some(path)) = links::path_of(document.name(), link.destination()) else {
            continue;
        };
        let fragment = link
            .destination()
            .split_once('#')
            .map_or(String::new(), |(_, rest)| format!("#{rest}"));
        let to = match repository {
            // From the README of a folder that the table of contents names, mdBook makes its index.
            _ if path.starts_with("docs") => match link.destination().strip_suffix("README.md") {
                Some(folder) if document.name() != links::SUMMARY => format!("{folder}index.md"),
                _ => continue,
            },
            Some(repository) => format!("{repository}/{}{fragment}", path.display()),
            None => {
                let depth = Path::new(document.name()).components().count() + 1;
                format!("{}{}{fragment}", "../".repeat(depth), path.display())
            }
        };
        let range = link.range();
        let written = text[range.clone()].to_owned();
        if let Some(at) = written.rfind(link.destination()) {
            let at = range.start + at;
            text.replace_range(at..at + link.destination().len(), &to);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let page = "[a](../../ebpf/DATAPATH.md#rules) [b](../glossary.md#words) [c](https://a.b/) [d](../../suites)\n";
        let document = Document::new("docs/claims/x.md", page);
        let on_github = with_links_of_the_book(&document, Some("https://github.com/o/r/blob/abc"));
        assert_eq!(
            on_github,
            "[a](https://github.com/o/r/blob/abc/ebpf/DATAPATH.md#rules) [b](../glossary.md#words) [c](https://a.b/) \
             [d](https://github.com/o/r/blob/abc/suites)\n"
        );
        // target/docs/html/claims/x.html
        let here = with_links_of_the_book(&document, None);
        assert!(
            here.starts_with("[a](../../../../ebpf/DATAPATH.md#rules) [b](../glossary.md#words)"),
            "{here}"
        );
        let in_the_book =
            |name: &str| with_links_of_the_book(&Document::new(name, "[a](claims/README.md)\n"), None);
        assert_eq!(in_the_book("docs/x.md"), "[a](claims/index.md)\n");
        assert_eq!(in_the_book(links::SUMMARY), "[a](claims/README.md)\n");
    }
}
