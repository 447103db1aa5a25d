//! `plumbline compare`: two implementations, each of which is the other's oracle.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use cluster::{
    target::Target,
    user_file::{self, MOST_BYTES},
};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::SignedDuration;
use lab::{AgentCommand, sibling};
use scenarios::{
    chaos::may_move,
    compare::permitted,
    generate::{Churn, scenario, with_chaos},
    play::{LabSpec, Played, Progress},
    search::{Reproduction, Search, SearchProgress, Verdict, add},
    step::{Scenario, Step},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{COULD_NOT_RUN, lab::TargetArgs, plural::counted, targets::named};

/// The default second implementation.
const AGAINST: &str = "kube-proxy-nftables";
/// How often a progress line is redrawn.
const DRAWN: Duration = Duration::from_millis(200);

const HELP: &str = "\
Both play the same random scenario in a lab of their own, side by side: Services are created, change, pass node ports and \
addresses to each other, and are deleted, while clients in pods, on nodes and outside connect and keep sockets open. The \
results of clients and backends are compared: whether a connection is answered, refused, silent or cut, by which backend, from \
which address, and which source address the backend saw. One list has the permitted differences (`--permitted` prints it, with \
reasons). Any other difference is played again, shrunk, and printed with a file that replays it:

  plumbline compare --seed 7              one scenario
  plumbline compare --for 30m             one seed after the other
  plumbline compare --target my.yaml      your implementation against kube-proxy
  plumbline compare --chaos --faults      the writes and faults of `plumbline chaos` in both
  plumbline compare --replay FILE         a file of steps, from an earlier run or your own

Exit codes: 0 no difference, 1 differences, 2 it could not run.";

/// Play random Services and clients in two implementations side by side, and show their differences
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArgs,
    /// The second implementation: a target's name or file, as for --target
    #[arg(long, value_name = "NAME|FILE", default_value = AGAINST, value_parser = named)]
    against: String,
    /// The program of the second implementation, instead of its target's own
    #[arg(long, value_name = "PATH")]
    against_agent: Option<PathBuf>,
    /// Seed of the first scenario; the default is chosen and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of each scenario
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Write what `plumbline chaos` writes, in the order of the seed's schedule: Services with names that begin alike or are equal in two
    /// namespaces, and two slices of each, which move between them unless one of the two is known not to keep `slice-relabelled`
    #[arg(long)]
    chaos: bool,
    /// Faults of the API and of agents in both, too; they are healed before anything is compared
    #[arg(long, requires = "chaos")]
    faults: bool,
    /// Continue with the next seeds for this long; differences do not end the run
    #[arg(long = "for", value_name = "DURATION")]
    lasts: Option<SignedDuration>,
    /// Play the steps in a file instead, without changes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "steps", "chaos", "faults", "lasts"])]
    replay: Option<PathBuf>,
    /// Limit of scenarios that are played to shrink a failing one
    #[arg(long, default_value_t = 30, value_name = "N")]
    shrinks: u16,
    /// Print the steps of the scenario as text, and play nothing
    #[arg(long)]
    show: bool,
    /// Print the permitted differences with their reasons, and play nothing
    #[arg(long)]
    permitted: bool,
    /// Folder for reproductions, and for histories of the last scenario
    #[arg(long, value_name = "DIR", default_value = "target/plumbline/compare")]
    out: PathBuf,
    /// Factor for all limits, on a slow machine
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    timeout_scale: f64,
}

fn scale(text: &str) -> Result<f64, String> {
    let found: f64 = text
        .parse()
        .map_err(|_| format!("expected a number, found '{text}'"))?;
    if (1.0..=100.0).contains(&found) {
        Ok(found)
    } else {
        Err(format!("expected 1 to 100, found {found}"))
    }
}

/// Results of a run.
#[derive(Default)]
struct Counts {
    scenarios: usize,
    compared: usize,
    permitted: BTreeMap<&'static str, usize>,
    once: usize,
    differ: usize,
    failed: usize,
}

