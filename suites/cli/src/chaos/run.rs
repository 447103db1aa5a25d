//! Seeds and schedules, each played as a case of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use cluster::user_file::{self, MOST_BYTES};
use jiff::SignedDuration;
use oracle::chaos::Excuses;
use scenarios::chaos::{
    Given,
    generate::{self, Wish},
    schedule::{FaultKind, LONGEST_MS, Schedule},
};

use super::job;
use crate::{
    run::{self, ChaosRun, On},
    suggestions::unknown,
};

/// The most seeds of a sweep: each is a case, with its report.
const MOST_SEEDS: u64 = 1000;

/// Options of what is generated.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Generated {
    /// How long each schedule lasts, without staging and final reads
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = lasts)]
    lasts_ms: u32,
    /// Only these faults; `none` for writes alone. The default is all that the cluster and the target can have
    #[arg(long, value_name = "FAULT", value_delimiter = ',', value_parser = fault)]
    faults: Option<Vec<Option<FaultKind>>>,
    /// All but these faults
    #[arg(long, value_name = "FAULT", value_delimiter = ',', value_parser = fault, conflicts_with = "faults")]
    without: Vec<Option<FaultKind>>,
}

impl Generated {
    fn kinds(&self) -> Option<BTreeSet<FaultKind>> {
        if let Some(faults) = &self.faults {
            return Some(faults.iter().flatten().copied().collect());
        }
        if self.without.is_empty() {
            return None;
        }
        let is_kept = |kind: &FaultKind| !self.without.contains(&Some(*kind));
        Some(FaultKind::ALL.into_iter().filter(is_kept).collect())
    }

    /// How long each schedule lasts, in milliseconds.
    pub(super) fn lasts_ms(&self) -> u32 {
        self.lasts_ms
    }

    /// The options as text for the command line.
    pub(super) fn options(&self) -> String {
        let seconds = f64::from(self.lasts_ms) / 1e3;
        let mut options = format!(" --for {seconds}s");
        if let Some(kinds) = self.kinds() {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let names = if names.is_empty() { vec!["none"] } else { names };
            options += &format!(" --faults {}", names.join(","));
        }
        options
    }

    /// The run of a seed.
    pub(super) fn given(&self, seed: u64) -> ChaosRun {
        let kinds = self.kinds();
        let replay = format!("run --seed {seed}{}", self.options());
        ChaosRun {
            id: id(seed),
            given: Given::Seed {
                seed,
                lasts_ms: self.lasts_ms,
                kinds,
            },
            replay,
        }
    }
}

/// Play the schedule of a seed
#[derive(Debug, clap::Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    generated: Generated,
    #[command(flatten)]
    on: On,
}

/// Play the schedules of several seeds, side by side on this host, or with --job in pods of any cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo plumbline chaos sweep --seeds 1..21
      20 seeds of a minute, side by side in labs of this host
  plumbline chaos sweep --seeds 1..201 --job --kubeconfig FILE --image REGISTRY/plumbline-lab:TAG --labs 20
      200 seeds in pods of a cluster, 20 at a time: the same table and reports, with the evidence of each seed. The image is that of
      suites/cli/deploy/lab.Containerfile: plumbline, the reference agent, and the tools that faults use
  plumbline chaos sweep --seeds 1..201 --job --kubeconfig FILE --image REGISTRY/own:TAG --target ./own.yaml
      another implementation: its target file and its programs are in the root folder of the image, beside plumbline
  plumbline cleanup --kubeconfig FILE
      what a sweep that was killed has left there

With --job:
  The cluster is not tested: it has room for pods, one for each seed, each with a lab of its own. The pods are privileged, as labs
  are made of network namespaces, cgroups and eBPF programs; nodes need Linux 5.14 and cgroup v2. Without --namespace a new
  namespace is made, which admits them. All of it is removed at the end, also after Ctrl-C.
  --labs is the number of pods at once [default: 4]; a pod asks for half a processor and 512 MiB.
  A seed is played once. One whose pod was evicted, did not start or handed over no result is inconclusive, never a pass.
  Of a seed's evidence, 6 MiB are collected, compressed: schedule and history first; reports name what is left out.

