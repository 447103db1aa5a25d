//! What a run prints before it begins.

use std::{collections::BTreeSet, time::Duration};

use cluster::Description;
use harness::case::axes_not_enabled;

use super::{process::Settings, seconds, select::Selection};
use crate::{plural::counted, report::software::Software};

/// Describes what runs where, and the estimated duration, if it is known.
pub(super) fn before(
    cluster: &Description,
    features: &BTreeSet<String>,
    not_applied: &[String],
    settings: &Settings,
    selection: &Selection,
    took: Duration,
    takes: Option<&str>,
) -> String {
    let nodes: Vec<String> = cluster
        .nodes
        .iter()
        .map(|node| {
            let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
            format!("{} ({})", node.name, addresses.join(", "))
        })
        .collect();
    let can: Vec<String> = cluster
        .capabilities
        .iter()
        .map(|capability| format!("{capability:?}").to_lowercase())
        .collect();
    let families: Vec<String> = cluster.families().iter().map(ToString::to_string).collect();
    let mut features: Vec<&str> = features.iter().map(String::as_str).collect();
    if features.is_empty() {
        features.push("none");
    }
    let mut lines = vec![
        (
            "provider",
            format!("{}, up in {}", cluster.provider, seconds(took)),
        ),
        ("target", cluster.target.clone()),
        ("kernel", cluster.kernel.clone()),
        ("nodes", nodes.join(", ")),
        ("families", families.join(", ")),
        ("can", can.join(", ")),
        ("features", features.join(", ")),
    ];
    lines.extend(axes_not_enabled(cluster).into_iter().map(|axis| ("not", axis)));
    lines.extend(Software::from(&cluster.software).lines());
    let not_applied = not_applied.iter().cloned();
    lines.extend(not_applied.map(|words| ("no exemption", words)));
    let at_once = format!(
        "{} at once, {} at once in all of them",
        settings.labs,
        counted(settings.jobs, "case", "cases")
    );
    let cases = format!(
        "{} to run, {} left out",
        selection.run.len(),
        selection.excluded.len()
    );
    lines.extend([
        ("limits", settings.limits.to_string()),
        ("seed", settings.seed.to_string()),
        ("labs", at_once),
        ("cases", cases),
    ]);
    let excluded = selection.excluded.iter();
    lines.extend(excluded.map(|(case, verdict)| ("", format!("{} {verdict}", case.id))));
    lines.extend(takes.map(|takes| ("takes", takes.to_owned())));
    lines
        .iter()
        .map(|(name, text)| format!("{name:<12} {text}\n"))
        .collect()
}
