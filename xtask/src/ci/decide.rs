//! Whether a part has to run.
//!
//! A part is left out if the same inputs have passed: in an earlier run on such a machine, or in a commit that the
//! caller names as passed. Where neither is known, one that every night runs is left out if its own files have
//! settled.

use std::{cell::RefCell, collections::BTreeMap, path::Path};

use super::{
    inputs::{Known, differences, digest},
    parts::{Inputs, Part, SETTLED},
    records::{Record, short},
    tree::{self, Files, Tree},
};

/// A decision with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) runs: bool,
    pub(crate) why: String,
}

/// Limit of shown paths.
const SHOWN: usize = 3;

/// The data for decisions.
pub(crate) struct Grounds<'a> {
    /// Files and their readers; `None` if git can't list the files.
    pub(crate) now: Option<(&'a Known, &'a Tree)>,
    pub(crate) records: &'a [Record],
    /// A commit that passed, and the caller's name for it.
    pub(crate) base: Option<(&'a str, &'a Tree)>,
    /// The files [`SETTLED`] commits ago, if there are as many.
    pub(crate) earlier: Option<&'a Tree>,
    /// Whether all parts run.
    pub(crate) all: bool,
    /// Files of the commits in records.
    pub(crate) commits: Commits<'a>,
}

/// Files of commits, each read once.
pub(crate) struct Commits<'a> {
    root: &'a Path,
    found: RefCell<BTreeMap<String, Option<Files>>>,
}

impl<'a> Commits<'a> {
    pub(crate) fn of(root: &'a Path) -> Self {
        let found = RefCell::default();
        Self { root, found }
    }

    /// `None` if the repository does not have the commit, or not any more.
    fn files(&self, commit: &str) -> Option<Files> {
        let mut found = self.found.borrow_mut();
        let files = found.entry(commit.to_owned());
        files
            .or_insert_with(|| tree::of_commit(self.root, commit).ok().map(|tree| tree.files))
            .clone()
    }
}

impl Grounds<'_> {
    /// Decides about a part with inputs of its own.
    ///
    /// # Errors
    /// The part names an unknown package.
    pub(crate) fn decide(&self, part: &Part, machine: &str) -> anyhow::Result<Decision> {
        let run = |why: String| Ok(Decision { runs: true, why });
        let leave = |why: String| Ok(Decision { runs: false, why });
        if matches!(part.inputs, Inputs::Everything) {
            return run("always".to_owned());
        }
        if self.all {
            return run("--all".to_owned());
        }
        let Some((known, tree)) = self.now else {
            return run("without git it is not known what changed".to_owned());
        };
        let files = known.deciding(part, &tree.files)?;
        let inputs = digest(&files);
        let own = || {
            self.records
                .iter()
                .rev()
                .filter(|record| record.part == part.name)
        };
        if let Some(record) = own().find(|record| record.inputs == inputs && record.machine == machine) {
            return leave(format!("what it reads passed {}", record.shown()));
        }
        if let Some((name, base)) = self.base {
            let before = known.deciding(part, &base.files)?;
            if digest(&before) == inputs {
                return leave(format!("what it reads is as in {name} ({})", short(&base.commit)));
            }
            return run(format!(
                "{} in {name} ({})",
                differ(known, &before, &files),
                short(&base.commit)
            ));
        }
        if let Some(record) = own().find(|record| record.inputs == inputs) {
            return run(format!(
                "it passed {} on another kernel, or with other programs",
                record.shown()
            ));
        }
        // Only commits show what has changed since.
        let Some(last) = own().find(|record| !record.changed).or_else(|| own().next()) else {
            if let Some(earlier) = self.earlier.filter(|_| part.nightly)
                && known.deciding(part, &earlier.files)? == files
            {
                return leave(format!(
                    "its own files are as {SETTLED} commits ago; every night runs it"
                ));
            }
            return run("it has not passed here yet".to_owned());
        };
        let before = match self.commits.files(&last.commit) {
            Some(before) if !last.changed => known.deciding(part, &before)?,
            _ => return run(format!("what it reads is not what passed {}", last.shown())),
        };
        if before == files && last.machine == machine {
            // The record is of a time when more files decided.
            return leave(format!("what it reads is as when it passed {}", last.shown()));
        }
        run(format!(
            "{} when it passed {}",
            differ(known, &before, &files),
            last.shown()
        ))
    }
}

