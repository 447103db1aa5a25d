//! What runs, decided before the run.

use std::collections::BTreeSet;

use anyhow::bail;
use harness::{case::Case, verdict::Verdict};
use lab::cluster::Description;
use regex::Regex;

/// Cases that run, and those that do not, with the reason.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) run: Vec<Case>,
    pub(super) excluded: Vec<(Case, Verdict)>,
}

/// Cases that a filter names.
pub(super) fn named(filter: Option<&Regex>) -> anyhow::Result<Vec<Case>> {
    let matches = |case: &Case| {
        filter.is_none_or(|filter| {
            filter.is_match(case.id) || case.claims.iter().any(|claim| filter.is_match(claim))
        })
    };
    let named: Vec<Case> = cases::ALL.into_iter().filter(matches).collect();
    if named.is_empty() {
        let filter = filter.map_or("", Regex::as_str);
        bail!("no case and no claim matches {filter:?}: `plumbline list` shows all");
    }
    Ok(named)
}

/// Cases that can run on a cluster. Targets declare no optional features yet, and no case asks for one.
pub(super) fn select(named: Vec<Case>, cluster: &Description) -> Selection {
    let mut selection = Selection {
        run: Vec::new(),
        excluded: Vec::new(),
    };
    for case in named {
        match case.excluded(cluster, &BTreeSet::new()) {
            None => selection.run.push(case),
            Some(verdict) => selection.excluded.push((case, verdict)),
        }
    }
    selection
}

#[cfg(test)]
mod tests {
    use lab::cluster::{Capability, Node};

    use super::*;

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
        }
    }

    const EVERYTHING: [Capability; 4] = [
        Capability::Ipv4,
        Capability::ApiWrite,
        Capability::Node,
        Capability::HostNetwork,
    ];

    #[test]
    fn a_filter_names_cases_by_id_and_by_claim() {
        let filter = Regex::new("^release-").unwrap();
        let found = named(Some(&filter)).unwrap();
        let releases = cases::ALL.iter().filter(|case| case.id.starts_with("release-"));
        assert_eq!(found.len(), releases.count());
        assert!(found.len() < cases::ALL.len(), "others are left out");
        let one = Regex::new("^release-name-lattice$").unwrap();
        assert_eq!(named(Some(&one)).unwrap().len(), 1);
        let error = named(Some(&Regex::new("no-such").unwrap())).unwrap_err();
        assert!(error.to_string().contains("plumbline list"), "{error}");
    }

    #[test]
    fn everything_runs_where_everything_is_there() {
        let selection = select(named(None).unwrap(), &cluster(2, &EVERYTHING));
        assert_eq!(
            (selection.run.len(), selection.excluded.len()),
            (cases::ALL.len(), 0)
        );
    }

    #[test]
    fn what_the_cluster_lacks_is_skipped_with_the_reason() {
        let selection = select(named(None).unwrap(), &cluster(1, &EVERYTHING));
        let (case, verdict) = &selection.excluded[0];
        assert_eq!(case.id, "empty-refill-no-restart");
        assert_eq!(
            verdict.to_string(),
            "skipped: needs 2 nodes (there are 1), which lab does not have"
        );
        let selection = select(
            named(None).unwrap(),
            &cluster(2, &[Capability::Ipv4, Capability::ApiWrite]),
        );
        let ids: Vec<_> = selection.excluded.iter().map(|(case, _)| case.id).collect();
        assert_eq!(ids, ["stale-sock-legacy-multi"]);
    }
}