pub(crate) async fn compare(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.permitted {
        print_permitted();
        return Ok(ExitCode::SUCCESS);
    }
    let first = arguments.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let given = arguments.replay.as_deref().map(read).transpose()?;
    let generated = Generated::of(&arguments)?;
    if arguments.show {
        print_steps(&given.unwrap_or_else(|| generated.scenario(first)).steps);
        return Ok(ExitCode::SUCCESS);
    }
    let labels = [arguments.target.agent()?, {
        AgentCommand::of_target(&arguments.against, arguments.against_agent.as_deref())?
    }];
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("failed to make {}", arguments.out.display()))?;
    let make = |agent: &AgentCommand| {
        anyhow::Ok(LabSpec {
            agent: agent.clone(),
            plumbline: sibling("plumbline")?,
            timeout_scale: arguments.timeout_scale,
        })
    };
    let search = Search::new(
        [make(&labels[0])?, make(&labels[1])?],
        format!("cmp-{}", std::process::id()),
        arguments.out.clone(),
        usize::from(arguments.shrinks),
    );
    let names = labels.map(|agent| agent.label);
    eprintln!("{} against {}, in two labs of this machine", names[0], names[1]);
    let mut terminate = signal(SignalKind::terminate())?;
    let run = Run {
        generated,
        replayed: arguments.replay.as_deref(),
        search: &search,
        names: &names,
        options: format!("{} --against {}", arguments.target.options(), arguments.against),
    };
    let all = async {
        match &given {
            Some(scenario) => run.replay(scenario).await,
            None => run.seeds(first, arguments.lasts).await,
        }
    };
    // Both end the run early, and the labs must still be removed.
    let ended = tokio::select! {
        counts = all => Some(counts?),
        _ = terminate.recv() => None,
        interrupted = tokio::signal::ctrl_c() => { interrupted?; None }
    };
    search.clean_up().await;
    let Some(counts) = ended else {
        eprintln!("interrupted; the labs are gone");
        return Ok(ExitCode::from(COULD_NOT_RUN));
    };
    Ok(counts.summary())
}

fn read(path: &Path) -> anyhow::Result<Scenario> {
    let text =
        user_file::read(path, MOST_BYTES).with_context(|| format!("failed to read {}", path.display()))?;
    let scenario: Scenario = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is no file of steps, as `plumbline compare` writes them",
            path.display()
        )
    })?;
    let sensible = scenarios::state::sensible(&scenario.steps);
    let odd = scenario
        .steps
        .iter()
        .zip(sensible.iter().map(Some).chain(std::iter::repeat(None)));
    let odd = odd.enumerate().find(|(_, (step, kept))| Some(*step) != *kept);
    if let Some((number, (step, _))) = odd {
        anyhow::bail!(
            "step {} of {} makes no sense after those before it: {step}",
            number + 1,
            path.display()
        );
    }
    ensure!(!sensible.is_empty(), "{} has no steps", path.display());
    Ok(scenario)
}

/// How scenarios are generated.
struct Generated {
    /// Steps of each.
    steps: usize,
    churn: Option<Churn>,
}

impl Generated {
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let mut churn = arguments.chaos.then_some(Churn {
            faults: arguments.faults,
            moves: true,
        });
        if let Some(churn) = &mut churn {
            for target in [arguments.target.name(), &arguments.against] {
                churn.moves &= may_move(&Target::find(target)?.deviations);
            }
        }
        Ok(Self {
            steps: arguments.steps.into(),
            churn,
        })
    }

    fn scenario(&self, seed: u64) -> Scenario {
        match self.churn {
            Some(churn) => with_chaos(seed, self.steps, churn),
            None => scenario(seed, self.steps),
        }
    }

    /// The options that generate the same.
    fn options(&self) -> String {
        let chaos = match self.churn {
            Some(Churn { faults: true, .. }) => " --chaos --faults",
            Some(_) => " --chaos",
            None => "",
        };
        format!(" --steps {}{chaos}", self.steps)
    }
}

/// One run of `plumbline compare`.
struct Run<'a> {
    search: &'a Search,
    names: &'a [String; 2],
    /// Command line options of the two implementations.
    options: String,
    generated: Generated,
    /// The scenario file, if one is replayed.
    replayed: Option<&'a Path>,
}

