//! What is in a `report.yaml`: a public format with a version, apart from what the harness uses inside.
//!
//! A field is only ever added with a new minor version of the program; a field that changes its meaning or goes makes
//! another [`FORMAT`]. Unknown fields are refused, so that a mistyped one in a report made by hand shows.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use harness::{limits::Profile, quick::NO_CONFORMANCE};
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
    /// Somebody ended it before its end.
    pub(crate) interrupted: bool,
    /// Where it ran.
    pub(crate) cluster: Cluster,
    /// How it ran.
    pub(crate) run: Run,
    /// Every limit, by a name that has its unit.
    pub(crate) limits: BTreeMap<String, f64>,
    /// How many cases ended how.
    pub(crate) counts: Counts,
    /// The cases, in the order of the catalogue.
    pub(crate) cases: Vec<Case>,
}

/// What the cases met.
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
    /// Known deviations of the target that exempt nothing here, as nobody can tell whether it is of their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) deviations_not_applied: Vec<String>,
    /// What ran there, as far as it could be read.
    #[serde(default, skip_serializing_if = "Software::is_empty")]
    pub(crate) software: Software,
}

/// What was said on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// Decides the order of variants and endpoints.
    pub(crate) seed: u64,
    /// It decided the order of cases too.
    pub(crate) shuffled: bool,
    /// What kind of limits: `lab`, `cluster`, `long`, `quick`. A quick run is no conformance: it had one axis of each row.
    pub(crate) profile: String,
    /// How many labs were up side by side at most.
    pub(crate) labs: usize,
    /// How many cases ran side by side at most.
    pub(crate) jobs: usize,
    /// How often a case was tried at most that was inconclusive.
    pub(crate) tries: usize,
    /// Of which cases everything was kept that explains them: `failed`, `all`.
    pub(crate) evidence: String,
    /// Only cases that had failed in an earlier run.
    pub(crate) rerun: bool,
}

/// How many cases ended how. An exempt case is in `exempt` alone, whatever came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Passed.
    pub(crate) pass: usize,
    /// Failed.
    pub(crate) fail: usize,
    /// Have shown nothing: never a pass.
    pub(crate) inconclusive: usize,
    /// Known to deviate: never a pass.
    pub(crate) exempt: usize,
    /// The cluster lacks what they need: never a pass.
    pub(crate) skipped: usize,
    /// The target does not declare what they test: never a pass.
    pub(crate) not_supported: usize,
}

/// How a case or an axis ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Every probe was inside the permitted set, and the fault was witnessed.
    Pass,
    /// At least one probe was outside.
    Fail,
    /// Control, fault or fence were not seen, or the suite itself failed.
    Inconclusive,
    /// The cluster lacks what it needs.
    Skipped,
    /// The target does not declare what it tests.
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
    /// Whom they bind.
    pub(crate) tier: String,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// Why; empty for a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// A claim of its own that the target is known not to keep, and the reason.
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
    /// Axes of its own that did not run, with the reason: no part of the verdict. Those of every case are the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) axes_not_enabled: Vec<String>,
    /// What implementations may choose, and delays: never judged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) recorded: BTreeMap<String, String>,
    /// Trouble that is no part of the verdict.
    pub(crate) warnings: Vec<String>,
    /// Folder of the evidence, relative to that of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<String>,
    /// What every client saw, for disruptive cases and those that failed the run: a file of its own, in its evidence.
    #[serde(skip)]
    pub(crate) timeline: Option<Timeline>,
    /// Its tries before this one, in their order: all were inconclusive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) undecided: Vec<Undecided>,
}

/// A try of a case that was inconclusive, and not the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Undecided {
    /// Why.
    pub(crate) why: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Folder of its evidence, relative to that of the report; none if that could not be kept.
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
    /// What was not as expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<Finding>,
}

/// One thing that was not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Finding {
    /// Whose attempts to what.
    pub(crate) subject: String,
    /// What was permitted.
    pub(crate) expected: String,
    /// What happened, counted: who answered, which error.
    pub(crate) found: String,
    /// The first attempts that show it.
    pub(crate) attempts: Vec<String>,
}

impl Verdict {
    /// As it is written.
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
    /// Whether a run with it ends with exit code 1. An exemption is for a failure: what is inconclusive has shown
    /// nothing, no deviation either.
    pub(crate) fn fails_the_run(&self) -> bool {
        match self.verdict {
            Verdict::Fail => self.exempt.is_none(),
            Verdict::Inconclusive => true,
            Verdict::Pass | Verdict::Skipped | Verdict::NotSupported => false,
        }
    }

    /// How people see it: an exempt one is never shown as a pass.
    pub(crate) fn label(&self) -> &'static str {
        match (&self.exempt, self.verdict) {
            (Some(_), Verdict::Pass | Verdict::Fail) => "exempt",
            (_, verdict) => verdict.name(),
        }
    }

    /// Whether there is more to say of it than that it passed.
    pub(crate) fn is_told(&self) -> bool {
        self.label() != Verdict::Pass.name() || !self.warnings.is_empty() || !self.undecided.is_empty()
    }

    /// Its axes that passed, and all of them.
    pub(crate) fn passed_axes(&self) -> (usize, usize) {
        let passed = self.axes.iter().filter(|axis| axis.verdict == Verdict::Pass);
        (passed.count(), self.axes.len())
    }
}

/// With the names that the report has for them.
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
    /// Of these cases.
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
    /// What all that is made of it says first, if it is none of conformance.
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
        let junit = junit::render(&read).unwrap();
        let suites = junit.matches("<testsuite name=").count();
        let marked = junit.matches("(quick, no conformance)\"").count();
        assert_eq!(marked, suites + 1, "each suite, and all of it");
    }
}
