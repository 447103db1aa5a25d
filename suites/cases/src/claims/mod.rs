//! The catalogue, parsed once from `claims.yaml`: every claim that the suite knows, whether a case decides it yet or
//! not.

pub mod joint;

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use harness::case::{Case, Rights};
use serde::{Deserialize, Serialize};

/// Claims about one subject.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Its letter and what it is about; the area of the cases that decide its claims.
    pub name: String,
    /// In other words.
    pub about: String,
    /// Its claims.
    pub claims: Vec<Claim>,
}

/// One sentence about what a client of a Service sees, such that packets alone decide it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Unique. Deviations of users name it, so it never changes.
    pub id: Name,
    /// Which implementations it binds.
    pub tier: ClaimTier,
    /// Features that a target must declare.
    #[serde(default)]
    pub features: BTreeSet<Name>,
    /// Parts of it with a tier of their own.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// What a cluster must have.
    pub needs: ClaimNeeds,
    /// What a client sees.
    pub sentence: String,
    /// Why it matters: what happens to clients and operators where it is not kept.
    #[serde(default)]
    pub why: Option<String>,
    /// What is typically wrong in an implementation that does not keep it, the likeliest first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// No case of its own decides it: it is judged over those of all claims above it in its area ([`joint`]).
    #[serde(default, rename = "joint")]
    pub is_joint: bool,
    /// Which of the two outages that the suite began with it is about.
    #[serde(default)]
    pub incidents: Vec<u8>,
    /// Public threads about failures that it guards against.
    #[serde(default)]
    pub outages: Vec<Thread>,
}

/// A part of a claim that binds other implementations than the rest of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Which part.
    pub of: String,
    /// Which implementations it binds.
    pub tier: ClaimTier,
    /// Features that a target must declare for it, those of the whole claim included.
    #[serde(default)]
    pub features: BTreeSet<Name>,
}

/// Which implementations a claim binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimTier {
    /// Every implementation.
    Core,
    /// Those that declare its features; it binds them like core.
    Extended,
    /// Every implementation, also through restarts, faults and leftovers.
    Robustness,
    /// Every implementation: nothing is left behind, nothing of another owner is touched.
    Hygiene,
}

/// The least that a cluster must have for a claim. A case may need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimNeeds {
    /// Nodes.
    pub nodes: usize,
    /// Families.
    pub families: ClaimFamilies,
    /// Rights.
    pub rights: Rights,
    /// A client outside the cluster.
    #[serde(default)]
    pub outside: bool,
}

/// Families that a claim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimFamilies {
    /// Each family that the cluster has, by itself.
    Any,
    /// IPv4 alone.
    Ipv4,
    /// Services with both.
    DualStack,
}

/// A claim's id, or a feature: lowercase words and numbers, joined by hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

/// An issue or a pull request on GitHub: `OWNER/REPOSITORY#NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Thread(String);

static AREAS: LazyLock<Vec<Area>> = LazyLock::new(|| {
    parse(include_str!("../../claims.yaml"))
        .unwrap_or_else(|error| panic!("suites/cases/claims.yaml: {error}"))
});

fn parse(text: &str) -> Result<Vec<Area>, serde_saphyr::Error> {
    serde_saphyr::from_str(text)
}

/// All areas, in the order of their letters.
#[must_use]
pub fn areas() -> &'static [Area] {
    &AREAS
}

/// All claims, by area.
pub fn all() -> impl Iterator<Item = &'static Claim> {
    areas().iter().flat_map(|area| &area.claims)
}

/// A claim by its id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Claim> {
    all().find(|claim| claim.id.as_str() == id)
}

/// Features that a target may declare: those that claims ask for.
#[must_use]
pub fn features() -> BTreeSet<&'static str> {
    let of_claim = |claim: &'static Claim| {
        let parts = claim.parts.iter().map(|part| &part.features);
        std::iter::once(&claim.features).chain(parts).flatten()
    };
    all().flat_map(of_claim).map(Name::as_str).collect()
}

