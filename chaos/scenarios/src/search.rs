//! Seeds, one after the other: what differs is played again, made short, and written to a file that can be played again.

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
    play::{Finding, Make, PlayError, Played, Progress, Twins},
    shrink::shrink,
    step::{Scenario, Step},
    world::sensible,
};

/// How often a scenario that differed is played again until it does so once more: what is chosen by chance (a backend, a node's
/// port) may be chosen otherwise.
const CONFIRM: usize = 3;
/// How often a scenario is played that could not be played to its end.
const TRIES: usize = 2;

/// Two implementations, and how they are compared.
pub struct Search {
    /// What both are made of.
    pub make: [Make; 2],
    /// First part of the names of labs.
    pub name: String,
    /// Where histories and reproductions go.
    pub folder: PathBuf,
    /// Scenarios that are played at most to make one shorter.
    pub shrinks: usize,
    /// Labs that may be up.
    up: Mutex<Vec<String>>,
    plays: AtomicUsize,
}

/// Receives progress messages.
pub trait Told: Progress {
    /// What begins now, in words.
    fn begins(&self, what: &str);
}

/// What came of one scenario.
#[derive(Debug)]
pub enum Verdict {
    /// No difference but permitted ones.
    Same(Played),
    /// A difference that was seen once, and not again.
    Once(Played),
    /// A difference that was seen again, with the fewest steps that were found to show it.
    Differs(Reproduction),
}

/// Steps that show a difference.
#[derive(Debug)]
pub struct Reproduction {
    /// The fewest that were found.
    pub scenario: Scenario,
    /// How many there were at first, up to the one that showed it.
    pub of: usize,
    /// What differs.
    pub finding: Finding,
    /// What differs as well in the scenario as it was, each time that it was played or in one of several.
    pub others: Vec<Finding>,
    /// The whole scenario, the first time.
    pub played: Played,
    /// The file of the steps.
    pub file: PathBuf,
}

impl Search {
    /// A search that has played nothing yet.
    #[must_use]
    pub fn new(make: [Make; 2], name: String, folder: PathBuf, shrinks: usize) -> Self {
        Self {
            make,
            name,
            folder,
            shrinks,
            up: Mutex::default(),
            plays: AtomicUsize::new(0),
        }
    }

    /// Plays a scenario; what differs is confirmed and made short.
    ///
    /// # Errors
    /// It could not be played, or its reproduction not be written.
    pub async fn run(&self, scenario: &Scenario, told: &dyn Told) -> Result<Verdict, PlayError> {
        let steps = sensible(&scenario.steps);
        let played = self.play(&steps, told).await?;
        if played.findings.is_empty() {
            return Ok(Verdict::Same(played));
        }
        let mut known: BTreeSet<String> = signatures(&played.findings).collect();
        let what = counted(known.len());
        told.begins(&format!("{what} in {} steps; again?", steps.len()));
        let mut confirmed: Vec<Finding> = Vec::new();
        for _ in 0..CONFIRM {
            for finding in shown(&known, self.play(&steps, told).await?) {
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
        told.begins(&format!("it is, in {of} steps; which of them are needed?"));
        let guess = about(&steps, first.socket);
        let known = BTreeSet::from([first.signature.clone()]);
        let found = Mutex::new(first);
        let shows = async |steps: &[Step]| {
            told.begins(&format!("{} of {of}?", steps.len()));
            // What can't be played shows nothing; that the machine is to blame ends no search.
            let Ok(played) = self.play(steps, told).await else {
                return false;
            };
            let again = shown(&known, played).into_iter().next();
            let shows = again.is_some();
            if let Some(again) = again {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = again;
            }
            shows
        };
        let steps = shrink(steps, &guess, self.shrinks, sensible, shows).await;
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
    async fn play(&self, steps: &[Step], told: &dyn Told) -> Result<Played, PlayError> {
        let mut tries = 1;
        loop {
            match self.play_once(steps, told).await {
                Err(error) if tries < TRIES => {
                    told.begins(&format!(
                        "once more, as it could not be played to its end: {error}"
                    ));
                    tries += 1;
                }
                played => return played,
            }
        }
    }

    async fn play_once(&self, steps: &[Step], told: &dyn Told) -> Result<Played, PlayError> {
        let number = self.plays.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.name);
        let names = ["a", "b"].map(|side| format!("{name}-{side}"));
        self.up().extend(names.iter().cloned());
        let [a, b] = &self.make;
        let twins = Twins::up(&name, [a, b], &self.folder.join("last")).await;
        let played = match twins {
            Ok(mut twins) => {
                let played = twins.play(steps, told).await;
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

    /// Removes labs that are still there, of a play that was interrupted or failed.
    pub async fn clean_up(&self) {
        let names = std::mem::take(&mut *self.up());
        for name in names {
            // Nothing to do is no error; what can't be removed goes with the next `plumbline cleanup`.
            drop(lab::down(&name).await);
        }
    }
}

/// What is written and served, and of what clients do, the last step or what is about a socket.
fn about(steps: &[Step], socket: Option<u8>) -> Vec<Step> {
    let last = steps.len().saturating_sub(1);
    let is_about = |(number, step): &(usize, &Step)| match step {
        Step::Write(_) | Step::Serve { .. } | Step::EndServing { .. } => true,
        Step::Dial(_) => *number == last,
        Step::Open(open) => Some(open.socket) == socket,
        Step::Send(send) => Some(send.socket) == socket,
        Step::Close { socket: closed } => Some(*closed) == socket,
    };
    let all = steps.iter().enumerate().filter(is_about);
    all.map(|(_, step)| step.clone()).collect()
}

/// Findings that are among those that are known, one of each.
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

/// Counts of many plays together.
pub fn add(all: &mut BTreeMap<&'static str, usize>, played: &Played) {
    for (what, count) in &played.permitted {
        *all.entry(what).or_default() += count;
    }
}
