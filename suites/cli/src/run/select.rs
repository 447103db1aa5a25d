//! The selection of cases, decided before the run.

use std::{collections::BTreeSet, str::FromStr};

use cases::claims::{self, Claim};
use cluster::Description;
use faults::Found;
use harness::{case::Case, limits::Limits, verdict::Verdict};

use super::{filter::Filter, unmatched::unmatched};
use crate::{catalogue::CataloguePart, suggestions::unknown};

/// Cases that run, and those that do not, with the reason.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) run: Vec<Case>,
    pub(super) excluded: Vec<(Case, Verdict)>,
}

/// A claim of the catalogue, by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimArgument(pub(super) &'static Claim);

impl FromStr for ClaimArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        claims::find(text).map(Self).ok_or_else(|| {
            let ids = claims::all().map(|claim| claim.id.as_str());
            unknown("claim", text, ids, "plumbline list --claims")
        })
    }
}

/// A feature of a claim in the catalogue; `None` for `none`.
#[derive(Clone, Debug)]
pub(crate) struct Feature(pub(super) Option<String>);

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self(None));
        }
        let known = claims::features();
        if known.contains(text) {
            return Ok(Self(Some(text.to_owned())));
        }
        let known: Vec<&str> = known.into_iter().collect();
        Err(format!(
            "no claim asks for the feature {text}; known are {}, or none",
            known.join(", ")
        ))
    }
}

/// The requested part of the catalogue.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    /// Selects cases of one of these; all, if empty.
    pub(super) parts: &'a [CataloguePart],
    /// Selects by name or by a regular expression.
    pub(super) filter: Option<&'a Filter>,
    /// Leaves out what one of these selects.
    pub(super) skip: &'a [Filter],
    /// Selects cases that decide one of these claims; all, if empty.
    pub(super) claims: &'a [ClaimArgument],
    /// Selects these ids; all, if `None`.
    pub(super) ids: Option<&'a BTreeSet<String>>,
}

impl Wanted<'_> {
    pub(super) fn is(&self, case: &Case) -> bool {
        let decides = |claim: &ClaimArgument| claim.0.cases().iter().any(|one| one.id == case.id);
        (self.parts.is_empty() || self.parts.iter().any(|part| part.has_case(case)))
            && self.filter.is_none_or(|filter| filter.is_match(case))
            && !self.skip.iter().any(|skip| skip.is_match(case))
            && (self.claims.is_empty() || self.claims.iter().any(decides))
            && self.ids.is_none_or(|ids| ids.contains(case.id))
    }
}

