//! Law 1 by the million: random histories, the same as those of the property tests (`tests/agent/law`), from a seed.
//!
//! `cargo xtask soak agent` builds this optimised, and runs it. History number `n` of a seed is always the same, in
//! whatever job it runs and wherever the soak begins: a run that was ended goes on with `--seed` and `--first`, and a
//! failure is replayed with `--histories 1`.

#[path = "../../tests/agent/law/history/mod.rs"]
#[expect(dead_code, reason = "the replayed recordings use more of it")]
mod history;
mod played;

use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::Parser;

use self::played::{Broken, Player};

/// Plays random histories of API objects, restarts and failing writes, and checks after every event that the maps are
/// what a fresh agent would have written.
#[derive(Parser)]
#[command(
    name = "soak",
    after_help = "Exit codes: 0 every history that was played kept the law, 1 one broke it, 2 could not run."
)]
struct Arguments {
    /// How many histories
    #[arg(long, default_value_t = 1_000_000)]
    histories: u64,
    /// What all of them are drawn from; without it, the clock. Printed
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first one
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many are played side by side; without it, as many as there are processors
    #[arg(long)]
    jobs: Option<usize>,
    /// Minutes after which no history is begun
    #[arg(long)]
    minutes: Option<u64>,
}

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// What the jobs share.
struct Shared {
    next: AtomicU64,
    played: AtomicU64,
    stop: AtomicBool,
    broken: Mutex<Option<Broken>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(clock);
    let jobs = arguments
        .jobs
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    let end = arguments.first.saturating_add(arguments.histories);
    match arguments.histories {
        1 => println!("seed {seed}: history {}", arguments.first),
        _ => println!(
            "seed {seed}: histories {} to {}, {jobs} at a time",
            arguments.first,
            end.saturating_sub(1)
        ),
    }
    played::keep_panics();
    let shared = Shared {
        next: AtomicU64::new(arguments.first),
        played: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        broken: Mutex::new(None),
    };
    let begin = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    thread::scope(|scope| {
        let (working, ended) = mpsc::channel();
        for _ in 0..jobs {
            let working = working.clone();
            let shared = &shared;
            scope.spawn(move || job(seed, end, shared, working));
        }
        drop(working);
        watch(&shared, &ended, begin, limit, arguments.histories);
    });
    report(seed, end, begin, &shared)
}

/// Plays what is next, until there is nothing left or a history breaks the law. `_working` tells [`watch`] by its end.
fn job(seed: u64, end: u64, shared: &Shared, _working: Sender<()>) {
    let player = Player::new(seed);
    while !shared.stop.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            break;
        }
        if let Some(broken) = player.play(number) {
            shared.stop.store(true, Ordering::Relaxed);
            let mut first = shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(broken);
        }
        shared.played.fetch_add(1, Ordering::Relaxed);
    }
}

/// Says how far it has got, and ends it when the time is over.
fn watch(shared: &Shared, ended: &Receiver<()>, begin: Instant, limit: Option<Duration>, histories: u64) {
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        let wait = left
            .filter(|left| !left.is_zero())
            .map_or(PROGRESS, |left| left.min(PROGRESS));
        if ended.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let played = shared.played.load(Ordering::Relaxed);
        let rate = played as f64 / begin.elapsed().as_secs_f64();
        let left = histories.saturating_sub(played) as f64 / rate.max(0.001);
        println!("{played} of {histories}, {rate:.0} a second, {left:.0} s left");
    }
}

fn report(seed: u64, end: u64, begin: Instant, shared: &Shared) -> ExitCode {
    let played = shared.played.load(Ordering::Relaxed);
    let seconds = begin.elapsed().as_secs_f64();
    let broken = shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(broken) = broken.as_ref() {
        let Broken {
            number,
            steps,
            why,
            tried,
        } = broken;
        println!(
            "history {number} breaks the law: {why}\n\
             the shortest that does so still, of {tried} tried: {steps:#?}\n\
             replay it: cargo xtask soak agent --seed {seed} --first {number} --histories 1"
        );
        return ExitCode::FAILURE;
    }
    let histories = if played == 1 { "history" } else { "histories" };
    println!("{played} {histories} kept the law, in {seconds:.0} s");
    let next = shared.next.load(Ordering::Relaxed).min(end);
    if next < end {
        let left = end - next;
        println!("go on: cargo xtask soak agent --seed {seed} --first {next} --histories {left}");
    }
    ExitCode::SUCCESS
}

fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
