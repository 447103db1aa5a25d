//! What a recovery needed, and whether that was one start of the agent and nothing else: pure.

use std::fmt;

use oracle::finding::{Finding, Weight};
use serde::{Deserialize, Serialize};

use super::AxisReport;
use crate::verdict::Verdict;

/// What the recovery from one fault needed, from before the fault to the verdict on what it was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// From what: axes of its case.
    pub from: String,
    /// Whose agent ended and was started.
    pub node: String,
    /// The boot ids of its kernel: before the fault, and at the verdict.
    pub boots: [String; 2],
    /// Whether it was cordoned, as every drain begins, before the fault or at the verdict.
    pub cordoned: bool,
    /// How often its agent was started, until the verdict.
    pub starts: u32,
    /// How far it came before the suite took anything of the fault away: the verdict on these axes.
    pub unaided: Verdict,
    /// Connections that were healthy when the agent was about to start.
    pub healthy: usize,
    /// What became of those of them that did not survive it.
    pub connections: Vec<Finding>,
}

impl Needed {
    /// One axis of the row that is judged by it, of a case: it passes if one start of the agent was all that was needed, and
    /// every connection that had been healthy survived it.
    #[must_use]
    pub fn axis(&self, case: &str) -> AxisReport {
        let mut findings: Vec<Finding> = self.helped().into_iter().chain(self.open()).collect();
        findings.extend(self.connections.iter().cloned());
        findings.sort_by_key(|finding| finding.weight);
        let first = |finding: &Finding| {
            let why = finding.to_string().lines().next().unwrap_or_default().to_owned();
            match finding.weight {
                Weight::Violation => Verdict::Fail { why },
                Weight::Undecided => Verdict::Inconclusive { why },
            }
        };
        let verdict = findings.first().map_or(Verdict::Pass, first);
        AxisReport::new(format!("{case}: {}", self.from), verdict, findings)
    }

    /// Help that it needed.
    fn helped(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut found = |is_wrong: bool, expected: &str, found: String| {
            findings.extend(is_wrong.then(|| self.finding(Weight::Violation, expected, found)));
        };
        let [before, after] = &self.boots;
        let reboot = format!("boot id {before} before the fault and {after} at the verdict");
        found(before != after, "no reboot", reboot);
        found(
            self.cordoned,
            "a node that stays in use",
            "it is cordoned".to_owned(),
        );
        let starts = format!("{} starts", self.starts);
        found(self.starts > 1, "at most one start of the agent", starts);
        if let Verdict::Fail { why } = &self.unaided {
            let expected = "nothing taken away by hand";
            findings.push(self.finding(Weight::Violation, expected, why.clone()));
        }
        findings
    }

    /// What can't be said of it.
    fn open(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut undecided = |expected: &str, found: &str| {
            findings.push(self.finding(Weight::Undecided, expected, found.into()));
        };
        if self.starts == 0 {
            undecided("one start of the agent", "none seen");
        }
        if self.healthy == 0 {
            undecided("connections that are healthy before the agent starts", "none");
        }
        match &self.unaided {
            Verdict::Pass | Verdict::Fail { .. } => {}
            other => undecided("a verdict on what it recovers from", &other.to_string()),
        }
        findings
    }

    fn finding(&self, weight: Weight, expected: &str, found: String) -> Finding {
        Finding {
            weight,
            subject: format!("{} after {}", self.node, self.from),
            expected: expected.to_owned(),
            found,
            first: Vec::new(),
            counted: None,
        }
    }
}

/// In one line, for what is recorded.
impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = &self.boots;
        let boot = if before == after { "unchanged" } else { "changed" };
        let cordoned = if self.cordoned { "cordoned" } else { "not cordoned" };
        let by_hand = match &self.unaided {
            Verdict::Fail { .. } => "something",
            _ => "nothing",
        };
        write!(
            f,
            "starts of the agent {}, boot id {before} {boot}, {} {cordoned}, {by_hand} taken away by hand, healthy \
             connections before the start {}, violations among them after it {}",
            self.starts,
            self.node,
            self.healthy,
            self.connections
                .iter()
                .filter(|finding| finding.weight == Weight::Violation)
                .count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn good() -> Needed {
        Needed {
            from: "connect4".into(),
            node: "node1".into(),
            boots: ["b".into(), "b".into()],
            cordoned: false,
            starts: 1,
            unaided: Verdict::Pass,
            healthy: 4,
            connections: Vec::new(),
        }
    }

    fn lost(weight: Weight) -> Vec<Finding> {
        vec![good().finding(weight, "no end", "ends".into())]
    }

    #[rstest]
    #[case::one_start(good(), "pass")]
    #[case::a_reboot(Needed { boots: ["b".into(), "c".into()], ..good() }, "fail")]
    #[case::a_cordoned_node(Needed { cordoned: true, ..good() }, "fail")]
    #[case::two_starts(Needed { starts: 2, ..good() }, "fail")]
    #[case::not_seen_to_start(Needed { starts: 0, ..good() }, "inconclusive")]
    #[case::by_hand(Needed { unaided: Verdict::Fail { why: "w".into() }, ..good() }, "fail")]
    #[case::not_judged(Needed { unaided: Verdict::Inconclusive { why: "w".into() }, ..good() }, "inconclusive")]
    #[case::a_connection_ended(Needed { connections: lost(Weight::Violation), ..good() }, "fail")]
    #[case::a_connection_was_not_watched(Needed { connections: lost(Weight::Undecided), ..good() }, "inconclusive")]
    #[case::no_connection(Needed { healthy: 0, ..good() }, "inconclusive")]
    #[case::help_outweighs_what_is_open(Needed { starts: 2, healthy: 0, ..good() }, "fail")]
    fn nothing_but_one_start_passes(#[case] needed: Needed, #[case] expected: &str) {
        let axis = needed.axis("stale-sock-legacy-multi");
        assert_eq!(axis.verdict.name(), expected, "{axis:?}");
        assert_eq!(axis.name, "stale-sock-legacy-multi: connect4");
        assert_eq!(axis.findings.is_empty(), expected == "pass");
    }

    #[test]
    fn a_failure_names_the_node_and_what_it_needed() {
        let axis = Needed { starts: 3, ..good() }.axis("c");
        let why = axis.verdict.why();
        for part in ["node1", "connect4", "3 starts"] {
            assert!(why.contains(part), "{why}");
        }
    }
}
