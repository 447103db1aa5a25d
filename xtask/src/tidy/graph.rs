//! The import graph of crates and modules, from the sources without tests.
//!
//! A room is a module directly below the root of a crate, with everything in it. Rooms that import each other, directly
//! or through others, are a circle: none can be understood without the others.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use serde_json::Value;
use syn::{
    Attribute, Item, ItemMod, ItemUse, UseTree,
    visit::{self, Visit},
};

/// The room of the crate's root. It declares all others, so its imports do not count.
const ROOT: &str = "(root)";

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Path below the workspace.
    pub(crate) folder: String,
    /// Crates of the workspace that it depends on outside of tests.
    pub(crate) needs: BTreeSet<String>,
    /// What its root says of it, by `//!`.
    pub(crate) introduction: String,
    pub(crate) rooms: BTreeMap<String, Room>,
}

/// A module below the root of a crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Lines without tests.
    pub(crate) lines: usize,
    pub(crate) lines_of_tests: usize,
    /// Rooms of the crate that it imports.
    pub(crate) imports: BTreeSet<String>,
}

impl Crate {
    /// Rooms with code that the crate's root does not name: a reader finds a room by what is said of it there.
    pub(crate) fn unnamed(&self) -> Vec<&str> {
        let named: BTreeSet<&str> = self
            .introduction
            .split(|sign: char| !sign.is_alphanumeric() && sign != '_')
            .collect();
        let of_code = self
            .rooms
            .iter()
            .filter(|(name, room)| *name != ROOT && room.lines > 0);
        let names = of_code.map(|(name, _)| name.as_str());
        names.filter(|name| !named.contains(name)).collect()
    }

    /// Rooms that import each other, sorted.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let mut graph = DiGraphMap::<&str, ()>::new();
        for (name, room) in &self.rooms {
            for import in &room.imports {
                graph.add_edge(name, import, ());
            }
        }
        let mut circles = tarjan_scc(&graph);
        circles.retain(|rooms| rooms.len() > 1);
        for rooms in &mut circles {
            rooms.sort_unstable();
        }
        circles.sort();
        circles
    }
}

/// Reads the crates of the workspace.
///
/// # Errors
/// Cargo can't list the crates, or a source file is not valid Rust.
pub(crate) fn crates(root: &Path) -> anyhow::Result<Vec<Crate>> {
    let mut metadata = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    metadata
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(root);
    let output = metadata.output().context("failed to start cargo metadata")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata wrote no JSON")?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let name = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let all: BTreeSet<String> = packages.iter().map(name).collect();
    let mut found = Vec::new();
    for package in &packages {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(root);
        let needs = package["dependencies"].as_array().into_iter().flatten();
        let needs = needs.filter(|one| one["kind"].is_null());
        let needs = needs.filter_map(|one| one["name"].as_str().map(str::to_owned));
        let sources = sources(&folder.join("src"))?;
        let roots = sources.iter().filter(|(module, _)| module.is_empty());
        let said = roots.flat_map(|(_, text)| text.lines().filter(|line| line.starts_with("//!")));
        found.push(Crate {
            introduction: said.collect::<Vec<_>>().join("\n"),
            name: name(package),
            folder: folder.strip_prefix(root).unwrap_or(folder).display().to_string(),
            needs: needs.filter(|one| all.contains(one)).collect(),
            rooms: rooms(&sources)?,
        });
    }
    found.sort_by(|one, other| one.folder.cmp(&other.folder));
    Ok(found)
}

/// A source file of a crate: the path of its module, and its text.
type Source = (Vec<String>, String);

fn sources(src: &Path) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for file in super::files(src)? {
        let within = file.strip_prefix(src).unwrap_or(&file);
        if file.extension().is_none_or(|end| end != "rs") || within.starts_with("bin") {
            continue;
        }
        let mut module: Vec<String> = within
            .with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        found.push((module, text));
    }
    Ok(found)
}

