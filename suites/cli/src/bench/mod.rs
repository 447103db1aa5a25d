//! `plumbline bench`: implementations side by side.
//!
//! `text`: the table. `csv`: every measurement. `page`: bench.html, with charts.

mod csv;
mod page;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    thread::available_parallelism,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use bench::{BenchError, Delays, Memory, Progress, Results, Row, Settings, Starts, Way, Work};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use lab::{AgentCommand, LabError, sibling};
use tokio::signal::unix::{SignalKind, signal};

use crate::{COULD_NOT_RUN, targets::named};

/// Those that are measured if no target is named: as many of them as this machine has programs of.
const TARGETS: [&str; 3] = ["reference", "kube-proxy-nftables", "kube-proxy-iptables"];
/// Most Services: as many as cluster IPs of a lab's range, less some.
const MOST_SERVICES: usize = 60_000;

const HELP: &str = "\
Each target gets a lab of its own, and one more lab has no implementation: its direct connections are what the kernel does alone. \
All labs run at once, idle but for the one that is measured. A round measures each way and exchange once in every lab, in turns, so \
that what else the machine does hits all alike. Figures are shares of the lab without an implementation in the same round: the \
median of the rounds, and the quartiles.

  plumbline bench                                     the reference and kube-proxy, 10 and 1,000 Services
  plumbline bench --rounds 3 --services 10            a look, in a minute or two
  plumbline bench --target my.yaml --target reference yours beside the reference
  plumbline bench --way far --work udp-new            one way, one exchange

Ways: pod and host (from there by a cluster IP to a pod of another node), near and far (from outside by a node port to a pod of \
that node, and of another), balanced (from outside by a load balancer's address to a pod of another node). The direct way goes by the same hops to the pod's own address, and back.

Exchanges: connect (a connection with one request), request (on one connection), udp-flow (a datagram and its answer on one \
socket), udp-new (on a new one), stream (64 KiB on one connection).

Changes: the endpoint of a Service is replaced, and a client in a pod of the first node connects every millisecond: from the write \
to its first answer by the new one, while other slices change so often in a second.

Cold starts: the agent of one node is stopped and cleaned up. Then it is started again. The time runs until a client on that node has \
had an answer from each of up to 256 Services, spread evenly over all of them.

One client and one server run at a time, each on one thread; more by --threads, which is what one Service bears that many processors \
use. Nothing else should run: the load is noted.

Exit codes: 0 measured, 2 it could not be. No figure is a failure.";

/// Measure what a connection by a Service costs, implementations side by side
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// A target's name, or the path of a target file; repeatable. The default: reference, kube-proxy-nftables and
    /// kube-proxy-iptables, as far as their programs are here
    #[arg(long = "target", value_name = "NAME|FILE", value_parser = named)]
    targets: Vec<String>,
    /// Numbers of Services beside those that are measured, from few to many
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,1000", value_parser = services)]
    services: Vec<usize>,
    /// Rounds for each number of Services
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long one measurement takes, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    each: u64,
    /// Only these ways: pod, host, near, far, balanced
    #[arg(long = "way", value_name = "WAY", value_delimiter = ',', value_parser = Way::from_str)]
    ways: Vec<Way>,
    /// Only these exchanges: connect, request, udp-flow, udp-new, stream
    #[arg(long = "work", value_name = "EXCHANGE", value_delimiter = ',', value_parser = Work::from_str)]
    works: Vec<Work>,
    /// Changes of other Services in a second while the delay of a change is measured, each number in turn; none: no
    /// delays
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,20", num_args = 0.., value_parser = clap::value_parser!(u32).range(0..=5000))]
    changes: Vec<u32>,
    /// Threads of a client that make exchanges at once, and of a server that answers them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Cold starts of each agent for each number of Services
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=100))]
    starts: u16,
    /// Folder for bench.html, bench.csv, changes.csv and starts.csv
    #[arg(long, value_name = "DIR", default_value = "target/plumbline/bench")]
    out: PathBuf,
}

fn services(text: &str) -> Result<usize, String> {
    let found = text
        .parse()
        .map_err(|_| format!("expected a number, found '{text}'"))?;
    if (1..=MOST_SERVICES).contains(&found) {
        Ok(found)
    } else {
        Err(format!("expected 1 to {MOST_SERVICES}, found {found}"))
    }
}

/// Where and when it was measured.
#[derive(Debug)]
struct Machine {
    processors: usize,
    model: String,
    kernel: String,
    /// Processes that ran or waited to, on average of the last minute, before the first lab.
    load: String,
    when: Timestamp,
}

