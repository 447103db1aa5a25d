//! `cargo xtask docs`: the documentation.
//!
//! ```text
//!  claims.yaml, cases, mutants ─▶ catalogue ─┐
//!  //! of the cases ─▶ staging ──────────────┼─▶ claims, results, targets ─▶ docs/claims, parts of documents ─▶ book
//!  suites/reports, suites/targets ───────────┘                                  └─▶ links, commands: checked
//! ```
//!
//! `document`: a Markdown file. `page`: a generated file. `parts`: what is generated in documents that people write.
pub(crate) mod commands;

mod book;
mod catalogue;
mod claims;
mod document;
mod links;
mod page;
mod parts;
mod results;
mod staging;
mod targets;

use std::{collections::BTreeSet, fs, path::Path, process::ExitCode};

use anyhow::Context as _;

use self::{
    catalogue::Catalogue,
    commands::Described,
    document::Document,
    page::{Page, table},
    results::Results,
    staging::Staging,
};
use crate::{e2e, steps, tidy};

/// Writes what is generated (pages of claims, tables between markers), checks links, anchors and commands of all
/// documents, runs blocks marked `run`, and builds the book.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 all is right; 1 something is not; 2 it could not run, or mdbook is missing."
)]
pub(crate) struct Arguments {
    /// Write nothing: files that differ from what is generated are errors
    #[arg(long)]
    check: bool,
    /// Build no book, for which mdbook is needed
    #[arg(long)]
    no_book: bool,
}

/// Packages of the programs that list claims and mutants.
const PACKAGES: [&str; 3] = ["plumbline", "reference-agent", "mutants"];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = steps::root();
    e2e::build(&PACKAGES)?;
    let programs = steps::programs()?;
    let catalogue = Catalogue::of_programs(&programs)?;
    let sources = Sources {
        staging: Staging::read(&catalogue)?,
        results: Results::read(&root)?,
        commands: commands::described(&programs)?,
        catalogue,
    };
    let generated = sources.pages(&root)?;
    let mut found = if arguments.check {
        differing(&root, &generated)?
    } else {
        write(&root, &generated)?;
        Vec::new()
    };
    let documents = Document::all(&root)?;
    found.extend(of(&root, &documents));
    found.extend(commands::of_plumbline(&documents, &programs)?);
    found.extend(commands::run_marked(
        &documents,
        &programs,
        &root.join("target/docs/run"),
    )?);
    for finding in &found {
        println!("{finding}");
    }
    if !arguments.no_book {
        let page = book::build(&root)?;
        eprintln!("      the book: {}", page.display());
    }
    eprintln!("  docs: {}", if found.is_empty() { "right" } else { "NOT right" });
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}

/// What is wrong with documents, as far as this program alone can tell: links, and commands of `cargo xtask`.
///
/// # Errors
/// A document can't be read.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(of(root, &Document::all(root)?))
}

fn of(root: &Path, documents: &[Document]) -> Vec<String> {
    let mut found = links::findings(root, documents);
    found.extend(commands::of_xtask(documents));
    found
}

/// What pages are made from.
struct Sources {
    catalogue: Catalogue,
    staging: Staging,
    results: Results,
    commands: Vec<Described>,
}

impl Sources {
    /// All generated pages, and all documents with generated parts.
    fn pages(&self, root: &Path) -> anyhow::Result<Vec<Page>> {
        let mut pages = claims::pages(&self.catalogue, &self.staging);
        pages.push(self.results.page(&self.catalogue));
        let generated: BTreeSet<String> = pages.iter().map(|page| page.path.clone()).collect();
        for document in Document::all(root)? {
            if !generated.contains(document.name()) {
                let name = document.name();
                let text = parts::filled(name, document.text(), |part| self.part(root, name, part))?;
                if text != document.text() {
                    pages.push(Page {
                        path: name.to_owned(),
                        text,
                    });
                }
            }
        }
        Ok(pages)
    }

    /// A part of a document.
    fn part(&self, root: &Path, document: &str, name: &str) -> Option<anyhow::Result<String>> {
        match name {
            "coverage" => Some(Ok(claims::coverage(&self.catalogue, document))),
            "results" => Some(Ok(self.results.matrix(&self.catalogue, document))),
            "targets" => Some(targets::list(root, document)),
            "commands" => Some(Ok(self.command_table())),
            "claims" => Some(Ok(claims::contents(&self.catalogue, document))),
            _ => None,
        }
    }

    fn command_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .commands
            .iter()
            .map(|command| {
                vec![
                    format!("`plumbline {}`", command.name()),
                    command.about().to_owned(),
                ]
            })
            .collect();
        table(&["Command", "What it does"], &rows)
    }
}

