//! The contents of `report.yaml`: a public, versioned format, separate from the harness's own types.
//!
//! A minor version of the program may only add fields. A field that is removed or changes its meaning needs another
//! [`FORMAT`]. Unknown fields are refused, so that typing errors in reports made by hand are found.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use harness::{limits::Profile, quick_run::NO_CONFORMANCE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{software::Software, timeline::Timeline};

/// Name and version of the format.
pub(crate) const FORMAT: &str = "plumbline.report/v2";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    /// `plumbline.report/v2`.
    #[schemars(extend("const" = FORMAT))]
    pub(crate) format: String,
    /// Version of the program that wrote it.
    pub(crate) plumbline: String,
    /// When the run began, by RFC 3339.
    pub(crate) started: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Whether the run was ended early.
    pub(crate) interrupted: bool,
    /// Where it ran.
    pub(crate) cluster: Cluster,
    /// How it ran.
    pub(crate) run: Run,
    /// Every limit, by a name that includes its unit.
    pub(crate) limits: BTreeMap<String, f64>,
    /// The number of cases with each verdict.
    pub(crate) counts: Counts,
    /// The cases, in the order of the catalogue.
    pub(crate) cases: Vec<Case>,
}

/// The cluster of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// `lab`, `kind`, `existing`.
    pub(crate) provider: String,
    /// What was under test.
    pub(crate) target: String,
    /// Kernel of the nodes.
    pub(crate) kernel: String,
    /// `IPv4`, `IPv6`.
    pub(crate) families: Vec<String>,
    /// The nodes, with their addresses.
    pub(crate) nodes: BTreeMap<String, Vec<IpAddr>>,
    /// What the provider can do.
    pub(crate) capabilities: Vec<String>,
    /// Features that the target has.
    pub(crate) features: Vec<String>,
    /// Axes of every case that the cluster could not enable.
    pub(crate) axes_not_enabled: Vec<String>,
    /// Known deviations that exempt nothing, because the target's version is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) deviations_not_applied: Vec<String>,
    /// Software of the cluster, as far as it could be read.
    #[serde(default, skip_serializing_if = "Software::is_empty")]
    pub(crate) software: Software,
}

/// Options of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// Decides the order of variants and endpoints.
    pub(crate) seed: u64,
    /// Whether the seed decided the order of cases too.
    pub(crate) shuffled: bool,
    /// Profile of the limits: `lab`, `cluster`, `long`, `quick`. A quick run, one axis of each row, is no conformance.
    pub(crate) profile: String,
    /// Limit of concurrent labs.
    pub(crate) labs: usize,
    /// Limit of concurrent cases.
    pub(crate) jobs: usize,
    /// Limit of tries of an inconclusive case.
    pub(crate) tries: usize,
    /// Which cases keep full evidence: `failed`, `all`.
    pub(crate) evidence: String,
    /// Whether the run has only cases that failed in an earlier run.
    pub(crate) rerun: bool,
}

/// The number of cases with each verdict. An exempt case counts in `exempt` alone, whatever its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Passed.
    pub(crate) pass: usize,
    /// Failed.
    pub(crate) fail: usize,
    /// Without a decision: never a pass.
    pub(crate) inconclusive: usize,
    /// Known to deviate: never a pass.
    pub(crate) exempt: usize,
    /// The cluster lacks something that they need: never a pass.
    pub(crate) skipped: usize,
    /// The target does not claim the feature: never a pass.
    pub(crate) not_supported: usize,
}

/// How a case or an axis ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Every probe was inside the permitted set, and the fault was witnessed.
    Pass,
    /// At least one probe was outside the permitted set.
    Fail,
    /// Control, fault or fence were not seen, or the suite itself failed.
    Inconclusive,
    /// The cluster lacks something that the case needs.
    Skipped,
    /// The target does not claim the feature.
    NotSupported,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Its id.
    pub(crate) id: String,
    /// Area of the catalogue.
    pub(crate) area: String,
    /// The claims that it decides, with their sentences.
    pub(crate) claims: BTreeMap<String, String>,
    /// The tier: who must meet the claims.
    pub(crate) tier: String,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// Why; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// What broke, in words; of cases that failed, as far as their histories show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) explanation: Option<Explanation>,
    /// A claim of the case that the target is known not to keep, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exempt: Option<String>,
    /// When it began, by RFC 3339.
    pub(crate) started: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// The command that runs it again with the same seed.
    pub(crate) replay: String,
    /// Its axes: each a variant, a family, a group of clients.
    pub(crate) axes: Vec<Axis>,
    /// Axes that did not run, with the reason: no part of the verdict. `cluster` lists those that no case can run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) axes_not_enabled: Vec<String>,
    /// Measured delays, and behaviour that implementations may choose: never judged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) recorded: BTreeMap<String, String>,
    /// Problems that are no part of the verdict.
    pub(crate) warnings: Vec<String>,
    /// Folder of the evidence, relative to that of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<String>,
    /// What every client saw, for disruptive cases, those that failed the run, and those whose attempts were kept: a file
    /// of its own, in the case's evidence.
    #[serde(skip)]
    pub(crate) timeline: Option<Timeline>,
    /// Earlier tries of the case, in order: all were inconclusive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) undecided: Vec<Undecided>,
}

