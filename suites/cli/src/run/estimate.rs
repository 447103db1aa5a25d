//! How long a run takes: an estimate before the cases, and the time left while they run.

use std::{
    collections::BTreeMap,
    num::NonZero,
    time::{Duration, Instant},
};

use harness::{case::Case, limits::Profile};

use super::{machine, previous_run::Durations};

/// Duration of a run of all cases on two processors (AMD EPYC, unoptimized programs, November 2026).
struct Measured {
    /// The run's duration, for each case: some ran at once.
    run: Duration,
    /// A single case, on average.
    case: Duration,
}

impl Measured {
    /// A case of the catalogue takes the average; one that says how long it takes at least, such as a schedule of chaos, that and
    /// what is around it.
    fn of(&self, case: &Case) -> Duration {
        if case.takes_at_least.is_zero() {
            return self.case;
        }
        self.case.max(case.takes_at_least + AROUND)
    }
}

/// Staging, control and final reads of a case that lasts for a given time.
const AROUND: Duration = Duration::from_secs(50);

/// 51 cases in 279 s, 2,932 s of cases.
const LAB: Measured = Measured {
    run: Duration::from_millis(5_500),
    case: Duration::from_millis(57_500),
};
/// 48 cases in 78 s, 558 s of cases.
const QUICK: Measured = Measured {
    run: Duration::from_millis(1_600),
    case: Duration::from_millis(11_600),
};
/// Processors of the measurement.
const PROCESSORS: usize = 2;

/// For so long the estimate weighs as much as what was seen: the first cases say little about the others.
const SETTLES: Duration = Duration::from_secs(30);

/// How long the cases of a run are expected to take.
#[derive(Debug)]
pub(super) struct Expected {
    cases: BTreeMap<&'static str, Duration>,
    /// All of them; `None` without a basis.
    run: Option<Duration>,
    basis: Basis,
}

/// Where the cases run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In labs, as in the measurement.
    Labs,
    /// In one cluster, so many cases at once.
    Cluster { at_once: usize },
}

/// Where an estimate comes from.
#[derive(Debug)]
enum Basis {
    LastRun,
    /// What was measured in labs.
    Measured(Place),
    /// Only limits are known.
    None,
}

/// How far a run has come.
#[derive(Debug)]
pub(super) struct Under<'a> {
    /// Since the first case began.
    pub(super) elapsed: Duration,
    /// Cases that have ended.
    pub(super) ended: &'a [&'static str],
    /// Running cases, and since when.
    pub(super) running: Vec<(&'static str, Instant)>,
    pub(super) now: Instant,
}

impl Durations {
    /// From the last run, or from the measurement.
    pub(super) fn expected_of(&self, cases: &[Case], profile: Profile, place: Place) -> Expected {
        let measured = measured(profile).filter(|_| !cases.is_empty());
        let (run, basis) = match (self.by_last_run(cases), measured) {
            (Some(run), _) => (Some(run), Basis::LastRun),
            (None, Some(measured)) => {
                let run = match place {
                    Place::Labs => by_measured(measured, cases.len(), machine::processors()),
                    Place::Cluster { at_once } => by_case(measured, cases.len(), at_once),
                };
                let each = cases.iter().map(|case| measured.of(case));
                let longer = each.clone().sum::<Duration>().as_secs_f64()
                    / (measured.case.as_secs_f64() * cases.len() as f64);
                let run = run.mul_f64(longer).max(each.max().unwrap_or_default());
                (Some(run), Basis::Measured(place))
            }
            (None, None) => (None, Basis::None),
        };
        let average = self.average().unwrap_or_default();
        let of = |case: &Case| match (&basis, measured) {
            (Basis::LastRun, _) => self.cases.get(case.id).copied().unwrap_or(average),
            (Basis::Measured(_), Some(measured)) => measured.of(case),
            _ => case.longest,
        };
        let cases = cases.iter().map(|case| (case.id, of(case))).collect();
        Expected { cases, run, basis }
    }

    /// Average duration of a case.
    fn average(&self) -> Option<Duration> {
        let all: Duration = self.cases.values().sum();
        all.checked_div(u32::try_from(self.cases.len()).ok()?)
    }

    /// Assumes the concurrency of the last run; a case that did not run then takes the average.
    fn by_last_run(&self, cases: &[Case]) -> Option<Duration> {
        let (all, average): (Duration, Duration) = (self.cases.values().sum(), self.average()?);
        let of = |case: &Case| self.cases.get(case.id).copied().unwrap_or(average);
        let (sum, longest): (Duration, Duration) = (
            cases.iter().map(of).sum(),
            cases.iter().map(of).max().unwrap_or_default(),
        );
        let at_once = (all.as_secs_f64() / self.run.as_secs_f64()).max(1.0);
        at_once.is_finite().then(|| sum.div_f64(at_once).max(longest))
    }
}

impl Expected {
    pub(super) fn count(&self) -> usize {
        self.cases.len()
    }