Exit codes: 0 all valid, 1 invalid or unknown, 2 could not run, 130 interrupted.")]
pub(super) struct SweepArguments {
    /// The seeds, without the last
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    pub(super) seeds: Range<u64>,
    /// Play them in pods of the cluster that --kubeconfig or --context names, or else $KUBECONFIG, ~/.kube/config or this pod's account: an indexed Job
    /// with a lab in each pod
    #[arg(long)]
    job: bool,
    #[command(flatten)]
    pub(super) generated: Generated,
    #[command(flatten)]
    pub(super) on: On,
}

/// Play schedules from files, side by side where the machine lets
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArguments {
    /// A schedule: schedule.json in the evidence of a run, or a file of your own. Each has another seed, by which its evidence is called
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Leave the final reads out if something broke before them: they would wait for T_heal
    #[arg(long)]
    brief: bool,
    #[command(flatten)]
    on: On,
}

/// Print a schedule as text, and play nothing
#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// A file with a schedule
    #[arg(required_unless_present = "seed", conflicts_with = "seed")]
    file: Option<PathBuf>,
    /// A seed, for a cluster of two nodes where every fault can be made
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    generated: Generated,
}

pub(super) async fn seed(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let RunArguments { generated, mut on } = arguments;
    let seed = on.seed_or_random();
    run::run(run::Arguments::of_chaos(on, vec![generated.given(seed)])).await
}

pub(super) async fn seeds(arguments: SweepArguments) -> anyhow::Result<ExitCode> {
    let SweepArguments {
        seeds,
        job,
        generated,
        on,
    } = arguments;
    if job {
        return job::sweep(seeds, &generated, on).await;
    }
    let runs = seeds.map(|seed| generated.given(seed)).collect();
    run::run(run::Arguments::of_chaos(on, runs)).await
}

pub(super) async fn files(arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    let ReplayArguments { files, brief, on } = arguments;
    let mut runs = Vec::new();
    let mut seeds: BTreeMap<u64, &Path> = BTreeMap::new();
    for file in &files {
        let schedule = read(file)?;
        let seed = schedule.seed;
        if let Some(other) = seeds.insert(seed, file) {
            let (other, file) = (other.display(), file.display());
            bail!("{other} and {file} have the same seed, {seed}: play them one after the other");
        }
        runs.push(ChaosRun {
            id: id(seed),
            given: Given::Schedule { schedule, brief },
            replay: format!("replay {}{}", file.display(), if brief { " --brief" } else { "" }),
        });
    }
    run::run(run::Arguments::of_chaos(on, runs)).await
}

pub(super) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let schedule = match (&arguments.file, arguments.seed) {
        (Some(file), _) => read(file)?,
        (None, seed) => generate::schedule(
            seed.unwrap_or_default(),
            &Wish {
                lasts_ms: arguments.generated.lasts_ms,
                kinds: arguments
                    .generated
                    .kinds()
                    .unwrap_or_else(|| FaultKind::ALL.into()),
                nodes: 2,
                moves: true,
            },
        ),
    };
    print(&schedule);
    Ok(ExitCode::SUCCESS)
}

/// Prints a schedule, a line for each action.
pub(super) fn print(schedule: &Schedule) {
    for action in &schedule.actions {
        println!("{action}");
    }
}

/// Prints the faults.
pub(super) fn faults() {
    for kind in FaultKind::ALL {
        let excuses = match kind.excuses() {
            Excuses::Late => "late",
            Excuses::Lost => "lost",
        };
        println!("{:18} {excuses}  {}", kind.name(), kind.words());
    }
    println!(
        "\nlate: changes may take effect until 90 s after its end (T_heal). lost: besides, connections may fail until then.\n\
         Nothing excuses an answer by another Service's backend, nor one by a former backend after that."
    );
}

