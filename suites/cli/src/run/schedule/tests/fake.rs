//! Labs that are numbers and cases that last as long as a test says.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use anyhow::bail;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;

use super::super::*;
use crate::run::{estimate::Place, process::tests::settings};

/// The beginning or end of a case of the catalogue in a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) case: &'static str,
    pub(super) lab: usize,
    pub(super) began: u64,
    pub(super) ended: u64,
}

/// Labs by number; the first is 0.
#[derive(Default)]
pub(super) struct Fake {
    /// Seconds that cases take; one by default.
    pub(super) lasts: BTreeMap<&'static str, u64>,
    /// Cases that kill their lab.
    pub(super) deadly: BTreeSet<&'static str>,
    /// How often cases are inconclusive before their other result, and where their evidence is.
    pub(super) undecided: BTreeMap<&'static str, usize>,
    pub(super) out: Option<tempfile::TempDir>,
    /// Cases that fail.
    pub(super) failing: BTreeSet<&'static str>,
    /// The first lab number that fails to start.
    pub(super) none_from: Option<usize>,
    /// Seconds from one room for another case to the next; `None`: there never is room.
    pub(super) room_every: Option<u64>,
    /// When the API server goes away, and for how many seconds: cases that run then are inconclusive, and none begins.
    pub(super) away: Vec<(u64, u64)>,
    /// Parts of each lab; one by default.
    pub(super) parts: usize,
    pub(super) clock: Clock,
    pub(super) made: Cell<usize>,
    pub(super) dead: RefCell<BTreeSet<usize>>,
    pub(super) up: RefCell<BTreeSet<usize>>,
    pub(super) most_up: Cell<usize>,
    pub(super) stays: RefCell<Vec<Stay>>,
}

impl Fake {
    pub(super) fn stays(&self) -> Vec<Stay> {
        self.stays.borrow().clone()
    }

    /// The run's folder.
    pub(super) fn folder(&self) -> &Path {
        self.out
            .as_ref()
            .map_or(Path::new("/nowhere"), tempfile::TempDir::path)
    }

    pub(super) fn stay(&self, case: &str) -> Stay {
        let mut stays = self.stays().into_iter();
        stays.find(|stay| stay.case == case).expect("it has run")
    }
}

impl Site for Fake {
    type Lab = (usize, String);

    fn name<'a>(&self, lab: &'a Self::Lab) -> &'a str {
        &lab.1
    }

    async fn make(&self) -> anyhow::Result<Self::Lab> {
        let number = self.made.replace(self.made.get() + 1);
        // At the same time, but not at once.
        self.clock.passes(0).await;
        if self.none_from.is_some_and(|first| number >= first) {
            bail!("no room");
        }
        let mut up = self.up.borrow_mut();
        up.insert(number);
        self.most_up.set(self.most_up.get().max(up.len()));
        Ok((number, format!("lab{number}")))
    }

    async fn run(&self, lab: &Self::Lab, case: Case, _: &Line<'_>) -> CaseReport {
        for (from, lasts) in &self.away {
            let back = from + lasts;
            if (*from..back).contains(&self.clock.now()) {
                self.clock.passes(back - self.clock.now()).await;
            }
        }
        let (began, absences) = (self.clock.now(), self.absences(lab));
        self.clock
            .passes(self.lasts.get(case.id).copied().unwrap_or(1))
            .await;
        self.stays.borrow_mut().push(Stay {
            case: case.id,
            lab: lab.0,
            began,
            ended: self.clock.now(),
        });
        if self.deadly.contains(case.id) {
            self.dead.borrow_mut().insert(lab.0);
        }
        let began_before = self
            .stays
            .borrow()
            .iter()
            .filter(|stay| stay.case == case.id)
            .count()
            - 1;
        let is_undecided = self
            .undecided
            .get(case.id)
            .is_some_and(|times| began_before < *times);
        let verdict = if self.absences(lab) > absences && !self.failing.contains(case.id) {
            Verdict::Inconclusive {
                why: "no answer".into(),
            }
        } else if is_undecided {
            Verdict::Inconclusive {
                why: format!("busy {began_before}"),
            }
        } else if self.dead.borrow().contains(&lab.0) {
            Verdict::Inconclusive {
                why: "the cluster ended".into(),
            }
        } else if self.failing.contains(case.id) {
            Verdict::Fail { why: "w".into() }
        } else {
            Verdict::Pass
        };
        let settings = settings(self.folder(), None, Duration::ZERO);
        let mut report = without_run(&case, &settings, verdict);
        if self.out.is_some() {
            let folder = settings.folder(&case);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("try"), began_before.to_string()).unwrap();
            report.evidence = Some(folder);
        }
        report
    }

    fn absences(&self, _: &Self::Lab) -> u64 {
        self.away
            .iter()
            .filter(|(from, _)| *from <= self.clock.now())
            .count() as u64
    }

    async fn room(&self) {
        match self.room_every {
            Some(seconds) => self.clock.passes(seconds).await,
            None => std::future::pending().await,
        }
    }

    fn parts(&self, _: &Self::Lab) -> usize {
        self.parts.max(1)
    }

    async fn is_intact(&self, lab: &Self::Lab) -> bool {
        !self.dead.borrow().contains(&lab.0)
    }

    async fn end(&self, lab: Self::Lab) -> anyhow::Result<()> {
        self.clock.passes(0).await;
        assert!(self.up.borrow_mut().remove(&lab.0), "it is up");
        if self.dead.borrow().contains(&lab.0) {
            bail!("lab{} was dead", lab.0);
        }
        Ok(())
    }
}

