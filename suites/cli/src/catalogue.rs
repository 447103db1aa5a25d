//! Parts of the catalogue that a command line names: a case, a claim or an area.

use std::str::FromStr;

use cases::claims::{self, Area, Claim};
use cluster::target::Target;
use harness::case::Case;

use crate::suggestions::unknown;

/// Letters of regular expressions that no name has.
const OF_EXPRESSIONS: &[char] = &['^', '$', '.', '*', '+', '?', '|', '(', ')', '[', ']', '\\'];

/// A case, a claim or an area, by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CataloguePart {
    /// The id of a case: only that case, even if other ids begin with it.
    Case(&'static str),
    /// The id of a claim: the cases that decide it.
    Claim(&'static Claim),
    /// The letter of an area, its name, or both: its cases.
    Area(&'static Area),
}

impl CataloguePart {
    /// The part of this name, if there is one. A case goes before a claim of the same id.
    pub(crate) fn find(text: &str) -> Option<Self> {
        let case = cases::find(text).map(|case| Self::Case(case.id));
        let claim = || claims::find(text).map(Self::Claim);
        case.or_else(claim).or_else(|| area(text).map(Self::Area))
    }

    /// Every name.
    pub(crate) fn names() -> Vec<&'static str> {
        let ids = cases::ALL.iter().map(|case| case.id);
        let claims = claims::all().map(|claim| claim.id.as_str());
        let mut names: Vec<&str> = ids.chain(claims.filter(|id| cases::find(id).is_none())).collect();
        names.extend(claims::areas().iter().map(|area| area.name.as_str()));
        names
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Case(id) => id,
            Self::Claim(claim) => claim.id.as_str(),
            Self::Area(area) => &area.name,
        }
    }

    /// Whether a case is of this part.
    pub(crate) fn has_case(&self, case: &Case) -> bool {
        match self {
            Self::Case(id) => case.id == *id,
            Self::Claim(claim) => claim.cases().iter().any(|one| one.id == case.id),
            Self::Area(area) => case.area == area.name,
        }
    }

    /// Whether a claim is of this part; of a case, those that it decides.
    pub(crate) fn has_claim(&self, claim: &Claim) -> bool {
        match self {
            Self::Case(id) => claim.cases().iter().any(|case| case.id == *id),
            Self::Claim(own) => own.id == claim.id,
            Self::Area(area) => area.claims.iter().any(|one| one.id == claim.id),
        }
    }
}

impl FromStr for CataloguePart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(found) = Self::find(text) {
            return Ok(found);
        }
        if Target::names().any(|name| name == text) {
            return Err(format!("it is a target: --target {text}"));
        }
        if text.contains(OF_EXPRESSIONS) {
            return Err(format!(
                "expected a case, a claim or an area; an expression is --filter '{text}'"
            ));
        }
        Err(unknown(
            "case, claim or area",
            text,
            Self::names(),
            "plumbline list",
        ))
    }
}

/// An area by its letter, by its name without it, or by both, in upper or lower case.
fn area(text: &str) -> Option<&'static Area> {
    claims::areas().iter().find(|area| {
        let (letter, title) = area.letter_and_title();
        [letter, title, &area.name]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_a_claim_and_an_area_have_their_names() {
        let name = |text: &str| text.parse::<CataloguePart>().map(|part| part.name());
        assert_eq!(name("release-prefix-null-slice"), Ok("release-prefix-null-slice"));
        assert_eq!(name("stale-no-reboot"), Ok("stale-no-reboot"));
        for text in ["A", "a", "release isolation", "A release isolation"] {
            assert_eq!(name(text), Ok("A release isolation"), "{text}");
        }
        let names = CataloguePart::names();
        assert_eq!(
            names.iter().filter(|name| **name == "clusterip-from-pod").count(),
            1
        );
    }

    #[test]
    fn what_is_no_name_is_answered_with_what_may_be_meant() {
        let error = |text: &str| text.parse::<CataloguePart>().unwrap_err();
        assert_eq!(
            error("release-prefix-nul-slice"),
            "there is no case, claim or area release-prefix-nul-slice; did you mean release-prefix-null-slice? `plumbline \
             list` shows all"
        );
        assert!(error("release isolaton").contains("did you mean A release isolation?"));
        assert_eq!(
            error("zzz"),
            "there is no case, claim or area zzz: `plumbline list` shows all"
        );
        assert_eq!(error("cilium"), "it is a target: --target cilium");
        assert_eq!(
            error("^release-"),
            "expected a case, a claim or an area; an expression is --filter '^release-'"
        );
    }

    #[test]
    fn a_claim_and_an_area_have_their_cases_and_claims() {
        let part = |text: &str| text.parse::<CataloguePart>().unwrap();
        let case = |id: &str| cases::find(id).unwrap();
        let claim = |id: &str| claims::find(id).unwrap();
        assert!(part("stale-no-reboot").has_case(&case("stale-sock-legacy-multi")));
        assert!(part("A").has_case(&case("release-name-lattice")));
        assert!(!part("A").has_case(&case("clusterip-from-pod")));
        assert!(part("A").has_claim(claim("release-name-lattice")));
        assert!(part("release-name-lattice").has_claim(claim("release-name-lattice")));
        assert!(!part("release-name-lattice").has_claim(claim("clusterip-from-pod")));
    }
}
