//! Commands in code blocks of documents: lines of `plumbline` and of `cargo xtask` are parsed as these programs do, and
//! blocks marked `run` are run.
//!
//! Read are blocks of a shell, blocks without a language, and `run:` of YAML. In a block marked `run` (` ```sh run `)
//! everything must succeed, without root and without a cluster; the blocks of a document share a folder.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use serde::Deserialize;

use super::document::{Block, Document};

/// Languages of blocks with commands; empty: a block that is indented, or has none.
const SHELLS: [&str; 5] = ["", "sh", "bash", "shell", "console"];

/// How long the blocks of a document may run.
const SECONDS: &str = "300";

/// A line for one of the two programs.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// `docs/lab.md:12`.
    at: String,
    program: Program,
    /// The words after the program's name.
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Plumbline,
    Xtask,
}

/// What `plumbline command-lines` prints.
#[derive(Deserialize)]
struct Answer {
    commands: Vec<Described>,
    refused: Vec<Option<String>>,
}

/// A command of `plumbline` in a line.
#[derive(Deserialize)]
pub(super) struct Described {
    name: String,
    about: Option<String>,
}

impl Described {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    pub(super) fn about(&self) -> &str {
        self.about.as_deref().unwrap_or_default()
    }
}

/// Lines of `cargo xtask` that it does not understand.
pub(super) fn of_xtask(documents: &[Document]) -> Vec<String> {
    lines(documents)
        .into_iter()
        .filter(|line| line.program == Program::Xtask)
        .filter_map(|line| {
            let why = understood(&line.words).err()?;
            Some(finding(&line, &why))
        })
        .collect()
}

/// Lines of `plumbline` that the built one does not understand.
///
/// # Errors
/// It can't be started, or answers something else.
pub(super) fn of_plumbline(documents: &[Document], programs: &Path) -> anyhow::Result<Vec<String>> {
    let mut lines = lines(documents);
    lines.retain(|line| line.program == Program::Plumbline);
    let words: Vec<&[String]> = lines.iter().map(|line| line.words.as_slice()).collect();
    let answer = ask(programs, &serde_json::to_vec(&words)?)?;
    if answer.refused.len() != lines.len() {
        bail!(
            "expected an answer of plumbline for each of {} lines, found {}",
            lines.len(),
            answer.refused.len()
        );
    }
    let refused = lines.iter().zip(&answer.refused);
    Ok(refused
        .filter_map(|(line, why)| Some(finding(line, why.as_ref()?)))
        .collect())
}

/// The commands of the built `plumbline`.
///
/// # Errors
/// As of [`of_plumbline`].
pub(super) fn described(programs: &Path) -> anyhow::Result<Vec<Described>> {
    Ok(ask(programs, b"[]")?.commands)
}

/// Parses the words after `cargo xtask`.
///
/// # Errors
/// What clap prints about them. `--help` is none.
pub(crate) fn understood(words: &[String]) -> Result<(), String> {
    let line = ["cargo xtask"]
        .into_iter()
        .chain(words.iter().map(String::as_str));
    match crate::Arguments::try_parse_from(line) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Runs the blocks marked `run`, with the built programs first on the `PATH`; returns those that failed.
///
/// # Errors
/// A folder can't be made, or `bash` can't be started.
pub(super) fn run_marked(
    documents: &[Document],
    programs: &Path,
    folder: &Path,
) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for document in documents {
        let Some(script) = script(document) else {
            continue;
        };
        let own = folder.join(document.name().replace('/', "-"));
        if own.exists() {
            fs::remove_dir_all(&own).with_context(|| format!("failed to empty {}", own.display()))?;
        }
        fs::create_dir_all(&own).with_context(|| format!("failed to make {}", own.display()))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("timeout");
        bash.args([SECONDS, "bash", "-euo", "pipefail", "-c", &script])
            .current_dir(&own)
            .env("PATH", format!("{}:{path}", programs.display()))
            .stdin(Stdio::null());
        let output = bash.output().context("failed to start timeout and bash")?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            found.push(format!(
                "{}: its blocks marked `run` end with {}; they printed\n{}",
                document.name(),
                output.status,
                printed.trim_end()
            ));
        }
    }
    Ok(found)
}