/// The requested cases; at least one.
pub(super) fn named(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Case>> {
    let named: Vec<Case> = cases::ALL
        .iter()
        .copied()
        .filter(|case| wanted.is(case))
        .collect();
    if named.is_empty() {
        return Err(unmatched(wanted));
    }
    Ok(named)
}

/// Cases that can run on a cluster, with a target of these features, with what was found on a node, and within these
/// limits.
pub(super) fn select(
    named: Vec<Case>,
    cluster: &Description,
    features: &BTreeSet<String>,
    limits: &Limits,
    found: Option<&Found>,
) -> Selection {
    let mut selection = Selection {
        run: Vec::new(),
        excluded: Vec::new(),
    };
    for case in named {
        let excluded = case.excluded(cluster, features, found);
        match excluded.or_else(|| limits.leave_out(&case)) {
            None => selection.run.push(case),
            Some(verdict) => selection.excluded.push((case, verdict)),
        }
    }
    selection
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use cases::claims::joint;
    use cluster::{ApiEndpoints, Capability, Node, Variant};
    use harness::{case::Rights, limits::Profile};

    use super::*;

    fn matching(filter: &str) -> anyhow::Result<Vec<Case>> {
        named(&Wanted {
            filter: Some(&filter.parse().unwrap()),
            ..Wanted::default()
        })
    }

    fn everything() -> Vec<Case> {
        named(&Wanted::default()).unwrap()
    }

    fn ids(cases: &[Case]) -> Vec<&str> {
        cases.iter().map(|case| case.id).collect()
    }

    fn cluster(nodes: usize, capabilities: &[Capability]) -> Description {
        Description {
            provider: "lab".into(),
            target: "reference".into(),
            kernel: "6.1".into(),
            nodes: (1..=nodes)
                .map(|n| Node {
                    name: format!("node{n}"),
                    addresses: Vec::new(),
                })
                .collect(),
            capabilities: capabilities.iter().copied().collect(),
            lacking: Default::default(),
            features: BTreeSet::new(),
            deviations: Vec::new(),
            most_endpoints: NonZeroU32::new(65_535),
            ways: ApiEndpoints {
                service: true,
                further: true,
                shared: false,
            },
            variants: [Variant::SocketLbOff, Variant::OtherMode, Variant::OtherRelease].into(),
            image: cluster::PROBE.to_owned(),
            pull_secrets: Vec::new(),
            confined: None,
            software: Default::default(),
            nodes_of_others: 0,
        }
    }

    fn select(named: Vec<Case>, cluster: &Description, features: &BTreeSet<String>) -> Selection {
        super::select(named, cluster, features, &Limits::default(), None)
    }

    #[test]
    fn a_filter_names_cases_by_id_and_by_claim() {
        let found = matching("^release-").unwrap();
        let releases = cases::ALL.iter().filter(|case| case.id.starts_with("release-"));
        assert_eq!(found.len(), releases.count());
        assert!(found.len() < cases::ALL.len(), "others are left out");
        assert_eq!(matching("^release-name-lattice$").unwrap().len(), 1);
    }

    #[test]
    fn a_claim_that_is_not_there_is_named_with_those_that_are_near() {
        let error = "clusterip-from-pot".parse::<ClaimArgument>().unwrap_err();
        assert!(
            error.starts_with("there is no claim clusterip-from-pot; did you mean ")
                && error.contains(" clusterip-from-pod"),
            "{error}"
        );
    }

    #[test]
    fn a_claim_that_is_judged_over_cases_of_others_selects_all_of_them() {
        let claim = joint::find("stale-no-reboot").unwrap();
        let all: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
        assert_eq!(ids(&matching("^stale-no-reboot$").unwrap()), all);
        let claims = [claim.id.as_str().parse().unwrap()];
        let wanted = Wanted {
            claims: &claims,
            ..Wanted::default()
        };
        assert_eq!(ids(&named(&wanted).unwrap()), all);
    }

    #[test]
    fn claims_and_ids_narrow_what_a_filter_leaves() {
        let claims = ["release-name-lattice", "clusterip-from-pod"].map(|id| id.parse().unwrap());
        let wanted = Wanted {
            claims: &claims,
            ..Wanted::default()
        };
        assert_eq!(
            ids(&named(&wanted).unwrap()),
            ["release-name-lattice", "clusterip-from-pod"]
        );
        let of_last_run = BTreeSet::from(["clusterip-from-pod".to_owned()]);
        let wanted = Wanted {
            ids: Some(&of_last_run),
            ..wanted
        };
        assert_eq!(ids(&named(&wanted).unwrap()), ["clusterip-from-pod"]);
    }

    #[test]
    fn positional_names_select_all_of_them_and_skip_leaves_some_out() {
        let parts = ["clusterip-from-pod", "A"].map(|name| name.parse().unwrap());
        let wanted = Wanted {
            parts: &parts,
            ..Wanted::default()
        };
        let both = named(&wanted).unwrap();
        let of_area = cases::ALL
            .iter()
            .filter(|case| case.area == "A release isolation");
        assert_eq!(both.len(), of_area.count() + 1);
        let skip = ["^release-".parse().unwrap()];
        let rest = named(&Wanted {
            skip: &skip,
            ..wanted
        });
        assert!(ids(&rest.unwrap()).iter().all(|id| !id.starts_with("release-")));
    }

    #[test]
    fn a_feature_is_not_supported_unless_it_is_declared() {
        let case = Case {
            features: &["dual-stack"],
            ..cases::find("clusterip-from-pod").unwrap()
        };
        let all = cluster(2, &Capability::ALL);
        let without = select(vec![case], &all, &BTreeSet::new());
        assert_eq!(
            without.excluded[0].1.to_string(),
            "not-supported: reference does not declare the feature dual-stack"
        );
        let with = select(vec![case], &all, &BTreeSet::from(["dual-stack".to_owned()]));
        assert_eq!((with.run.len(), with.excluded.len()), (1, 0));
    }

    #[test]
    fn everything_runs_where_everything_is_there() {
        let features = claims::features().into_iter().map(str::to_owned).collect();
        let selection = select(everything(), &cluster(3, &Capability::ALL), &features);
        let why: Vec<_> = selection
            .excluded
            .iter()
            .map(|(case, why)| (case.id, why))
            .collect();
        assert_eq!((selection.run.len(), why), (cases::ALL.len(), Vec::new()));
    }

    #[test]
    fn a_quick_run_leaves_out_what_names_a_longer_time_and_says_so() {
        let features = claims::features().into_iter().map(str::to_owned).collect();
        let quick = Limits::of(Profile::Quick);
        let all = cluster(3, &Capability::ALL);
        let selection = super::select(everything(), &all, &features, &quick, None);
        let excluded: Vec<(&str, String)> = selection
            .excluded
            .iter()
            .map(|(case, verdict)| (case.id, verdict.to_string()))
            .collect();
        let left_out: Vec<&str> = excluded.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            left_out,
            [
                "empty-refill-no-restart",
                "stale-restart-loop-no-growth",
                "ready-means-served",
                "frontend-moves-owner",
                "frontend-moves-owner-lb",
                "service-change-live",
                "service-change-live-lb",
                "churn-converges",
                "ready-flap-keeps-established",
                "terminating-drains-established",
                "rollout-no-loss",
                "affinity-sticks",
                "affinity-expires",
                "restart-no-new-failure",
                "bootstrap-services-apart",
                "atomic-endpoint-switch",
                "scale-canary-latency",
                "overflow-old-survive",
                "write-failure-retried",
            ]
        );
        assert_eq!(
            excluded[2].1,
            "skipped: its claim takes 60 s at least, and --quick leaves out what takes more than 20 s"
        );
        let one_node = super::select(
            everything(),
            &cluster(1, &Capability::ALL),
            &features,
            &quick,
            None,
        );
        let (_, verdict) = &one_node
            .excluded
            .iter()
            .find(|(case, _)| case.id == left_out[0])
            .unwrap();
        assert!(
            verdict.why().contains("2 nodes"),
            "what can't run at all says that"
        );
    }

    #[test]
    fn what_the_cluster_lacks_is_skipped_with_the_reason() {
        let selection = select(everything(), &cluster(1, &Capability::ALL), &BTreeSet::new());
        let excluded = |id| selection.excluded.iter().find(|(case, _)| case.id == id);
        let (_, verdict) = excluded("empty-refill-no-restart").unwrap();
        assert_eq!(
            verdict.to_string(),
            "skipped: needs 2 nodes (there are 1), which lab does not have"
        );
        let without = cluster(2, &[Capability::Ipv4, Capability::ApiWrite]);
        let selection = select(everything(), &without, &BTreeSet::new());
        let ran = |id| selection.run.iter().any(|case| case.id == id);
        assert!(ran("clusterip-from-pod") && !ran("stale-sock-legacy-multi"));
        assert!(selection.run.iter().all(|case| case.needs.rights < Rights::Node));
    }
}