    /// `about 5 min`, if there is a basis.
    pub(super) fn about(&self) -> Option<String> {
        self.run.filter(|_| self.count() > 0).map(about)
    }

    /// The same, with the basis.
    pub(super) fn with_basis(&self) -> Option<String> {
        let basis = match self.basis {
            Basis::LastRun => "by the last run in this folder".to_owned(),
            Basis::Measured(Place::Labs) => {
                format!("by what the reference agent's cases took on {PROCESSORS} processors")
            }
            Basis::Measured(Place::Cluster { at_once }) => {
                format!("by what each of the reference agent's cases took in labs, {at_once} at once")
            }
            Basis::None => return None,
        };
        Some(format!("{}, {basis}", self.about()?))
    }

    /// The time left: the work that is left at the speed that was seen, and no less than the longest running case needs.
    pub(super) fn left(&self, under: &Under<'_>) -> Option<Duration> {
        let of = |id: &str| self.cases.get(id).copied().unwrap_or_default();
        let all: Duration = self.cases.values().sum();
        let ended: Duration = under.ended.iter().map(|id| of(id)).sum();
        let running: Vec<(Duration, Duration)> = under
            .running
            .iter()
            .map(|(id, begun)| (of(id), under.now.saturating_duration_since(*begun)))
            .collect();
        let under_way = running.iter().map(|(takes, took)| *takes.min(took));
        let done = ended + under_way.sum::<Duration>();
        let (work, passed) = (done.as_secs_f64(), under.elapsed.as_secs_f64());
        let speed = match self.run {
            Some(run) if !run.is_zero() => {
                let assumed = all.as_secs_f64() / run.as_secs_f64();
                (work + assumed * SETTLES.as_secs_f64()) / (passed + SETTLES.as_secs_f64())
            }
            _ if under.ended.is_empty() => return None,
            _ => work / passed,
        };
        let longest = running
            .iter()
            .map(|(takes, took)| takes.saturating_sub(*took))
            .max();
        let rest = Duration::try_from_secs_f64(all.saturating_sub(done).as_secs_f64() / speed).ok()?;
        // Limits are no durations: what a case may take says nothing about when it ends.
        let least = longest.filter(|_| self.run.is_some()).unwrap_or_default();
        Some(rest.max(least))
    }
}

fn measured(profile: Profile) -> Option<&'static Measured> {
    match profile {
        Profile::Lab | Profile::Cluster => Some(&LAB),
        Profile::Quick => Some(&QUICK),
        Profile::Long => None,
    }
}

/// More processors run more cases at once, but no case takes less.
fn by_measured(measured: &Measured, cases: usize, processors: usize) -> Duration {
    let processors = NonZero::new(processors).map_or(1, NonZero::get);
    let share = PROCESSORS as f64 / processors as f64;
    measured.run.mul_f64(cases as f64 * share).max(measured.case)
}

