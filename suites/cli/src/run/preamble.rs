//! What a run prints before its cases: three lines, and with `-v` everything that is known about the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cluster::Description;
use harness::{
    case::{axes_not_enabled, in_words},
    limits::Profile,
    verdict::Verdict,
};

use super::{estimate::Expected, process::Settings, seconds, select::Selection};
use crate::{
    plural::counted,
    quick,
    report::software::Software,
    terminal::{self, HEADING, OUTLINE, Verbosity, painted},
};

/// What the header is about.
pub(super) struct Before<'a> {
    pub(super) cluster: &'a Description,
    pub(super) features: &'a BTreeSet<String>,
    pub(super) not_applied: &'a [String],
    pub(super) settings: &'a Settings,
    pub(super) selection: &'a Selection,
    pub(super) expected: &'a Expected,
    /// How long the cluster took to come up.
    pub(super) took: Duration,
}

/// Prints the header to stdout, and with `-v` everything else.
///
/// # Errors
/// Stdout can't be written.
pub(super) fn print(before: &Before<'_>) -> anyhow::Result<()> {
    terminal::draw(None);
    let header = before.header(terminal::width());
    match terminal::verbosity() {
        Verbosity::Quiet => {}
        Verbosity::Normal => terminal::print(&header)?,
        Verbosity::Verbose => terminal::print(&(header + &before.details()))?,
    }
    Ok(())
}

impl Before<'_> {
    /// Three lines, each wrapped where the terminal is narrow: what is tested where, what runs for how long, and where
    /// the reports go.
    pub(super) fn header(&self, columns: usize) -> String {
        let profile = self.settings.limits.profile.name();
        let columns = quick::columns(profile, columns);
        let reports = format!(
            "{}; -v shows nodes, limits and each step",
            terminal::path(&self.settings.out)
        );
        let mut text = String::new();
        for (name, words) in [
            ("Target", self.tested()),
            ("Cases", self.cases()),
            ("Reports", reports),
        ] {
            let blanks = " ".repeat(NAME + 2);
            for (number, line) in terminal::wrap(&words, &blanks, &blanks, columns)
                .iter()
                .enumerate()
            {
                text += &match number {
                    0 => format!(
                        "{}{}\n",
                        painted(HEADING, format!("{name:<NAME$}")),
                        &line[NAME..]
                    ),
                    _ => format!("{line}\n"),
                };
            }
        }
        for warning in self.software().warnings() {
            text += &format!("{}\n", painted(terminal::verdict("inconclusive"), warning));
        }
        quick::marked(profile, &text)
    }

    /// `reference 0.1.0, lab of 2 nodes: Kubernetes v1.36.1, Linux 6.12.1, IPv4 and IPv6`.
    fn tested(&self) -> String {
        let cluster = self.cluster;
        let software = self.software();
        // Programs print their name before their version.
        let number = |version: &&str| version.rsplit(' ').next().unwrap_or_default().to_owned();
        let versions: Vec<String> = software.agent_versions().iter().map(number).collect();
        let place = match cluster.provider.as_str() {
            "lab" => "lab",
            "kind" => "kind cluster",
            _ => "cluster",
        };
        // The lab's own API server has no version of Kubernetes.
        let is_version = |text: &&String| text.starts_with('v');
        let kubernetes = cluster.software.kubernetes.iter().filter(is_version);
        let families: Vec<String> = cluster.families().iter().map(ToString::to_string).collect();
        let mut facts: Vec<String> = kubernetes
            .map(|version| format!("Kubernetes {version}"))
            .collect();
        // What follows is the distribution's.
        let kernel = cluster.kernel.split('-').next().unwrap_or_default();
        facts.push(format!("Linux {kernel}"));
        facts.push(families.join(" and "));
        let target = format!("{} {}", cluster.target, versions.join(" and "));
        format!(
            "{}, {place} of {}: {}",
            target.trim_end(),
            counted(cluster.nodes.len(), "node", "nodes"),
            facts.join(", ")
        )
    }

    /// `63 cases, about 5 min, seed 7; 12 left out`.
    fn cases(&self) -> String {
        let Selection { run, excluded } = self.selection;
        let (run, excluded) = (run.len(), excluded.len());
        if run == 0 {
            return format!(
                "nothing to run: {} left out, for the reasons below",
                counted(excluded, "case is", "cases are")
            );
        }
        let mut text = counted(run, "case", "cases");
        if self.settings.limits.profile == Profile::Quick {
            text += ", no conformance";
        }
        if let Some(about) = self.expected.about() {
            text += &format!(", {about}");
        }
        text += &format!(", seed {}", self.settings.seed);
        if excluded > 0 {
            text += &format!("; {excluded} left out");
        }
        text
    }

    fn software(&self) -> Software {
        Software::from(&self.cluster.software)
    }

    /// Everything else, line by line.
    pub(super) fn details(&self) -> String {
        let (cluster, settings, selection) = (self.cluster, self.settings, self.selection);
        let nodes = cluster.nodes.iter().map(|node| {
            let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
            format!("{} ({})", node.name, addresses.join(", "))
        });
        let none = || "none".to_owned();
        let features = match self.features.is_empty() {
            true => none(),
            false => joined(self.features.iter().cloned()),
        };
        let capabilities = cluster.capabilities.iter().map(|one| in_words(*one).to_owned());
        let mut lines = vec![
            (
                "cluster",
                format!("{}, ready in {}", cluster.provider, seconds(self.took)),
            ),
            ("nodes", joined(nodes)),
            ("offers", joined(capabilities)),
            ("features", features),
        ];
        lines.extend(
            axes_not_enabled(cluster)
                .into_iter()
                .map(|axis| ("without", axis)),
        );
        lines.extend(self.software().lines());
        let not_applied = self.not_applied.iter().cloned();
        lines.extend(not_applied.map(|words| ("no exemption", words)));
        let at_once = format!(
            "{} at once, in {}",
            counted(settings.jobs, "case", "cases"),
            counted(settings.labs, "cluster", "clusters")
        );
        lines.extend([("limits", settings.limits.to_string()), ("concurrency", at_once)]);
        lines.extend(self.expected.with_basis().map(|takes| ("takes", takes)));
        let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (case, verdict) in &selection.excluded {
            by_reason.entry(reason(verdict)).or_default().push(case.id);
        }
        let left_out = by_reason
            .into_iter()
            .map(|(why, cases)| ("left out", format!("{why}: {}", cases.join(", "))));
        lines.extend(left_out);
        let text: String = lines
            .iter()
            .map(|(name, text)| {
                let name = painted(OUTLINE, format!("{name:<12}"));
                format!("{name} {}\n", terminal::one_line(text))
            })
            .collect();
        quick::marked(settings.limits.profile.name(), &text)
    }
}

/// Columns of the names of the header's lines.
const NAME: usize = 7;

fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn reason(verdict: &Verdict) -> String {
    format!("{} ({})", verdict.why(), verdict.name().replace('-', " "))
}
