//! Which parts run: decided once, before the first one.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use super::{
    Arguments, CACHE,
    decide::{Commits, Decision, Grounds},
    inputs::{Known, digest},
    packages::Packages,
    parts::{Inputs, Part, SETTLED, Work},
    records::{self, Record, Records},
    table,
    tree::{self, Tree},
    work,
};
use crate::steps;

/// The part whose verdicts mutants are compared with.
pub(super) const BASELINE: &str = "e2e";

/// A part and whether it runs.
pub(super) struct Planned<'a> {
    pub(super) part: &'a Part,
    pub(super) decision: Decision,
    /// Whether the command line names it.
    pub(super) by_name: bool,
}

/// A run, or only its plan.
pub(super) struct Run {
    /// The folder of the repository.
    root: PathBuf,
    pub(super) cache: PathBuf,
    records: Records,
    /// `None` if git can't list the files.
    tree: Option<Tree>,
    known: Known,
    /// Release of the running kernel.
    kernel: String,
}

impl Run {
    pub(super) fn new(parts: &[Part]) -> anyhow::Result<Self> {
        let cache = cache()
            .context("expected HOME or PLUMBLINE_CI_CACHE to name a folder for what is kept between runs")?;
        fs::create_dir_all(&cache).with_context(|| format!("failed to make {}", cache.display()))?;
        let root = steps::root();
        let tree = match tree::of_work_tree(&root) {
            Ok(tree) => Some(tree),
            Err(error) => {
                eprintln!("  nothing is left out, as it is not known what changed: {error:#}");
                None
            }
        };
        let kernel = nix::sys::utsname::uname().context("failed to ask for the kernel's release")?;
        Ok(Self {
            root,
            records: Records::of(&cache),
            cache,
            tree,
            known: Known::new(Packages::find()?, parts.iter().map(|part| &part.inputs))?,
            kernel: kernel.release().to_string_lossy().into_owned(),
        })
    }

    /// All requested parts, with those that they need.
    pub(super) fn plan<'a>(
        &self,
        parts: &'a [Part],
        arguments: &Arguments,
    ) -> anyhow::Result<Vec<Planned<'a>>> {
        let records = self.records.read()?;
        let root = &self.root;
        let base = arguments.base.as_deref().filter(|base| !base.is_empty());
        let base_tree = base.map(|base| tree::of_commit(root, base)).transpose()?;
        // A repository with fewer commits, or a shallow clone of it, has none.
        let earlier = tree::of_commit(root, &format!("HEAD~{SETTLED}")).ok();
        let grounds = Grounds {
            now: self.tree.as_ref().map(|tree| (&self.known, tree)),
            records: &records,
            base: base.zip(base_tree.as_ref()),
            earlier: earlier.as_ref(),
            all: arguments.all,
            commits: Commits::of(root),
        };
        let asked =
            |part: &Part| arguments.parts.is_empty() || arguments.parts.iter().any(|name| name == part.name);
        let mut decisions: BTreeMap<&str, Decision> = BTreeMap::new();
        let mut identities = BTreeMap::new();
        for part in parts.iter().filter(|part| part.is_judged() && asked(part)) {
            let machine = self.machine(part, &mut identities)?;
            decisions.insert(part.name, grounds.decide(part, &machine)?);
        }
        let runs: BTreeSet<&str> = decisions
            .iter()
            .filter(|(_, decision)| decision.runs)
            .map(|(name, _)| *name)
            .collect();
        for part in parts {
            let of: Vec<&str> = match (&part.work, &part.inputs) {
                (Work::Setup, _) => {
                    let needing = parts
                        .iter()
                        .filter(|other| other.needs.iter().any(|need| need.from == part.name));
                    needing.map(|other| other.name).collect()
                }
                (_, Inputs::OfParts(of)) => of.to_vec(),
                _ => continue,
            };
            let of: Vec<&str> = of.into_iter().filter(|name| runs.contains(name)).collect();
            if !of.is_empty() {
                let why = format!("for {}", of.join(", "));
                decisions.insert(part.name, Decision { runs: true, why });
            }
        }
        Ok(parts
            .iter()
            .filter_map(|part| {
                decisions.remove(part.name).map(|decision| Planned {
                    part,
                    decision,
                    by_name: arguments.parts.iter().any(|name| name == part.name),
                })
            })
            .collect())
    }

    /// A digest of the kernel and of the programs of this machine that a part uses.
    fn machine(
        &self,
        part: &Part,
        identities: &mut BTreeMap<&'static str, Vec<u8>>,
    ) -> anyhow::Result<String> {
        let mut hash = Sha256::new();
        hash.update(&self.kernel);
        let setups: BTreeSet<&'static str> = part.needs.iter().map(|need| need.from).collect();
        for setup in setups {
            if !identities.contains_key(setup) {
                let output = work::setup_command(&self.cache)
                    .args(["identify", setup])
                    .stderr(Stdio::null())
                    .output()
                    .context("failed to start .ci/setup")?;
                if !output.status.success() {
                    bail!(".ci/setup identify {setup} ended with {}", output.status);
                }
                identities.insert(setup, output.stdout);
            }
            hash.update(&identities[setup]);
            hash.update([0]);
        }
        Ok(hash
            .finalize()
            .iter()
            .take(8)
            .map(|octet| format!("{octet:02x}"))
            .collect())
    }

    /// Records that a part passed or failed, with the files from the beginning of the run.
    ///
    /// # Errors
    /// A record can't be written, or files of a passed part have changed during the run.
    pub(super) fn record(&self, part: &Part, passed: bool) -> anyhow::Result<()> {
        let Some(tree) = &self.tree else {
            return Ok(());
        };
        let inputs = digest(&self.known.deciding(part, &tree.files)?);
        if !passed {
            return self.records.forget(part.name, &inputs);
        }
        let now = tree::of_work_tree(&self.root)?;
        if digest(&self.known.deciding(part, &now.files)?) != inputs {
            bail!("what it reads was changed meanwhile");
        }
        let record = Record {
            part: part.name.to_owned(),
            when: records::now(),
            inputs,
            machine: self.machine(part, &mut BTreeMap::new())?,
            commit: tree.commit.clone(),
            changed: tree.changed,
        };
        if let Work::Suite(suite) = &part.work
            && part.name == BASELINE
        {
            let report = self.root.join(suite.out()).join("report.yaml");
            self.records.keep(&report, &record.inputs, &record.machine)?;
        }
        self.records.add(record)
    }

    /// The verdicts on the agent without bugs, if this run does not produce them and an earlier one with the same
    /// inputs passed.
    ///
    /// # Errors
    /// `.ci/setup` can't describe the machine.
    pub(super) fn baseline(&self, plan: &[Planned<'_>]) -> anyhow::Result<Option<PathBuf>> {
        let runs = |planned: &Planned<'_>| planned.part.name == BASELINE && planned.decision.runs;
        let parts = table::parts();
        let part = parts.iter().find(|part| part.name == BASELINE);
        let (Some(tree), Some(part), false) = (&self.tree, part, plan.iter().any(runs)) else {
            return Ok(None);
        };
        let inputs = digest(&self.known.deciding(part, &tree.files)?);
        let machine = self.machine(part, &mut BTreeMap::new())?;
        let kept = self.records.kept(&inputs, &machine);
        Ok(kept.is_file().then_some(kept))
    }
}