/// The rooms of a crate.
fn rooms(sources: &[Source]) -> anyhow::Result<BTreeMap<String, Room>> {
    let mut files = Vec::new();
    for (module, text) in sources {
        let parsed =
            syn::parse_file(text).with_context(|| format!("failed to parse module {}", module.join("::")))?;
        let mut imports = Imports {
            module: module.clone(),
            ..Imports::default()
        };
        imports.visit_file(&parsed);
        files.push((module, text, imports));
    }
    let tests: HashSet<Vec<String>> = files
        .iter()
        .flat_map(|(_, _, imports)| imports.tests.iter().cloned())
        .collect();
    let names: BTreeSet<String> = sources
        .iter()
        .filter_map(|(module, _)| module.first().cloned())
        .collect();
    // Names that the root re-exports from a room.
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for (_, _, imports) in files.iter().filter(|(module, _, _)| module.is_empty()) {
        for path in imports.paths.iter().chain(&imports.relative) {
            if let [room, .., name] = path.as_slice()
                && names.contains(room)
            {
                renamed.insert(name.clone(), room.clone());
            }
        }
    }
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for (module, text, imports) in &files {
        let own = module.first().map_or(ROOT, String::as_str);
        let room = rooms.entry(own.to_owned()).or_default();
        let all = text.lines().count();
        let is_test = (0..=module.len()).any(|depth| tests.contains(&module[..depth]));
        let of_code = if is_test { 0 } else { before_tests(text) };
        room.lines += of_code;
        room.lines_of_tests += all - of_code;
        if is_test || own == ROOT {
            continue;
        }
        for path in &imports.paths {
            let first = path.first().map_or(ROOT, String::as_str);
            let imported = match names.get(first).or_else(|| renamed.get(first)) {
                Some(room) => room.as_str(),
                None => ROOT,
            };
            if imported != own {
                room.imports.insert(imported.to_owned());
            }
        }
    }
    Ok(rooms)
}

/// Lines before a file's module of tests, which is its last item.
fn before_tests(text: &str) -> usize {
    let is_test = |line: &&str| line.starts_with("#[cfg(test)]");
    let modules = text.lines().zip(text.lines().skip(1)).enumerate();
    let mut tests =
        modules.filter(|(_, (line, next))| is_test(line) && next.starts_with("mod ") && next.ends_with('{'));
    tests.next().map_or_else(|| text.lines().count(), |(at, _)| at)
}

/// The imports of a file from its crate.
#[derive(Debug, Default)]
struct Imports {
    /// The current module.
    module: Vec<String>,
    /// Paths from the root of the crate.
    paths: Vec<Vec<String>>,
    /// Paths that begin with a name in scope: a child module or another crate.
    relative: Vec<Vec<String>>,
    /// Modules for tests alone, in files of their own.
    tests: Vec<Vec<String>>,
}

impl Imports {
    fn add(&mut self, path: &[String]) {
        let Some(first) = path.first() else { return };
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.clone(),
            _ => {
                self.relative.push(path.to_vec());
                return;
            }
        };
        let mut rest = path;
        while let [first, then @ ..] = rest {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = then;
        }
        base.extend_from_slice(rest);
        self.paths.push(base);
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
            UseTree::Name(name) => self.add_leaf(&name.ident.to_string(), before),
            UseTree::Rename(name) => self.add_leaf(&name.ident.to_string(), before),
            UseTree::Glob(_) => self.add(before),
        }
    }

    fn add_leaf(&mut self, name: &str, before: &mut Vec<String>) {
        let depth = before.len();
        if name != "self" || before.is_empty() {
            before.push(name.to_owned());
        }
        self.add(before);
        before.truncate(depth);
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Const(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if attributes.iter().any(is_for_tests) {
            if let Item::Mod(ItemMod {
                ident, content: None, ..
            }) = item
            {
                self.tests
                    .push([self.module.as_slice(), &[ident.to_string()]].concat());
            }
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if segments.len() > 1 && matches!(segments[0].as_str(), "crate" | "super") {
            self.add(&segments);
        }
        visit::visit_path(self, path);
    }
}

/// `#[cfg(test)]`, alone or in `any`, and the feature for code that only other crates' tests need.
fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .meta
            .require_list()
            .is_ok_and(|list| list.tokens.to_string().contains("test"))
}