impl Area {
    /// Its letter, and its name without it.
    #[must_use]
    pub fn letter_and_title(&self) -> (&str, &str) {
        self.name.split_once(' ').unwrap_or((&self.name, &self.name))
    }
}

impl Claim {
    /// The area that it stands in.
    #[must_use]
    pub fn area(&self) -> Option<&'static Area> {
        areas()
            .iter()
            .find(|area| area.claims.iter().any(|claim| claim.id == self.id))
    }

    /// The cases that decide it, each by itself, or all together if it is joint, in the order of the catalogue; none,
    /// if it has no case yet.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let decided: Vec<&str> = if self.is_joint {
            let claims = self.area().map_or(&[][..], |area| &area.claims);
            let above = claims.iter().take_while(|claim| claim.id != self.id);
            above.map(|claim| claim.id.as_str()).collect()
        } else {
            vec![self.id.as_str()]
        };
        let decides = |case: &Case| case.claims.iter().any(|id| decided.contains(id));
        crate::ALL.iter().copied().filter(decides).collect()
    }
}

impl fmt::Display for ClaimTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Extended => "extended",
            Self::Robustness => "robustness",
            Self::Hygiene => "hygiene",
        })
    }
}

impl fmt::Display for ClaimFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Ipv4 => "IPv4",
            Self::DualStack => "dual-stack",
        })
    }
}

impl Name {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_word = |word: &str| {
            let is_of_it = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            !word.is_empty() && word.bytes().all(is_of_it)
        };
        if text.split('-').all(is_word) {
            Ok(Self(text))
        } else {
            Err(format!(
                "expected lowercase words and numbers, joined by hyphens, found {text:?}"
            ))
        }
    }
}

