//! An estimate of the duration, printed before the cases.

use std::{num::NonZero, time::Duration};

use harness::{case::Case, limits::Profile};

use super::{machine, previous_run::Durations};

/// Duration of a run of all cases on two processors (AMD EPYC, unoptimized programs, November 2026).
struct Measured {
    /// The run's duration, for each case: some ran at once.
    run: Duration,
    /// A single case, on average.
    case: Duration,
}

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

/// Where the cases run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis {
    /// In labs, as in the measurement.
    Labs,
    /// In one cluster, so many cases at once.
    Cluster { at_once: usize },
}

impl Durations {
    /// The estimated duration of these cases as text: from the last run, or from the measurement. `None` without both.
    pub(super) fn estimate(&self, cases: &[Case], profile: Profile, basis: Basis) -> Option<String> {
        if cases.is_empty() {
            return None;
        }
        if let Some(takes) = self.by_last_run(cases) {
            return Some(format!("{}, by the last run in this folder", about(takes)));
        }
        let measured = match profile {
            Profile::Lab | Profile::Cluster => LAB,
            Profile::Quick => QUICK,
            Profile::Long => return None,
        };
        Some(match basis {
            Basis::Labs => format!(
                "{}, by what the reference agent's cases took on {PROCESSORS} processors",
                about(by_measured(&measured, cases.len(), machine::processors()))
            ),
            Basis::Cluster { at_once } => format!(
                "{}, by what each of the reference agent's cases took in labs, {at_once} at once",
                about(by_case(&measured, cases.len(), at_once))
            ),
        })
    }

    /// Assumes the concurrency of the last run; a case that did not run then takes the average.
    fn by_last_run(&self, cases: &[Case]) -> Option<Duration> {
        let all: Duration = self.cases.values().sum();
        let average = all.checked_div(u32::try_from(self.cases.len()).ok()?)?;
        let of = |case: &Case| self.cases.get(case.id).copied().unwrap_or(average);
        let (sum, longest): (Duration, Duration) = (
            cases.iter().map(of).sum(),
            cases.iter().map(of).max().unwrap_or_default(),
        );
        let at_once = (all.as_secs_f64() / self.run.as_secs_f64()).max(1.0);
        at_once.is_finite().then(|| sum.div_f64(at_once).max(longest))
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
fn about(takes: Duration) -> String {
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
        let text = none.estimate(all, Profile::Lab, Basis::Labs).unwrap();
        assert!(
            text.starts_with("about ") && text.contains("on 2 processors"),
            "{text}"
        );
        let one = cases(&["clusterip-from-pod"]);
        let text = none.estimate(&one, Profile::Cluster, Basis::Cluster { at_once: 2 });
        assert_eq!(
            text.unwrap(),
            "about 60 s, by what each of the reference agent's cases took in labs, 2 at once"
        );
        assert_eq!(none.estimate(&[], Profile::Lab, Basis::Labs), None);
        assert_eq!(
            none.estimate(all, Profile::Long, Basis::Labs),
            None,
            "it was not measured"
        );
        let last = durations(&[("clusterip-from-pod", 40)], 45);
        let text = last.estimate(&one, Profile::Long, Basis::Labs).unwrap();
        assert_eq!(text, "about 40 s, by the last run in this folder");
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
}
