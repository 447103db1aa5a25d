//! Claims that a target is known not to keep: shown with the reason, and never counted as pass.

use std::str::FromStr;

use harness::{case::Case, verdict::Verdict};

use super::select::ClaimId;

/// A claim, and why it is not kept.
#[derive(Clone, Debug)]
pub(crate) struct Exemption {
    pub(super) claim: &'static str,
    pub(super) reason: String,
}

impl Exemption {
    /// Of a claim by its id, with a reason that is not empty.
    ///
    /// # Errors
    /// There is no such claim.
    pub(super) fn new(claim: &str, reason: &str) -> Result<Self, String> {
        Ok(Self {
            claim: claim.parse::<ClaimId>()?.0.id,
            reason: reason.to_owned(),
        })
    }
}

impl FromStr for Exemption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('=').map(|(claim, reason)| (claim, reason.trim()));
        match parts {
            Some((claim, reason)) if !reason.is_empty() => Self::new(claim, reason),
            _ => Err(format!(
                "expected CLAIM=REASON, found {text:?}: what has no reason is a failure"
            )),
        }
    }
}

/// Why a case is exempt, if it decides a claim that is.
pub(super) fn reason(case: &Case, exemptions: &[Exemption]) -> Option<String> {
    of_claims(case.claims, exemptions)
}

/// As [`reason`], of what decides these claims.
pub(super) fn of_claims(claims: &[&str], exemptions: &[Exemption]) -> Option<String> {
    let exemption = exemptions
        .iter()
        .find(|exemption| claims.contains(&exemption.claim))?;
    Some(format!("{}: {}", exemption.claim, exemption.reason))
}

/// Whether a run with this case ends with exit code 1. What is inconclusive has shown nothing, no deviation either.
pub(crate) fn fails_the_run(verdict: &Verdict, exempt: Option<&str>) -> bool {
    verdict.fails_the_run() && !(exempt.is_some() && matches!(verdict, Verdict::Fail { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exempt_case_fails_nothing_but_has_to_be_conclusive() {
        let case = cases::find("release-name-lattice").unwrap();
        let exemption: Exemption = "release-name-lattice=its names are hashed".parse().unwrap();
        let exempt = reason(&case, &[exemption]);
        assert_eq!(
            exempt.as_deref(),
            Some("release-name-lattice: its names are hashed")
        );
        assert_eq!(reason(&cases::find("clusterip-from-pod").unwrap(), &[]), None);
        let why = String::new();
        let fail = Verdict::Fail { why: why.clone() };
        let open = Verdict::Inconclusive { why };
        assert!(!fails_the_run(&fail, exempt.as_deref()) && fails_the_run(&fail, None));
        assert!(fails_the_run(&open, exempt.as_deref()));
        assert!(!fails_the_run(&Verdict::Pass, exempt.as_deref()));
    }
}
