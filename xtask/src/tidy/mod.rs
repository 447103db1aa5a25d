//! Rules of the layout that no compiler checks.

mod graph;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;

/// Checks the rules of the layout, which `lint` checks among others.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 nothing breaks a rule; 1 something does; 2 it could not run.")]
pub(crate) struct Arguments {
    /// Print crates and the modules below their roots with lines, imports, and circles; check nothing
    #[arg(long)]
    graph: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = crate::steps::root();
    if arguments.graph {
        graph::print(&graph::crates(&root)?);
        return Ok(ExitCode::SUCCESS);
    }
    let Findings { errors, questions } = findings(&root)?;
    for finding in errors.iter().chain(&questions) {
        println!("{finding}");
    }
    Ok(ExitCode::from(u8::from(!errors.is_empty())))
}

/// A larger module may be two: a question, not an error. A type, its fields and its invariants stay in one module.
const MANY_LINES: usize = 800;

/// Crates that may hold `unsafe`: they call the kernel.
const UNSAFE: [&str; 5] = [
    "ebpf/loader",
    "ebpf/programs",
    "suites/cluster",
    "suites/lab",
    "suites/probe",
];

/// The only crate that imports aya.
const AYA: [&str; 1] = ["ebpf/loader"];

/// Folders of sources.
const SOURCES: [&str; 6] = ["ebpf", "doctor", "reference-agent", "suites", "chaos", "xtask"];

/// The findings as text.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Violations of rules.
    pub(crate) errors: Vec<String>,
    /// Modules that may need a change.
    pub(crate) questions: Vec<String>,
}

/// Checks all rules.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Findings> {
    let mut found = Findings::default();
    for folder in SOURCES {
        for file in files(&root.join(folder))? {
            let name = file
                .strip_prefix(root)
                .unwrap_or(&file)
                .to_string_lossy()
                .into_owned();
            if name.ends_with(".rs") {
                source(&name, &fs::read_to_string(&file)?, &mut found);
            }
        }
    }
    cases(root, &mut found.errors)?;
    let crates = graph::crates(root)?;
    circles(&crates, &mut found.errors);
    unnamed(&crates, &mut found.errors);
    Ok(found)
}

/// New circles of modules that import each other, directly or through others.
fn circles(crates: &[graph::Crate], found: &mut Vec<String>) {
    for one in crates {
        for circle in one.circles() {
            found.push(format!(
                "{}: these modules import each other: {}; move what they share to one that imports none of them \
                 (`cargo xtask tidy --graph` shows who imports whom)",
                one.name,
                circle.join(", ")
            ));
        }
    }
}

/// Modules that the root of their crate says nothing of.
fn unnamed(crates: &[graph::Crate], found: &mut Vec<String>) {
    for one in crates {
        let unnamed = one.unnamed();
        if !unnamed.is_empty() {
            found.push(format!(
                "{}: the //! of its root says nothing of these modules: {}; say in a few words there what each holds",
                one.name,
                unnamed.join(", ")
            ));
        }
    }
}

/// Shell scripts among the sources and CI's: files whose first line names a shell.
///
/// # Errors
/// A folder or a file can't be read.
pub(crate) fn scripts(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in SOURCES.iter().chain(&[".ci", ".github"]) {
        for file in files(&root.join(folder))? {
            let octets = fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            let first = octets.split(|octet| *octet == b'\n').next().unwrap_or_default();
            if first.starts_with(b"#!") && first.ends_with(b"sh") {
                found.push(file);
            }
        }
    }
    Ok(found)
}

fn source(name: &str, text: &str, found: &mut Findings) {
    let lines = text.lines().count();
    if lines > MANY_LINES {
        let question = format!("{name} has {lines} lines, more than {MANY_LINES}: is it one thing?");
        found.questions.push(question);
    }
    let found = &mut found.errors;
    if !text.starts_with("//!") {
        found.push(format!("{name} does not open with //! and what it is for"));
    }
    if has_example(text) {
        found.push(format!(
            "{name} has an example in its documentation, which nothing runs: write a test, or say ```text"
        ));
    }
    let within = |crates: &[&str]| {
        crates
            .iter()
            .any(|folder| name.starts_with(&format!("{folder}/")))
    };
    let code = || {
        text.lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"))
    };
    if !within(&UNSAFE) && code().any(|line| line.contains(concat!("unsafe", " {"))) {
        found.push(format!("{name} has an unsafe block outside {UNSAFE:?}"));
    }
    if !within(&AYA) && code().any(|line| line.contains(concat!("aya", "::"))) {
        found.push(format!("{name} imports aya outside {AYA:?}"));
    }
}

/// Whether rustdoc takes a code block as a test (its book, "Documentation tests"): a block without a language, or with
/// Rust's.
fn has_example(text: &str) -> bool {
    /// Beginnings of Rust's language tags; any other is another language.
    const RUSTS: [&str; 6] = [
        "rust",
        "ignore",
        "no_run",
        "should_panic",
        "compile_fail",
        "edition",
    ];
    let mut is_open = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        let Some(said) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            return false;
        };
        let Some(language) = said.trim_start().strip_prefix("```") else {
            return false;
        };
        is_open = !is_open;
        is_open && (language.is_empty() || RUSTS.iter().any(|rust| language.starts_with(rust)))
    })
}