/// `a, b, c and 2 more differ from what they were`.
fn differ(known: &Known, before: &Files, now: &Files) -> String {
    let all = differences(before, now);
    let mut shown: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|path| format!("{path}{}", known.remark(path)))
        .collect();
    if let Some(more) = all.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        shown.push(format!("{more} more"));
    }
    let verb = if all.len() == 1 { "is" } else { "are" };
    format!("{} {verb} not as", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{packages::Packages, parts::Work, records, table};

    /// Any files: only the changes matter.
    fn before() -> Tree {
        let entry = |path: &&str| ((*path).to_owned(), "100644 blob 1".to_owned());
        Tree {
            files: [
                "Cargo.lock",
                "README.md",
                "ebpf/flow/src/lib.rs",
                "suites/cases/src/lib.rs",
            ]
            .iter()
            .map(entry)
            .collect(),
            commit: "0123456789abcdef".to_owned(),
            changed: false,
        }
    }

    /// Parts that run if `edit` changes files of which everything passed, on this machine or another.
    fn run_after(edit: impl FnOnce(&mut Files), machine: &str) -> Vec<&'static str> {
        let root = crate::steps::root();
        let parts = table::parts();
        let known = Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap();
        let before = before();
        let judged = || parts.iter().filter(|part| part.is_judged());
        let records: Vec<Record> = judged()
            .map(|part| Record {
                part: part.name.to_owned(),
                when: records::now(),
                inputs: digest(&known.deciding(part, &before.files).unwrap()),
                machine: "this".to_owned(),
                commit: before.commit.clone(),
                changed: false,
            })
            .collect();
        let mut after = before.clone();
        edit(&mut after.files);
        let mut grounds = Grounds {
            now: Some((&known, &after)),
            records: &records,
            base: None,
            earlier: None,
            all: false,
            commits: Commits::of(&root),
        };
        let decided = |grounds: &Grounds<'_>| -> Vec<&'static str> {
            let runs = |part: &&Part| grounds.decide(part, machine).unwrap().runs;
            judged().filter(runs).map(|part| part.name).collect()
        };
        let by_records = decided(&grounds);
        if machine == "this" {
            // A passed base gives the same result as records of it.
            grounds.records = &[];
            grounds.base = Some(("main", &before));
            assert_eq!(decided(&grounds), by_records);
        }
        by_records
    }

    fn touched(path: &str) -> Vec<&'static str> {
        run_after(
            |files| drop(files.insert(path.to_owned(), "100644 blob 0".to_owned())),
            "this",
        )
    }

    const ALWAYS: [&str; 3] = ["test", "lint", "docs"];
    const SUITES: [&str; 8] = [
        "e2e",
        "mutants",
        "real-apiservers",
        "kube-proxy-nftables",
        "kube-proxy-iptables",
        "kind",
        "kind-kube-proxy",
        "kind-own-target",
    ];

    fn everything() -> Vec<&'static str> {
        let mut all = [&ALWAYS[..], &["object", "miri", "verifier", "fuzz"], &SUITES].concat();
        all.sort_unstable();
        all
    }

    fn sorted(parts: &[&[&'static str]]) -> Vec<&'static str> {
        let mut all = parts.concat();
        all.sort_unstable();
        all
    }

    #[track_caller]
    fn check(path: &str, expected: &[&[&'static str]]) {
        assert_eq!(
            sorted(&[&touched(path)]),
            sorted(expected),
            "after an edit of {path}"
        );
    }

    #[test]
    fn every_part_that_judges_is_among_these() {
        let parts = table::parts();
        let judging = parts.iter().filter(|part| part.is_judged());
        assert_eq!(
            sorted(&[&judging.map(|part| part.name).collect::<Vec<_>>()]),
            everything()
        );
        let rest = parts.iter().filter(|part| !part.is_judged());
        assert!(
            rest.clone()
                .all(|part| matches!(part.work, Work::Setup | Work::Cargo(_)))
        );
    }

    #[test]
    fn nothing_but_lint_and_tests_runs_if_nothing_changed_or_a_document() {
        assert_eq!(run_after(|_| {}, "this"), ALWAYS);
        for path in [
            "README.md",
            "ebpf/DATAPATH.md",
            "suites/targets/README.md",
            "reference-agent/new/document.md",
            ".github/workflows/ci.yml",
            "suites/cli/tests/run/main.rs",
        ] {
            check(path, &[&ALWAYS]);
        }
    }

    #[test]
    fn programs_of_the_kernel_are_in_everything_but_miri() {
        for path in [
            "ebpf/programs/src/net/mod.rs",
            "ebpf/programs/Cargo.lock",
            "ebpf/prebuilt/plumbline.bpf.o",
        ] {
            check(path, &[&ALWAYS, &["object", "verifier", "fuzz"], &SUITES]);
        }
        for path in ["ebpf/flow/src/lib.rs", "ebpf/abi/src/new.rs"] {
            check(path, &[&everything()]);
        }
    }

    #[test]
    fn suites_and_agents_are_in_what_is_built_from_them() {
        check(
            "suites/cases/src/d_reach/clusterip_from_pod.yaml",
            &[&ALWAYS, &SUITES],
        );
        check("suites/targets/kube-proxy-nftables.yaml", &[&ALWAYS, &SUITES]);
        check("reference-agent/deploy/agent.yaml", &[&ALWAYS, &SUITES]);
        check(
            "chaos/mutants/src/main.rs",
            &[&ALWAYS, &["mutants", "kind-own-target"]],
        );
        check("ebpf/packets/src/rows/new.rs", &[&ALWAYS, &["fuzz"]]);
        check("ebpf/bench/src/main.rs", &[&ALWAYS]);
        // The agent and the suite evict by it; neither the verifier nor fuzzing does.
        check("doctor/src/evict.rs", &[&ALWAYS, &SUITES]);
        check("doctor/tests/kernel/devices.rs", &[&ALWAYS]);
        // Their tests alone are in Miri's.
        check(
            "ebpf/flow/tests/new.rs",
            &[&ALWAYS, &["object", "miri", "verifier", "fuzz"], &SUITES],
        );
    }

    #[test]
    fn what_all_depend_on_or_no_part_knows_makes_everything_run_but_what_every_night_does() {
        let mut expected = everything();
        expected.retain(|part| !["miri", "fuzz"].contains(part));
        for path in [
            "Cargo.lock",
            "Cargo.toml",
            "rust-toolchain.toml",
            ".cargo/config.toml",
            ".ci/setup",
            "xtask/src/ci/table.rs",
            "new-file",
            "new/folder/file.rs",
            "suites/new/src/lib.rs",
        ] {
            check(path, &[&expected]);
        }
        let all = run_after(|files| drop(files.remove("Cargo.lock")), "this");
        assert_eq!(sorted(&[&all]), expected);
    }

    #[test]
    fn without_records_what_every_night_runs_is_left_out_where_its_own_files_have_settled() {
        let root = crate::steps::root();
        let parts = table::parts();
        let known = Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap();
        let now = before();
        let left_out = |earlier: Option<&Tree>| -> Vec<&'static str> {
            let grounds = Grounds {
                now: Some((&known, &now)),
                records: &[],
                base: None,
                earlier,
                all: false,
                commits: Commits::of(&root),
            };
            let left = |part: &&Part| part.is_judged() && !grounds.decide(part, "this").unwrap().runs;
            parts.iter().filter(left).map(|part| part.name).collect()
        };
        let edited = |path: &str| {
            let mut earlier = before();
            earlier.files.insert(path.to_owned(), "100644 blob 0".to_owned());
            earlier
        };
        assert!(left_out(None).is_empty());
        assert_eq!(left_out(Some(&edited("Cargo.lock"))), ["miri", "fuzz"]);
        assert_eq!(left_out(Some(&edited("ebpf/packets/src/new.rs"))), ["miri"]);
        assert!(left_out(Some(&edited("ebpf/flow/src/lib.rs"))).is_empty());
    }

    #[test]
    fn a_record_of_when_more_files_decided_counts_by_the_files_of_its_commit() {
        let root = crate::steps::root();
        let parts = table::parts();
        let known = Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap();
        let part = parts.iter().find(|part| part.name == "miri").unwrap();
        let runs = |edited: &str, machine: &str| {
            let before = before();
            let mut now = before.clone();
            now.files.insert(edited.to_owned(), "100644 blob 0".to_owned());
            let record = Record {
                part: "miri".to_owned(),
                when: records::now(),
                inputs: "of more files".to_owned(),
                machine: "this".to_owned(),
                commit: before.commit.clone(),
                changed: false,
            };
            let commits = Commits {
                root: &root,
                found: RefCell::new(BTreeMap::from([(before.commit, Some(before.files))])),
            };
            let grounds = Grounds {
                now: Some((&known, &now)),
                records: &[record],
                base: None,
                earlier: None,
                all: false,
                commits,
            };
            grounds.decide(part, machine).unwrap().runs
        };
        assert!(!runs("Cargo.lock", "this"));
        assert!(runs("Cargo.lock", "another"));
        assert!(runs("ebpf/flow/src/lib.rs", "this"));
    }

    #[test]
    fn a_record_of_another_machine_does_not_count() {
        assert_eq!(sorted(&[&run_after(|_| {}, "another")]), everything());
    }

    #[test]
    fn why_names_what_changed_and_since_when() {
        let root = crate::steps::root();
        let parts = table::parts();
        let known = Known::new(Packages::find().unwrap(), parts.iter().map(|part| &part.inputs)).unwrap();
        let before = before();
        let mut after = before.clone();
        for path in [
            "chaos/mutants/src/main.rs",
            "chaos/mutants/src/a.rs",
            "new",
            "xtask/x",
            "xtask/y",
        ] {
            after.files.insert(path.to_owned(), "100644 blob 0".to_owned());
        }
        let mutants = parts.iter().find(|part| part.name == "mutants").unwrap();
        let record = |inputs: &str, machine: &str, changed| Record {
            part: "mutants".to_owned(),
            when: records::now(),
            inputs: inputs.to_owned(),
            machine: machine.to_owned(),
            commit: before.commit.clone(),
            changed,
        };
        let passed = digest(&known.deciding(mutants, &after.files).unwrap());
        let why = |records: &[Record], all| {
            let commits = Commits::of(&root);
            commits
                .found
                .borrow_mut()
                .insert(before.commit.clone(), Some(before.files.clone()));
            let grounds = Grounds {
                now: Some((&known, &after)),
                records,
                base: None,
                earlier: None,
                all,
                commits,
            };
            let decision = grounds.decide(mutants, "m").unwrap();
            format!("{} {}", decision.runs, decision.why)
        };
        let at = short(&before.commit);
        assert_eq!(why(&[], false), "true it has not passed here yet");
        assert_eq!(
            why(&[record("other", "m", false)], false),
            format!(
                "true chaos/mutants/src/a.rs, chaos/mutants/src/main.rs, new (a file that no part knows), 2 more are not \
                 as when it passed 0 s ago at {at}"
            )
        );
        assert_eq!(
            why(&[record("other", "m", true)], false),
            format!("true what it reads is not what passed 0 s ago at {at} with changes")
        );
        assert_eq!(
            why(&[record(&passed, "n", false)], false),
            format!("true it passed 0 s ago at {at} on another kernel, or with other programs")
        );
        let clean = record("other", "m", false);
        assert_eq!(
            why(&[clean.clone(), record("third", "m", true)], false),
            why(&[clean], false)
        );
        let records = [record(&passed, "m", false), record("other", "m", false)];
        assert_eq!(
            why(&records, false),
            format!("false what it reads passed 0 s ago at {at}")
        );
        assert_eq!(why(&records, true), "true --all");
    }
}
