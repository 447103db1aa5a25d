//! `cargo xtask brand-x`: an implementation that the suite does not know, tested like a user's.
//!
//! A mutant under another name, with a namespace, a DaemonSet, labels and pins of its own, and with a target file
//! (`chaos/mutants/deploy`). The suite installs it on a new kind cluster as it does for users, by `plumbline run
//! --provider kind --target FILE`. It must fail exactly the cases that catch its mutant, and none may be inconclusive.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    Mutant,
    list::list,
    outcome::{Outcome, Outcomes, outcomes},
};
use crate::{e2e, steps};

/// Tests an implementation of which the suite only has a target file, on a new kind cluster (needs Docker, kind and
/// kubectl), with `plumbline run --provider kind --target FILE`.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 it failed what its bugs break, and nothing else; 1 not so; 2 it could not run."
)]
pub(crate) struct Arguments {
    /// Leave the cluster; the run says how to remove it
    #[arg(long)]
    keep: bool,
    /// Image of kind's nodes, instead of kind's default
    #[arg(long, value_name = "NAME:TAG", env = "KIND_NODE_IMAGE")]
    kind_image: Option<String>,
    /// Arguments for `plumbline run`, such as `--filter` for some of the cases
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// Name of the image in the target file.
const IMAGE: &str = "brand-x:1.0.0";
/// Folder of the target file and of its image's sources, below the workspace.
const DEPLOY: &str = "chaos/mutants/deploy";
/// Folder of a run's files, below the workspace.
const OUT: &str = "target/plumbline/brand-x";
/// The mutant in the image.
const MUTANT: &str = "prefix-release-slices-by-name";
/// Mutants with the same bugs, which the same cases catch.
const PARTS: [&str; 2] = ["prefix-release", "slices-by-name"];
/// A lost backend breaks this as well: sockets to it are ended, and new ones refused.
const BESIDES: &str = "release-established-flows";
/// Cgroups of a node in the target file. Hosts with both cgroup versions have those of version 2 one folder below.
const CGROUP: &str = "--cgroup=/host/cgroup";
const HYBRID: &str = "/sys/fs/cgroup/unified";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    for program in ["docker", "kind", "kubectl"] {
        if !steps::on_path(program) {
            bail!("{program} is not on the PATH; a cluster of kind needs docker, kind and kubectl");
        }
    }
    let programs = e2e::build_static(&["plumbline", "mutants"])?;
    // `plumbline-mutant list` is needed, too.
    e2e::build(&["mutants"])?;
    let caught_by = caught_by(&list()?)?;
    let folder = steps::root().join(OUT);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("failed to remove {}, an earlier run's", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;

    image(&programs.join("plumbline-mutant"), &folder)?;
    let target = target(&folder)?;
    let begin = Instant::now();
    let judged = judge(&programs.join("plumbline"), &target, &folder, arguments)?;
    let faults = faults(&caught_by, &judged);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{}", summary(&judged, begin.elapsed()));
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

/// Runs the suite on a cluster that it makes and removes.
fn judge(plumbline: &Path, target: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<Outcomes> {
    let out = folder.join("report");
    let mut suite = steps::as_root(plumbline, "a cluster of kind")?;
    suite.args(["run", "--provider", "kind", "--target"]).arg(target);
    suite.arg("--out").arg(&out);
    if let Some(image) = &arguments.kind_image {
        suite.args(["--kind-image", image]);
    }
    if arguments.keep {
        suite.arg("--keep");
    }
    // The suite fails, because of the mutant's bugs.
    steps::run("suite", suite.args(&arguments.run).current_dir(steps::root()))?;
    outcomes(&out.join("report.yaml"))
}

/// The target file, adapted to the cgroups of this host's containers.
fn target(folder: &Path) -> anyhow::Result<PathBuf> {
    let file = steps::root().join(DEPLOY).join("brand-x.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    for expected in [CGROUP, IMAGE, MUTANT] {
        if !text.contains(expected) {
            bail!("{}: expected {expected} in it", file.display());
        }
    }
    let text = if Path::new(HYBRID).is_dir() {
        text.replace(CGROUP, &format!("{CGROUP}/unified"))
    } else {
        text
    };
    let to = folder.join("brand-x.yaml");
    fs::write(&to, text).with_context(|| format!("failed to write {}", to.display()))?;
    Ok(to)
}

/// Builds the implementation's image.
fn image(agent: &Path, folder: &Path) -> anyhow::Result<()> {
    let context = folder.join("image");
    fs::create_dir_all(&context).context("failed to make the folder of the image")?;
    fs::copy(agent, context.join("plumbline-mutant")).context("failed to copy plumbline-mutant")?;
    let mut build = Command::new("docker");
    build.args(["build", "--quiet", "--tag", IMAGE, "--file"]);
    build
        .arg(steps::root().join(DEPLOY).join("Containerfile"))
        .arg(&context);
    steps::must("image", &mut build)
}

/// The cases that catch its bugs.
fn caught_by(mutants: &[Mutant]) -> anyhow::Result<BTreeSet<String>> {
    let mut all = BTreeSet::from([BESIDES.to_owned()]);
    for name in PARTS.into_iter().chain([MUTANT]) {
        let mutant = mutants.iter().find(|mutant| mutant.name == name);
        let mutant = mutant.with_context(|| format!("there is no mutant {name}"))?;
        all.extend(mutant.caught_by.iter().cloned());
    }
    Ok(all)
}

/// Cases that failed and should not have, and the reverse, of those that ran.
fn faults(caught_by: &BTreeSet<String>, judged: &Outcomes) -> Vec<String> {
    let wrong = |(case, outcome): (&String, &Outcome)| {
        let verdict = &outcome.verdict;
        let expected = if caught_by.contains(case) { "fail" } else { "pass" };
        let left_out = matches!(verdict.as_str(), "skipped" | "not-supported");
        (verdict != expected && !left_out)
            .then(|| format!("{case} ends with {verdict}, and is to end with {expected}"))
    };
    let mut faults: Vec<String> = judged.iter().filter_map(wrong).collect();
    if !judged.values().any(|outcome| outcome.verdict == "pass") {
        faults.push("nothing passed: it may not work at all".to_owned());
    }
    faults
}

fn summary(judged: &Outcomes, took: Duration) -> String {
    let count = |verdict: &str| {
        let of = judged
            .values()
            .filter(|outcome| outcome.verdict.starts_with(verdict));
        of.count()
    };
    format!(
        "Brand X: {} passed, {} failed, {} inconclusive, {} left out, in {:.0} min with the cluster",
        count("pass"),
        count("fail"),
        count("inconclusive"),
        count("skipped") + count("not-supported"),
        took.as_secs_f64() / 60.0
    )
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{mutant, outcomes},
        *,
    };

    #[test]
    fn it_must_fail_what_its_bugs_break_and_nothing_else() {
        let bugs = mutant("m", &["a", "b"]).caught_by;
        let right = outcomes(&[("a", "fail"), ("b", "skipped"), ("c", "pass")]);
        assert_eq!(faults(&bugs, &right), Vec::<String>::new());
        let wrong = outcomes(&[
            ("a", "pass"),
            ("b", "inconclusive"),
            ("c", "fail"),
            ("d", "not-supported"),
            ("e", "fail (ready-means-served)"),
        ]);
        let found = faults(&bugs, &wrong);
        let cases: Vec<&str> = found.iter().filter_map(|fault| fault.get(..1)).collect();
        assert_eq!(cases, ["a", "b", "c", "e"]);
        let dead = outcomes(&[("a", "fail"), ("b", "fail")]);
        assert_eq!(faults(&bugs, &dead).len(), 1, "an agent that serves nobody");
    }

    #[test]
    fn the_target_file_says_what_is_looked_for_in_it() {
        let file = steps::root().join(DEPLOY).join("brand-x.yaml");
        let text = fs::read_to_string(file).unwrap();
        for expected in [CGROUP, IMAGE, MUTANT] {
            assert!(text.contains(expected), "{expected}");
        }
    }
}