/// Settings of the run.
pub(super) struct Wanted {
    pub(super) labs: usize,
    pub(super) jobs: usize,
    /// Concurrent cases without room.
    pub(super) always: usize,
    pub(super) shuffled_by: Option<u64>,
    pub(super) fail_fast: bool,
    pub(super) tries: usize,
    pub(super) interrupted: CancellationToken,
}

impl Wanted {
    pub(super) fn at_once(labs: usize, jobs: usize) -> Self {
        Self {
            labs,
            jobs,
            always: jobs,
            shuffled_by: None,
            fail_fast: false,
            tries: 2,
            interrupted: CancellationToken::new(),
        }
    }

    /// Runs cases to their end; afterwards no lab may remain.
    pub(super) fn run(&self, fake: &Fake, cases: &[Case]) -> Ended {
        let settings = Settings {
            labs: self.labs,
            jobs: self.jobs,
            always: self.always,
            seed: self.shuffled_by.unwrap_or_default(),
            shuffle: self.shuffled_by.is_some(),
            fail_fast: self.fail_fast,
            tries: self.tries,
            interrupted: self.interrupted.clone(),
            ..settings(fake.folder(), None, Duration::ZERO)
        };
        let plan = Plan {
            selection: Selection {
                run: cases.to_vec(),
                excluded: Vec::new(),
            },
            exemptions: &[],
            durations: &Durations {
                cases: fake
                    .lasts
                    .iter()
                    .map(|(id, lasts)| ((*id).to_owned(), Duration::from_secs(*lasts)))
                    .collect(),
                run: Duration::ZERO,
            },
        };
        let profile = settings.limits.profile;
        let expected = Durations::default().expected_of(cases, profile, Place::Labs);
        let progress = Progress::new(profile, &settings.interrupted, expected);
        let ended = fake.clock.run(async {
            let first = fake.make().await.unwrap();
            all(&settings, fake, first, plan, &progress).await
        });
        let (up, most) = (fake.up.borrow(), fake.most_up.get());
        assert!(up.is_empty(), "{up:?} stay up");
        assert!(most <= self.labs * fake.parts.max(1), "{most} labs at once");
        for stay in fake.stays() {
            let at_once = |other: &&Stay| other.began <= stay.began && stay.began < other.ended;
            let others = fake.stays();
            assert!(others.iter().filter(at_once).count() <= self.jobs, "{stay:?}");
        }
        assert_eq!(
            ids(&ended),
            cases.iter().map(|case| case.id).collect::<Vec<_>>(),
            "as in the catalogue"
        );
        ended
    }
}

pub(super) fn ids(ended: &Ended) -> Vec<&str> {
    ended
        .reports
        .iter()
        .map(|(report, _)| report.id.as_str())
        .collect()
}
