//! `plumbline run`: a cluster, a selection, the cases, the reports.
//!
//! - `arguments.rs`: what can be said. `cluster.rs`: the lab that is used or made.
//! - `select.rs`: what runs, decided before the run. `exempt.rs`: what is known to deviate.
//!   `declared.rs`: what a target says of both.
//! - `schedule.rs`: cases side by side, disruptive ones alone. `process.rs`: one case as a process.
//! - `progress.rs`: what a person sees meanwhile. `summary.rs`: before and after.
//! - `owner.rs`: files belong to who called sudo.
mod arguments;
mod cluster;
mod declared;
mod exempt;
mod owner;
mod process;
mod progress;
mod schedule;
mod select;
mod summary;

pub(crate) use {
    arguments::Arguments,
    summary::{counts, table},
};

use std::{
    collections::BTreeSet,
    num::NonZero,
    path::Path,
    process::ExitCode,
    thread::available_parallelism,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail};
use harness::limits::Limits;
use lab::cluster::Cluster as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::report::{files, format, make};

use self::{cluster::Target, declared::Declared, process::Settings, progress::Progress, select::Wanted};

/// Exit code after an interruption: 128 and SIGINT.
const INTERRUPTED: u8 = 130;
/// Folder of a rerun, in that of the run.
const RERUN: &str = "rerun";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (began, started) = (Instant::now(), SystemTime::now());
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the lab makes namespaces, cgroups and eBPF programs, which needs root: run it with sudo, or by \
             `cargo xtask e2e`, which asks for it"
        );
    }
    let interrupted = interruption()?;
    let last = arguments
        .rerun_failed
        .then(|| Last::read(&arguments.out))
        .transpose()?;
    let named = select::named(&Wanted {
        filter: arguments.filter.as_ref(),
        claims: &arguments.claims,
        ids: last.as_ref().map(|last| &last.failed),
    })?;
    let folder = match &last {
        Some(_) => arguments.out.join(RERUN),
        None => arguments.out.clone(),
    };
    let out = owner::Folder::create(&folder)
        .with_context(|| format!("failed to make the folder {}", folder.display()))?;
    let limits = Limits::of(arguments.profile).scaled(arguments.timeout_scale);
    let seed = last.as_ref().map(|last| last.seed).or(arguments.seed);
    let seed = seed.unwrap_or_else(rand::random);

    eprintln!("bringing up the lab …");
    let options = arguments.options();
    let target = Target::new(arguments.lab, arguments.target, arguments.mutant);
    let cluster = tokio::select! {
        cluster = target.cluster(arguments.families.families(), arguments.nodes, &limits, arguments.keep) => cluster?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let description = cluster.lab.describe().clone();
    let declared = Declared::new(arguments.features, arguments.exempt, &description);
    let Declared { features, exemptions } = match declared {
        Ok(declared) => declared,
        Err(why) => {
            cluster.end().await?;
            return Err(why);
        }
    };
    let selection = select::select(named, &description, &features);
    summary::before(
        &description,
        &features,
        &limits,
        seed,
        &selection,
        began.elapsed(),
    );

    let settings = Settings {
        // Also when its file was replaced meanwhile.
        program: "/proc/self/exe".into(),
        lab: cluster.name.clone(),
        run: format!(
            "run-{}-{:06x}",
            std::process::id(),
            rand::random::<u32>() & 0x00ff_ffff
        ),
        seed,
        target: target.options() + &options,
        limits: limits.clone(),
        out: out.path().to_owned(),
        keep: arguments.keep,
        jobs: arguments
            .jobs
            .or_else(|| available_parallelism().ok())
            .map_or(1, NonZero::get),
        shuffle: arguments.shuffle,
        fail_fast: arguments.fail_fast,
        exemptions,
        interrupted: interrupted.clone(),
    };
    let progress = Progress::new(selection.run.len());
    let cases = schedule::all(&settings, &cluster.lab, selection, &progress).await;
    progress.end();

    let report = make::report(make::Made {
        description: &description,
        features: &features,
        limits: &limits,
        run: format::Run {
            seed,
            shuffled: settings.shuffle,
            profile: limits.profile.name().to_owned(),
            jobs: settings.jobs,
            rerun: last.is_some(),
        },
        started,
        took: began.elapsed(),
        interrupted: interrupted.is_cancelled(),
        cases,
    });
    let written = files::write(&report, out.path());
    let down = cluster.end().await;
    println!("\n{}", summary::table(&report));
    down.context("the verdicts stand, but the lab was not taken down cleanly")?;
    for path in written.context("the verdicts above stand, but not all reports could be written")? {
        println!("{}", path.display());
    }
    Ok(if interrupted.is_cancelled() {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::from(u8::from(report.failed()))
    })
}

/// What is needed of the last run to run again what failed in it.
struct Last {
    failed: BTreeSet<String>,
    seed: u64,
}

impl Last {
    fn read(out: &Path) -> anyhow::Result<Self> {
        let path = out.join(files::YAML);
        let report =
            files::read(&path).context("--rerun-failed needs the report of a run with this --out")?;
        let failed: BTreeSet<String> = report
            .cases
            .iter()
            .filter(|case| case.fails_the_run())
            .map(|case| case.id.clone())
            .collect();
        if failed.is_empty() {
            bail!(
                "no case of {} failed or was inconclusive: there is nothing to run again",
                path.display()
            );
        }
        let seed = report.run.seed;
        Ok(Self { failed, seed })
    }
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
