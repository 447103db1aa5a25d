//! A test that no output of this program has the form of `Debug`, which is for programmers.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files of tests alone.
const OF_TESTS: [&str; 4] = ["tests", "tests.rs", "golden.rs", "debug_forms.rs"];

/// How the tests of a file begin.
const TESTS: [&str; 3] = [
    "#[cfg(test)]\nmod tests",
    "#[cfg(test)]\npub(super) mod tests",
    "#[cfg(test)]\npub(crate) mod tests",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if OF_TESTS.contains(&name.as_str()) || name == "workflows.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_output_has_the_form_of_debug() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    assert!(
        all.len() > 60,
        "{} files: this test no longer finds them",
        all.len()
    );
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        let code = TESTS
            .iter()
            .fold(text.as_str(), |code, tests| code.split(tests).next().unwrap());
        for (number, line) in code.lines().enumerate() {
            let is_debug = [":?}", ":#?}"].iter().any(|form| line.contains(form)) || line.contains(".1?}");
            // Names of capabilities, which reports have in lower case.
            let is_name = line.contains(":?}\").to_lowercase()");
            assert!(!is_debug || is_name, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}
