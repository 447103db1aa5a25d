//! The catalogue: every claim that the suite knows, whether a case decides it yet or not.
//!
//! A claim is one sentence about what a client of a Service sees, such that packets alone decide it. Its case says how.
//! One file for each of the areas A, B and C, which are about outages; two for the others.
mod a_release;
mod b_apiserver;
mod c_leftovers;
mod d_to_h;
mod i_to_o;
pub mod joint;

use std::collections::BTreeSet;

use harness::case::Case;

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name, unique.
    pub id: &'static str,
    /// Whom it binds: `core`, `extended:FEATURE`, `robustness`, `hygiene`; what binds a part of it alone is in brackets
    /// or after a semicolon.
    pub tier: &'static str,
    /// What a cluster must have: nodes · families (`any`, `v4`, `ds` for both) · rights, and `x` for a client outside.
    pub needs: &'static str,
    /// What a client sees.
    pub text: &'static str,
}

/// Claims of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its letter and what it is about; the area of the cases that decide its claims.
    pub name: &'static str,
    /// In other words.
    pub about: &'static str,
    /// Its claims.
    pub claims: &'static [Claim],
}

/// All areas.
pub const AREAS: [Area; 15] = [
    a_release::A_RELEASE,
    b_apiserver::B_APISERVER,
    c_leftovers::C_LEFTOVERS,
    d_to_h::D_REACH,
    d_to_h::E_ABSENT,
    d_to_h::F_SLICES,
    d_to_h::G_DRAINING,
    d_to_h::H_UDP,
    i_to_o::I_POLICIES,
    i_to_o::J_LOADBALANCER,
    i_to_o::K_AFFINITY,
    i_to_o::L_TOPOLOGY,
    i_to_o::M_FAMILIES,
    i_to_o::N_RESTART,
    i_to_o::O_HYGIENE,
];

/// A claim by its id.
#[must_use]
pub fn find(id: &str) -> Option<Claim> {
    all().find(|claim| claim.id == id)
}

/// All claims, by area.
pub fn all() -> impl Iterator<Item = Claim> {
    AREAS.into_iter().flat_map(|area| area.claims.iter().copied())
}

/// Features that a vendor may declare: those that tiers name.
#[must_use]
pub fn features() -> BTreeSet<&'static str> {
    all()
        .flat_map(|claim| claim.tier.split("extended:").skip(1))
        .filter_map(|rest| rest.split([' ', ',', ';', ')']).next())
        .collect()
}

impl Claim {
    /// The cases that decide it, each by itself, or all together if it is a [`joint`] row; none yet, if there are none.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        if let Some(row) = joint::find(self.id) {
            return row.cases();
        }
        let decides = |case: &Case| case.claims.contains(&self.id);
        crate::ALL.iter().copied().filter(decides).collect()
    }
}

#[cfg(test)]
mod tests {
    use harness::{case::Tier, effect::Effect};

    use super::*;

    #[test]
    fn every_claim_is_one_of_a_kind_and_says_whom_it_binds() {
        let ids: BTreeSet<_> = all().map(|claim| claim.id).collect();
        assert_eq!(ids.len(), all().count());
        for claim in all() {
            let tiers = ["core", "extended:", "robustness", "hygiene"];
            assert!(tiers.iter().any(|tier| claim.tier.starts_with(tier)), "{claim:?}");
            assert_eq!(claim.needs.split(" · ").count(), 3, "{claim:?}");
            assert!(claim.text.len() > 40 && !claim.text.ends_with('.'), "{claim:?}");
            assert_eq!(find(claim.id), Some(claim));
        }
    }

    #[test]
    fn what_rows_lean_on_are_claims_that_bind_everybody() {
        for effect in Effect::ALL {
            let claim = find(effect.claim()).unwrap_or_else(|| panic!("{effect:?}"));
            assert!(claim.tier.starts_with("core"), "{claim:?}");
        }
    }

    #[test]
    fn every_case_decides_claims_of_its_area_and_binds_whom_they_bind() {
        for case in crate::ALL {
            let area = AREAS.into_iter().find(|area| area.name == case.area);
            let area = area.unwrap_or_else(|| panic!("{}: {:?} is no area", case.id, case.area));
            for id in case.claims {
                let claim = area.claims.iter().find(|claim| claim.id == *id);
                let claim = claim.unwrap_or_else(|| panic!("{}: {id} is no claim of {}", case.id, area.name));
                let tier = case.tier.to_string();
                // Declared, a feature binds like core.
                let is_declared = |feature: &&str| claim.tier.starts_with(&format!("extended:{feature}"));
                assert!(
                    claim.tier.starts_with(&tier)
                        || (case.tier == Tier::Core && case.features.iter().any(is_declared)),
                    "{}: {} and {tier}",
                    case.id,
                    claim.tier
                );
                assert!(claim.cases().iter().any(|found| found.id == case.id));
            }
        }
    }

    #[test]
    fn every_joint_row_is_a_claim_of_its_area_and_no_case() {
        for row in crate::JOINT {
            let claim = find(row.id).unwrap();
            let area = AREAS.into_iter().find(|area| area.name == row.area).unwrap();
            assert!(area.claims.contains(&claim) && claim.tier.starts_with(&row.tier.to_string()));
            assert!(crate::find(row.id).is_none() && !claim.cases().is_empty() && !row.sentence.is_empty());
        }
    }

    #[test]
    fn features_are_those_that_tiers_name() {
        let features = features();
        for feature in [
            "loadbalancer",
            "mixed-protocol",
            "fragments",
            "fragments-reordered",
            "peername",
        ] {
            assert!(features.contains(feature), "{feature} is not in {features:?}");
        }
        let word = |feature: &&str| {
            feature
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        assert!(features.iter().all(word), "{features:?}");
    }
}
