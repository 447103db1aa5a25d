//! Rules of `.github`: the commands of workflows exist and work anywhere, their actions are pinned, their permissions
//! are minimal, and they publish exactly what a run wrote.
//!
//! `actionlint` and `zizmor`, which `cargo xtask lint` starts if they are installed, check GitHub's own rules.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::Value;

/// Programs that a step may start: those of a development machine, `gh`, and this project's once installed.
const PROGRAMS: [&str; 19] = [
    "bash",
    "cargo",
    "cp",
    "docker",
    "echo",
    "gh",
    "go",
    "kind",
    "mkdir",
    "mv",
    "pipx",
    "plumbline",
    "rustup",
    "sh",
    "sha256sum",
    "sudo",
    "target/debug/plumbline",
    "tar",
    "test",
];

/// How a step of an action names the action's folder.
const ACTION: &str = "$GITHUB_ACTION_PATH/";

/// Every violation of a rule, as text.
///
/// # Errors
/// A file of `.github` can't be read, or is no YAML.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {name}"))?;
        file(root, &name, &text, &mut found).with_context(|| format!("{name} is no YAML"))?;
    }
    Ok(found)
}

/// Workflows, and the description of each action; sorted, so that findings are.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = |folder: &str| -> anyhow::Result<Vec<PathBuf>> {
        let folder = root.join(folder);
        let entries =
            fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let mut all = list(".github/workflows")?;
    all.extend(
        list(".github/actions")?
            .iter()
            .map(|folder| folder.join("action.yml")),
    );
    all.sort();
    Ok(all)
}

fn file(root: &Path, name: &str, text: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let document: Value = serde_saphyr::from_str(text)?;
    let mut report = |what: String| found.push(format!("{name} {what}"));
    if let Some(jobs) = document.get("jobs") {
        if document.get("permissions") != Some(&Value::Object(serde_json::Map::new())) {
            report("does not begin with `permissions: {}`: each job names what it needs".to_owned());
        }
        for (job, value) in jobs.as_object().into_iter().flatten() {
            if value.get("uses").is_none() && value.get("timeout-minutes").is_none() {
                report(format!("has the job {job} without timeout-minutes"));
            }
            for what in published(value) {
                report(format!("has the job {job}, {what}"));
            }
        }
    }
    for line in text.lines() {
        let line = line.trim_start().trim_start_matches("- ");
        if let Some(action) = line.strip_prefix("uses: ")
            && !is_pinned(action)
        {
            report(format!(
                "uses {action}: expected the 40 hexadecimal digits of a commit, and its version as a comment"
            ));
        }
    }
    let mut scripts = Vec::new();
    collect(&document, &mut scripts);
    for script in scripts {
        if script.contains("${{") {
            report(format!(
                "has an expression in {script:?}: expected a variable of `env`, which is no part of the script"
            ));
        }
        for command in commands(script) {
            if let Err(why) = check(root, name, &command) {
                report(format!("runs `{}`: {why}", command.join(" ")));
            }
        }
    }
    Ok(())
}

/// Problems of a job's artifacts: a cache of all of `target` contains reports of an earlier run, and the evidence of a
/// run that hangs is lost if the job's limit ends before the step's, or if the upload step waits for success.
fn published(job: &Value) -> Vec<String> {
    let steps = job.get("steps").and_then(Value::as_array);
    let steps: Vec<&Value> = steps.into_iter().flatten().collect();
    let text = |step: &Value, field: &str| -> String {
        let value = step.pointer(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let uses = |step: &Value, action: &str| text(step, "/uses").starts_with(action);
    let mut found = Vec::new();
    for step in steps.iter().filter(|step| uses(step, "actions/cache")) {
        let paths = text(step, "/with/path");
        for path in paths.lines().map(str::trim) {
            if ["target", "target/", "target/plumbline"].contains(&path) {
                found.push(format!(
                    "which caches {path}, reports of earlier runs among it: expected target/debug"
                ));
            }
        }
    }
    let minutes = |value: &Value| value.get("timeout-minutes").and_then(Value::as_u64);
    let evidence = |step: &&&Value| text(step, "/run").contains("--out \"$OUT\"");
    for step in steps.iter().filter(evidence) {
        if minutes(step).is_none_or(|step| minutes(job).is_some_and(|job| step >= job)) {
            found.push(
                "where a run has no timeout-minutes below the job's: its evidence would be lost".to_owned(),
            );
        }
        let uploads = steps.iter().any(|step| {
            uses(step, "actions/upload-artifact")
                && text(step, "/if").contains("always()")
                && text(step, "/with/path").contains("env.OUT")
        });
        if !uploads {
            found.push("where what a run writes to $OUT is not uploaded always()".to_owned());
        }
    }
    found
}

/// `$/…` of this repository, at the same commit, or `owner/name@HASH # v1.2.3`.
fn is_pinned(action: &str) -> bool {
    if action.starts_with("$/") {
        return true;
    }
    let Some((_, pin)) = action.split_once('@') else {
        return false;
    };
    let hash = pin.get(..40).unwrap_or_default();
    let version = pin.get(40..).and_then(|rest| rest.strip_prefix(" # v"));
    hash.bytes()
        .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
        && version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// The text of every `run`.
fn collect<'a>(value: &'a Value, scripts: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(script) if name == "run" => scripts.push(script),
                    _ => collect(value, scripts),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                collect(value, scripts);
            }
        }
        _ => {}
    }
}

