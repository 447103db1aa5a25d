//! The differential fuzzing as a program: `cargo xtask ebpf fuzz` builds and starts it.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lb_abi::Counter;
use lb_packets::{
    calls,
    cgroup::Cgroups,
    fuzz::{Fuzzer, Kernel, Limits, Sockets},
    model,
    test_node::TestNode,
};

/// Without a terminal, a line this often.
const LINE: Duration = Duration::from_secs(10);
/// Cases of packets for each one of sockets, which takes so many times as long.
const PACKETS_PER_SOCKETS: u64 = 10;

/// Random packets and maps through the kernel's programs and through the model, and then random calls of sockets; exit code 1
/// if they differ.
#[derive(Parser)]
#[command(name = "cargo xtask ebpf fuzz", max_term_width = 100)]
struct Arguments {
    /// Cases of packets; of sockets, a tenth of it if both are run
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// What all cases are drawn from; without it, the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first case: with `--cases 1`, the only one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds after which no case is begun, half of them for either if both are run; without it, there is no limit
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: Option<u64>,
    /// What is run; without it, both
    #[arg(long, value_enum)]
    only: Option<Subject>,
}

/// What cases are about.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    Packets,
    Sockets,
}

/// What was run, of either.
struct Told {
    cases: u64,
    /// How many packets or calls, and what they are called.
    steps: (u64, &'static str),
    took: Duration,
    counters: BTreeMap<Counter, u64>,
    difference: Option<String>,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH);
    let both = arguments.only.is_none();
    let time = arguments.time_limit.map(Duration::from_secs);
    let limits = Limits {
        seed: match arguments.seed {
            Some(seed) => seed,
            None => clock()
                .context("the clock is before 1970; give a --seed")?
                .as_secs(),
        },
        first: arguments.first,
        cases: arguments.cases,
        time: if both { time.map(|time| time / 2) } else { time },
    };
    let of_sockets = Limits {
        cases: if both {
            limits.cases.div_ceil(PACKETS_PER_SOCKETS)
        } else {
            limits.cases
        },
        ..limits
    };
    if arguments.only != Some(Subject::Sockets) {
        let code = told(packets, &limits)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    if arguments.only == Some(Subject::Packets) {
        return Ok(ExitCode::SUCCESS);
    }
    told(sockets, &of_sockets)
}

/// Runs one of the two on a thread of its own: it changes network namespaces.
fn told(work: fn(&Limits) -> anyhow::Result<Told>, limits: &Limits) -> anyhow::Result<ExitCode> {
    let told = thread::scope(|scope| scope.spawn(|| work(limits)).join())
        .map_err(|_| anyhow!("the fuzzing panicked; it has said why above"))??;
    Ok(tell(&told, limits.cases))
}

fn packets(limits: &Limits) -> anyhow::Result<Told> {
    println!("seed {}, {} cases of packets", limits.seed, limits.cases);
    let _node = TestNode::enter()?;
    let sockets = Sockets::open().context("failed to open sockets at the node's addresses")?;
    let mut kernel = Kernel::load().context("failed to load the programs")?;
    let mut fuzzer = Fuzzer::new(&mut kernel, model::expected, &sockets);
    let report = watched(limits, |progress| fuzzer.run(limits, progress))??;
    Ok(Told {
        cases: report.cases,
        steps: (report.packets, "packets"),
        took: report.took,
        counters: report.counters,
        difference: report.mismatch.map(|row| row.to_string()),
    })
}

fn sockets(limits: &Limits) -> anyhow::Result<Told> {
    println!("seed {}, {} cases of sockets", limits.seed, limits.cases);
    let cgroups = Cgroups::create("lb-fuzz-", &[])?;
    let mut kernel = calls::Kernel::load(cgroups.own()).context("failed to attach the programs")?;
    let mut fuzzer = calls::Fuzzer::new(&mut kernel, calls::model::permitted);
    let report = watched(limits, |progress| fuzzer.run(limits, progress))??;
    Ok(Told {
        cases: report.cases,
        steps: (report.calls, "calls"),
        took: report.took,
        counters: report.counters,
        difference: report.failure.map(|failure| failure.to_string()),
    })
}

/// Shows how many cases there have been.
fn watched<T>(
    limits: &Limits,
    run: impl FnOnce(&mut dyn FnMut(u64) -> ControlFlow<()>) -> T,
) -> anyhow::Result<T> {
    let bar = ProgressBar::new(limits.cases).with_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} cases, {per_sec}, {eta} left",
    )?);
    let mut said = Instant::now();
    let done = run(&mut |cases| {
        bar.set_position(cases);
        if bar.is_hidden() && said.elapsed() > LINE {
            said = Instant::now();
            println!("{cases} of {} cases", limits.cases);
        }
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    Ok(done)
}

fn tell(told: &Told, asked: u64) -> ExitCode {
    for (counter, times) in &told.counters {
        println!("{times:>10} {}", counter.name());
    }
    let Told {
        cases,
        steps: (steps, what),
        took,
        ..
    } = told;
    let second = *cases as f64 / took.as_secs_f64().max(f64::EPSILON);
    println!(
        "{cases} cases, {steps} {what} in {:.1} s: {second:.0} cases a second",
        took.as_secs_f64()
    );
    match &told.difference {
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
        Some(difference) => {
            println!("programs and model differ:\n{difference}");
            ExitCode::FAILURE
        }
    }
}