/// What broke in a case that failed: sentences for people, each of one or two lines of a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Explanation {
    /// What the claim permits: `Every connection to t-ext is answered by b01.`
    pub(crate) expected: String,
    /// What happened, and from when: `From 30.4 s on, 201 of 203 connections to t-ext were refused.`
    pub(crate) happened: String,
    /// The last event before that, and what the API still says: `One second before, t (same backend) had been emptied. The
    /// EndpointSlice of t-ext still lists b01.`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<String>,
    /// What to do next.
    pub(crate) next: String,
}

/// An inconclusive try of a case that was tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Undecided {
    /// Why the try was inconclusive.
    pub(crate) why: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Folder of its evidence, relative to the report's folder; none if it could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<String>,
}

/// An axis of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    /// Its name.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// Why; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// Unexpected results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<Finding>,
}

/// An unexpected result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// The client and the destination of the attempts.
    pub(crate) subject: String,
    /// What was permitted.
    pub(crate) expected: String,
    /// What happened, with counts: backends that answered, errors.
    pub(crate) found: String,
    /// The first attempts that show the result.
    pub(crate) attempts: Vec<String>,
}

impl Verdict {
    /// The verdict's name in the format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
            Self::Skipped => "skipped",
            Self::NotSupported => "not-supported",
        }
    }
}

impl Case {
    /// Whether the case lets the run end with exit code 1. An exemption covers only a failure: an inconclusive case has
    /// shown no deviation either.
    pub(crate) fn fails_the_run(&self) -> bool {
        match self.verdict {
            Verdict::Fail => self.exempt.is_none(),
            Verdict::Inconclusive => true,
            Verdict::Pass | Verdict::Skipped | Verdict::NotSupported => false,
        }
    }

    /// Whether it ran: not if it was left out, or if the run ended before it began.
    pub(crate) fn has_begun(&self) -> bool {
        match self.verdict {
            Verdict::Skipped | Verdict::NotSupported => false,
            Verdict::Inconclusive => self.evidence.is_some() || self.seconds > 0.0,
            Verdict::Pass | Verdict::Fail => true,
        }
    }

    /// The shown verdict: an exempt case is never shown as a pass.
    pub(crate) fn label(&self) -> &'static str {
        match (&self.exempt, self.verdict) {
            (Some(_), Verdict::Pass | Verdict::Fail) => "exempt",
            (_, verdict) => verdict.name(),
        }
    }

    /// Whether the terminal shows more than a line of the table.
    pub(crate) fn has_details(&self) -> bool {
        self.label() != Verdict::Pass.name() || !self.warnings.is_empty() || !self.undecided.is_empty()
    }

    /// The number of axes that passed, and of all axes.
    pub(crate) fn passed_axes(&self) -> (usize, usize) {
        let passed = self.axes.iter().filter(|axis| axis.verdict == Verdict::Pass);
        (passed.count(), self.axes.len())
    }
}

/// Uses the names of the format.
impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "pass {}, fail {}, inconclusive {}, exempt {}, skipped {}, not_supported {}",
            self.pass, self.fail, self.inconclusive, self.exempt, self.skipped, self.not_supported
        )
    }
}

impl Counts {
    /// Counts these cases.
    pub(crate) fn of(cases: &[Case]) -> Self {
        let mut counts = Self::default();
        for case in cases {
            *match (case.label(), case.verdict) {
                ("exempt", _) => &mut counts.exempt,
                (_, Verdict::Pass) => &mut counts.pass,
                (_, Verdict::Fail) => &mut counts.fail,
                (_, Verdict::Inconclusive) => &mut counts.inconclusive,
                (_, Verdict::Skipped) => &mut counts.skipped,
                (_, Verdict::NotSupported) => &mut counts.not_supported,
            } += 1;
        }
        counts
    }
}

impl Report {
    /// A notice for all output, if the run is no conformance.
    pub(crate) fn no_conformance(&self) -> Option<&'static str> {
        (self.run.profile == Profile::Quick.name()).then_some(NO_CONFORMANCE)
    }

    /// Whether the run ends with exit code 1.
    pub(crate) fn failed(&self) -> bool {
        self.cases.iter().any(Case::fails_the_run)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{files, golden, html, junit, markdown},
        *,
    };

    #[test]
    fn a_report_of_a_quick_run_is_taken_for_no_other_however_it_is_shown() {
        let mut report = golden::report();
        assert_eq!(report.no_conformance(), None);
        report.run.profile = Profile::Quick.name().to_owned();
        let left_out = "10 shared: --quick runs one axis of each row";
        report.cases[0].axes_not_enabled = vec![left_out.to_owned()];
        let yaml = files::yaml(&report).unwrap();
        assert!(yaml.starts_with("# quick, no conformance\n"), "{yaml}");
        let read = files::parse(&yaml).unwrap();
        assert_eq!(read.no_conformance(), Some(NO_CONFORMANCE));
        assert!(markdown::render(&read).starts_with("### quick, no conformance: failed"));
        let html = html::render(&read);
        assert!(html.contains("<title>plumbline (quick, no conformance): "));
        assert!(html.contains("<strong>quick, no conformance</strong>"));
        assert!(html.contains(left_out) && yaml.contains(left_out));
        let junit = junit::render(&read, Path::new("out")).unwrap();
        let suites = junit.matches("<testsuite name=").count();
        let marked = junit.matches("(quick, no conformance)\"").count();
        assert_eq!(marked, suites + 1, "each suite, and all of it");
    }
}
