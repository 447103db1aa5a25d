//! Why a run has no case: options that match none, and similar names.

use anyhow::anyhow;

use super::{filter::Filter, select::Wanted};
use crate::{catalogue::CataloguePart, suggestions::meant};

/// Why no case is selected, and what to do.
pub(super) fn unmatched(wanted: &Wanted<'_>) -> anyhow::Error {
    let finds = |alone: Wanted<'_>| cases::ALL.iter().any(|case| alone.is(case));
    for part in wanted.parts {
        let alone = Wanted {
            parts: &[*part],
            ..Wanted::default()
        };
        if !finds(alone) {
            return anyhow!(
                "the area {0} has no case yet: `plumbline list --claims '{0}'` shows its claims",
                part.name()
            );
        }
    }
    if let Some(filter) = wanted.filter
        && !finds(Wanted {
            filter: Some(filter),
            ..Wanted::default()
        })
    {
        let meant = meant(filter.as_str(), CataloguePart::names());
        let end = if meant.is_empty() { ":" } else { "" };
        return anyhow!(
            "no case has an id, a claim or an area that is or matches --filter '{}'{meant}{end} `plumbline list` shows all ids",
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
    let options = options(wanted);
    let is_by_skip = finds(Wanted { skip: &[], ..*wanted });
    if is_by_skip {
        let skip: Vec<&str> = wanted.skip.iter().map(Filter::as_str).collect();
        let of = if options.is_empty() {
            "every case".to_owned()
        } else {
            format!("every case of {}", options.join(" and "))
        };
        return anyhow!(
            "--skip '{}' leaves out {of}: name others, or fewer to skip",
            skip.join("' --skip '")
        );
    }
    anyhow!(
        "each of {} selects cases, and no case is selected by all of them: leave one out",
        options.join(" and ")
    )
}

/// What selects cases, as on the command line.
fn options(wanted: &Wanted<'_>) -> Vec<String> {
    let parts: Vec<&str> = wanted.parts.iter().map(CataloguePart::name).collect();
    let claims: Vec<&str> = wanted.claims.iter().map(|claim| claim.0.id.as_str()).collect();
    let options = [
        (!parts.is_empty()).then(|| parts.join(" ")),
        wanted
            .filter
            .map(|filter| format!("--filter '{}'", filter.as_str())),
        (!claims.is_empty()).then(|| format!("--claims {}", claims.join(","))),
        wanted.ids.map(|_| "--rerun-failed".to_owned()),
    ];
    options.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cases::claims::Area;

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
            "no case has an id, a claim or an area that is or matches --filter '^stale-no-rebot\\d$'; did you mean \
             stale-no-reboot? `plumbline list` shows all ids"
        );
        for (filter, near) in [
            ("relaese-name-lattice", "release-name-lattice"),
            ("Clusterip-from-pod", "clusterip-from-pod"),
            ("release isolaton", "A release isolation"),
        ] {
            let error = error(filter);
            assert!(error.contains("did you mean") && error.contains(near), "{error}");
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
            ..Wanted::default()
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

    #[test]
    fn what_is_skipped_whole_and_an_area_without_cases_are_named() {
        let parts = ["release-name-lattice".parse().unwrap()];
        let skip = ["A".parse().unwrap(), "^clusterip".parse().unwrap()];
        let wanted = Wanted {
            parts: &parts,
            skip: &skip,
            ..Wanted::default()
        };
        assert_eq!(
            named(&wanted).unwrap_err().to_string(),
            "--skip 'A' --skip '^clusterip' leaves out every case of release-name-lattice: name others, or fewer to skip"
        );
        let all = [".".parse().unwrap()];
        let error = named(&Wanted {
            skip: &all,
            ..Wanted::default()
        });
        assert!(
            error
                .unwrap_err()
                .to_string()
                .starts_with("--skip '.' leaves out every case: ")
        );
        let empty = "name: P nothing\nabout: it has no claim\nclaims: []";
        let empty: Area = serde_saphyr::from_str(empty).unwrap();
        let parts = [CataloguePart::Area(Box::leak(Box::new(empty)))];
        let error = named(&Wanted {
            parts: &parts,
            ..Wanted::default()
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("the area P nothing ") && error.contains("no case yet"),
            "{error}"
        );
    }
}
