//! `plumbline chaos sweep --job`: the seeds of a sweep in pods of any cluster, each in a lab of its own, as an indexed Job.
//!
//! ```text
//!  this host                                   the cluster, as compute
//!  sweep ─▶ IndexedJob ──────────────────────▶ Job ─▶ pod 0 … pod N-1: in_pod
//!                                                       lab::own_hierarchy, `run` with one seed, archive::write ─▶ its log
//!  collect ◀─ archive::unpack ◀─ IndexedJob::look ◀──────────────────────────────────────────────────────────────┘
//!     └─▶ Collected ─▶ the same report as that of a sweep on this host
//! ```
//!
//! A seed is what its pod has shown. One whose pod was evicted, did not start, or has no whole result in its log is inconclusive, as is
//! one that the sweep did not come to.
mod archive;
mod collected;
mod in_pod;

pub(super) use in_pod::play;

use std::{
    ops::Range,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail};
use existing::{IndexedJob, IndexedJobOptions, KubernetesError, LIMITS, Look, PodEnd};
use tokio_util::sync::CancellationToken;

use self::collected::{Collected, unknown};
use super::run::Generated;
use crate::{
    interruption::{INTERRUPTED, interruption},
    plural::counted,
    report::{format::Case, make},
    run::{self, ChaosRun, InPods, On},
    terminal::{self, Verbosity},
};

/// Interval of looks at the Job.
const LOOK: Duration = Duration::from_secs(2);
/// Pods that may end without a result before any has one: what is wrong with them is wrong with all.
const IN_VAIN: usize = 3;
/// Pods at once, without --labs.
const AT_ONCE: u32 = 4;
/// A pod takes at most so much more than its seed, as a rule: its image is pulled, a lab comes up, all is healed and read.
const AROUND: Duration = Duration::from_secs(360);

/// A sweep that is under way.
struct Sweep<'a> {
    runs: &'a [ChaosRun],
    in_pods: &'a InPods,
    out: &'a Path,
    collected: Collected,
    /// Seeds without a result, and why.
    without: Vec<Case>,
}

/// Why no more results come.
enum Over {
    /// All are there, or can't come: the reason.
    Ended(String),
    Interrupted,
}

pub(super) async fn sweep(seeds: Range<u64>, generated: &Generated, on: On) -> anyhow::Result<ExitCode> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let runs: Vec<ChaosRun> = seeds.clone().map(|seed| generated.given(seed)).collect();
    let in_pods = run::Arguments::of_chaos(on, runs.clone()).in_pods()?;
    in_pods.output.apply(in_pods.limits.profile.name());
    let interrupted = interruption()?;
    let out = run::Folder::create(&in_pods.out).with_context(|| {
        format!(
            "failed to make the folder {}, named by --out",
            in_pods.out.display()
        )
    })?;
    let options = options(&seeds, generated, &in_pods);
    let (count, at_once) = (runs.len(), options.at_once);
    terminal::stage("making the Job");
    let mut job = IndexedJob::start(options).await?;
    terminal::stage(&format!(
        "{}, {at_once} at a time, by the Job {}",
        counted(count, "seed", "seeds"),
        job.name()
    ));
    let mut sweep = Sweep {
        runs: &runs,
        in_pods: &in_pods,
        out: out.path(),
        collected: Collected::default(),
        without: Vec::new(),
    };
    let over = sweep.collect(&mut job, &interrupted).await;
    terminal::stage("removing the Job");
    let removed = job.remove().await.context(
        "the verdicts stand, but not all was removed: `plumbline cleanup` with the same --kubeconfig does",
    );
    terminal::draw(None);
    let concluded = match over {
        Ok(over) => sweep.conclude(&over, at_once, (began, started)),
        Err(error) => Err(error),
    };
    run::concluded(concluded, removed)
}

fn options(seeds: &Range<u64>, generated: &Generated, in_pods: &InPods) -> IndexedJobOptions {
    let count = u32::try_from(seeds.end - seeds.start).unwrap_or(u32::MAX);
    let words = format!(
        "chaos play-index --seeds {}..{}{}",
        seeds.start,
        seeds.end,
        generated.options()
    );
    let words = words.split(' ').map(str::to_owned);
    let program = in_pods.compute.program.clone();
    let argv = [program].into_iter().chain(words);
    let more = ["--out", in_pod::OUT, "--color", "never"].map(str::to_owned);
    let lasts = Duration::from_millis(generated.lasts_ms().into());
    IndexedJobOptions {
        connection: in_pods.compute.connection.clone(),
        namespace: in_pods.compute.namespace.clone(),
        name: format!("plumbline-sweep-{:06x}", rand::random::<u32>() & 0x00ff_ffff),
        image: in_pods.compute.image.clone(),
        pods: in_pods.compute.pods.clone(),
        argv: argv.chain(in_pods.options.iter().cloned()).chain(more).collect(),
        completions: count,
        at_once: in_pods.at_once.unwrap_or(AT_ONCE).min(count),
        pod_limit: in_pods.longest,
        pod_takes: (lasts + AROUND).mul_f64(in_pods.limits.scale.max(1.0)) * in_pods.tries,
    }
}