/// The words of each command of a script, without variables before it and redirections after it. A variable becomes the
/// word `1`, which is a number and a name.
fn commands(script: &str) -> Vec<Vec<String>> {
    let joined = script.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    let words = |command: &str| -> Vec<String> {
        command
            .split_whitespace()
            .skip_while(|word| is_assignment(word))
            .take_while(|word| !word.starts_with(['>', '<']))
            .map(|word| {
                let word = word.trim_matches(['"', '\'']);
                let is_variable = word.starts_with('$') && !word.starts_with(ACTION);
                if is_variable { "1" } else { word }.to_owned()
            })
            .collect()
    };
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .flat_map(|line| line.split(" | "))
        .map(words)
        .collect()
}

/// `NAME=value` before a command.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

/// Whether this repository or a machine has the command.
fn check(root: &Path, name: &str, command: &[String]) -> Result<(), String> {
    let Some(program) = command.first() else {
        return Err("expected a command, found variables alone".to_owned());
    };
    let beside = Path::new(name).with_file_name(program.trim_start_matches(ACTION));
    let script = match () {
        () if program.starts_with(ACTION) => Some(root.join(beside)),
        () if program.starts_with(".github/") => Some(root.join(program)),
        () => None,
    };
    if let Some(script) = script {
        return if script.is_file() {
            Ok(())
        } else {
            Err(format!("there is no file {}", script.display()))
        };
    }
    if !PROGRAMS.contains(&program.as_str()) {
        return Err(format!(
            "expected a script of .github, or one of {}",
            PROGRAMS.join(", ")
        ));
    }
    if let [_, alias, rest @ ..] = command
        && program == "cargo"
        && alias == "xtask"
    {
        crate::docs::commands::understood(rest)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of a workflow with one such step.
    fn said(step: &str) -> Vec<String> {
        let text = format!(
            "permissions: {{}}\njobs:\n  a:\n    timeout-minutes: 1\n    steps:\n      - {step}\n      - run: echo\n"
        );
        let mut found = Vec::new();
        file(&crate::steps::root(), "w.yml", &text, &mut found).unwrap();
        found
    }

    #[test]
    fn the_workflows_keep_their_rules() {
        let found = findings(&crate::steps::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Examples for users have only existing inputs.
    #[test]
    fn documents_show_calls_of_five_lines_with_the_inputs_that_there_are() {
        let root = crate::steps::root();
        let read = |document: &str| fs::read_to_string(root.join(document)).unwrap();
        let documents = ["README.md", "docs/github.md"].map(read).join("\n\n");
        let blocks = documents.split("\n\n").filter(|block| block.starts_with("    "));
        let mut shown = Vec::new();
        for block in blocks {
            let Some((_, called)) = block.split_once("uses: OWNER/plumbline/") else {
                continue;
            };
            let called = called.split('@').next().unwrap();
            let (file, inputs) = match called.ends_with(".yml") {
                true => (called.to_owned(), "/on/workflow_call/inputs"),
                false => (format!("{called}/action.yml"), "/inputs"),
            };
            let callee: Value =
                serde_saphyr::from_str(&fs::read_to_string(root.join(&file)).unwrap()).unwrap();
            let inputs = callee.pointer(inputs).and_then(Value::as_object).unwrap();
            let caller: Value = serde_saphyr::from_str(block).unwrap();
            let with = caller
                .pointer("/jobs/plumbline/with")
                .or_else(|| caller.pointer("/0/with"))
                .and_then(Value::as_object)
                .unwrap();
            for name in with.keys() {
                assert!(inputs.contains_key(name), "{file} has no input {name}");
            }
            for (name, input) in inputs {
                assert!(
                    input["required"] == false || with.contains_key(name),
                    "{file} requires {name}"
                );
            }
            assert!(block.lines().count() <= 5, "{block}");
            shown.push(file);
        }
        assert_eq!(
            shown,
            [
                ".github/workflows/conformance.yml",
                ".github/workflows/conformance.yml",
                ".github/actions/conformance/action.yml"
            ]
        );
    }

    #[test]
    fn commands_that_exist_are_taken() {
        for step in [
            "run: cargo xtask lint",
            "run: NAME=\"$PWD/x\" cargo xtask e2e --target \"$TARGET\" -- --seed \"$SEED\" >> \"$OUT\"",
            "run: cargo xtask ebpf fuzz --seed \"$SEED\" --cases 5",
            "run: |\n          # why\n          cargo xtask test \\\n            --unprivileged\n          test \"$A\" = b",
            "run: .github/kubernetes.sh v1.36.3 folder",
            "uses: a/b@0123456789abcdef0123456789abcdef01234567 # v1.2.3",
            "uses: $/.github/actions/conformance",
        ] {
            assert_eq!(said(step), Vec::<String>::new(), "{step}");
        }
    }

    #[test]
    fn evidence_of_a_run_that_hangs_is_published() {
        let upload = |condition: &str| {
            format!(
                "\n      - if: {condition}\n        uses: actions/upload-artifact@0123456789abcdef0123456789abcdef01234567 # v1\n        \
                 with:\n          path: ${{{{ env.OUT }}}}"
            )
        };
        let run =
            |minutes: u64| format!("timeout-minutes: {minutes}\n        run: plumbline run --out \"$OUT\"");
        assert_eq!(said(&(run(0) + &upload("${{ always() }}"))), [""; 0]);
        for (step, part) in [
            (run(1) + &upload("${{ always() }}"), "timeout-minutes below"),
            (run(0) + &upload("${{ !cancelled() }}"), "not uploaded always()"),
            (run(0), "not uploaded always()"),
        ] {
            let found = said(&step);
            assert!(found.len() == 1 && found[0].contains(part), "{step}: {found:?}");
        }
    }

    #[test]
    fn what_breaks_a_rule_is_named_with_what_was_expected() {
        for (step, part) in [
            ("run: cargo xtask no-such-command", "no-such-command"),
            ("run: cargo xtask test --no-such-option", "--no-such-option"),
            ("run: cargo xtask soak agent --seed x", "invalid value 'x'"),
            ("run: .github/no-such-file.sh", "there is no file"),
            ("run: '\"$GITHUB_ACTION_PATH/no.sh\"'", "there is no file"),
            ("run: echo x | no-such-program", "expected a script"),
            ("run: curl x", "expected a script of .github"),
            ("run: echo ${{ github.ref }}", "an expression in"),
            ("uses: a/b@v1", "40 hexadecimal digits"),
            ("uses: ./of/the/caller", "40 hexadecimal digits"),
            (
                "uses: a/b@0123456789abcdef0123456789abcdef01234567",
                "its version",
            ),
            (
                "uses: a/b@0123456789ABCDEF0123456789abcdef01234567 # v1",
                "40 hex",
            ),
        ] {
            let found = said(step);
            assert!(found.len() == 1 && found[0].contains(part), "{step}: {found:?}");
        }
        let cache = "uses: actions/cache@0123456789abcdef0123456789abcdef01234567 # v1\n        with:\n          path: |\n            ~/x\n            ";
        let found = said(&format!("{cache}target"));
        assert!(
            found.len() == 1 && found[0].contains("expected target/debug"),
            "{found:?}"
        );
        assert_eq!(said(&format!("{cache}target/debug")), [""; 0]);
        let mut found = Vec::new();
        let text = "permissions:\n  contents: write\njobs:\n  a:\n    steps: []\n";
        file(&crate::steps::root(), "w.yml", text, &mut found).unwrap();
        assert!(found[0].contains("permissions: {}") && found[1].contains("timeout-minutes"));
    }
}