fn write(root: &Path, pages: &[Page]) -> anyhow::Result<()> {
    fs::create_dir_all(root.join(claims::FOLDER))
        .with_context(|| format!("failed to make {}", claims::FOLDER))?;
    for page in pages {
        if fs::read_to_string(root.join(&page.path)).is_ok_and(|text| text == page.text) {
            continue;
        }
        fs::write(root.join(&page.path), &page.text)
            .with_context(|| format!("failed to write {}", page.path))?;
    }
    for path in no_longer_generated(root, pages)? {
        fs::remove_file(root.join(&path)).with_context(|| format!("failed to remove {path}"))?;
    }
    Ok(())
}

/// Files that differ from what would be written.
fn differing(root: &Path, pages: &[Page]) -> anyhow::Result<Vec<String>> {
    let is_written =
        |page: &Page| fs::read_to_string(root.join(&page.path)).is_ok_and(|text| text == page.text);
    let mut found: Vec<String> = pages
        .iter()
        .filter(|page| !is_written(page))
        .map(|page| {
            format!(
                "{} is not what it is made from: run `cargo xtask docs`",
                page.path
            )
        })
        .collect();
    let old = no_longer_generated(root, pages)?;
    found.extend(
        old.iter()
            .map(|path| format!("{path} is made from nothing: run `cargo xtask docs`, which removes it")),
    );
    Ok(found)
}

/// Pages of claims that there are no longer.
fn no_longer_generated(root: &Path, pages: &[Page]) -> anyhow::Result<Vec<String>> {
    let folder = root.join(claims::FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let files = tidy::files(&folder)?.into_iter();
    let names = files.map(|path| {
        path.strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned()
    });
    Ok(names
        .filter(|name| !pages.iter().any(|page| page.path == *name))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two areas; the claims `first` and `fourth` have a case, and `all` is judged over them.
    pub(super) fn catalogue() -> Catalogue {
        let claim = |id: &str, area: &str, cases: &[&str], joint: bool| {
            let why = (!cases.is_empty()).then_some("It matters, as `first` does.");
            let causes: &[&str] = if cases.is_empty() { &[] } else { &["A wrong key."] };
            json!({
                "id": id, "area": area, "about": "one thing", "text": "a client is served by `b`",
                "binds": { "tier": "extended", "features": ["loadbalancer"],
                           "parts": [{ "of": "node port", "tier": "core", "features": [] }] },
                "least": { "nodes": 2, "families": "any", "rights": "node", "outside": true },
                "why": why, "causes": causes, "joint": joint, "cases": cases,
                "incidents": [1], "outages": ["https://github.com/cilium/cilium/issues/43619"],
            })
        };
        let claims = json!([
            claim("first", "A one", &["first", "second"], false),
            claim("undecided", "A one", &[], false),
            claim("third", "B two", &["third"], false),
            claim("fourth", "B two", &["first", "third"], true),
        ]);
        let case = |id: &str, also: &[&str]| json!({ "id": id, "sentence": format!("sentence of {id}"), "also": also });
        let cases = json!([
            case("first", &["raw sockets"]),
            case("second", &[]),
            case("third", &[]),
            case("fourth", &[])
        ]);
        let mutants = json!([
            { "name": "wrong-key", "bug": "a key is a prefix", "caught_by": ["second", "third"] },
            { "name": "twice", "bug": "it starts twice", "caught_by": ["fourth"] },
        ]);
        Catalogue::new(
            serde_json::from_value(claims).unwrap(),
            serde_json::from_value(cases).unwrap(),
            serde_json::from_value(mutants).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn the_documents_of_the_repository_have_no_dead_link_and_no_unknown_command() {
        let found = findings(&steps::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn what_differs_from_what_it_is_made_from_is_named_with_the_command() {
        let root = tempfile::tempdir().unwrap();
        let page = |name: &str, text: &str| Page {
            path: format!("{}/{name}", claims::FOLDER),
            text: text.to_owned(),
        };
        let pages = [page("a.md", "new"), page("b.md", "same")];
        write(
            root.path(),
            &[page("a.md", "old"), page("b.md", "same"), page("c.md", "gone")],
        )
        .unwrap();
        let found = differing(root.path(), &pages).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("docs/claims/a.md") && found[0].contains("cargo xtask docs"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("docs/claims/c.md is made from nothing"),
            "{found:?}"
        );
        write(root.path(), &pages).unwrap();
        assert_eq!(differing(root.path(), &pages).unwrap(), [""; 0]);
        assert!(!root.path().join("docs/claims/c.md").exists());
    }

    #[test]
    fn a_case_that_there_is_not_is_an_error() {
        let claims = catalogue().claims().to_vec();
        let error = Catalogue::new(claims, Vec::new(), Vec::new())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("expected first to be a case"), "{error}");
    }
}