impl Machine {
    fn now() -> Self {
        let first_after = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processors: available_parallelism().map_or(1, usize::from),
            model: first_after("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| "an unknown model".to_owned()),
            kernel: kernel.trim().to_owned(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            when: Timestamp::now(),
        }
    }

    /// In a line.
    fn words(&self) -> String {
        format!(
            "{} processors ({}), Linux {}, load {} before, {}",
            self.processors,
            self.model,
            self.kernel,
            self.load,
            self.when.strftime("%F %H:%M UTC")
        )
    }
}

pub(crate) async fn bench(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::now();
    let settings = settings(arguments)?;
    fs::create_dir_all(&settings.out)
        .with_context(|| format!("failed to make {}", settings.out.display()))?;
    let names: Vec<&str> = settings
        .targets
        .iter()
        .map(|target| target.label.as_str())
        .collect();
    eprintln!("{}", machine.words());
    eprintln!(
        "{}; {} measurements, at least {:.0} min",
        names.join(", "),
        bench::measurements(&settings),
        (bench::at_least(&settings).as_secs_f64() / 60.0).ceil()
    );
    let line = Line::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        results = bench::run(&settings, &line) => Some(results),
        _ = terminate.recv() => None,
        interrupted = tokio::signal::ctrl_c() => { interrupted?; None }
    };
    line.0.finish_and_clear();
    // The labs end with this process.
    let Some(results) = ended else {
        eprintln!("interrupted; nothing is written");
        return Ok(ExitCode::from(COULD_NOT_RUN));
    };
    write(&settings, &machine, &results.map_err(explained)?)?;
    Ok(ExitCode::SUCCESS)
}

fn explained(error: BenchError) -> anyhow::Error {
    anyhow::Error::from(error).context("nothing is written")
}

fn settings(arguments: Arguments) -> anyhow::Result<Settings> {
    let targets = if arguments.targets.is_empty() {
        found()?
    } else {
        let given = arguments.targets.iter();
        given
            .map(|name| AgentCommand::of_target(name, None))
            .collect::<Result<_, _>>()?
    };
    let mut labels: Vec<&str> = targets.iter().map(|target| target.label.as_str()).collect();
    labels.sort_unstable();
    labels.dedup();
    ensure!(
        labels.len() == targets.len(),
        "a target is named twice: each is measured once"
    );
    let given: Vec<String> = arguments.services.iter().map(usize::to_string).collect();
    ensure!(
        arguments.services.is_sorted(),
        "--services goes from few to many, as Services are only added: found {}",
        given.join(",")
    );
    let or_all = |some: Vec<Way>| if some.is_empty() { Way::ALL.to_vec() } else { some };
    let works = if arguments.works.is_empty() {
        Work::ALL.to_vec()
    } else {
        arguments.works
    };
    Ok(Settings {
        targets,
        plumbline: sibling("plumbline")?,
        run: format!("bench-{}", std::process::id()),
        out: arguments.out,
        services: arguments.services,
        rounds: arguments.rounds.into(),
        lasts: Duration::from_millis(arguments.each),
        ways: or_all(arguments.ways),
        works,
        changes: arguments.changes,
        threads: arguments.threads.into(),
        starts: arguments.starts.into(),
    })
}

/// The default targets whose programs are here; says which are not.
fn found() -> anyhow::Result<Vec<AgentCommand>> {
    let mut all = Vec::new();
    for name in TARGETS {
        match AgentCommand::of_target(name, None) {
            Ok(agent) => all.push(agent),
            Err(LabError::NoProgram { program }) => eprintln!(
                "left out: {name}: {program} is not beside plumbline, not in the folder that PLUMBLINE_KUBE_API names, and not on \
                 the PATH"
            ),
            Err(error) => return Err(error.into()),
        }
    }
    if all.is_empty() {
        bail!("no target's program is here: name one by --target");
    }
    Ok(all)
}

/// What is shown.
struct Figures<'a> {
    rows: Vec<Row>,
    delays: Vec<Delays>,
    starts: Vec<Starts>,
    memory: &'a [Memory],
}

fn write(settings: &Settings, machine: &Machine, results: &Results) -> anyhow::Result<()> {
    let figures = Figures {
        rows: bench::rows(&results.samples),
        delays: bench::delays(&results.changes),
        starts: bench::starts(&results.starts),
        memory: &results.memory,
    };
    println!("{}", text::table(&figures));
    let files = [
        ("bench.html", page::page(machine, settings, &figures)),
        ("bench.csv", csv::samples(&results.samples)),
        ("changes.csv", csv::changes(&results.changes)),
        ("starts.csv", csv::starts(&results.starts)),
    ];
    for (name, text) in files {
        let path: &Path = &settings.out.join(name);
        fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The progress line.
struct Line(ProgressBar);

impl Line {
    fn new() -> Self {
        /// How often the line is redrawn.
        const DRAWN: Duration = Duration::from_millis(200);
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("  {elapsed} [{pos}/{len}] {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(DRAWN);
        Self(bar)
    }
}

impl Progress for Line {
    fn begins(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn measured(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }
}