/// Every manifest has its case, and every case its manifest; every core claim is decided. That a case's claims are the
/// catalogue's, and that just the decided ones say why, are tests of `cases`.
fn cases(root: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    let catalogue = "suites/cases/claims.yaml";
    let text =
        fs::read_to_string(root.join(catalogue)).with_context(|| format!("failed to read {catalogue}"))?;
    found.extend(undecided(&text).map(|id| {
        format!("{catalogue}: no case decides {id}, which is core: each conformant implementation keeps it, so write one")
    }));
    let folder = root.join("suites/cases/src");
    for file in files(&folder)? {
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".yaml") && !is_included(&file)? {
            found.push(format!("{name} is a manifest without a case beside it"));
        }
        if name.ends_with(".rs") {
            case(&name, &fs::read_to_string(&file)?, found);
        }
    }
    Ok(())
}

/// Core claims of the catalogue without `why`, which just those have that a case decides.
fn undecided(catalogue: &str) -> impl Iterator<Item = &str> {
    let claims = catalogue.split("\n    - id: ").skip(1);
    let of_core = claims.filter(|claim| claim.contains("\n      tier: core\n"));
    let undecided = of_core.filter(|claim| !claim.contains("\n      why: "));
    undecided.filter_map(|claim| claim.lines().next())
}

/// Whether a case in the folder includes the manifest.
fn is_included(manifest: &Path) -> anyhow::Result<bool> {
    let (Some(folder), Some(name)) = (manifest.parent(), manifest.file_name()) else {
        return Ok(false);
    };
    let included = included(&name.to_string_lossy());
    for file in files(folder)? {
        let is_case = file.extension().is_some_and(|extension| extension == "rs");
        if is_case && fs::read_to_string(file)?.contains(&included) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How a case includes its manifest.
fn included(manifest: &str) -> String {
    format!("manifest: include_str!(\"{manifest}\")")
}

fn case(name: &str, text: &str, found: &mut Vec<String>) {
    if text.contains(": Case = Case {") && !text.contains(included("").trim_end_matches("\")")) {
        found.push(format!("{name} is a case without a manifest beside it"));
    }
}

/// Source files below a folder, without build output; sorted, so that findings are.
pub(crate) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                all.extend(files(&path)?);
            }
        } else {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_its_own_rules() {
        let found = findings(&crate::steps::root()).unwrap();
        assert!(found.errors.is_empty(), "{}", found.errors.join("\n"));
    }

    #[test]
    fn scripts_are_found_by_the_shell_that_they_name() {
        let root = crate::steps::root();
        let found = scripts(&root).unwrap();
        for script in [
            ".ci/run",
            ".github/images.sh",
            ".github/actions/conformance/run.sh",
            "xtask/src/ebpf/rustc.sh",
        ] {
            assert!(found.contains(&root.join(script)), "{script} is not in {found:?}");
        }
        assert!(
            found
                .iter()
                .all(|script| script.extension().is_none_or(|end| end == "sh")),
            "{found:?}"
        );
    }

    #[test]
    fn a_broken_rule_is_named_with_its_file() {
        let mut found = Findings::default();
        let text = format!(
            "use {}Ebpf;\n{} {{}}\n{}",
            concat!("aya", "::"),
            "unsafe",
            "// x\n".repeat(MANY_LINES)
        );
        source("suites/harness/src/lib.rs", &text, &mut found);
        assert_eq!((found.errors.len(), found.questions.len()), (3, 1), "{found:?}");
        let all = [found.errors, found.questions].concat();
        assert!(
            all.iter()
                .all(|line| line.starts_with("suites/harness/src/lib.rs"))
        );
    }

    #[test]
    fn a_core_claim_that_no_case_decides_is_found() {
        let claim = |id: &str, tier: &str, more: &str| {
            format!("    - id: {id}\n      tier: {tier}\n      sentence: why: not\n{more}\n")
        };
        let why = "      why: >-\n        A reason.";
        let text = [
            "areas:\n".to_owned(),
            claim("decided", "core", why),
            claim("lacking", "core", ""),
            claim("other", "robustness", ""),
            claim("last", "core", ""),
        ];
        let text = text.concat();
        assert_eq!(undecided(&text).collect::<Vec<_>>(), ["lacking", "last"]);
    }

    #[test]
    fn examples_in_documentation_are_found_and_drawings_are_not() {
        let block = |language: &str| {
            format!("//! A module.\n\n    /// A word.\n    /// ```{language}\n    /// x\n    /// ```\n")
        };
        for language in ["", "rust", "no_run", "rust,ignore", "edition2024"] {
            assert!(has_example(&block(language)), "{language:?}");
        }
        for language in ["text", "sh", "json"] {
            assert!(!has_example(&block(language)), "{language:?}");
        }
    }

    #[test]
    fn a_case_has_a_manifest() {
        let check = |manifest: &str| {
            let mut found = Vec::new();
            case(
                "c.rs",
                &format!("const CASE: Case = Case {{\n    {manifest},\n}};"),
                &mut found,
            );
            found.join("; ")
        };
        assert_eq!(check(&included("c.yaml")), "");
        assert!(check("").contains("without a manifest"));
    }

    #[test]
    fn a_manifest_is_one_that_a_case_beside_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.rs"), format!("    {},\n", included("shared.yaml"))).unwrap();
        assert!(is_included(&path("shared.yaml")).unwrap());
        assert!(!is_included(&path("other.yaml")).unwrap());
    }
}