/// The schedule in a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Schedule> {
    let text =
        user_file::read(path, MOST_BYTES).with_context(|| format!("failed to read {}", path.display()))?;
    let schedule: Schedule =
        serde_json::from_str(&text).with_context(|| format!("{} is no schedule", path.display()))?;
    schedule.checked().with_context(|| path.display().to_string())
}

/// The id of a seed's case, as long as this process.
fn id(seed: u64) -> &'static str {
    String::leak(format!("chaos-{seed}"))
}

fn lasts(text: &str) -> Result<u32, String> {
    let found: SignedDuration = text
        .parse()
        .map_err(|_| format!("expected a duration such as 60s or 5m, found '{text}'"))?;
    let longest = Duration::from_millis(LONGEST_MS.into());
    let ms = u32::try_from(found.as_millis()).unwrap_or(u32::MAX);
    if (5_000..=LONGEST_MS).contains(&ms) {
        Ok(ms)
    } else {
        Err(format!(
            "expected 5s to {}m, found '{text}': longer runs are several seeds (chaos sweep)",
            longest.as_secs() / 60
        ))
    }
}

fn fault(text: &str) -> Result<Option<FaultKind>, String> {
    if text == "none" {
        return Ok(None);
    }
    let found = FaultKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.map(Some).ok_or_else(|| {
        unknown(
            "fault",
            text,
            FaultKind::ALL.map(FaultKind::name),
            "plumbline chaos faults",
        )
    })
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let parsed = text.split_once("..").and_then(|(from, to)| {
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        Some(from..to)
    });
    match parsed {
        Some(seeds) if seeds.is_empty() => {
            Err(format!("expected a larger number after '..', found '{text}'"))
        }
        Some(seeds) if seeds.end - seeds.start > MOST_SEEDS => {
            Err(format!("expected at most {MOST_SEEDS} seeds, found '{text}'"))
        }
        Some(seeds) => Ok(seeds),
        None => Err(format!("expected two numbers, such as 1..21, found '{text}'")),
    }
}

/// The folder of a seed's evidence, in that of its run.
///
/// # Errors
/// There is none.
pub(super) fn evidence(out: &Path, seed: u64) -> anyhow::Result<PathBuf> {
    let folder = out.join("evidence").join(id(seed));
    if !folder.is_dir() {
        bail!(
            "expected the evidence of a run in {}: it did not get so far",
            folder.display()
        );
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_faults_are_of_the_catalogue() {
        let claims = FaultKind::ALL.iter().filter_map(|kind| kind.claim());
        for claim in claims.chain(["slice-relabelled"]) {
            assert!(cases::claims::find(claim).is_some(), "{claim}");
        }
    }

    #[test]
    fn what_can_not_be_meant_is_refused_with_what_was_expected() {
        for (found, part) in [
            (lasts("1s").unwrap_err(), "expected 5s to 10m"),
            (lasts("2h").unwrap_err(), "chaos sweep"),
            (lasts("x").unwrap_err(), "such as 60s"),
            (fault("agent-kiled").unwrap_err(), "agent-killed"),
            (range("5").unwrap_err(), "such as 1..21"),
            (range("5..5").unwrap_err(), "larger number"),
            (range("0..5000").unwrap_err(), "at most 1000"),
        ] {
            assert!(found.contains(part), "{found}");
        }
        assert_eq!(range("1..3"), Ok(1..3));
        assert_eq!(lasts("90s"), Ok(90_000));
    }

    #[test]
    fn a_seed_is_played_again_by_its_options() {
        let generated = Generated {
            lasts_ms: 60_000,
            faults: Some(vec![Some(FaultKind::AgentKilled), None]),
            without: Vec::new(),
        };
        let run = generated.given(7);
        assert_eq!(run.replay, "run --seed 7 --for 60s --faults agent-killed");
        assert_eq!(run.id, "chaos-7");
        let none = Generated {
            faults: Some(vec![None]),
            ..generated
        };
        assert!(none.given(1).replay.ends_with("--faults none"));
    }
}
