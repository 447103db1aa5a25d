//! What `--filter` and `--skip` select: the text is looked up as a name before it is parsed as a regular expression.

use std::str::FromStr;

use cases::claims::joint;
use harness::case::Case;
use regex::Regex;

use crate::catalogue::CataloguePart;

/// The text of a `--filter` or a `--skip`, and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    text: String,
    means: Means,
}

/// The first of these that matches the text.
#[derive(Clone, Debug)]
enum Means {
    /// The name of a case, a claim or an area.
    Part(CataloguePart),
    /// A regular expression that matches in the id of a case, of a claim that it decides, or of a claim that is judged
    /// over it.
    Expression(Regex),
}

impl FromStr for Filter {
    type Err = regex::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let means = match CataloguePart::find(text) {
            Some(part) => Means::Part(part),
            None => Means::Expression(Regex::new(text)?),
        };
        Ok(Self {
            text: text.to_owned(),
            means,
        })
    }
}

impl Filter {
    /// The text as given.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it selects a case.
    pub(super) fn is_match(&self, case: &Case) -> bool {
        match &self.means {
            Means::Part(part) => part.has_case(case),
            Means::Expression(regex) => {
                let mut joint = joint::all().filter(|claim| regex.is_match(claim.id.as_str()));
                regex.is_match(case.id)
                    || case.claims.iter().any(|claim| regex.is_match(claim))
                    || joint.any(|claim| claim.cases().iter().any(|one| one.id == case.id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cases::claims;

    use super::*;

    fn selected(text: &str) -> Vec<&'static str> {
        let filter: Filter = text.parse().unwrap();
        let cases = cases::ALL.iter().filter(|case| filter.is_match(case));
        cases.map(|case| case.id).collect()
    }

    #[test]
    fn the_id_of_a_case_selects_none_that_begins_with_it() {
        assert_eq!(selected("release-all-frontends"), ["release-all-frontends"]);
        assert_eq!(
            selected("release-all-frontends.*"),
            ["release-all-frontends", "release-all-frontends-lb"]
        );
        assert_eq!(
            selected("release-all-frontends-lb$"),
            ["release-all-frontends-lb"]
        );
    }

    #[test]
    fn the_id_of_a_claim_selects_what_decides_it() {
        let of_another_name = claims::all().find(|claim| {
            let cases = claim.cases();
            !cases.is_empty() && cases::find(claim.id.as_str()).is_none() && !claim.is_joint
        });
        let claim = of_another_name.unwrap();
        let expected: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
        assert_eq!(selected(claim.id.as_str()), expected);
        let claim = joint::find("stale-no-reboot").unwrap();
        let all: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
        assert_eq!(selected(claim.id.as_str()), all);
        assert_eq!(selected("^stale-no-reboot$"), all);
    }

    #[test]
    fn an_area_is_selected_by_its_letter_or_its_name() {
        let expected: Vec<&str> = cases::ALL
            .iter()
            .filter(|case| case.area == "A release isolation")
            .map(|case| case.id)
            .collect();
        for text in ["A", "a", "release isolation", "A release isolation"] {
            assert_eq!(selected(text), expected, "{text}");
        }
    }

    #[test]
    fn what_names_nothing_is_an_expression() {
        let releases = cases::ALL.iter().filter(|case| case.id.starts_with("release-"));
        let releases: Vec<&str> = releases.map(|case| case.id).collect();
        assert_eq!(selected("^release-"), releases);
        assert!("(".parse::<Filter>().is_err());
    }
}
