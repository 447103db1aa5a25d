//! `plumbline-simulate`: many schedules, one after the other on each processor.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{IsTerminal as _, Write as _},
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};
use mutants::{Mutant, plans::Plans};
use reference_agent::{control::Planner, plan::Perspective};
use scenarios::chaos::{
    generate::{Wish, schedule},
    schedule::{FaultKind, Schedule},
};
use simulation::{Broken, Desired, Played, played, shortest, simulated};

/// How often a schedule is played to find a shorter one that still breaks the law.
const TRIES: usize = 400;
/// From one line of progress to the next.
const EVERY: Duration = Duration::from_secs(2);

/// Play schedules of chaos against the agent's own parts, in simulated time
///
/// Watches, model, plans and maps of the reference agent, against the lab's API server, in one process and without a kernel. No root. The
/// first schedule that breaks the law is shrunk and written to a file.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask simulate                          # 10,000 schedules of ten seconds
  cargo xtask simulate --seeds 1..1001 --seconds 60
  cargo xtask simulate --mutant prefix-release  # a known bug, found and shrunk
  cargo xtask simulate --mutants --seeds 1..21  # how many seeds each takes
  cargo xtask simulate --schedule target/plumbline/simulation/seed-7.json
Exit codes: 0 the law holds, 1 it is broken, 2 could not run.")]
struct Arguments {
    /// Seeds, from the first to the one behind the last
    #[arg(long, value_name = "A..B", default_value = "1..10001", value_parser = seeds)]
    seeds: std::ops::Range<u64>,
    /// How long each schedule lasts, in simulated seconds: what a short one misses, several more seeds find in less time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=900))]
    seconds: u32,
    /// Play the schedule of a file instead, from this command or from `plumbline chaos`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seconds"])]
    schedule: Option<PathBuf>,
    /// Give the agent's plans a known bug: one of those of `plumbline-mutant list` that need no kernel
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    mutant: Option<(String, Plans)>,
    /// Show for each bug in plans how many seeds it takes until it is found, from the first seed on
    ///
    /// What no schedule has, such as a second family, hints of zones or ranges of clients, shows no bug in it.
    #[arg(long, conflicts_with_all = ["schedule", "mutant"])]
    mutants: bool,
    /// Schedules at once [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Where shrunk schedules are written
    #[arg(long, value_name = "FOLDER", default_value = "target/plumbline/simulation")]
    out: PathBuf,
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let wrong = || format!("expected seeds such as 1..101; found {text:?}");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let range = first.parse().map_err(|_| wrong())?..end.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

fn mutant(text: &str) -> Result<(String, Plans), String> {
    let mutant =
        Mutant::from_str(text, false).map_err(|_| "`plumbline-mutant list` names them".to_owned())?;
    let plans = mutant.plans();
    let plans =
        plans.ok_or_else(|| "its bug is not in its plans; `cargo xtask mutants` has it".to_owned())?;
    Ok((text.to_owned(), plans))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(holds) => ExitCode::from(u8::from(!holds)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Of all schedules together.
#[derive(Default)]
struct Sum {
    schedules: u64,
    calls: u64,
    told: u64,
    quiet: u64,
    faults: BTreeMap<FaultKind, u64>,
}

impl Sum {
    fn add(&mut self, played: &Played) {
        self.schedules += 1;
        self.calls += played.calls;
        self.told += played.told;
        self.quiet += played.quiet;
        for (kind, count) in &played.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let plans = arguments.mutant.as_ref().map(|(_, plans)| *plans);
    let desired = move |perspective| -> Desired {
        let planner = Planner::new(perspective);
        match plans {
            Some(plans) => plans(planner),
            None => Box::new(planner),
        }
    };
    if let Some(path) = &arguments.schedule {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let schedule: Schedule =
            serde_json::from_str(&text).with_context(|| format!("{} is no schedule", path.display()))?;
        let schedule = schedule.checked().with_context(|| path.display().to_string())?;
        let left_out: BTreeSet<&str> = schedule
            .kinds()
            .into_iter()
            .filter(|kind| !simulated(*kind))
            .map(FaultKind::name)
            .collect();
        if !left_out.is_empty() {
            let names = left_out.into_iter().collect::<Vec<_>>().join(", ");
            anyhow::bail!(
                "faults that need a kernel, and are not simulated: {names}; `plumbline chaos replay` makes them"
            );
        }
        return Ok(match played(&schedule, &desired)?.broken {
            None => {
                println!("the law holds");
                true
            }
            Some(broken) => {
                println!("{}", text_of(&broken));
                false
            }
        });
    }
    let lasts_ms = arguments.seconds * 1000;
    let wish = Wish {
        lasts_ms,
        kinds: FaultKind::ALL
            .into_iter()
            .filter(|kind| simulated(*kind))
            .collect(),
        nodes: 1,
        moves: true,
    };
    if arguments.mutants {
        show_mutants(arguments, &wish)?;
        return Ok(true);
    }
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.get(),
        None => thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    let count = arguments.seeds.end - arguments.seeds.start;
    let (next, ended) = (AtomicU64::new(arguments.seeds.start), AtomicBool::new(false));
    let (sum, first) = (Mutex::new(Sum::default()), Mutex::new(None::<(Schedule, Broken)>));
    let began = Instant::now();
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    while !ended.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= arguments.seeds.end {
                            break;
                        }
                        let schedule = schedule(seed, &wish);
                        let played = played(&schedule, &desired).with_context(|| format!("seed {seed}"))?;
                        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&played);
                        if let Some(broken) = played.broken {
                            ended.store(true, Ordering::Relaxed);
                            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                            // The lowest, whichever ended first.
                            if first.as_ref().is_none_or(|(schedule, _)| seed < schedule.seed) {
                                *first = Some((schedule, broken));
                            }
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let mut shown = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(50));
            if shown.elapsed() >= EVERY && std::io::stderr().is_terminal() {
                shown = Instant::now();
                let schedules = sum.lock().unwrap_or_else(PoisonError::into_inner).schedules;
                eprint!(
                    "\r{schedules} of {count} schedules, {:.0} s",
                    began.elapsed().as_secs_f64()
                );
                _ = std::io::stderr().flush();
            }
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r");
        }
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    done?;
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let took = began.elapsed().as_secs_f64();
    println!(
        "{} schedules of {} s in {took:.1} s, {:.0} a minute: {} calls of the API, {} faults; the maps were compared {} times with what \
         the agent was told, and {} times with the API",
        sum.schedules,
        arguments.seconds,
        sum.schedules as f64 * 60.0 / took,
        sum.calls,
        sum.faults.values().sum::<u64>(),
        sum.told,
        sum.quiet,
    );
    for (kind, count) in &sum.faults {
        println!("  {count:>7}  {}", kind.name());
    }
    let first = first.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Some((schedule, broken)) = first else {
        return Ok(true);
    };
    println!("seed {}: {}", schedule.seed, text_of(&broken));
    shrunk(&schedule, &desired, arguments)?;
    Ok(false)
}

/// A table of mutants and the seeds until each is found.
fn show_mutants(arguments: &Arguments, wish: &Wish) -> anyhow::Result<()> {
    let mut seeds = Vec::new();
    for mutant in Mutant::value_variants() {
        let (Some(plans), Some(name)) = (mutant.plans(), mutant.to_possible_value()) else {
            continue;
        };
        let bug = |perspective| plans(Planner::new(perspective));
        let mut taken = None;
        for (count, seed) in (1..).zip(arguments.seeds.clone()) {
            let played = played(&schedule(seed, wish), &bug).with_context(|| format!("seed {seed}"))?;
            if played.broken.is_some() {
                taken = Some(count);
                break;
            }
        }
        let shown = taken.map_or_else(|| "-".to_owned(), |count: u64| count.to_string());
        println!("{shown:>5}  {:24} {}", name.get_name(), mutant.bug());
        seeds.push(taken);
    }
    let found = seeds.iter().flatten().count();
    // Those that were not found are the last.
    seeds.sort_unstable_by_key(|taken| taken.unwrap_or(u64::MAX));
    let median = seeds.get(seeds.len() / 2).copied().flatten();
    let median = median.map_or_else(
        || "most are not found".to_owned(),
        |median| format!("in the median by seed {median} of them"),
    );
    println!("{} mutants, {found} found; {median}", seeds.len());
    Ok(())
}

fn text_of(broken: &Broken) -> String {
    format!(
        "the law is broken at {:.3} s: {}",
        broken.at.as_secs_f64(),
        broken.what
    )
}

/// Fewer actions that still break the law, shown and in a file.
fn shrunk(
    schedule: &Schedule,
    desired: &dyn Fn(Perspective) -> Desired,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let shortest = shortest(schedule, TRIES, desired);
    println!(
        "{} of its {} actions suffice:",
        shortest.actions.len(),
        schedule.actions.len()
    );
    for action in &shortest.actions {
        println!("{action}");
    }
    let out = &arguments.out;
    fs::create_dir_all(out).with_context(|| format!("failed to make {}", out.display()))?;
    let path = out.join(format!("seed-{}.json", schedule.seed));
    let text = serde_json::to_string_pretty(&shortest)? + "\n";
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    let mutant = arguments
        .mutant
        .as_ref()
        .map(|(name, _)| format!(" --mutant {name}"));
    let mutant = mutant.unwrap_or_default();
    println!(
        "again: cargo xtask simulate{mutant} --schedule {}",
        path.display()
    );
    Ok(())
}
