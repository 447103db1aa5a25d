//! Why a run has no case: options that match none, and similar names.

use std::collections::BTreeSet;

use anyhow::anyhow;
use cases::claims;

use super::select::Wanted;
use crate::suggestions::near;

/// Why no case is selected, and what to do.
pub(super) fn unmatched(wanted: &Wanted<'_>) -> anyhow::Error {
    let finds = |alone: Wanted<'_>| cases::ALL.iter().any(|case| alone.is(case));
    if let Some(filter) = wanted.filter
        && !finds(Wanted {
            filter: Some(filter),
            ..Wanted::default()
        })
    {
        let ids = cases::ALL.iter().map(|case| case.id);
        let decided = claims::all().filter(|claim| !claim.cases().is_empty());
        let mut names: Vec<&str> = ids.chain(decided.map(|claim| claim.id.as_str())).collect();
        names.extend(claims::areas().iter().map(|area| area.name.as_str()));
        let mut known = BTreeSet::new();
        names.retain(|name| known.insert(*name));
        let near = near(filter.as_str(), names);
        return anyhow!(
            "no case has an id, a claim or an area that is or matches --filter '{}'{near}: `plumbline list` shows all ids",
            filter.as_str()
        );
    }
    if wanted.ids.is_some()
        && !finds(Wanted {
            ids: wanted.ids,
            ..Wanted::default()
        })
    {
        return anyhow!(
            "no case that failed in the last report is in this version of plumbline: leave out --rerun-failed, or use the \
             plumbline that wrote the report"
        );
    }
    let claims: Vec<&str> = wanted.claims.iter().map(|claim| claim.0.id.as_str()).collect();
    let options = [
        wanted
            .filter
            .map(|filter| format!("--filter '{}'", filter.as_str())),
        (!claims.is_empty()).then(|| format!("--claims {}", claims.join(","))),
        wanted.ids.map(|_| "--rerun-failed".to_owned()),
    ];
    let options: Vec<String> = options.into_iter().flatten().collect();
    anyhow!(
        "each of {} selects cases, and no case is selected by all of them: leave one out",
        options.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::select::named;

    #[test]
    fn a_filter_that_matches_nothing_is_named_with_ids_that_are_near() {
        let error = |filter: &str| {
            let filter = filter.parse().unwrap();
            let wanted = Wanted {
                filter: Some(&filter),
                ..Wanted::default()
            };
            named(&wanted).unwrap_err().to_string()
        };
        assert_eq!(
            error("zzz"),
            "no case has an id, a claim or an area that is or matches --filter 'zzz': `plumbline list` shows all ids"
        );
        assert_eq!(
            error(r"^stale-no-rebot\d$"),
            "no case has an id, a claim or an area that is or matches --filter '^stale-no-rebot\\d$'; near is stale-no-reboot: \
             `plumbline list` shows all ids"
        );
        for (filter, near) in [
            ("relaese-name-lattice", "release-name-lattice"),
            ("Clusterip-from-pod", "clusterip-from-pod"),
            ("release isolaton", "A release isolation"),
        ] {
            let error = error(filter);
            assert!(error.contains(" near ") && error.contains(near), "{error}");
        }
    }

    #[test]
    fn options_that_select_no_case_together_are_named() {
        let (filter, claims) = (
            "^release-".parse().unwrap(),
            ["clusterip-from-pod".parse().unwrap()],
        );
        let both = Wanted {
            filter: Some(&filter),
            claims: &claims,
            ids: None,
        };
        assert_eq!(
            named(&both).unwrap_err().to_string(),
            "each of --filter '^release-' and --claims clusterip-from-pod selects cases, and no case is selected by all \
             of them: leave one out"
        );
        let of_another_version = BTreeSet::from(["no-such-case".to_owned()]);
        let again = Wanted {
            ids: Some(&of_another_version),
            ..Wanted::default()
        };
        let error = named(&again).unwrap_err().to_string();
        assert!(
            error.starts_with("no case that failed in the last report"),
            "{error}"
        );
    }
}