/// One case after another, as many at once as the cluster is given.
fn by_case(measured: &Measured, cases: usize, at_once: usize) -> Duration {
    let rounds = cases.div_ceil(at_once.max(1));
    measured
        .case
        .saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

/// Rounded to the precision of an estimate.
pub(super) fn about(takes: Duration) -> String {
    let seconds = takes.as_secs();
    if seconds < 100 {
        format!("about {} s", (seconds.max(1)).next_multiple_of(5))
    } else {
        format!("about {} min", seconds.div_ceil(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(took: &[(&str, u64)], run: u64) -> Durations {
        let of = |(id, seconds): &(&str, u64)| ((*id).to_owned(), Duration::from_secs(*seconds));
        Durations {
            cases: took.iter().map(of).collect(),
            run: Duration::from_secs(run),
        }
    }

    fn cases(ids: &[&str]) -> Vec<Case> {
        ids.iter().map(|id| cases::find(id).unwrap()).collect()
    }

    #[test]
    fn the_last_run_tells_how_long_its_cases_take() {
        let last = durations(&[("clusterip-from-pod", 40), ("stale-map-pin", 200)], 120);
        let of = |ids: &[&str]| last.by_last_run(&cases(ids)).unwrap().as_secs();
        assert_eq!(of(&["clusterip-from-pod"]), 40, "no case ends before its own end");
        assert_eq!(of(&["clusterip-from-pod", "stale-map-pin"]), 200);
        let three = ["clusterip-from-pod", "stale-map-pin", "uninstall-leaves-nothing"];
        assert_eq!(
            of(&three),
            200,
            "the third takes 120 s as the others did, and two ran at once"
        );
        assert_eq!(durations(&[], 0).by_last_run(&cases(&three)), None);
    }

    #[test]
    fn without_a_last_run_the_measurement_tells_and_nothing_of_what_was_not_measured() {
        let (none, all) = (Durations::default(), cases::ALL);
        let expected = none.expected_of(all, Profile::Lab, Place::Labs);
        let text = expected.with_basis().unwrap();
        assert!(
            text.starts_with("about ") && text.contains("on 2 processors"),
            "{text}"
        );
        assert_eq!(
            expected.about().as_deref(),
            text.split_once(',').map(|(about, _)| about)
        );
        let one = cases(&["clusterip-from-pod"]);
        let of_a_minute = [Case {
            takes_at_least: Duration::from_secs(60),
            ..one[0]
        }];
        let of_a_minute = none.expected_of(&of_a_minute, Profile::Lab, Place::Labs);
        assert_eq!(of_a_minute.about().as_deref(), Some("about 2 min"), "110 s");
        let in_a_cluster = none.expected_of(&one, Profile::Cluster, Place::Cluster { at_once: 2 });
        assert_eq!(
            in_a_cluster.with_basis().unwrap(),
            "about 60 s, by what each of the reference agent's cases took in labs, 2 at once"
        );
        assert_eq!(none.expected_of(&[], Profile::Lab, Place::Labs).about(), None);
        let unmeasured = none.expected_of(all, Profile::Long, Place::Labs);
        assert_eq!(unmeasured.with_basis(), None, "it was not measured");
        let last = durations(&[("clusterip-from-pod", 40)], 45);
        let one = last.expected_of(&one, Profile::Long, Place::Labs);
        assert_eq!(
            one.with_basis().unwrap(),
            "about 40 s, by the last run in this folder"
        );
    }

    #[test]
    fn a_cluster_runs_so_many_cases_at_once() {
        let of = |cases, at_once| by_case(&LAB, cases, at_once).as_secs();
        assert_eq!((of(1, 1), of(2, 1), of(3, 2), of(3, 0)), (57, 115, 115, 172));
    }

    #[test]
    fn processors_shorten_a_run_and_no_case() {
        let measured = Measured {
            run: Duration::from_secs(10),
            case: Duration::from_secs(60),
        };
        let of = |cases, processors| by_measured(&measured, cases, processors).as_secs();
        assert_eq!((of(49, 2), of(49, 4)), (490, 245));
        assert_eq!((of(1, 2), of(49, 64)), (60, 60));
    }

    #[test]
    fn an_estimate_is_round() {
        let of = |seconds| about(Duration::from_secs(seconds));
        assert_eq!(
            [of(0), of(41), of(99)],
            ["about 5 s", "about 45 s", "about 100 s"]
        );
        assert_eq!([of(120), of(121)], ["about 2 min", "about 3 min"]);
    }

    const THREE: [&str; 3] = ["clusterip-from-pod", "stale-map-pin", "uninstall-leaves-nothing"];

    /// Seconds left after these seconds, with these ended cases and running ones with their seconds.
    fn left(
        expected: &Expected,
        elapsed: u64,
        ended: &[&'static str],
        running: &[(&'static str, u64)],
    ) -> Option<u64> {
        let now = Instant::now() + Duration::from_secs(1_000);
        let begun = |(id, seconds): &(&'static str, u64)| (*id, now - Duration::from_secs(*seconds));
        let under = Under {
            elapsed: Duration::from_secs(elapsed),
            ended,
            running: running.iter().map(begun).collect(),
            now,
        };
        expected
            .left(&under)
            .map(|left| left.as_secs_f64().round() as u64)
    }

    #[test]
    fn the_time_left_follows_what_is_seen_and_no_case_ends_before_its_own_end() {
        let last = durations(&[(THREE[0], 60), (THREE[1], 60), (THREE[2], 60)], 180);
        let expected = last.expected_of(&cases(&THREE), Profile::Lab, Place::Labs);
        assert_eq!(left(&expected, 0, &[], &[]), Some(180), "nothing has begun");
        let one = [(THREE[0], 30)];
        assert_eq!(
            left(&expected, 30, &[], &one),
            Some(150),
            "as fast as the last run"
        );
        let slow = left(&expected, 150, &[THREE[0]], &[(THREE[1], 30)]).unwrap();
        assert!(
            (120..=140).contains(&slow),
            "90 s of cases at 0.67 of the speed: {slow}"
        );
        let both = [(THREE[1], 5), (THREE[2], 5)];
        assert_eq!(
            left(&expected, 20, &[THREE[0]], &both),
            Some(55),
            "the longest running case"
        );
        assert_eq!(left(&expected, 500, &THREE, &[]), Some(0));
    }

    #[test]
    fn without_a_basis_the_first_ended_case_tells_the_time_left() {
        let expected = Durations::default().expected_of(&cases(&THREE), Profile::Long, Place::Labs);
        assert_eq!(left(&expected, 60, &[], &[(THREE[0], 60)]), None);
        let all: u64 = cases(&THREE).iter().map(|case| case.longest.as_secs()).sum();
        let first = cases(&THREE)[0].longest.as_secs();
        let rest = ((all - first) as f64 / (first as f64 / 60.0)).round() as u64;
        assert_eq!(left(&expected, 60, &[THREE[0]], &[]), Some(rest));
    }
}
