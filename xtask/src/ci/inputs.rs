//! The files that each part reads, and a digest of them.
//!
//! A package is read with all that it is built from; what packages read outside their folders is in [`OUTSIDE`], and what
//! their tests do in [`OUTSIDE_OF_TESTS`].

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::{
    packages::Packages,
    parts::{CHECKED_ALWAYS, COMMON, COMPILED_DOCUMENTS, Inputs, OUTSIDE, OUTSIDE_OF_TESTS, Part},
    tree::Files,
};

/// A selection of files.
#[derive(Default)]
struct Set {
    /// Selected folders and files.
    within: BTreeSet<String>,
    /// Excluded folders, which only tests of packages use.
    without: BTreeSet<String>,
}

impl Set {
    fn has(&self, path: &str) -> bool {
        let below = |folders: &BTreeSet<String>| {
            folders.iter().any(|folder| {
                path.strip_prefix(folder.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        if path.ends_with(".md") && !COMPILED_DOCUMENTS.contains(&path) {
            return false;
        }
        below(&self.within) && !below(&self.without)
    }
}

/// Folders of a package that its library and programs do not use.
const OF_TESTS: [&str; 3] = ["tests", "examples", "benches"];

fn set(inputs: &Inputs, packages: &Packages) -> anyhow::Result<Set> {
    let mut set = Set::default();
    let add = |set: &mut Set, paths: &[&str]| set.within.extend(paths.iter().map(|path| (*path).to_owned()));
    if let Inputs::Of {
        packages: names,
        tests,
        paths,
    } = inputs
    {
        add(&mut set, paths);
        for (name, folder) in packages.with_dependencies(names, *tests)? {
            set.within.insert(folder.to_owned());
            if !(*tests && names.contains(&name)) {
                set.without
                    .extend(OF_TESTS.iter().map(|below| format!("{folder}/{below}")));
            }
            for (_, paths) in OUTSIDE.iter().filter(|(of, _)| *of == name) {
                add(&mut set, paths);
            }
        }
        // Last, as they are folders of tests of packages that these depend on.
        let of_tests = OUTSIDE_OF_TESTS
            .iter()
            .filter(|(of, _)| *tests && names.contains(of));
        for (_, paths) in of_tests {
            add(&mut set, paths);
            set.without.retain(|folder| !paths.contains(&folder.as_str()));
        }
    }
    Ok(set)
}

/// Known readers of files: they show whether a file has none.
pub(crate) struct Known {
    packages: Packages,
    anywhere: Set,
    common: Set,
}

impl Known {
    /// Readers of the workspace's files, from packages and these parts.
    ///
    /// # Errors
    /// Cargo can't read a manifest, or a part names an unknown package.
    pub(crate) fn new<'a>(
        packages: Packages,
        parts: impl Iterator<Item = &'a Inputs>,
    ) -> anyhow::Result<Self> {
        let mut anywhere = Set::default();
        for inputs in parts {
            anywhere.within.extend(set(inputs, &packages)?.within);
        }
        anywhere
            .within
            .extend(packages.folders().map(|(_, folder)| folder.to_owned()));
        anywhere.within.extend(CHECKED_ALWAYS.map(str::to_owned));
        let common = Set {
            within: COMMON.map(str::to_owned).into(),
            without: BTreeSet::new(),
        };
        Ok(Self {
            packages,
            anywhere,
            common,
        })
    }

    /// The files that a part reads. Files without a known reader are read by every part.
    ///
    /// # Errors
    /// The part names an unknown package.
    pub(crate) fn read_by(&self, inputs: &Inputs, files: &Files) -> anyhow::Result<Files> {
        let own = set(inputs, &self.packages)?;
        let is_read = |path: &str| own.has(path) || self.common.has(path) || self.is_unknown(path);
        Ok(files
            .iter()
            .filter(|(path, _)| is_read(path))
            .map(|(path, entry)| (path.clone(), entry.clone()))
            .collect())
    }

    /// What decides whether a part runs: the files that it reads. Of one that every night runs, only its own: those of its
    /// packages and paths.
    ///
    /// # Errors
    /// The part names an unknown package.
    pub(crate) fn deciding(&self, part: &Part, files: &Files) -> anyhow::Result<Files> {
        if !part.nightly {
            return self.read_by(&part.inputs, files);
        }
        let own = set(&part.inputs, &self.packages)?;
        let files = files.iter().filter(|(path, _)| own.has(path));
        Ok(files.map(|(path, entry)| (path.clone(), entry.clone())).collect())
    }

    fn is_unknown(&self, path: &str) -> bool {
        !path.ends_with(".md") && !self.anywhere.has(path) && !self.common.has(path)
    }

    /// Explains why a part reads a file, if that is not obvious.
    pub(crate) fn remark(&self, path: &str) -> &'static str {
        if self.is_unknown(path) {
            " (a file that no part knows)"
        } else if self.common.has(path) {
            " (which everything depends on)"
        } else {
            ""
        }
    }
}

/// A digest of all these files.
pub(crate) fn digest(files: &Files) -> String {
    let mut hash = Sha256::new();
    for (path, entry) in files {
        hash.update(path);
        hash.update([0]);
        hash.update(entry);
        hash.update([0]);
    }
    hash.finalize()
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect()
}

/// Paths with different contents, or that only one side has.
pub(crate) fn differences<'a>(one: &'a Files, other: &'a Files) -> BTreeSet<&'a str> {
    let only = |one: &'a Files, other: &'a Files| {
        let differ = one
            .iter()
            .filter(|(path, entry)| other.get(*path) != Some(*entry));
        differ.map(|(path, _)| path.as_str())
    };
    only(one, other).chain(only(other, one)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{ci::table, steps, tidy};

    /// All files of the repository, without build output and git's own.
    fn files() -> BTreeSet<String> {
        let root = steps::root();
        let mut all = BTreeSet::new();
        for entry in fs::read_dir(&root).unwrap() {
            let path = entry.unwrap().path();
            let found = match path.is_dir() {
                true if path.ends_with(".git") || path.ends_with("target") => vec![],
                true => tidy::files(&path).unwrap(),
                false => vec![path],
            };
            all.extend(
                found
                    .iter()
                    .map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()),
            );
        }
        // In a work tree, `.git` is a file.
        all.remove(".git");
        all
    }

    fn known() -> Known {
        let parts = table::parts();
        Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap()
    }

    /// A new file at the root, or in a folder that is no package, makes everything run until a part or list names it.
    #[test]
    fn every_file_of_the_repository_is_known() {
        let known = known();
        let unknown: Vec<String> = files()
            .into_iter()
            .filter(|path| known.is_unknown(path))
            .collect();
        assert!(
            unknown.is_empty(),
            "no part's inputs, and not in CHECKED_ALWAYS: {unknown:?}"
        );
    }

    /// Files that a source file includes at compile time, as paths from the root of the repository.
    fn compiled_with(path: &str, text: &str) -> Vec<String> {
        const MACROS: [&str; 4] = ["include_str!(", "include_bytes!(", "include!(", "#[path = "];
        let mut found = Vec::new();
        for call in MACROS {
            for (_, rest) in text
                .match_indices(call)
                .map(|(at, _)| text.split_at(at + call.len()))
            {
                let Some(name) = rest
                    .trim_start()
                    .strip_prefix('"')
                    .and_then(|name| name.split('"').next())
                else {
                    continue;
                };
                let mut parts: Vec<&str> = path.split('/').collect();
                parts.pop();
                for part in name.split('/') {
                    match part {
                        ".." => drop(parts.pop()),
                        "." => {}
                        part => parts.push(part),
                    }
                }
                found.push(parts.join("/"));
            }
        }
        found
    }

    #[test]
    fn what_sources_are_compiled_with_is_an_input() {
        let root = steps::root();
        let packages = Packages::find().unwrap();
        let files = files();
        let mut missing = Vec::new();
        for (name, folder) in packages.folders() {
            // Every part reads xtask.
            if folder.starts_with("xtask") {
                continue;
            }
            let names: &'static [&'static str] = vec![&*name.to_owned().leak()].leak();
            let of = |tests| {
                set(
                    &Inputs::Of {
                        packages: names,
                        tests,
                        paths: &[],
                    },
                    &packages,
                )
                .unwrap()
            };
            let (with_tests, without) = (of(true), of(false));
            let sources = files.iter().filter(|path| {
                path.strip_prefix(folder)
                    .is_some_and(|rest| rest.starts_with('/'))
                    && path.ends_with(".rs")
            });
            for path in sources {
                let reads = if without.has(path) { &without } else { &with_tests };
                let text = fs::read_to_string(root.join(path)).unwrap();
                missing.extend(compiled_with(path, &text).into_iter().filter(|file| {
                    // `#[path]` may name files below the source file's own folder: these belong to the package anyway.
                    files.contains(file) && !reads.has(file)
                }));
            }
        }
        assert!(
            missing.is_empty(),
            "in no inputs; see OUTSIDE, OUTSIDE_OF_TESTS and COMPILED_DOCUMENTS: {missing:?}"
        );
    }

    #[test]
    fn paths_that_sources_are_compiled_with_are_found() {
        let text = "const A: &str = include_str!(\"../b/c.yaml\");\n#[path = \"x.rs\"]\ninclude_bytes!(\n    \"./d\"\n)";
        assert_eq!(
            compiled_with("p/src/a.rs", text),
            ["p/b/c.yaml", "p/src/d", "p/src/x.rs"]
        );
    }

    #[test]
    fn a_digest_is_that_of_paths_and_contents() {
        let files = |all: &[(&str, &str)]| -> Files {
            all.iter()
                .map(|(path, entry)| ((*path).to_owned(), (*entry).to_owned()))
                .collect()
        };
        let one = files(&[("a", "1"), ("b", "2")]);
        assert_eq!(digest(&one), digest(&one.clone()));
        for other in [
            files(&[("a", "1")]),
            files(&[("a", "1"), ("c", "2")]),
            files(&[("a", "1"), ("b", "3")]),
        ] {
            assert_ne!(digest(&one), digest(&other));
            assert!(!differences(&one, &other).is_empty());
        }
        assert_eq!(
            Vec::from_iter(differences(&one, &files(&[("b", "3"), ("d", "4")]))),
            ["a", "b", "d"]
        );
    }
}