/// The blocks of a document that are marked `run`, one after the other.
fn script(document: &Document) -> Option<String> {
    let blocks = document.blocks();
    let marked: Vec<&str> = blocks
        .iter()
        .filter(|block| block.is_marked("run"))
        .map(Block::code)
        .collect();
    (!marked.is_empty()).then(|| marked.join("\n"))
}

fn ask(programs: &Path, lines: &[u8]) -> anyhow::Result<Answer> {
    let mut command = Command::new(programs.join("plumbline"));
    command
        .arg("command-lines")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("failed to start plumbline")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines).context("failed to write to plumbline")?;
    }
    let output = child
        .wait_with_output()
        .context("failed to read from plumbline")?;
    serde_json::from_slice(&output.stdout).context("expected JSON from plumbline command-lines")
}

fn finding(line: &Line, why: &str) -> String {
    let program = match line.program {
        Program::Plumbline => "plumbline",
        Program::Xtask => "cargo xtask",
    };
    // What follows is usage.
    let why = why.split("\n\n").next().unwrap_or_default().trim();
    format!("{}: `{program} {}`: {why}", line.at, line.words.join(" "))
}

fn lines(documents: &[Document]) -> Vec<Line> {
    let mut found = Vec::new();
    for document in documents {
        for block in document.blocks() {
            for (number, text) in shell_lines(&block) {
                let at = format!("{}:{}", document.name(), block.line() + number);
                for (program, words) in commands(&text) {
                    found.push(Line {
                        at: at.clone(),
                        program,
                        words,
                    });
                }
            }
        }
    }
    found
}

/// The lines of a block that a shell would get, with their numbers; a line that ends with `\` goes on in the next.
fn shell_lines(block: &Block) -> Vec<(usize, String)> {
    let is_yaml = ["yaml", "yml"].contains(&block.language());
    if !is_yaml && !SHELLS.contains(&block.language()) {
        return Vec::new();
    }
    let mut lines: BTreeMap<usize, String> = BTreeMap::new();
    let mut begun = None;
    for (number, line) in block.code().lines().enumerate() {
        let line = line.trim();
        let line = match line.trim_start_matches("- ").strip_prefix("run: ") {
            Some(step) => step,
            None if is_yaml => continue,
            None => line.strip_prefix("$ ").unwrap_or(line),
        };
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let at = *begun.get_or_insert(number);
        lines.entry(at).or_default().push_str(line);
        if !goes_on {
            begun = None;
        }
    }
    lines.into_iter().collect()
}

/// The commands of a line that are for one of the two programs. Pipes and lists are taken apart, redirections and
/// comments left out.
fn commands(line: &str) -> Vec<(Program, Vec<String>)> {
    // A line that is no shell's (an apostrophe in output that is shown) has no command either.
    let words = shlex::split(line).unwrap_or_default();
    let mut found = Vec::new();
    for command in words.split(|word| ["|", "||", "&&", ";", "&", "do", "then"].contains(&word.as_str())) {
        let end = command
            .iter()
            .position(|word| is_redirection(word))
            .unwrap_or(command.len());
        let words: Vec<String> = command[..end]
            .iter()
            .map(|word| word.trim_end_matches(';').to_owned())
            .collect();
        found.extend(of_a_command(&words));
    }
    found
}

/// `2>&1`, `> FILE`; but `<FILE>` is a placeholder.
fn is_redirection(word: &str) -> bool {
    let word = word.trim_start_matches(|digit: char| digit.is_ascii_digit());
    word.starts_with('>') || (word.starts_with('<') && !word.ends_with('>'))
}

