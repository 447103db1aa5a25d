//! The reports of many pods, as one: that of the sweep.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use scenarios::chaos::CASE;

use crate::{
    report::{
        files,
        format::{Case, Cluster, Counts, Report, Verdict},
    },
    run::ChaosRun,
};

use super::archive::Unpacked;

/// Reports so far.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The first report, without its cases.
    first: Option<Report>,
    /// Kernels of the nodes that pods ran on.
    kernels: BTreeSet<String>,
    /// By their ids.
    cases: BTreeMap<String, Case>,
}

impl Collected {
    /// Takes the report of a seed's pod, and returns its case.
    ///
    /// # Errors
    /// It is no report of this seed alone, by this version.
    pub(super) fn add(
        &mut self,
        run: &ChaosRun,
        replay: String,
        unpacked: Unpacked,
    ) -> Result<&Case, String> {
        let mut report = files::parse(&unpacked.report)
            .map_err(|error| format!("the report of its pod is none: {error:#}"))?;
        let own = env!("CARGO_PKG_VERSION");
        if report.plumbline != own {
            return Err(format!(
                "its schedule is that of another version: expected plumbline {own} in the image, found {}",
                report.plumbline
            ));
        }
        let cases = std::mem::take(&mut report.cases);
        let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
        if ids != [run.id] {
            return Err(format!(
                "the report of its pod is another's: expected the case {}, found {}",
                run.id,
                ids.join(", ")
            ));
        }
        self.kernels.insert(report.cluster.kernel.clone());
        self.first.get_or_insert(report);
        let left_out = unpacked.left_out.into_iter();
        let left_out =
            left_out.map(|file| format!("not collected, as the log of a pod has no room for it: {file}"));
        let mut cases = cases.into_iter();
        let case = cases.next().map(|mut case| {
            case.replay = replay;
            case.warnings.extend(left_out);
            case
        });
        let case = case.ok_or("the report of its pod has no case")?;
        Ok(self.cases.entry(case.id.clone()).insert_entry(case).into_mut())
    }

    /// Number of seeds that have shown something.
    pub(super) fn count(&self) -> usize {
        self.cases.len()
    }

    /// The report of a sweep over all of these, as far as the pods know it: seeds without a result are `missing`. `None`, if no pod has
    /// shown anything.
    pub(super) fn report(
        self,
        missing: impl IntoIterator<Item = Case>,
        folder: &Path,
    ) -> anyhow::Result<Option<Report>> {
        let Self {
            first,
            kernels,
            mut cases,
        } = self;
        let Some(first) = first else { return Ok(None) };
        for case in missing {
            cases.entry(case.id.clone()).or_insert(case);
        }
        let mut cases: Vec<Case> = cases.into_values().collect();
        // Seeds have different lengths.
        cases.sort_by_key(|case| (case.id.len(), case.id.clone()));
        let kernels: Vec<String> = kernels.into_iter().collect();
        let mut report = Report {
            counts: Counts::of(&cases),
            cases,
            cluster: Cluster {
                kernel: kernels.join(", "),
                ..first.cluster
            },
            ..first
        };
        files::read_timelines(&mut report, folder)?;
        Ok(Some(report))
    }
}

