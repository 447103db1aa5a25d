//! Rules of a report beyond its format, which `plumbline report validate` checks before a report is published.
//!
//! `plumbline report` does not check them: a report of an earlier version may use old names of claims.

use std::path::Path;

use cases::claims;
use jiff::Timestamp;

use super::{
    files,
    format::{Case, Report, Verdict},
};

/// Reads and checks a report.
///
/// # Errors
/// One line if the file is no report; otherwise every problem.
pub(super) fn read(path: &Path) -> Result<Report, Vec<String>> {
    let report = files::read(path).map_err(|error| vec![format!("{error:#}")])?;
    let problems = problems(&report);
    if problems.is_empty() {
        Ok(report)
    } else {
        Err(problems)
    }
}

/// Every problem of a report that can be read.
fn problems(report: &Report) -> Vec<String> {
    let mut problems = Vec::new();
    if report.started.parse::<Timestamp>().is_err() {
        problems.push(format!(
            "expected when it started by RFC 3339, found '{}'",
            report.started
        ));
    }
    if report.interrupted {
        problems.push("it was interrupted: expected a run that has come to its end".to_owned());
    }
    if let Some(words) = report.no_conformance() {
        problems.push(format!("{words}: expected a run without --quick"));
    }
    if report.cases.is_empty() {
        problems.push("it has no case: nothing was tested".to_owned());
    }
    let known = claims::features();
    for feature in &report.cluster.features {
        if !known.contains(feature.as_str()) {
            problems.push(format!(
                "the catalogue of plumbline {} has no feature {feature}",
                env!("CARGO_PKG_VERSION")
            ));
        }
    }
    for case in &report.cases {
        let of_case = case_problems(case).into_iter();
        problems.extend(of_case.map(|problem| format!("case {}: {problem}", case.id)));
    }
    problems
}

