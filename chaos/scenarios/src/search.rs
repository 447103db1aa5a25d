//! One seed after the other: a scenario that differs is played again, shrunk, and written to a file that can be
//! replayed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    play::{Finding, LabSpec, PlayError, Played, Progress, Twins},
    shrink::{Part, parts, sensible_parts, shrink, whole},
    state::sensible,
    step::{Scenario, Step},
};

/// Limit of repetitions until a difference is seen again: a chosen backend or port may be another one next time.
const CONFIRM: usize = 3;
/// Limit of tries of a scenario that could not be played to its end.
const TRIES: usize = 2;

/// Two implementations, and how they are compared.
pub struct Search {
    /// How to make the two clusters.
    pub make: [LabSpec; 2],
    /// Prefix of the labs' names.
    pub name: String,
    /// Folder for histories and reproductions.
    pub folder: PathBuf,
    /// Limit of scenarios that are played to shrink one.
    pub shrinks: usize,
    /// Labs that may be running.
    up: Mutex<Vec<String>>,
    plays: AtomicUsize,
}

/// Receives progress messages.
pub trait SearchProgress: Progress {
    /// A new part of the search begins, described by a text.
    fn begins(&self, what: &str);
}

/// Result of one scenario.
#[derive(Debug)]
pub enum Verdict {
    /// No difference, or only permitted ones.
    Same(Played),
    /// A difference that was seen once, and not again.
    Once(Played),
    /// A difference that was seen again, with the shortest steps that show it.
    Differs(Reproduction),
}

/// Steps that show a difference.
#[derive(Debug)]
pub struct Reproduction {
    /// The shortest steps that were found.
    pub scenario: Scenario,
    /// Number of steps before shrinking, up to the one that showed the difference.
    pub of: usize,
    /// The difference.
    pub finding: Finding,
    /// Further differences of the original scenario that were seen each time, or in one of several repetitions.
    pub others: Vec<Finding>,
    /// Result of the whole scenario, the first time.
    pub played: Played,
    /// File of the steps.
    pub file: PathBuf,
}

impl Search {
    /// A new search.
    #[must_use]
    pub fn new(make: [LabSpec; 2], name: String, folder: PathBuf, shrinks: usize) -> Self {
        Self {
            make,
            name,
            folder,
            shrinks,
            up: Mutex::default(),
            plays: AtomicUsize::new(0),
        }
    }

    /// Plays a scenario; confirms and shrinks a difference.
    ///
    /// # Errors
    /// The scenario could not be played, or its reproduction could not be written.
    pub async fn run(
        &self,
        scenario: &Scenario,
        progress: &dyn SearchProgress,
    ) -> Result<Verdict, PlayError> {
        let steps = sensible(&scenario.steps);
        let played = self.play(&steps, progress).await?;
        if played.findings.is_empty() {
            return Ok(Verdict::Same(played));
        }
        let mut known: BTreeSet<String> = signatures(&played.findings).collect();
        let what = counted(known.len());
        progress.begins(&format!("{what} in {} steps; again?", steps.len()));
        let mut confirmed: Vec<Finding> = Vec::new();
        for _ in 0..CONFIRM {
            for finding in shown(&known, self.play(&steps, progress).await?) {
                known.remove(&finding.signature);
                confirmed.push(finding);
            }
            if known.is_empty() {
                break;
            }
        }
        confirmed.sort_by_key(|one| one.step);
        let Some(first) = confirmed.first().cloned() else {
            return Ok(Verdict::Once(played));
        };
        let steps = steps[..=first.step].to_vec();
        let of = steps.len();
        progress.begins(&format!("it is, in {of} steps; which of them are needed?"));
        let guess = about(parts(&steps), of - 1, first.socket);
        let known = BTreeSet::from([first.signature.clone()]);
        let found = Mutex::new(first);
        let shows = async |steps: &[Part]| {
            let steps = whole(steps);
            progress.begins(&format!("{} of {of}?", steps.len()));
            // Steps that can't be played show nothing; a failure of the machine does not end the search.
            let Ok(played) = self.play(&steps, progress).await else {
                return false;
            };
            let again = shown(&known, played).into_iter().next();
            let shows = again.is_some();
            if let Some(again) = again {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = again;
            }
            shows
        };
        let steps = whole(&shrink(parts(&steps), &guess, self.shrinks, sensible_parts, shows).await);
        let finding = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let scenario = Scenario {
            seed: scenario.seed,
            steps,
        };
        let file = self.folder.join(format!("seed-{}.json", scenario.seed));
        write(&file, &scenario)?;
        Ok(Verdict::Differs(Reproduction {
            scenario,
            of,
            finding,
            others: confirmed.split_off(1),
            played,
            file,
        }))
    }

