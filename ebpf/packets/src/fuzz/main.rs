//! The differential fuzzing as a program: `cargo xtask ebpf fuzz` builds and starts it.

use std::{
    ops::ControlFlow,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use lb_packets::{
    fuzz::{Fuzzer, Kernel, Limits, Report, Sockets},
    model,
    world::World,
};

/// Where nobody watches, a line this often.
const LINE: Duration = Duration::from_secs(10);

/// Random packets and maps through the kernel's programs and through the model; exit code 1 if they differ.
#[derive(Parser)]
#[command(name = "cargo xtask ebpf fuzz", max_term_width = 100)]
struct Arguments {
    /// Cases
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// What all cases are drawn from; without it, the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first case: with `--cases 1`, the only one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds after which no case is begun; without it, there is no limit
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: Option<u64>,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let _world = World::enter()?;
    let sockets = Sockets::open().context("failed to open sockets at the node's addresses")?;
    let mut kernel = Kernel::load().context("failed to load the programs")?;
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH);
    let limits = Limits {
        seed: match arguments.seed {
            Some(seed) => seed,
            None => clock()
                .context("the clock is before 1970; give a --seed")?
                .as_secs(),
        },
        first: arguments.first,
        cases: arguments.cases,
        time: arguments.time_limit.map(Duration::from_secs),
    };
    println!("seed {}, {} cases", limits.seed, limits.cases);
    let bar = ProgressBar::new(limits.cases).with_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} cases, {per_sec}, {eta} left",
    )?);
    let mut said = Instant::now();
    let mut fuzzer = Fuzzer::new(&mut kernel, model::expected, &sockets);
    let report = fuzzer.run(&limits, |cases| {
        bar.set_position(cases);
        if bar.is_hidden() && said.elapsed() > LINE {
            said = Instant::now();
            println!("{cases} of {} cases", limits.cases);
        }
        ControlFlow::Continue(())
    })?;
    bar.finish_and_clear();
    Ok(tell(&report, limits.cases))
}

fn tell(report: &Report, asked: u64) -> ExitCode {
    for (counter, times) in &report.counters {
        println!("{times:>10} {}", counter.name());
    }
    let Report {
        cases, packets, took, ..
    } = report;
    let second = *cases as f64 / took.as_secs_f64().max(f64::EPSILON);
    println!(
        "{cases} cases, {packets} packets in {:.1} s: {second:.0} cases a second",
        took.as_secs_f64()
    );
    match &report.mismatch {
        None if *cases == 0 => {
            eprintln!(
                "error: the time limit ended before the first case: nothing was compared; give it more seconds"
            );
            ExitCode::from(2)
        }
        None => {
            if *cases < asked {
                println!("ended by the time limit: {cases} of {asked} cases");
            }
            println!("programs and model agree");
            ExitCode::SUCCESS
        }
        Some(row) => {
            println!("programs and model differ:\n{row}");
            ExitCode::FAILURE
        }
    }
}