/// What a command is for the two programs. `cargo xtask e2e -- ARGUMENTS` is for both.
fn of_a_command(words: &[String]) -> Vec<(Program, Vec<String>)> {
    let is_before = |word: &String| {
        ["sudo", "env", "time", "exec", "!"].contains(&word.as_str())
            || word.starts_with('-')
            || word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            })
    };
    let begin = words
        .iter()
        .position(|word| !is_before(word))
        .unwrap_or(words.len());
    match &words[begin..] {
        [program, rest @ ..] if program == "plumbline" || program.ends_with("/plumbline") => {
            vec![(Program::Plumbline, rest.to_vec())]
        }
        [cargo, xtask, rest @ ..] if cargo == "cargo" && xtask == "xtask" => {
            let mut found = vec![(Program::Xtask, rest.to_vec())];
            let run = match rest.first().map(String::as_str) {
                Some("e2e" | "mutants") => Some("run"),
                Some("compare") => Some("compare"),
                _ => None,
            };
            let passed = rest.iter().position(|word| word == "--");
            if let (Some(run), Some(at)) = (run, passed) {
                let words = [run.to_owned()].into_iter().chain(rest[at + 1..].iter().cloned());
                found.push((Program::Plumbline, words.collect()));
            }
            found
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, Program, String)> {
        lines(&[Document::new("a.md", text)])
            .into_iter()
            .map(|line| (line.at, line.program, line.words.join(" ")))
            .collect()
    }

    #[test]
    fn lines_of_the_two_programs_are_found_wherever_they_stand() {
        let text = "x\n\n    sudo -E PLUMBLINE_LOG=debug target/debug/plumbline run --out a > log  # why\n\n\
                    ```sh\nplumbline targets kind ./own.yaml | kind create cluster --config -\n\
                    $ plumbline run \\\n    --dual && echo done\nkubectl get plumbline\n```\n\
                    ```yaml\n- run: plumbline list\n  name: plumbline run\n```\n\
                    ```text\nplumbline never\n```\n\n    cargo xtask e2e -- --quick\n";
        let expected = [
            ("a.md:3", Program::Plumbline, "run --out a"),
            ("a.md:6", Program::Plumbline, "targets kind ./own.yaml"),
            ("a.md:7", Program::Plumbline, "run --dual"),
            ("a.md:12", Program::Plumbline, "list"),
            ("a.md:19", Program::Xtask, "e2e -- --quick"),
            ("a.md:19", Program::Plumbline, "run --quick"),
        ];
        let expected = expected.map(|(at, program, words)| (at.to_owned(), program, words.to_owned()));
        assert_eq!(of(text), expected);
    }

    #[test]
    fn what_xtask_does_not_understand_is_named_with_its_line() {
        let good = Document::new("a.md", "    cargo xtask ci --why\n    cargo xtask tidy --help\n");
        assert_eq!(of_xtask(&[good]), [""; 0]);
        let bad = Document::new(
            "a.md",
            "text\n\n    cargo xtask tidy --grahp\n    cargo xtask tset\n",
        );
        let found = of_xtask(&[bad]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.md:3: `cargo xtask tidy --grahp`") && found[0].contains("--grahp"));
        assert!(
            found[1].starts_with("a.md:4: ") && !found[1].contains("Usage"),
            "{found:?}"
        );
    }

    #[test]
    fn marked_blocks_are_run_in_one_folder_and_a_failure_shows_what_was_printed() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Path::new("/nowhere");
        let run = |text: &str| run_marked(&[Document::new("b/a.md", text)], programs, folder.path()).unwrap();
        let good = "```sh run\necho one > file\n```\n\n```sh\nfalse\n```\n\n```sh run\ntest -f file\n```\n";
        assert_eq!(run(good), [""; 0]);
        assert!(folder.path().join("b-a.md/file").is_file());
        let found = run("```sh run\ncat missing | cat\n```\n");
        assert!(found.len() == 1 && found[0].contains("missing"), "{found:?}");
        assert_eq!(run("```sh\nfalse\n```\n"), [""; 0]);
    }
}