impl Run<'_> {
    async fn seeds(&self, first: u64, lasts: Option<SignedDuration>) -> anyhow::Result<Counts> {
        let began = Instant::now();
        let lasts = lasts.map(Duration::try_from).transpose()?;
        let mut counts = Counts::default();
        let mut seed = first;
        loop {
            self.one(&self.generated.scenario(seed), &mut counts).await?;
            seed += 1;
            if lasts.is_none_or(|lasts| began.elapsed() >= lasts) {
                return Ok(counts);
            }
        }
    }

    async fn replay(&self, scenario: &Scenario) -> anyhow::Result<Counts> {
        let mut counts = Counts::default();
        self.one(scenario, &mut counts).await?;
        Ok(counts)
    }

    async fn one(&self, scenario: &Scenario, counts: &mut Counts) -> anyhow::Result<()> {
        let began = Instant::now();
        let line = Line::new(scenario.seed, scenario.steps.len());
        let verdict = self.search.run(scenario, &line).await;
        line.bar.finish_and_clear();
        let (seed, took) = (scenario.seed, began.elapsed().as_secs_f64());
        counts.scenarios += 1;
        match verdict {
            Ok(Verdict::Same(played)) => {
                counts.add(&played);
                let permitted: usize = played.permitted.values().sum();
                eprintln!(
                    "seed {seed}: the same in {} ({} answered, {permitted} permitted differences), {took:.0} s",
                    counted(played.compared, "comparison", "comparisons"),
                    played.answered
                );
            }
            Ok(Verdict::Once(played)) => {
                counts.add(&played);
                counts.once += 1;
                println!("seed {seed}: a difference that was not there again, {took:.0} s");
                for finding in played.findings {
                    println!("  {finding}");
                }
            }
            Ok(Verdict::Differs(found)) => {
                counts.add(&found.played);
                counts.differ += 1;
                self.print(seed, &found);
            }
            Err(error) => {
                counts.failed += 1;
                eprintln!("seed {seed}: could not be played: {error}");
                // One scenario that can't be played may be the machine's fault; if none can be, something else is
                // wrong.
                ensure!(
                    counts.failed < counts.scenarios || counts.scenarios < 3,
                    "none of {} scenarios could be played",
                    counts.scenarios
                );
            }
        }
        Ok(())
    }

    /// The options that reproduce a scenario before it was shrunk.
    fn whole(&self, seed: u64) -> String {
        match self.replayed {
            Some(file) => format!("--replay {}", file.display()),
            None => format!("--seed {seed}{}", self.generated.options()),
        }
    }

    fn print(&self, seed: u64, found: &Reproduction) {
        let [a, b] = self.names;
        println!();
        println!(
            "seed {seed}: a difference, shown by {} of {} steps",
            found.scenario.steps.len(),
            found.of
        );
        println!();
        print_steps(&found.scenario.steps);
        println!();
        let finding = &found.finding;
        println!("  {}: {} differs", finding.subject, finding.aspect);
        println!("    {a}: {}", finding.shown[0]);
        println!("    {b}: {}", finding.shown[1]);
        if !found.others.is_empty() {
            println!();
            println!("  {} --show has more:", self.whole(seed));
        }
        for other in &found.others {
            println!("    after step {}: {other}", other.step + 1);
        }
        println!();
        println!(
            "  plumbline compare{} --replay {}",
            self.options,
            found.file.display()
        );
        println!();
    }
}

impl Counts {
    fn add(&mut self, played: &Played) {
        self.compared += played.compared;
        add(&mut self.permitted, played);
    }

    /// Prints the last lines of a run; returns the exit code.
    fn summary(&self) -> ExitCode {
        for (what, times) in &self.permitted {
            eprintln!("  permitted {}: {what}", counted(*times, "time", "times"));
        }
        println!(
            "{}, {}: {} differ, {} did once and not again, {} could not be played",
            counted(self.scenarios, "scenario", "scenarios"),
            counted(self.compared, "comparison", "comparisons"),
            self.differ,
            self.once,
            self.failed
        );
        match (self.differ, self.failed) {
            (0, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(COULD_NOT_RUN),
            _ => ExitCode::FAILURE,
        }
    }
}

fn print_steps(steps: &[Step]) {
    for (number, step) in steps.iter().enumerate() {
        println!("  {:2}. {step}", number + 1);
    }
}

fn print_permitted() {
    for one in &permitted::ALL {
        println!("{}", one.what);
        println!("  {}", one.reason);
    }
}

/// The progress line of a running scenario.
struct Line {
    bar: ProgressBar,
    seed: u64,
}

impl Line {
    fn new(seed: u64, steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        // A test checks the template. Without it, indicatif draws its default bar.
        if let Ok(style) = ProgressStyle::with_template("  {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(DRAWN);
        bar.set_message(format!("seed {seed}: two labs come up"));
        Self { bar, seed }
    }
}

impl Progress for Line {
    fn step(&self, number: usize, step: &Step) {
        let text = format!("seed {}, step {}: {step}", self.seed, number + 1);
        self.bar.set_message(text);
    }
}

impl SearchProgress for Line {
    fn begins(&self, what: &str) {
        self.bar.suspend(|| eprintln!("seed {}: {what}", self.seed));
    }
}