impl Thread {
    /// Its address; GitHub redirects from that of an issue to a pull request.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://github.com/{}", self.0.replacen('#', "/issues/", 1))
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Thread {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_thread = text.split_once('#').is_some_and(|(repository, number)| {
            repository.split('/').filter(|part| !part.is_empty()).count() == 2
                && number.parse::<u32>().is_ok()
        });
        if is_thread {
            Ok(Self(text))
        } else {
            Err(format!("expected OWNER/REPOSITORY#NUMBER, found {text:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::{
        case::{Families, Tier},
        write_effect::Effect,
    };

    use super::*;

    /// Tiers and features of the claim and its parts.
    fn bound(claim: &Claim) -> Vec<(ClaimTier, &BTreeSet<Name>)> {
        let parts = claim.parts.iter().map(|part| (part.tier, &part.features));
        std::iter::once((claim.tier, &claim.features))
            .chain(parts)
            .collect()
    }

    #[test]
    fn areas_are_sorted_by_their_letters_and_ids_are_unique() {
        let letters: Vec<&str> = areas().iter().map(|area| area.letter_and_title().0).collect();
        let expected: Vec<String> = ('A'..='O').map(String::from).collect();
        assert_eq!(letters, expected);
        let ids: BTreeSet<_> = all().map(|claim| &claim.id).collect();
        assert_eq!((ids.len(), all().count()), (149, 149));
    }

    #[test]
    fn a_claim_stands_alone_and_is_extended_by_the_features_that_it_names() {
        for claim in all() {
            let sentence = &claim.sentence;
            assert!(sentence.len() > 40 && !sentence.ends_with('.'), "{claim:?}");
            assert!(
                !sentence.contains("the same when") && !sentence.contains("as above"),
                "{claim:?}"
            );
            for (tier, features) in bound(claim) {
                match tier {
                    ClaimTier::Core => assert!(features.is_empty(), "{claim:?}"),
                    ClaimTier::Extended => assert!(!features.is_empty(), "{claim:?}"),
                    ClaimTier::Robustness | ClaimTier::Hygiene => {}
                }
            }
            assert_eq!(find(claim.id.as_str()), Some(claim));
        }
    }

    #[test]
    fn each_claim_has_a_case_and_says_why_it_matters_and_what_is_wrong_where_it_fails() {
        for claim in all() {
            assert!(!claim.cases().is_empty(), "no case decides {}", claim.id);
            let sentences: Vec<&str> = claim
                .why
                .iter()
                .chain(&claim.causes)
                .map(String::as_str)
                .collect();
            assert!(claim.why.is_some(), "{}: why", claim.id);
            assert!(!claim.causes.is_empty(), "{}: causes", claim.id);
            for sentence in sentences {
                assert!(
                    sentence.ends_with('.') && sentence.len() > 30,
                    "{}: {sentence:?}",
                    claim.id
                );
                assert_eq!(sentence.trim(), sentence, "{}", claim.id);
            }
        }
    }

    #[test]
    fn effects_that_every_case_may_see_are_claims_of_the_core() {
        for effect in Effect::ALL {
            let claim = find(effect.claim()).unwrap_or_else(|| panic!("{effect:?}"));
            assert_eq!(claim.tier, ClaimTier::Core, "{claim:?}");
        }
    }

    #[test]
    fn a_case_decides_claims_of_its_area_and_binds_and_needs_what_they_do() {
        for case in crate::ALL {
            for id in case.claims {
                let claim = find(id).unwrap_or_else(|| panic!("{}: {id} is no claim", case.id));
                assert_eq!(claim.area().unwrap().name, case.area, "{}", case.id);
                let features: BTreeSet<&str> = case.features.iter().copied().collect();
                let tier = match case.tier {
                    Tier::Core if features.is_empty() => ClaimTier::Core,
                    Tier::Core => ClaimTier::Extended,
                    Tier::Robustness => ClaimTier::Robustness,
                    Tier::Hygiene => ClaimTier::Hygiene,
                };
                let is_bound = bound(claim).into_iter().any(|(one, of_it)| {
                    one == tier && of_it.iter().map(Name::as_str).eq(features.iter().copied())
                });
                assert!(is_bound, "{}: {tier} {features:?}, {claim:?}", case.id);
                let needs = &claim.needs;
                assert!(
                    needs.nodes == case.needs.nodes && needs.rights <= case.needs.rights,
                    "{}: {:?}, {claim:?}",
                    case.id,
                    case.needs
                );
                let families = match case.needs.families {
                    Families::Any => ClaimFamilies::Any,
                    Families::Ipv4 => ClaimFamilies::Ipv4,
                    Families::DualStack => ClaimFamilies::DualStack,
                };
                assert_eq!(needs.families, families, "{}", case.id);
                assert!(claim.cases().iter().any(|found| found.id == case.id));
            }
        }
    }

    #[test]
    fn features_are_those_of_claims_and_of_their_parts() {
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
    }

    #[test]
    fn what_is_misspelt_is_refused_with_what_was_expected() {
        let file = |id: &str, more: &str| {
            let claim = format!(
                "{{id: {id}, tier: core, needs: {{nodes: 1, families: any, rights: api}}, sentence: s{more}}}"
            );
            parse(&format!("- {{name: A x, about: y, claims: [{claim}]}}"))
        };
        assert_eq!(file("a-1", ", outages: [a/b#1]").unwrap()[0].claims.len(), 1);
        for (id, more, expected) in [
            ("A-1", "", "lowercase words"),
            ("a--1", "", "lowercase words"),
            ("a", ", outages: [b#1]", "OWNER/REPOSITORY#NUMBER"),
            ("a", ", need: api", "need"),
        ] {
            let error = file(id, more).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let thread = Thread::try_from("cilium/cilium#43619".to_owned()).unwrap();
        assert_eq!(thread.url(), "https://github.com/cilium/cilium/issues/43619");
    }
}
