//! `plumbline run`: a cluster, a selection, the cases, the reports.
//!
//! - `cluster.rs`: the lab that is used or made. `select.rs`: what runs, decided before the run.
//! - `schedule.rs`: cases side by side, disruptive ones alone. `process.rs`: one case as a process.
//! - `progress.rs`: what a person sees meanwhile. `summary.rs`, `junit.rs`, `report.rs`: what stays.
//! - `owner.rs`: files belong to who called sudo.
mod cluster;
mod junit;
mod owner;
mod process;
mod progress;
mod report;
mod schedule;
mod select;
mod summary;

use std::{
    num::NonZero,
    path::PathBuf,
    process::ExitCode,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use harness::limits::Limits;
use lab::cluster::Cluster as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::lab::{FamilyArgs, TargetArgs};

use self::{cluster::Target, process::Settings, progress::Progress, report::Report};

/// Exit code after an interruption: 128 and SIGINT.
const INTERRUPTED: u8 = 130;

/// Run cases and report.
///
/// Makes a cluster (the embedded lab: nodes, pods and an API server as namespaces of this host), runs the cases in
/// it, and takes it down.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0    nothing failed
  1    a case failed, or was inconclusive: its fault, control or fence was not seen, so it has shown nothing
  2    could not run
  130  interrupted
Cases that are skipped or not supported are listed with the reason, and are no pass.

Files in --out:
  junit.xml, report.json
  evidence/CASE/   every write, version and probe (history.jsonl), objects, logs, dumps")]
pub(crate) struct Arguments {
    /// Only cases whose id or one of whose claims matches
    #[arg(long, value_name = "REGEX")]
    filter: Option<regex::Regex>,
    /// Folder for reports and evidence
    #[arg(long, default_value = "target/plumbline", value_name = "FOLDER")]
    out: PathBuf,
    /// Use a running lab (`plumbline lab up`) instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "agent", "mutant", "ipv6", "dual"])]
    lab: Option<String>,
    #[command(flatten)]
    families: FamilyArgs,
    #[command(flatten)]
    target: TargetArgs,
    /// An agent with one known bug, from plumbline-mutant beside this program
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "agent"])]
    mutant: Option<String>,
    /// How many cases run side by side at most; the default is the number of processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Multiplies all limits but T_hold, for a slow machine
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    timeout_scale: f64,
    /// Decides the order of variants and endpoints; printed by every run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leave the cluster and the namespaces of the cases
    #[arg(long)]
    keep: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (1.0..=100.0).contains(&scale) => Ok(scale),
        _ => Err(
            "expected a number from 1 to 100: limits are the catalogue's, and may only be lengthened".into(),
        ),
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the lab makes namespaces, cgroups and eBPF programs, which needs root: run it with sudo, or by \
             `cargo xtask e2e`, which asks for it"
        );
    }
    let interrupted = interruption()?;
    let named = select::named(arguments.filter.as_ref())?;
    let out = owner::Folder::create(&arguments.out)
        .with_context(|| format!("failed to make the folder {}", arguments.out.display()))?;
    let limits = Limits::scaled(arguments.timeout_scale);
    let seed = arguments.seed.unwrap_or_else(rand::random);

    eprintln!("bringing up the lab …");
    let target = Target::new(arguments.lab, arguments.target, arguments.mutant);
    let cluster = tokio::select! {
        cluster = target.cluster(arguments.families.families(), arguments.keep) => cluster?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let description = cluster.lab.describe().clone();
    let selection = select::select(named, &description);
    summary::before(&description, &limits, seed, &selection, began.elapsed());

    let settings = Settings {
        lab: cluster.name.clone(),
        run: format!(
            "run-{}-{:06x}",
            std::process::id(),
            rand::random::<u32>() & 0x00ff_ffff
        ),
        seed,
        target: target.options() + arguments.families.options(),
        timeout_scale: arguments.timeout_scale,
        out: out.path().to_owned(),
        keep: arguments.keep,
        jobs: arguments
            .jobs
            .or_else(|| available_parallelism().ok())
            .map_or(1, NonZero::get),
        interrupted: interrupted.clone(),
    };
    let progress = Progress::new(selection.run.len());
    let reports = schedule::all(&settings, &cluster.lab, selection, &progress).await;
    progress.end();

    let report = Report::new(description, limits, seed, began.elapsed(), reports);
    report.write(out.path())?;
    junit::write(&report, &out.path().join("junit.xml"))?;
    let down = cluster.end().await;
    summary::after(&report, out.path());
    down.context("the verdicts stand, but the lab was not taken down cleanly")?;
    Ok(if interrupted.is_cancelled() {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::from(u8::from(report.failed()))
    })
}

/// Cancelled by the first SIGINT or SIGTERM; the second ends the process at once, and the lab with it.
fn interruption() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if first {
                eprintln!("interrupted: cleaning up; once more to end at once");
                cancelled.cancel();
            } else {
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    });
    Ok(token)
}

/// Seconds for people.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_may_only_be_lengthened() {
        assert_eq!(scale("1.5"), Ok(1.5));
        assert!(scale("0.5").is_err() && scale("NaN").is_err() && scale("x").is_err());
    }
}
