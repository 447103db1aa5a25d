//! How cases stage their claims: what their sources say of themselves (`//!`), in their own sentences.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::catalogue::Catalogue;
use crate::{steps, tidy};

/// Folder of the cases.
const CASES: &str = "suites/cases/src";
/// Where claims are described that are judged over the cases of others.
const JOINT: &str = "suites/cases/src/claims/joint.rs";
/// A page has what one can read in a minute.
const LONGEST: usize = 1800;

/// The texts of all cases, and of the folders that they are in.
pub(super) struct Staging {
    /// By the id of a case or of a joint claim.
    of_cases: BTreeMap<String, Text>,
    /// By the letter of an area.
    of_areas: BTreeMap<String, Vec<Text>>,
}

/// What a source file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// The file, in the repository.
    pub(crate) file: String,
    /// Its paragraphs, each on a line.
    pub(crate) paragraphs: Vec<String>,
}

impl Staging {
    /// Reads the sources of all cases.
    ///
    /// # Errors
    /// A source can't be read, a case has none, or one that says nothing.
    pub(super) fn read(catalogue: &Catalogue) -> anyhow::Result<Self> {
        let root = steps::root();
        let mut sources = Vec::new();
        for path in tidy::files(&root.join(CASES))? {
            if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("failed to read {}", path.display()))?;
                sources.push((path.strip_prefix(&root).unwrap_or(&path).to_path_buf(), text));
            }
        }
        Self::of(&sources, catalogue)
    }

    /// The same of sources by their paths in the repository.
    pub(super) fn of(sources: &[(PathBuf, String)], catalogue: &Catalogue) -> anyhow::Result<Self> {
        let joint = catalogue
            .claims()
            .iter()
            .filter(|claim| claim.joint)
            .map(|claim| &claim.id);
        let joint: Vec<&String> = joint.collect();
        let mut of_cases = BTreeMap::new();
        for case in catalogue.cases() {
            let id = &case.id;
            let written = format!("id: \"{id}\",");
            // Cases that an area makes by a function of its own are in the file of their name.
            let file = format!("{}.rs", id.replace('-', "_"));
            let source = sources.iter().find(|(path, text)| match joint.contains(&id) {
                true => path == Path::new(JOINT),
                false => text.contains(&written) || path.ends_with(&file),
            });
            let Some((path, text)) = source else {
                bail!(
                    "expected a source of the case {id} below {CASES}, found neither `{written}` nor {file}"
                );
            };
            let text = Text::of(path, text);
            if text.paragraphs.is_empty() {
                bail!("{}: expected //! to say how the case {id} is staged", text.file);
            }
            of_cases.insert(id.clone(), text);
        }
        let mut of_areas: BTreeMap<String, Vec<Text>> = BTreeMap::new();
        for (path, text) in sources.iter().filter(|(path, _)| path.ends_with("mod.rs")) {
            let folder = path.strip_prefix(CASES).unwrap_or(path).iter().next();
            let folder = folder.and_then(|folder| folder.to_str()).unwrap_or_default();
            if let Some((letter, _)) = folder.split_once('_').filter(|(letter, _)| letter.len() == 1) {
                let texts = of_areas.entry(letter.to_uppercase()).or_default();
                texts.extend(Some(Text::of(path, text)).filter(|text| !text.paragraphs.is_empty()));
            }
        }
        for texts in of_areas.values_mut() {
            texts.sort_by_key(|text| (text.file.matches('/').count(), text.file.clone()));
        }
        Ok(Self { of_cases, of_areas })
    }

    /// What the source of a case says; [`Staging::read`] has found one for each.
    pub(super) fn of_case(&self, id: &str) -> Option<&Text> {
        self.of_cases.get(id)
    }

    /// What an area's cases have in common.
    pub(super) fn of_area(&self, letter: &str) -> &[Text] {
        self.of_areas.get(letter).map_or(&[], Vec::as_slice)
    }
}

impl Text {
    fn of(path: &Path, source: &str) -> Self {
        Self {
            file: path.to_string_lossy().into_owned(),
            paragraphs: paragraphs(source),
        }
    }
}

/// The `//!` of a source as paragraphs, without sentences about files, and cut at the end of a sentence if it is long.
fn paragraphs(source: &str) -> Vec<String> {
    let said = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim);
    let mut joined = vec![String::new()];
    for line in said {
        match joined.last_mut() {
            Some(last) if !line.is_empty() => {
                let space = if last.is_empty() { "" } else { " " };
                last.push_str(space);
                last.push_str(line);
            }
            _ => joined.push(String::new()),
        }
    }
    let mut length = 0;
    let mut kept = Vec::new();
    for paragraph in joined {
        // Links of rustdoc, to items of crates, lead nowhere in a page.
        let paragraph = paragraph.replace("[`", "`").replace("`]", "`");
        let sentences = sentences(&paragraph);
        let fitting = sentences
            .into_iter()
            .filter(|sentence| !names_a_file(sentence))
            .take_while(|sentence| {
                length += sentence.len() + 1;
                length <= LONGEST
            });
        let text = fitting.collect::<Vec<_>>().join(" ");
        kept.extend(Some(text).filter(|text| !text.is_empty()));
        if length > LONGEST {
            break;
        }
    }
    kept
}

/// Whether it has the name of a source or of a folder as code.
fn names_a_file(sentence: &str) -> bool {
    let mut code = sentence.split('`').skip(1).step_by(2);
    code.any(|code| code.ends_with(".rs") || code.ends_with('/'))
}

/// The sentences of a paragraph. A full stop ends one if a capital letter, a digit or code follows it.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, _) in paragraph.match_indices(". ") {
        let next = paragraph[at + 2..].chars().next();
        if next.is_some_and(|next| next.is_uppercase() || next == '`' || next == '(' || next.is_ascii_digit())
        {
            found.push(&paragraph[begin..=at]);
            begin = at + 2;
        }
    }
    found.push(&paragraph[begin..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_in_paragraphs_without_its_sentences_about_files() {
        let source = "//! `a`/`c`: one. Two, see `b.rs`. Three\n//! goes on.\n//!\n//! Four ([`x::y`]).\n\nuse x;\n//! no\n";
        assert_eq!(
            paragraphs(source),
            ["`a`/`c`: one. Three goes on.", "Four (`x::y`)."]
        );
        assert_eq!(paragraphs("use x;\n"), [""; 0]);
    }

    #[test]
    fn a_long_source_is_cut_at_the_end_of_a_sentence() {
        let source = format!("//! {}End.\n", "One more sentence. ".repeat(LONGEST / 10));
        let text = paragraphs(&source).concat();
        assert!(
            text.len() <= LONGEST && text.ends_with("One more sentence."),
            "{}",
            text.len()
        );
    }

    #[test]
    fn sentences_end_at_full_stops_that_a_new_one_follows() {
        let text = "Of 0.1 s, e.g. this. `b` follows. Last";
        assert_eq!(sentences(text), ["Of 0.1 s, e.g. this.", "`b` follows.", "Last"]);
    }
}