    /// Plays steps in two new labs.
    async fn play(&self, steps: &[Step], progress: &dyn SearchProgress) -> Result<Played, PlayError> {
        let mut tries = 1;
        loop {
            match self.play_once(steps, progress).await {
                Err(error) if tries < TRIES => {
                    progress.begins(&format!(
                        "once more, as it could not be played to its end: {error}"
                    ));
                    tries += 1;
                }
                played => return played,
            }
        }
    }

    async fn play_once(&self, steps: &[Step], progress: &dyn SearchProgress) -> Result<Played, PlayError> {
        let number = self.plays.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.name);
        let names = ["a", "b"].map(|side| format!("{name}-{side}"));
        self.up().extend(names.iter().cloned());
        let [a, b] = &self.make;
        let twins = Twins::up(&name, [a, b], &self.folder.join("last")).await;
        let played = match twins {
            Ok(mut twins) => {
                let played = twins.play(steps, progress).await;
                let down = twins.down().await;
                played.and_then(|played| down.map(|()| played))
            }
            Err(error) => Err(error),
        };
        self.clean_up().await;
        played
    }

    fn up(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the labs of an interrupted or failed play.
    pub async fn clean_up(&self) {
        let names = std::mem::take(&mut *self.up());
        for name in names {
            // A missing lab is no error; the next `plumbline cleanup` removes the rest.
            drop(lab::down(&name).await);
        }
    }
}

/// All writes and servers, and of the clients' steps only the last one or those of one socket.
fn about(mut parts: Vec<Part>, last: usize, socket: Option<u8>) -> Vec<Part> {
    parts.retain(|(number, step)| match step {
        Step::Write(_) | Step::Chaos(_) | Step::Serve { .. } | Step::EndServing { .. } => true,
        Step::Dial(_) => *number == last,
        Step::Open(open) => Some(open.socket) == socket,
        Step::Send(send) => Some(send.socket) == socket,
        Step::Close { socket: closed } => Some(*closed) == socket,
    });
    parts
}

/// Known findings among those of a play, one of each.
fn shown(known: &BTreeSet<String>, played: Played) -> Vec<Finding> {
    let mut left = known.clone();
    let mut findings = played.findings;
    findings.retain(|one| left.remove(&one.signature));
    findings
}

fn signatures(findings: &[Finding]) -> impl Iterator<Item = String> + '_ {
    findings.iter().map(|one| one.signature.clone())
}

fn counted(differences: usize) -> String {
    match differences {
        1 => "a difference".to_owned(),
        more => format!("{more} differences"),
    }
}

fn write(file: &Path, scenario: &Scenario) -> Result<(), PlayError> {
    let text = serde_json::to_string_pretty(scenario).map_err(io::Error::other);
    let written = text.and_then(|text| fs::write(file, text + "\n"));
    written.map_err(|error| PlayError::Folder {
        path: file.to_owned(),
        error,
    })
}

/// Adds the counts of a play.
pub fn add(all: &mut BTreeMap<&'static str, usize>, played: &Played) {
    for (what, count) in &played.permitted {
        *all.entry(what).or_default() += count;
    }
}
