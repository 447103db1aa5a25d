//! What is said before and after a run.

use std::{path::Path, time::Duration};

use comfy_table::{Table, presets};
use harness::{case::axes_not_enabled, limits::Limits, verdict::Verdict};
use lab::cluster::Description;

use super::{report::Report, seconds, select::Selection};
use crate::count::counted;

/// Most axes and findings that are shown of one case; all are in its evidence.
const SHOWN: usize = 3;
/// Attempts shown of one finding; the evidence has all.
const ATTEMPTS: usize = 2;

/// What runs where.
pub(super) fn before(
    cluster: &Description,
    limits: &Limits,
    seed: u64,
    selection: &Selection,
    took: Duration,
) {
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
    println!(
        "provider  {} (the only one so far), up in {}",
        cluster.provider,
        seconds(took)
    );
    println!("target    {}", cluster.target);
    println!("kernel    {}", cluster.kernel);
    println!("nodes     {}", nodes.join(", "));
    println!("can       {}", can.join(", "));
    for axis in axes_not_enabled(cluster) {
        println!("not       {axis}");
    }
    println!("limits    {limits}");
    println!("seed      {seed}");
    println!(
        "cases     {} to run, {} left out",
        selection.run.len(),
        selection.excluded.len()
    );
    for (case, verdict) in &selection.excluded {
        println!("          {} {verdict}", case.id);
    }
}

/// The table, and what there is to say about cases that did not pass.
pub(super) fn after(report: &Report, out: &Path) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["VERDICT", "CASE", "TIER", "AXES", "TIME"]);
    for case in &report.cases {
        let passed = case
            .axes
            .iter()
            .filter(|axis| axis.verdict == Verdict::Pass)
            .count();
        table.add_row([
            case.verdict.name().to_uppercase(),
            case.id.clone(),
            case.tier.clone(),
            format!("{passed}/{}", case.axes.len()),
            seconds(Duration::from_secs_f64(case.seconds)),
        ]);
    }
    println!("\n{table}");
    for case in report
        .cases
        .iter()
        .filter(|case| case.verdict != Verdict::Pass || !case.warnings.is_empty())
    {
        println!("\n{} {}", case.id, case.verdict);
        let told = case.axes.iter().filter(|axis| axis.verdict != Verdict::Pass);
        for axis in told.clone().take(SHOWN) {
            println!("  [{}] {}", axis.name, axis.verdict.name());
            for finding in axis.findings.iter().take(SHOWN) {
                for line in finding.to_string().lines().take(1 + ATTEMPTS) {
                    println!("    {line}");
                }
            }
        }
        let more = told.count().saturating_sub(SHOWN);
        if more > 0 {
            println!("  … and {}", counted(more, "more axis", "more axes"));
        }
        for warning in &case.warnings {
            println!("  warning: {warning}");
        }
        if let Some(evidence) = &case.evidence {
            println!("  evidence: {}\n  again:    {}", evidence.display(), case.replay);
        }
    }
    println!("\n{}", report.counts());
    println!(
        "{}, {}",
        out.join("junit.xml").display(),
        out.join("report.json").display()
    );
}