/// The case of a seed without a result: never a pass.
pub(super) fn unknown(run: &ChaosRun, replay: String, why: String) -> Case {
    Case {
        id: run.id.to_owned(),
        area: CASE.area.to_owned(),
        claims: BTreeMap::new(),
        tier: CASE.tier.to_string(),
        verdict: Verdict::Inconclusive,
        why,
        explanation: None,
        exempt: None,
        started: jiff::Timestamp::UNIX_EPOCH.to_string(),
        seconds: 0.0,
        replay,
        axes: Vec::new(),
        axes_not_enabled: Vec::new(),
        recorded: BTreeMap::new(),
        warnings: Vec::new(),
        evidence: None,
        timeline: None,
        undecided: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use scenarios::chaos::Given;

    use super::*;
    use crate::report::golden;

    fn run(seed: u64) -> ChaosRun {
        ChaosRun {
            id: String::leak(format!("chaos-{seed}")),
            given: Given::Seed {
                seed,
                lasts_ms: 15_000,
                kinds: None,
            },
            replay: String::new(),
        }
    }

    /// The report of a pod that has played this seed.
    fn of_pod(seed: u64, verdict: Verdict, kernel: &str) -> Unpacked {
        let mut report = golden::report();
        report.plumbline = env!("CARGO_PKG_VERSION").to_owned();
        kernel.clone_into(&mut report.cluster.kernel);
        let why = match verdict {
            Verdict::Pass => "",
            _ => "2 attempts were stale",
        };
        report.cases = vec![Case {
            verdict,
            evidence: Some(format!("evidence/chaos-{seed}")),
            ..unknown(&run(seed), "in a pod".to_owned(), why.to_owned())
        }];
        report.counts = Counts::of(&report.cases);
        Unpacked {
            report: files::yaml(&report).unwrap(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn the_report_is_that_of_a_sweep_and_a_seed_without_a_result_is_never_a_pass() {
        let mut all = Collected::default();
        let add = |all: &mut Collected, seed, verdict, kernel| {
            let case = all.add(&run(seed), format!("again {seed}"), of_pod(seed, verdict, kernel));
            case.unwrap().verdict
        };
        assert_eq!(add(&mut all, 10, Verdict::Pass, "6.1.0"), Verdict::Pass);
        assert_eq!(add(&mut all, 2, Verdict::Fail, "6.6.0"), Verdict::Fail);
        let missing =
            [9, 10].map(|seed| unknown(&run(seed), String::new(), "its pod ended: Evicted".to_owned()));
        let folder = tempfile::tempdir().unwrap();
        let report = all.report(missing, folder.path()).unwrap().unwrap();
        let cases: Vec<(&str, Verdict)> = report
            .cases
            .iter()
            .map(|case| (&*case.id, case.verdict))
            .collect();
        assert_eq!(
            cases,
            [
                ("chaos-2", Verdict::Fail),
                ("chaos-9", Verdict::Inconclusive),
                ("chaos-10", Verdict::Pass),
            ]
        );
        assert_eq!(
            (report.counts.pass, report.counts.fail, report.counts.inconclusive),
            (1, 1, 1)
        );
        assert_eq!(report.cluster.kernel, "6.1.0, 6.6.0");
        assert_eq!(report.cases[0].replay, "again 2");
        assert!(report.failed());
        // What is written is read again.
        let text = files::yaml(&report).unwrap();
        assert_eq!(files::parse(&text).unwrap(), report);
    }

    #[test]
    fn one_seed_without_a_result_fails_the_sweep() {
        let mut all = Collected::default();
        all.add(&run(1), String::new(), of_pod(1, Verdict::Pass, "6.1.0"))
            .unwrap();
        let missing = unknown(&run(2), String::new(), "x".to_owned());
        let report = all.report([missing], Path::new("none")).unwrap().unwrap();
        assert!(report.failed());
        let none = Collected::default().report(
            [unknown(&run(2), String::new(), String::new())],
            Path::new("none"),
        );
        assert!(none.unwrap().is_none(), "no pod has said where it ran");
    }

    #[test]
    fn a_report_of_something_else_is_no_result() {
        let mut all = Collected::default();
        let mut refused = |unpacked| all.add(&run(1), String::new(), unpacked).unwrap_err();
        let other = refused(of_pod(2, Verdict::Pass, "6.1.0"));
        assert!(
            other.contains("expected the case chaos-1, found chaos-2"),
            "{other}"
        );
        let mut older = of_pod(1, Verdict::Pass, "6.1.0");
        older.report = older.report.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1);
        let older = refused(older);
        assert!(older.contains("in the image, found 0.0.1"), "{older}");
        let torn = refused(Unpacked {
            report: "format: x".to_owned(),
            left_out: Vec::new(),
        });
        assert!(torn.contains("is none"), "{torn}");
        assert_eq!(all.count(), 0);
    }
}
