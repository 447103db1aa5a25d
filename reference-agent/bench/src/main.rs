//! What the agent costs, measured on this machine: called by `cargo xtask bench agent`.
//!
//! ```text
//! objects: JSON ─▶ decode ─▶ model ─▶ plan ─▶ reconcile ─▶ kernel maps     beside it: plain hash maps
//!          └───────────── cold, one, churn ─────────────┘                                 │
//!                                └──────────────▶ report: table, CSV ◀────────────────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `objects` | Services and EndpointSlices as an API server sends them |
//! | `place` | kernel maps of our own: a bpffs that only this process sees |
//! | `cold` | many Services from nothing to the last map entry |
//! | `one` | one large Service that loses an endpoint, again and again |
//! | `churn` | endpoint changes at a rate, among many Services |
//! | `plain` | the same entries in plain hash maps, for the ratio |
//! | `report` | the table, and the CSV file |
//!
//! Each scenario has a process of its own, so that its memory is its own. No figure is a verdict: the exit code only
//! says whether they could be taken.

mod churn;
mod cold;
mod objects;
mod one;
mod place;
mod plain;
mod report;

use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use clap::Parser;

use self::report::Row;

/// Measures what the agent costs.
#[derive(Parser)]
#[command(name = "agent-bench")]
struct Arguments {
    /// Folder for the CSV file; made if it is not there
    #[arg(long)]
    csv: PathBuf,
    /// For how many seconds endpoints change
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Measure this scenario alone, in this process, and print its rows as JSON
    #[arg(long, hide = true)]
    scenario: Option<Scenario>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Scenario {
    /// 50,000 Services with a backend each.
    ColdMany,
    /// 1,000 Services with 100 backends each.
    ColdWide,
    /// One Service with 10,000 endpoints.
    One,
    /// 1,000 endpoint changes in a second among 50,000 Services.
    Churn,
}

const SCENARIOS: [&str; 4] = ["cold-many", "cold-wide", "one", "churn"];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(scenario) = arguments.scenario {
        let rows = measure(scenario, arguments.seconds)?;
        println!("{}", serde_json::to_string(&rows)?);
        return Ok(());
    }
    let mut rows = Vec::new();
    for scenario in SCENARIOS {
        rows.extend(measure_apart(scenario, arguments)?);
    }
    println!("{}", report::table(&rows));
    report::write(&arguments.csv, "agent.csv", &report::csv(&rows))
}

fn measure(scenario: Scenario, seconds: u64) -> anyhow::Result<Vec<Row>> {
    match scenario {
        Scenario::ColdMany => cold::measure(50_000, 1),
        Scenario::ColdWide => cold::measure(1_000, 100),
        Scenario::One => one::measure(10_000, 200),
        Scenario::Churn => churn::measure(50_000, 1_000, seconds),
    }
}

/// In a process of its own.
fn measure_apart(scenario: &str, arguments: &Arguments) -> anyhow::Result<Vec<Row>> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let output = Command::new(program)
        .arg("--csv")
        .arg(&arguments.csv)
        .args([
            "--seconds",
            &arguments.seconds.to_string(),
            "--scenario",
            scenario,
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start this program again")?;
    if !output.status.success() {
        bail!("failed to measure {scenario}; the error is above");
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{scenario} has printed something else"))
}
