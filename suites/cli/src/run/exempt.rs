//! Claims that a target is known not to keep: shown with the reason, and never counted as pass.
//!
//! An exemption of families or frontends covers a failure only if everything that failed is of these. The family of a
//! finding is that of the address that was dialled. Its frontend is a node port if that address is a node's; otherwise
//! the end of the target's name decides (`cip`, `lb`). A target without such a name is outside every exemption of
//! frontends.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use cluster::{Family, Frontend};
use harness::{
    report::{AxisReport, CaseReport},
    verdict::Verdict,
};

use super::select::ClaimArgument;

/// A claim, and why the target does not keep it.
#[derive(Clone, Debug)]
pub(crate) struct Exemption {
    pub(super) claim: &'static str,
    pub(super) reason: String,
    /// The part of the claim; `None` for all of it.
    pub(super) only: Option<Only>,
}

/// The part of a claim that the target does not keep.
#[derive(Clone, Debug, Default)]
pub(super) struct Only {
    /// Families; all, if empty.
    pub(super) families: BTreeSet<Family>,
    /// Frontends; all, if empty.
    pub(super) frontends: BTreeSet<Frontend>,
    /// Addresses of nodes.
    pub(super) nodes: Vec<IpAddr>,
}

impl Exemption {
    /// The exemption of a claim by its id, with a reason that is not empty.
    ///
    /// # Errors
    /// There is no such claim.
    pub(super) fn new(claim: &str, reason: &str) -> Result<Self, String> {
        Ok(Self {
            claim: claim.parse::<ClaimArgument>()?.0.id.as_str(),
            reason: reason.to_owned(),
            only: None,
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
                "expected CLAIM=REASON, found '{text}': what has no reason is a failure"
            )),
        }
    }
}

/// Why the case is exempt, if it is.
pub(super) fn reason(report: &CaseReport, exemptions: &[Exemption]) -> Option<String> {
    let mut of_claims = of_claims(report, exemptions);
    let exemption = of_claims.find(|exemption| match &exemption.only {
        None => true,
        Some(only) => matches!(report.verdict, Verdict::Fail { .. }) && only.outside(report).is_none(),
    })?;
    Some(format!("{}: {}", exemption.claim, exemption.reason))
}

/// Adds the reason if the case is exempt, and a warning if it passed all the same; or a warning that names the part of a
/// failure that no exemption of its claims covers.
pub(super) fn with_reason(mut report: CaseReport, exemptions: &[Exemption]) -> (CaseReport, Option<String>) {
    let reason = reason(&report, exemptions);
    if reason.is_some() && report.verdict == Verdict::Pass {
        report.warnings.push(
            "it passed this time: the file of a target that keeps the claim needs no deviation".to_owned(),
        );
    }
    if reason.is_none() && matches!(report.verdict, Verdict::Fail { .. }) {
        let warnings: Vec<String> = of_claims(&report, exemptions)
            .filter_map(|exemption| {
                let outside = exemption.only.as_ref()?.outside(&report)?;
                let Exemption { claim, reason, .. } = exemption;
                Some(format!(
                    "not exempt by the deviation from {claim} ({reason}), which does not cover {outside}"
                ))
            })
            .collect();
        report.warnings.extend(warnings);
    }
    (report, reason)
}

fn of_claims<'a>(report: &CaseReport, exemptions: &'a [Exemption]) -> impl Iterator<Item = &'a Exemption> {
    let claims = report.claims.clone();
    let is_of = move |exemption: &&Exemption| claims.iter().any(|claim| claim == exemption.claim);
    exemptions.iter().filter(is_of)
}