/// Prints crates and their rooms, with lines, imports, and circles.
pub(crate) fn print(crates: &[Crate]) {
    for one in crates {
        let lines: usize = one.rooms.values().map(|room| room.lines).sum();
        let of_tests: usize = one.rooms.values().map(|room| room.lines_of_tests).sum();
        println!(
            "{} ({}): {lines} lines and {of_tests} of tests{}",
            one.name,
            one.folder,
            list(" -> ", &one.needs)
        );
        for (name, room) in &one.rooms {
            println!(
                "    {name}: {} + {}{}",
                room.lines,
                room.lines_of_tests,
                list(" -> ", &room.imports)
            );
        }
        for circle in one.circles() {
            println!("  circle: {}", circle.join(", "));
        }
    }
    let rooms: usize = crates.iter().map(|one| one.rooms.len()).sum();
    let circles: usize = crates.iter().map(|one| one.circles().len()).sum();
    let within: usize = crates
        .iter()
        .flat_map(Crate::circles)
        .map(|circle| circle.len())
        .sum();
    println!(
        "{} crates, {rooms} rooms, {circles} circles of {within} rooms",
        crates.len()
    );
}

fn list(before: &str, names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("{before}{}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Crate {
        let sources: Vec<Source> = files
            .iter()
            .map(|(module, text)| {
                let module = module.split("::").filter(|part| !part.is_empty());
                (module.map(str::to_owned).collect(), (*text).to_owned())
            })
            .collect();
        Crate {
            introduction: String::new(),
            name: "c".to_owned(),
            folder: "c".to_owned(),
            needs: BTreeSet::new(),
            rooms: rooms(&sources).unwrap(),
        }
    }

    fn imports(one: &Crate, room: &str) -> Vec<String> {
        one.rooms[room].imports.iter().cloned().collect()
    }

    #[test]
    fn imports_are_found_however_they_are_written() {
        let one = of(&[
            ("", "mod a; mod b; mod d; mod e; pub use self::d::Named;"),
            (
                "a",
                "use crate::{b::{X, Y as Z}, Named}; fn f() { super::e::f(); self::x::y(); std::mem::take(z) }",
            ),
            ("a::x", "use super::super::b; use super::w;"),
            ("b", "use std::fmt; use crate::Unknown;"),
            ("d", "pub struct Named;"),
            ("e", "pub fn f() {}"),
        ]);
        assert_eq!(imports(&one, "a"), ["b", "d", "e"]);
        assert_eq!(imports(&one, "b"), [ROOT]);
        assert!(one.circles().is_empty());
    }

    #[test]
    fn what_is_for_tests_is_no_import() {
        let one = of(&[
            ("", "mod a; mod b;"),
            (
                "a",
                "#[cfg(test)]\nuse crate::b;\n#[cfg(test)]\nmod more;\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}\n",
            ),
            ("a::more", "use crate::b::X;\n"),
            ("b", "use crate::a::Y;\n"),
        ]);
        assert_eq!(imports(&one, "a"), [""; 0]);
        assert_eq!((one.rooms["a"].lines, one.rooms["a"].lines_of_tests), (4, 5));
        assert!(one.circles().is_empty());
    }

    #[test]
    fn rooms_that_import_each_other_are_a_circle() {
        let one = of(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::X;"),
            ("b", "use crate::c::X;"),
            ("c", "use crate::a::X; use crate::d::X;"),
            ("d", ""),
        ]);
        assert_eq!(one.circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn modules_that_the_root_does_not_name_are_found() {
        let mut one = of(&[
            ("", "mod a; mod ab; mod c; #[cfg(test)] mod tests;"),
            ("a", "fn f() {}"),
            ("ab", "fn f() {}"),
            ("c", "fn f() {}"),
            ("tests", "fn f() {}"),
        ]);
        one.introduction = "//! - `a.rs`: all. [`c`]: no abc, no a_b.".to_owned();
        assert_eq!(one.unnamed(), ["ab"]);
    }
}