/// The folder that CI keeps between runs.
fn cache() -> Option<PathBuf> {
    let folder = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder(CACHE)
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("plumbline")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/plumbline")))
        .and_then(|folder| std::path::absolute(Path::new(&folder)).ok())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ci::{
        board::{Board, Finished, Outcome},
        table,
    };

    /// A run in another repository.
    pub(crate) fn run_in(root: &Path, parts: &[Part]) -> Run {
        let cache = root.join(".git");
        Run {
            root: root.to_owned(),
            records: Records::of(&cache),
            cache,
            tree: Some(tree::of_work_tree(root).unwrap()),
            known: Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap(),
            kernel: "1".to_owned(),
        }
    }

    enum Before {
        /// It passed without changes.
        Passed,
        New,
        /// Its inputs are edited while it runs.
        Edited,
    }

    /// Number of records of a part after this outcome.
    fn left_of(outcome: Outcome, before: &Before) -> usize {
        let folder = tree::tests::repository();
        let parts = table::parts();
        let run = run_in(folder.path(), &parts);
        let part = parts.iter().find(|part| part.name == "verifier").unwrap();
        let why = String::new();
        let decision = Decision { runs: true, why };
        match before {
            Before::Passed => run.record(part, true).unwrap(),
            Before::New => {}
            Before::Edited => fs::write(folder.path().join("a"), "another\n").unwrap(),
        }
        let board = Board::default();
        run.finish(
            &Planned {
                part,
                decision,
                by_name: false,
            },
            Finished::without_a_run(outcome),
            &board,
        );
        run.records.read().unwrap().len()
    }

    #[test]
    fn only_what_passed_whole_and_unchanged_leaves_a_record() {
        let passed = || Outcome::Passed { with_luck: false };
        assert_eq!(left_of(passed(), &Before::New), 1);
        assert_eq!(left_of(passed(), &Before::Edited), 0);
        for outcome in [
            Outcome::Passed { with_luck: true },
            Outcome::NotRun(String::new()),
            Outcome::Lacking(String::new()),
            Outcome::Failed(String::new()),
        ] {
            assert_eq!(left_of(outcome.clone(), &Before::New), 0, "{outcome:?}");
        }
    }

    #[test]
    fn verdicts_of_what_passed_before_are_there_while_what_it_reads_is_the_same() {
        let folder = tree::tests::repository();
        fs::write(folder.path().join(".gitignore"), "target\n").unwrap();
        let parts = table::parts();
        let run = run_in(folder.path(), &parts);
        let part = parts.iter().find(|part| part.name == BASELINE).unwrap();
        let planned = |runs| Planned {
            part,
            decision: Decision {
                runs,
                why: String::new(),
            },
            by_name: false,
        };
        assert!(run.record(part, true).is_err(), "there is no report");
        assert_eq!(run.baseline(&[]).unwrap(), None);
        for verdicts in ["first", "second"] {
            let out = folder.path().join("target/plumbline");
            fs::create_dir_all(&out).unwrap();
            fs::write(out.join("report.yaml"), verdicts).unwrap();
            run.record(part, true).unwrap();
            fs::remove_dir_all(folder.path().join("target")).unwrap();
            for plan in [&[][..], &[planned(false)]] {
                let kept = run.baseline(plan).unwrap().unwrap();
                assert_eq!(fs::read_to_string(kept).unwrap(), verdicts);
            }
            assert_eq!(
                run.baseline(&[planned(true)]).unwrap(),
                None,
                "it will have its own"
            );
        }
        fs::create_dir_all(folder.path().join("suites/harness/src")).unwrap();
        fs::write(folder.path().join("suites/harness/src/lib.rs"), "// another\n").unwrap();
        let run = run_in(folder.path(), &parts);
        assert_eq!(run.baseline(&[]).unwrap(), None, "of other files");
    }

    #[test]
    fn a_failure_takes_the_record_that_it_passed_before() {
        assert_eq!(left_of(Outcome::Failed(String::new()), &Before::Passed), 0);
        assert_eq!(left_of(Outcome::NotRun(String::new()), &Before::Passed), 1);
    }
}