impl Only {
    /// The first failed axis outside the exemption, with what it dialled.
    fn outside(&self, report: &CaseReport) -> Option<String> {
        let failed = |axis: &&AxisReport| matches!(axis.verdict, Verdict::Fail { .. });
        report.axes.iter().filter(failed).find_map(|axis| {
            if axis.findings.is_empty() {
                let is_inside = self.frontends.is_empty() && self.has_family(family_of_axis(&axis.name));
                return (!is_inside).then(|| format!("the axis '{}'", axis.name));
            }
            let outside = axis.findings.iter().find(|finding| {
                let dialled = dialled(&finding.subject);
                let family =
                    dialled.map_or_else(|| family_of_axis(&axis.name), |(_, at)| Some(family(at.ip())));
                let frontend = dialled.and_then(|(name, at)| self.frontend(name, at.ip()));
                let is_of_it = frontend.is_some_and(|one| self.frontends.contains(&one));
                !(self.has_family(family) && (self.frontends.is_empty() || is_of_it))
            })?;
            Some(format!("the axis '{}': {}", axis.name, outside.subject))
        })
    }

    fn has_family(&self, family: Option<Family>) -> bool {
        self.families.is_empty() || family.is_some_and(|family| self.families.contains(&family))
    }

    fn frontend(&self, name: &str, address: IpAddr) -> Option<Frontend> {
        if self.nodes.contains(&address) {
            return Some(Frontend::NodePort);
        }
        match name.rsplit([' ', ']']).next()? {
            "cip" => Some(Frontend::ClusterIp),
            "lb" => Some(Frontend::LoadBalancer),
            _ => None,
        }
    }
}

fn family(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::IPv4,
        IpAddr::V6(_) => Family::IPv6,
    }
}

/// The family in the axis's name, if it is one.
fn family_of_axis(name: &str) -> Option<Family> {
    match (name.contains("IPv4"), name.contains("IPv6")) {
        (true, false) => Some(Family::IPv4),
        (false, true) => Some(Family::IPv6),
        _ => None,
    }
}

/// The dialled address, from the subject of a finding: `pod@node1 to [axis] t lb (10.0.0.1:80), TCP`.
fn dialled(subject: &str) -> Option<(&str, SocketAddr)> {
    // More in parentheses may follow it, such as the transport's "(connected)".
    subject.match_indices(" (").find_map(|(end, opening)| {
        let (inside, _) = subject[end + opening.len()..].split_once(')')?;
        Some((&subject[..end], inside.parse().ok()?))
    })
}

