//! What the datapath costs, measured on this machine: called by `cargo xtask bench datapath`.
//!
//! ```text
//! packet::paths ─▶ packet::measure   BPF_PROG_TEST_RUN on a node ─▶ ns for a packet ───┐
//!                    │ among 1 service port, and among 50,000                          ├─▶ report: table, CSV
//! connect        ────┴▶ real sockets on loopback in cgroups of their own ─▶ connect() ─┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `packet` | the paths of a packet, and how their cost is measured |
//! | `connect` | `connect()` without programs, with them, to a service |
//! | `services` | 50,000 service ports without clients |
//! | `sample` | medians |
//! | `report` | the table, and the CSV files |
//!
//! What is compared is measured in turns, so that whatever else the machine does hits both. Figures are medians. No
//! figure is a verdict: the exit code only tells whether they could be taken.

mod connect;
mod packet;
mod report;
mod sample;
mod services;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;

/// Measures what the datapath costs.
#[derive(Parser)]
#[command(name = "lb-bench")]
struct Arguments {
    /// Folder for the CSV files; made if it is not there
    #[arg(long)]
    csv: PathBuf,
}

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
    let packets = packet::measure().context("failed to measure packets")?;
    println!("{}", report::packets(&packets));
    let connects = connect::measure().context("failed to measure connect()")?;
    println!("{}", report::connects(&connects));
    for (name, text) in [
        ("datapath-packets.csv", report::packets_csv(&packets)),
        ("datapath-connect.csv", report::connects_csv(&connects)),
    ] {
        report::write(&arguments.csv, name, &text)?;
    }
    Ok(())
}
