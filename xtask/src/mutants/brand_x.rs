//! `cargo xtask brand-x`: an implementation that the suite does not know, tested like a user's.
//!
//! A mutant under another name, with a namespace, a DaemonSet, labels and pins of its own, is installed on kind by a
//! target file (`chaos/mutants/deploy`), with the steps that `plumbline targets` prints, and the suite runs on it as on
//! an existing cluster. It must fail exactly the cases that catch its mutant, and none may be inconclusive.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    Mutant,
    list::list,
    outcome::{Outcome, Outcomes, outcomes},
};
use crate::{e2e, steps};

/// Tests an implementation of which the suite only has a target file: installs it on a kind cluster (needs Docker, kind
/// and kubectl), and runs the suite with `--provider existing --tier node`.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 it failed what its bugs break, and nothing else; 1 not so; 2 it could not run."
)]
pub(crate) struct Arguments {
    /// Leave the cluster: `kind delete cluster --name plumbline-brand-x` removes it
    #[arg(long)]
    keep: bool,
    /// Image of kind's nodes, instead of kind's default
    #[arg(long, value_name = "NAME:TAG", env = "KIND_NODE_IMAGE")]
    kind_image: Option<String>,
    /// Arguments for `plumbline run`, such as `--filter` for some of the cases
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// Name of the cluster.
const CLUSTER: &str = "plumbline-brand-x";
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

    let cluster = Cluster {
        plumbline: programs.join("plumbline"),
        folder,
    };
    cluster.delete()?; // A killed earlier run may have left it.
    let begin = Instant::now();
    let judged = cluster.judge(&programs.join("plumbline-mutant"), arguments);
    if arguments.keep {
        eprintln!("the cluster stays: kind delete cluster --name {CLUSTER}");
    } else {
        cluster.delete()?;
    }
    let judged = judged?;
    let faults = faults(&caught_by, &judged);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{}", summary(&judged, begin.elapsed()));
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

/// The cluster, and the settings for it.
struct Cluster {
    plumbline: PathBuf,
    /// Files of this run.
    folder: PathBuf,
}

impl Cluster {
    fn judge(&self, agent: &Path, arguments: &Arguments) -> anyhow::Result<Outcomes> {
        let target = steps::root().join(DEPLOY).join("brand-x.yaml");
        self.create(&target, arguments.kind_image.as_deref())?;
        let target = self.target(&target)?;
        self.load(agent)?;
        self.install(&target)?;
        let out = self.folder.join("report");
        let mut suite = Command::new(&self.plumbline);
        suite
            .args(["run", "--provider", "existing", "--tier", "node", "--target"])
            .arg(&target)
            .arg("--out")
            .arg(&out)
            .args(&arguments.run)
            .env("KUBECONFIG", self.kubeconfig())
            .current_dir(steps::root());
        // The suite fails, because of the mutant's bugs.
        steps::run("suite", &mut suite)?;
        outcomes(&out.join("report.yaml"))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    fn kind<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut kind = Command::new("kind");
        kind.args(arguments)
            .args(["--name", CLUSTER])
            .env("KUBECONFIG", self.kubeconfig());
        kind
    }

    fn delete(&self) -> anyhow::Result<()> {
        steps::must("remove the cluster", &mut self.kind(["delete", "cluster"]))
    }

    /// Writes output of `plumbline targets` to a file; a user would pipe it.
    fn printed(&self, file: &str, what: &[&str], target: &Path) -> anyhow::Result<PathBuf> {
        let to = self.folder.join(file);
        let made = File::create(&to).with_context(|| format!("failed to make {}", to.display()))?;
        let mut print = Command::new(&self.plumbline);
        print.arg("targets").args(&what[..1]).arg(target).args(&what[1..]);
        steps::must(file, print.stdout(Stdio::from(made)))?;
        Ok(to)
    }

    fn create(&self, target: &Path, image: Option<&str>) -> anyhow::Result<()> {
        let configuration = self.printed("kind.yaml", &["kind"], target)?;
        let mut create = self.kind(["create", "cluster"]);
        create.arg("--config").arg(configuration);
        if let Some(image) = image {
            create.args(["--image", image]);
        }
        steps::must("make a cluster", &mut create)
    }

    /// The target file, adapted to the cgroups of these nodes.
    fn target(&self, file: &Path) -> anyhow::Result<PathBuf> {
        let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        for expected in [CGROUP, IMAGE, MUTANT] {
            if !text.contains(expected) {
                bail!("{}: expected {expected} in it", file.display());
            }
        }
        let mut hybrid = Command::new("docker");
        hybrid.args(["exec", &format!("{CLUSTER}-control-plane"), "test", "-d"]);
        hybrid.arg("/sys/fs/cgroup/unified");
        let is_hybrid = hybrid.status().context("failed to start docker")?.success();
        let text = if is_hybrid {
            text.replace(CGROUP, &format!("{CGROUP}/unified"))
        } else {
            text
        };
        let to = self.folder.join("brand-x.yaml");
        fs::write(&to, text).with_context(|| format!("failed to write {}", to.display()))?;
        Ok(to)
    }

    /// Loads the images of the implementation and of the suite.
    fn load(&self, agent: &Path) -> anyhow::Result<()> {
        let context = self.folder.join("image");
        fs::create_dir_all(&context).context("failed to make the folder of the image")?;
        fs::copy(agent, context.join("plumbline-mutant")).context("failed to copy plumbline-mutant")?;
        let mut build = Command::new("docker");
        build.args(["build", "--quiet", "--tag", IMAGE, "--file"]);
        build
            .arg(steps::root().join(DEPLOY).join("Containerfile"))
            .arg(&context);
        steps::must("image", &mut build)?;
        steps::must("load its image", &mut self.kind(["load", "docker-image", IMAGE]))?;
        let archive = self.folder.join("images.tar");
        let mut save = Command::new(&self.plumbline);
        steps::must("the suite's image", save.args(["images", "save"]).arg(&archive))?;
        let mut load = self.kind(["load", "image-archive"]);
        steps::must("load the suite's image", load.arg(&archive))
    }

    fn install(&self, target: &Path) -> anyhow::Result<()> {
        let api = format!("{CLUSTER}-control-plane:6443");
        let script = self.printed("install.sh", &["install", "--api", &api], target)?;
        let mut install = Command::new("sh");
        install
            .arg(script)
            .env("KUBECONFIG", self.kubeconfig())
            .current_dir(steps::root());
        steps::must("install it", &mut install)
    }
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