impl Sweep<'_> {
    /// Collects what pods have shown until no more comes.
    async fn collect(
        &mut self,
        job: &mut IndexedJob,
        interrupted: &CancellationToken,
    ) -> anyhow::Result<Over> {
        let (mut answered, mut because) = (Instant::now(), None);
        loop {
            let look = tokio::select! {
                look = job.look() => look,
                () = interrupted.cancelled() => return Ok(Over::Interrupted),
            };
            match look {
                Ok(look) => {
                    answered = Instant::now();
                    self.show(&look, &mut because);
                    for end in look.ended {
                        self.take(&end);
                    }
                    if self.without.len() >= IN_VAIN.min(self.runs.len()) && self.collected.count() == 0 {
                        let why = self
                            .without
                            .last()
                            .map(|case| case.why.clone())
                            .unwrap_or_default();
                        bail!(
                            "no seed was played: the first {} no result; {why}",
                            counted(self.without.len(), "pod has", "pods have")
                        );
                    }
                    if self.count() == self.runs.len() {
                        return Ok(Over::Ended(String::new()));
                    }
                    if let Some(why) = look.over {
                        return Ok(Over::Ended(format!("there is no pod of it: {why}")));
                    }
                }
                Err(error @ (KubernetesError::Api { .. } | KubernetesError::Late { .. })) => {
                    if answered.elapsed() >= LIMITS.lease_awaited {
                        if self.collected.count() == 0 {
                            return Err(error.into());
                        }
                        terminal::message(&format!("given up: {error}"));
                        return Ok(Over::Ended(format!("the cluster did not answer: {error}")));
                    }
                    terminal::step(&format!("waiting: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = interrupted.cancelled() => return Ok(Over::Interrupted),
            }
        }
    }

    /// Number of seeds that are decided or given up.
    fn count(&self) -> usize {
        self.collected.count() + self.without.len()
    }

    /// Shows how far the sweep is.
    fn show(&self, look: &Look, because: &mut Option<String>) {
        let waits = look
            .because
            .as_deref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        terminal::step(&format!(
            "{} of {} done, {} under way, {} waiting{waits}",
            self.count(),
            self.runs.len(),
            look.running.len(),
            look.waiting
        ));
        // Where nothing is redrawn, a reason that stays is said once.
        if !terminal::draws() && terminal::verbosity() >= Verbosity::Normal && *because != look.because {
            because.clone_from(&look.because);
            if let Some(why) = because {
                terminal::message(&format!(
                    "{}: {why}",
                    counted(look.waiting, "pod waits", "pods wait")
                ));
            }
        }
    }

    /// Takes what a pod has shown.
    fn take(&mut self, end: &PodEnd) {
        let run = usize::try_from(end.index)
            .ok()
            .and_then(|index| self.runs.get(index));
        let Some(run) = run else { return };
        let replay = self.in_pods.replay(run);
        let taken = match &end.log {
            Err(why) => Err(why.clone()),
            Ok(log) => self.unpacked(log, run).and_then(|unpacked| {
                let case = self.collected.add(run, replay.clone(), unpacked)?;
                Ok(case.clone())
            }),
        };
        let case = taken.unwrap_or_else(|why| {
            let case = unknown(run, replay, why_without(end, &why));
            self.without.push(case.clone());
            case
        });
        let line = run::ended_line((self.count(), self.runs.len()), &case);
        if terminal::verbosity() > Verbosity::Quiet {
            terminal::message(&line);
        }
    }

    fn unpacked(&self, log: &str, run: &ChaosRun) -> Result<archive::Unpacked, String> {
        run::remove_evidence(self.out, run.id)
            .map_err(|error| format!("failed to remove earlier evidence: {error}"))?;
        archive::unpack(log, run.seed(), self.out)
    }

    /// Writes the reports, and prints the table.
    fn conclude(
        self,
        over: &Over,
        at_once: u32,
        (began, started): (Instant, SystemTime),
    ) -> anyhow::Result<ExitCode> {
        let (why, is_interrupted) = match over {
            Over::Ended(why) => (why.as_str(), false),
            Over::Interrupted => ("the sweep was interrupted before it had ended", true),
        };
        // What is there already stays.
        let missing = self
            .runs
            .iter()
            .map(|run| unknown(run, self.in_pods.replay(run), why.to_owned()));
        let missing: Vec<Case> = self.without.into_iter().chain(missing).collect();
        let last = missing.first().map(|case| case.why.clone()).unwrap_or_default();
        let Some(mut report) = self.collected.report(missing, self.out)? else {
            if is_interrupted {
                return Ok(ExitCode::from(INTERRUPTED));
            }
            bail!("no seed was played: {last}");
        };
        make::set_time(&mut report, started, began.elapsed());
        report.interrupted = is_interrupted;
        let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
        (report.run.labs, report.run.jobs) = (at_once, at_once);
        run::finish(&report, self.out, is_interrupted)
    }
}

/// Why a seed has no result: how its pod ended, what is wrong with its log, and what it said last.
fn why_without(end: &PodEnd, wrong: &str) -> String {
    let said = end.log.as_deref().map(archive::said_last).unwrap_or_default();
    let said = if said.is_empty() {
        said
    } else {
        format!("it said: {said}")
    };
    let parts = [end.why.clone().unwrap_or_default(), wrong.to_owned(), said];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_a_result_says_how_it_ended_and_what_it_said() {
        let end = |why: Option<&str>, log: Result<&str, &str>| PodEnd {
            index: 0,
            why: why.map(str::to_owned),
            log: log.map(str::to_owned).map_err(str::to_owned),
        };
        let of = |end: &PodEnd, wrong: &str| why_without(end, wrong);
        let died = end(
            Some("its pod ended with code 2"),
            Ok("bringing up the lab …\nplumbline: no cgroup2\n"),
        );
        assert_eq!(
            of(&died, "its pod has written no result"),
            "its pod ended with code 2; its pod has written no result; it said: bringing up the lab … / plumbline: no cgroup2"
        );
        let gone = end(Some("its pod ended: Evicted"), Err("not found"));
        assert_eq!(of(&gone, "not found"), "its pod ended: Evicted; not found");
    }
}
