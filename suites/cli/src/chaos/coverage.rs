//! What histories have covered.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use comfy_table::{Table, presets};
use oracle::chaos::Coverage;
use scenarios::chaos::{read, schedule::FaultKind, world::Front};

use crate::plural::counted;

/// Show which faults met which frontends, over many histories
///
/// A line for each fault: how often it was made, and how many attempts began while it was there, by the kind of their frontend (cluster
/// IP, node port, load balancer), of clients outside, at frontends that nothing serves, and at frontends that had changed less than T_ep ago. Exit codes: 0 each fault
/// has been there, 1 some have not, 2 a file can't be read
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Histories: chaos.json.gz in the evidence of each seed
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

pub(super) fn coverage(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut coverage = Coverage::default();
    for path in &arguments.files {
        let history = read(path).with_context(|| format!("{} is no history of chaos", path.display()))?;
        coverage.add(&history);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "fault", "made", "cip", "np", "lb", "outside", "unserved", "changing",
    ]);
    let kinds = [Front::ClusterIp(0), Front::NodePort(0), Front::LoadBalancer(0)].map(Front::kind);
    let names = FaultKind::ALL.iter().map(|kind| kind.name());
    let mut never = Vec::new();
    for name in names.chain([""]) {
        let covered = coverage.0.get(name).cloned().unwrap_or_default();
        if !name.is_empty() && covered.made == 0 {
            never.push(name);
            continue;
        }
        let of_kinds = kinds.map(|kind| covered.kinds.get(kind).copied().unwrap_or_default());
        let shown = if name.is_empty() { "none" } else { name };
        let counts = [covered.made].into_iter().chain(of_kinds);
        let counts = counts.chain([covered.outside, covered.unserved, covered.changing]);
        table.add_row(
            [shown.to_owned()]
                .into_iter()
                .chain(counts.map(|count| count.to_string())),
        );
    }
    println!("{}:", counted(arguments.files.len(), "history", "histories"));
    println!("{}", table.trim_fmt());
    if never.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("never made: {}", never.join(", "));
    Ok(ExitCode::from(1))
}
