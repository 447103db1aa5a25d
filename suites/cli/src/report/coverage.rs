//! The part of the catalogue that a report decides.

use std::collections::{BTreeMap, BTreeSet};

use cases::claims;

use super::format::{Case, Report, Verdict};
use crate::plural::counted;

/// Claims and features of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    catalogue: usize,
    decided: BTreeMap<String, bool>,
    not_decided: BTreeMap<&'static str, Vec<String>>,
    untested_features: Vec<String>,
}

impl Coverage {
    /// Compares the report with the catalogue of this program.
    pub(crate) fn of(report: &Report) -> Self {
        let mut decided: BTreeMap<String, bool> = BTreeMap::new();
        let mut undecided: BTreeMap<&str, &'static str> = BTreeMap::new();
        for case in &report.cases {
            let why = match case.verdict {
                Verdict::Pass | Verdict::Fail => None,
                Verdict::Inconclusive => Some("inconclusive"),
                Verdict::Skipped => Some("skipped, since the cluster lacks something"),
                Verdict::NotSupported => Some("not supported by the target"),
            };
            for claim in case.claims.keys() {
                if let Some(why) = why {
                    undecided.insert(claim, why);
                } else {
                    let kept = decided.entry(claim.clone()).or_insert(true);
                    *kept &= case.label() == Verdict::Pass.name();
                }
            }
        }
        // One of several cases that decide a claim could not: what the others saw is not all of it.
        decided.retain(|claim, kept| !*kept || !undecided.contains_key(claim.as_str()));
        let mut not_decided: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for claim in claims::all() {
            let id = claim.id.as_str();
            if decided.contains_key(id) {
                continue;
            }
            let why = undecided.get(id).copied().unwrap_or("not run");
            not_decided.entry(why).or_default().push(id.to_owned());
        }
        let tested: BTreeSet<&str> = report
            .cases
            .iter()
            .filter(is_decided)
            .flat_map(features)
            .collect();
        let untested_features = report.cluster.features.iter();
        let untested_features = untested_features.filter(|feature| !tested.contains(feature.as_str()));
        Self {
            catalogue: claims::all().count(),
            untested_features: untested_features.cloned().collect(),
            decided,
            not_decided,
        }
    }

    /// Claims that the report decides, and whether each is kept.
    pub(crate) fn decided(&self) -> &BTreeMap<String, bool> {
        &self.decided
    }

    /// The number of claims that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.decided.values().filter(|kept| **kept).count()
    }

    /// Claims of the catalogue that the report does not decide, by the reason.
    pub(crate) fn not_decided(&self) -> &BTreeMap<&'static str, Vec<String>> {
        &self.not_decided
    }

    /// Features that the target declares and no case tested.
    pub(crate) fn untested_features(&self) -> &[String] {
        &self.untested_features
    }

    /// `149 claims, 63 decided here, 60 kept`.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "{}, {} decided here, {} kept",
            counted(self.catalogue, "claim", "claims"),
            self.decided.len(),
            self.kept()
        )
    }
}

fn is_decided(case: &&Case) -> bool {
    matches!(case.verdict, Verdict::Pass | Verdict::Fail)
}

/// Features that a case needs: its own, and those of its claims.
fn features(case: &Case) -> Vec<&'static str> {
    let own = cases::find(&case.id).map_or(&[][..], |case| case.features);
    let claims = case.claims.keys().filter_map(|id| claims::find(id));
    let of_claims = claims.flat_map(|claim| &claim.features).map(claims::Name::as_str);
    own.iter().copied().chain(of_claims).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::golden;

    #[test]
    fn only_what_passed_or_failed_is_decided_and_only_what_passed_is_kept() {
        let mut report = golden::report();
        report.cluster.features = vec!["loadbalancer".into(), "sctp".into()];
        let coverage = Coverage::of(&report);
        let expected = format!("{} claims, 4 decided here, 1 kept", claims::all().count());
        assert_eq!(coverage.sentence(), expected);
        assert!(coverage.decided()["release-prefix-empty-list"]);
        assert!(!coverage.decided()["clusterip-from-pod"], "it is exempt");
        let why = |claim: &str| {
            let mut found = coverage.not_decided().iter();
            found
                .find(|(_, claims)| claims.iter().any(|id| id == claim))
                .map(|(why, _)| *why)
        };
        assert_eq!(why("release-name-lattice"), Some("inconclusive"));
        assert_eq!(
            why("empty-refill-no-restart"),
            Some("skipped, since the cluster lacks something")
        );
        assert_eq!(
            why("clusterip-no-endpoints-refused"),
            Some("not supported by the target")
        );
        assert_eq!(why("release-prefix-null-slice"), Some("not run"));
        let all: usize = coverage.not_decided().values().map(Vec::len).sum();
        assert_eq!(all + 4, claims::all().count());
        assert_eq!(coverage.untested_features(), ["loadbalancer", "sctp"]);
    }

    #[test]
    fn a_feature_is_tested_by_a_case_that_needs_it_and_has_a_verdict() {
        let mut report = golden::report();
        let needs = cases::ALL
            .iter()
            .find(|case| !case.features.is_empty())
            .expect("a case");
        report.cluster.features = needs
            .features
            .iter()
            .map(|feature| (*feature).to_owned())
            .collect();
        let case = &mut report.cases[0];
        case.id = needs.id.to_owned();
        assert_eq!(Coverage::of(&report).untested_features(), [""; 0]);
        report.cases[0].verdict = Verdict::Skipped;
        assert_eq!(Coverage::of(&report).untested_features(), report.cluster.features);
    }

    #[test]
    fn a_claim_is_kept_only_if_every_case_that_decides_it_passed() {
        let mut report = golden::report();
        let claim = report.cases[0].claims.clone();
        for (verdict, expected) in [
            (Verdict::Pass, Some(true)),
            (Verdict::Fail, Some(false)),
            (Verdict::Inconclusive, None),
        ] {
            report.cases[3].claims = claim.clone();
            report.cases[3].verdict = verdict;
            let coverage = Coverage::of(&report);
            assert_eq!(
                coverage.decided().get("release-prefix-empty-list").copied(),
                expected
            );
        }
    }
}