fn case_problems(case: &Case) -> Vec<String> {
    let mut problems = Vec::new();
    if case.claims.is_empty() {
        problems.push("it decides no claim".to_owned());
    }
    for claim in case.claims.keys() {
        if claims::find(claim).is_none() {
            problems.push(format!(
                "the catalogue of plumbline {} has no claim {claim} (`plumbline list --claims`)",
                env!("CARGO_PKG_VERSION")
            ));
        }
    }
    if let Some(exempt) = &case.exempt {
        let reason = |claim: &String| exempt.strip_prefix(claim)?.strip_prefix(": ");
        if !case
            .claims
            .keys()
            .filter_map(reason)
            .any(|reason| !reason.is_empty())
        {
            problems.push(format!(
                "expected one of its claims and a reason where it is exempt, as CLAIM: REASON, found '{exempt}'"
            ));
        }
    }
    if case.undecided.iter().any(|earlier| earlier.why.is_empty()) {
        problems.push("one of its tries was inconclusive without a reason".to_owned());
    }
    if case.explanation.is_some() && case.verdict != Verdict::Fail {
        problems.push(format!(
            "it is {} with an explanation: only a failure has one",
            case.verdict.name()
        ));
    }
    for axis in &case.axes {
        if axis.why.is_empty() != (axis.verdict == Verdict::Pass) {
            problems.push(format!(
                "its axis '{}' is {} with the reason '{}': a pass has none, everything else has",
                axis.name,
                axis.verdict.name(),
                axis.why
            ));
        }
        if case.verdict == Verdict::Pass && matches!(axis.verdict, Verdict::Fail | Verdict::Inconclusive) {
            problems.push(format!(
                "it is a pass, and its axis '{}' is {}",
                axis.name,
                axis.verdict.name()
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::report::{files::YAML, format::Counts, golden};

    #[test]
    fn a_report_with_every_verdict_holds() {
        assert_eq!(problems(&golden::report()), [""; 0]);
    }

    #[test]
    fn everything_that_is_wrong_is_named_at_once() {
        let mut report = golden::report();
        report.started = "yesterday".to_owned();
        report.interrupted = true;
        report.run.profile = "quick".to_owned();
        report.cluster.features.push("teleport".to_owned());
        report.cases[0]
            .claims
            .insert("no-such-claim".to_owned(), "s".to_owned());
        report.cases[0].axes[0].verdict = Verdict::Fail;
        report.cases[1].axes[0].why = String::new();
        report.cases[0].undecided[0].why = String::new();
        report.cases[3].exempt = Some("because".to_owned());
        report.cases[3].explanation = report.cases[1].explanation.clone();
        report.cases[4].claims.clear();
        let found = problems(&report);
        let expected = [
            "by RFC 3339, found 'yesterday'",
            "interrupted",
            "quick, no conformance: expected a run without --quick",
            "no feature teleport",
            "no claim no-such-claim",
            "it is a pass, and its axis",
            "a pass has none, everything else has",
            "as CLAIM: REASON, found 'because'",
            "inconclusive without a reason",
            "it is inconclusive with an explanation",
            "decides no claim",
        ];
        for part in expected {
            assert!(
                found.iter().any(|problem| problem.contains(part)),
                "{part}: {found:#?}"
            );
        }
        assert!(
            found
                .iter()
                .any(|problem| problem.starts_with("case clusterip-from-pod: ")),
            "{found:#?}"
        );
        report.cases.clear();
        report.counts = Counts::default();
        assert!(
            problems(&report)
                .iter()
                .any(|problem| problem.contains("has no case"))
        );
    }

    #[test]
    fn a_report_of_another_version_says_what_to_use() {
        let text = files::yaml(&golden::report()).unwrap();
        for (to, part) in [
            (
                "plumbline.report/v9\nadded: later",
                "newer than plumbline.report/v2",
            ),
            (
                "plumbline.report/v1\nadded: earlier",
                "older than plumbline.report/v2",
            ),
            (
                "'something.else'",
                "expected the format plumbline.report/v2, found 'something.else'",
            ),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), text.replacen("plumbline.report/v2", to, 1)).unwrap();
            let found = read(file.path()).unwrap_err();
            assert!(found.len() == 1 && found[0].contains(part), "{to}: {found:?}");
        }
    }

    /// Problems of published reports: `FOLDER/IMPLEMENTATION/VERSION/PROVIDER/report.yaml`, and at most a README.md beside one.
    fn published(folder: &Path) -> Vec<String> {
        let within = |folder: &Path| -> Vec<PathBuf> {
            let entries =
                fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        };
        let folders = |folder: PathBuf| within(&folder).into_iter().filter(|path| path.is_dir());
        let implementations = folders(folder.to_owned()).filter(|path| !path.ends_with("schema"));
        let mut found = Vec::new();
        for place in implementations.flat_map(folders).flat_map(folders) {
            let file = place.join(YAML);
            let strange = |path: &PathBuf| *path != file && !path.ends_with("README.md");
            let strange = within(&place).into_iter().filter(strange);
            found.extend(strange.map(|path| format!("{}: no part of a report", path.display())));
            match read(&file) {
                Ok(report) if !place.ends_with(&report.cluster.provider) => found.push(format!(
                    "{}: expected the folder {}, its provider",
                    file.display(),
                    report.cluster.provider
                )),
                Ok(_) => {}
                Err(problems) => found.extend(
                    problems
                        .into_iter()
                        .map(|problem| format!("{}: {problem}", file.display())),
                ),
            }
        }
        found
    }

    #[test]
    fn what_is_published_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let version = folder.path().join("somebody/v1.2.3");
        let mut report = golden::report();
        let place = version.join(&report.cluster.provider);
        fs::create_dir_all(&place).unwrap();
        fs::create_dir_all(folder.path().join("schema/any")).unwrap();
        fs::write(place.join(YAML), files::yaml(&report).unwrap()).unwrap();
        fs::write(place.join("README.md"), "how it was run").unwrap();
        assert_eq!(published(folder.path()), [""; 0]);
        let elsewhere = version.join("elsewhere");
        fs::rename(&place, &elsewhere).unwrap();
        let found = published(folder.path());
        assert!(found[0].contains("its provider"), "{found:?}");
        fs::rename(&elsewhere, &place).unwrap();
        report.interrupted = true;
        fs::write(place.join(YAML), files::yaml(&report).unwrap()).unwrap();
        fs::write(place.join("report.html"), "").unwrap();
        let found = published(folder.path());
        assert!(found[0].contains("report.html: no part"), "{found:?}");
        assert!(found[1].contains("interrupted"), "{found:?}");
    }

    #[test]
    fn every_report_of_the_repository_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reports");
        assert!(folder.join("README.md").is_file());
        assert_eq!(published(&folder), [""; 0]);
    }
}
