//! A Markdown document: its anchors, links and code blocks, each with its line.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use pulldown_cmark::{BrokenLink, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

/// Folders without documents of this repository.
const NOT_OURS: [&str; 2] = ["target", ".git"];

/// A document of the repository.
pub(super) struct Document {
    name: String,
    text: String,
}

/// A link or an image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    line: usize,
    destination: String,
    /// Where it stands in the text.
    range: Range<usize>,
}

/// A code block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Line of its first line of code.
    line: usize,
    /// What follows the fence: a language, and words of this project. Empty for a block that is indented.
    info: String,
    code: String,
}

impl Document {
    /// A document by its path in the repository.
    pub(super) fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
        }
    }

    /// All documents of the repository, by their paths.
    ///
    /// # Errors
    /// A folder or a document can't be read.
    pub(super) fn all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let mut found = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
            for entry in entries {
                let path = entry?.path();
                let is_ours = |path: &PathBuf| !NOT_OURS.iter().any(|name| path.ends_with(name));
                if path.is_dir() {
                    folders.extend(Some(path).filter(is_ours));
                } else if path.extension().is_some_and(|end| end == "md") {
                    found.push(Self::read(root, &path)?);
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn read(root: &Path, path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
        Ok(Self::new(name, text))
    }

    /// Its path in the repository.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its Markdown.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Fragments that lead to a heading, as GitHub and mdBook name them, or to an element of HTML with an id.
    pub(super) fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        let mut heading: Option<String> = None;
        for (event, _) in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let slug = slug(&heading.take().unwrap_or_default());
                    let earlier = times.entry(slug.clone()).or_default();
                    anchors.insert(match *earlier {
                        0 => slug,
                        number => format!("{slug}-{number}"),
                    });
                    *earlier += 1;
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    anchors.extend(attributes(&html, &["id", "name"]));
                }
                _ => {}
            }
        }
        anchors
    }

    /// Links and images, of Markdown and of HTML.
    pub(super) fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        let mut add = |destination: String, range: &Range<usize>| {
            links.push(Link {
                line: self.line(range.start),
                destination,
                range: range.clone(),
            });
        };
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    add(dest_url.into_string(), &range);
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    for destination in attributes(&html, &["href", "src", "srcset"]) {
                        add(destination, &range);
                    }
                }
                _ => {}
            }
        }
        links
    }

    /// References (`[text][reference]`) that the document does not define, with their lines.
    pub(super) fn undefined_references(&self) -> Vec<(usize, String)> {
        let found = RefCell::new(Vec::new());
        let undefined = |link: BrokenLink<'_>| {
            if link.link_type == LinkType::Reference {
                let line = self.line(link.span.start);
                found.borrow_mut().push((line, link.reference.into_string()));
            }
            None::<(CowStr<'_>, CowStr<'_>)>
        };
        Parser::new_with_broken_link_callback(&self.text, options(), Some(undefined)).for_each(drop);
        found.into_inner()
    }

    /// Code blocks.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_open = false;
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let (info, fence) = match kind {
                        CodeBlockKind::Fenced(info) => (info.into_string(), 1),
                        CodeBlockKind::Indented => (String::new(), 0),
                    };
                    is_open = true;
                    blocks.push(Block {
                        line: self.line(range.start) + fence,
                        info,
                        code: String::new(),
                    });
                }
                Event::Text(text) if is_open => {
                    if let Some(block) = blocks.last_mut() {
                        block.code.push_str(&text);
                    }
                }
                Event::End(TagEnd::CodeBlock) => is_open = false,
                _ => {}
            }
        }
        blocks
    }

    fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        Parser::new_ext(&self.text, options()).into_offset_iter()
    }

    fn line(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }
}

impl Link {
    /// Its line in the document.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// As it is written.
    pub(super) fn destination(&self) -> &str {
        &self.destination
    }

    /// Where it stands in the text, with its own text.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Block {
    /// Line of its first line of code.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The first word after its fence; empty for a block that is indented.
    pub(super) fn language(&self) -> &str {
        self.info.split([' ', ',']).next().unwrap_or_default()
    }

    /// Whether a word follows the language.
    pub(super) fn is_marked(&self, word: &str) -> bool {
        self.info.split([' ', ',']).skip(1).any(|marked| marked == word)
    }

    /// Its text.
    pub(super) fn code(&self) -> &str {
        &self.code
    }
}

/// What GitHub and mdBook both have.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
}

/// The fragment of a heading: lowercase, letters and digits alone, hyphens for spaces.
fn slug(heading: &str) -> String {
    let lowercase = heading.trim().to_lowercase();
    let kept = lowercase
        .chars()
        .filter(|letter| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// The values of attributes in some HTML.
fn attributes(html: &str, names: &[&str]) -> Vec<String> {
    let mut values = Vec::new();
    for name in names {
        let begin = format!(" {name}=\"");
        for rest in html.split(&begin).skip(1) {
            values.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        let document = Document::new(
            "a.md",
            "# Two words\n## `plumbline run` & more, café\n## Two words\n<a id=\"own\"></a>\n",
        );
        let expected = ["own", "plumbline-run--more-café", "two-words", "two-words-1"];
        assert_eq!(document.anchors().into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_and_images_are_found_and_code_is_not() {
        let document = Document::new(
            "a.md",
            "[a](b.md)\n![c](d.svg) `[no](no.md)`\n\n    [no](no.md)\n\n<img alt=\"\" src=\"e.png\">\n\n[f][g]\n\n[g]: j.md\n",
        );
        let links = document.links();
        let found: Vec<_> = links
            .iter()
            .map(|link| (link.line(), link.destination()))
            .collect();
        assert_eq!(found, [(1, "b.md"), (2, "d.svg"), (6, "e.png"), (8, "j.md")]);
        assert!(document.undefined_references().is_empty());
    }

    #[test]
    fn references_without_a_definition_are_found_and_brackets_are_not() {
        let document = Document::new("a.md", "[f][g] and [x]\n[h][i]\n\n[g]: j.md\n");
        assert_eq!(document.undefined_references(), [(2, "i".to_owned())]);
    }

    #[test]
    fn blocks_have_their_language_their_marks_and_their_line() {
        let document = Document::new("a.md", "x\n\n    one\n    two\n\n```sh run\nthree\n```\n");
        let blocks = document.blocks();
        assert_eq!(
            (blocks[0].line(), blocks[0].language(), blocks[0].code()),
            (3, "", "one\ntwo\n")
        );
        assert_eq!(
            (blocks[1].line(), blocks[1].language(), blocks[1].code()),
            (7, "sh", "three\n")
        );
        assert!(blocks[1].is_marked("run") && !blocks[0].is_marked("run"));
    }
}
