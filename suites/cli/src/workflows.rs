//! Tests that this program can parse its command lines in the workflows of `.github`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::command_lines::parse;

/// Every workflow, the description of every action, and their scripts.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.github")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { &mut folders } else { &mut files }.push(path);
        }
    }
    files
}

/// The words after this program's name in a line, with values in place of variables.
fn words_of(line: &str) -> Option<Vec<String>> {
    let line = line.split(" >").next().unwrap();
    let words: Vec<&str> = line
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '\'']))
        .collect();
    // As root, `env` and `timeout` come first.
    let command = match words.first() {
        Some(&"sudo") => words.iter().position(|word| *word == "plumbline"),
        first => first.map(|_| 0),
    };
    let named =
        command.filter(|at| ["plumbline", "target/debug/plumbline", "$program"].contains(&words[*at]));
    let passed = |command: &str| words.windows(3).any(|three| three == ["cargo", "xtask", command]);
    let mut parsed = Vec::new();
    let rest = match named {
        Some(at) => &words[at + 1..],
        _ if passed("e2e") || passed("mutants") || passed("compare") => {
            parsed.push(if passed("compare") { "compare" } else { "run" }.to_owned());
            let at = words.iter().position(|word| *word == "--")?;
            &words[at + 1..]
        }
        _ => return None,
    };
    for word in rest {
        parsed.push(match *word {
            "$IMAGE" => "kindest/node:v1.36.1".to_owned(),
            "$OUT" | "$folder" => "target/plumbline".to_owned(),
            "$folder/report.yaml" => "target/plumbline/report.yaml".to_owned(),
            word if word.starts_with("$OUT/") => word.replace("$OUT", "target/plumbline"),
            "$SEED" => "19216811".to_owned(),
            "$TARGET" => "kube-proxy-nftables".to_owned(),
            "${arguments[@]}" => "--filter=release".to_owned(),
            "${FAMILY:+\"$FAMILY\"}" => "--dual".to_owned(),
            word => {
                assert!(!word.contains('$'), "{line}: what may {word} be?");
                word.to_owned()
            }
        });
    }
    Some(parsed)
}

#[test]
fn what_workflows_tell_this_program_is_understood() {
    let mut understood = 0;
    for file in files() {
        let text = fs::read_to_string(&file).unwrap().replace("\\\n", " ");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let line = line.trim_start_matches("- ").trim_start_matches("run: ");
            if let Some(words) = words_of(line) {
                if let Err(error) = parse(&words) {
                    panic!("{}: {words:?}: {error}", file.display());
                }
                understood += 1;
            }
        }
    }
    assert!(understood >= 11, "{understood}: this test no longer finds them");
}