/// Whether the case lets the run end with exit code 1. An inconclusive case has shown no deviation either.
pub(crate) fn fails_the_run(verdict: &Verdict, exempt: Option<&str>) -> bool {
    verdict.fails_the_run() && !(exempt.is_some() && matches!(verdict, Verdict::Fail { .. }))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use oracle::finding::{Finding, Weight};

    use super::{
        super::process::{tests::settings, without_run},
        *,
    };

    fn report(id: &str, verdict: Verdict) -> CaseReport {
        let settings = settings(Path::new("out"), None, Duration::ZERO);
        without_run(&cases::find(id).unwrap(), &settings, verdict)
    }

    fn fail() -> Verdict {
        Verdict::Fail { why: "w".into() }
    }

    #[test]
    fn an_exempt_case_fails_nothing_but_has_to_be_conclusive() {
        let exemption: Exemption = "release-name-lattice=its names are hashed".parse().unwrap();
        let exempt = reason(&report("release-name-lattice", fail()), &[exemption]);
        assert_eq!(
            exempt.as_deref(),
            Some("release-name-lattice: its names are hashed")
        );
        assert_eq!(reason(&report("clusterip-from-pod", fail()), &[]), None);
        let open = Verdict::Inconclusive { why: "w".into() };
        assert!(!fails_the_run(&fail(), exempt.as_deref()) && fails_the_run(&fail(), None));
        assert!(fails_the_run(&open, exempt.as_deref()));
        assert!(!fails_the_run(&Verdict::Pass, exempt.as_deref()));
    }

    #[test]
    fn an_exempt_case_that_passed_says_so() {
        let known: [Exemption; 1] = ["release-name-lattice=its names are hashed".parse().unwrap()];
        let (passed, exempt) = with_reason(report("release-name-lattice", Verdict::Pass), &known);
        assert!(exempt.is_some() && passed.warnings[0].starts_with("it passed"));
        let (failed, exempt) = with_reason(report("release-name-lattice", fail()), &known);
        assert!(exempt.is_some() && failed.warnings.is_empty());
    }

    /// A report in which these axes failed, each with the dialled addresses.
    fn failed(axes: &[(&str, &[&str])]) -> CaseReport {
        let finding = |subject: &&str| Finding {
            weight: Weight::Violation,
            subject: (*subject).to_owned(),
            expected: "e".into(),
            found: "f".into(),
            first: Vec::new(),
            counted: None,
        };
        let axis = |(name, subjects): &(&str, &[&str])| {
            AxisReport::new(*name, fail(), subjects.iter().map(finding).collect())
        };
        CaseReport {
            axes: axes.iter().map(axis).collect(),
            ..report("release-all-frontends", fail())
        }
    }

    fn only(families: &[Family], frontends: &[Frontend]) -> [Exemption; 1] {
        [Exemption {
            only: Some(Only {
                families: families.iter().copied().collect(),
                frontends: frontends.iter().copied().collect(),
                nodes: vec!["172.30.0.11".parse().unwrap(), "fd00::11".parse().unwrap()],
            }),
            ..Exemption::new("release-all-frontends", "known").unwrap()
        }]
    }

    const V6: (&str, &[&str]) = (
        "IPv6, 1 shared",
        &["pod@node1 to [IPv6, 1 shared] t lb ([fd01::1]:80), TCP"],
    );
    const V4: (&str, &[&str]) = (
        "IPv4, 1 shared",
        &["pod@node1 to [IPv4, 1 shared] t cip (10.96.0.7:80), TCP"],
    );

    #[test]
    fn what_is_known_of_one_family_exempts_a_failure_of_that_alone() {
        let known = only(&[Family::IPv6], &[]);
        assert_eq!(
            reason(&failed(&[V6]), &known).as_deref(),
            Some("release-all-frontends: known")
        );
        let both = failed(&[V6, V4]);
        let (both, exempt) = with_reason(both, &known);
        assert_eq!(exempt, None);
        assert!(
            both.warnings[0].contains("IPv4, 1 shared") && both.warnings[0].contains("10.96.0.7:80"),
            "{:?}",
            both.warnings
        );
        let by_name: (&str, &[&str]) = ("IPv6, an agent that restarted", &[]);
        assert!(
            reason(&failed(&[by_name]), &known).is_some(),
            "an axis may be named after it"
        );
        assert_eq!(reason(&failed(&[("both", &[])]), &known), None);
    }

    #[test]
    fn what_is_known_of_one_frontend_exempts_a_failure_at_that_alone() {
        let node_port: (&str, &[&str]) = ("IPv4", &["outside to [IPv4] t np node1 (172.30.0.11:30080), TCP"]);
        let known = only(&[], &[Frontend::NodePort]);
        assert!(reason(&failed(&[node_port]), &known).is_some());
        assert_eq!(reason(&failed(&[node_port, V6]), &known), None);
        let of_flows: (&str, &[&str]) = (
            "IPv4, np",
            &["5 flows, [IPv4, np] t node1 (172.30.0.11:30080) UDP (connected) from pod@node2"],
        );
        assert!(reason(&failed(&[of_flows]), &known).is_some());
        let of_flows: (&str, &[&str]) = (
            "IPv4, cip",
            &["5 flows, [IPv4] t cip (10.96.0.7:80) UDP (connected) from pod@node2"],
        );
        assert!(reason(&failed(&[of_flows]), &only(&[], &[Frontend::ClusterIp])).is_some());
        assert!(reason(&failed(&[V6]), &only(&[], &[Frontend::LoadBalancer])).is_some());
        assert!(reason(&failed(&[V4]), &only(&[], &[Frontend::ClusterIp])).is_some());
        assert_eq!(
            reason(&failed(&[V4]), &only(&[Family::IPv6], &[Frontend::ClusterIp])),
            None
        );
        let tells_none: (&str, &[&str]) = ("a", &["node1 after the removal"]);
        assert_eq!(reason(&failed(&[tells_none]), &known), None);
    }

    #[test]
    fn a_pass_of_what_is_known_of_a_part_is_a_pass() {
        let known = only(&[Family::IPv6], &[]);
        let passed = report("release-all-frontends", Verdict::Pass);
        assert_eq!(reason(&passed, &known), None);
    }
}
