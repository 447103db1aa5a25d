//! An estimate of the duration, printed before the cases.

use std::{num::NonZero, time::Duration};

use harness::{case::Case, limits::Profile};

use super::{machine, previous_run::Durations, process::Settings};

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

impl Durations {
    /// The estimated duration of these cases as text: from the last run, or in labs from the measurement. `None`
    /// without both.
    pub(super) fn estimate(&self, cases: &[Case], settings: &Settings, is_in_labs: bool) -> Option<String> {
        if cases.is_empty() {
            return None;
        }
        if let Some(takes) = self.by_last_run(cases) {
            return Some(format!("{}, by the last run in this folder", about(takes)));
        }
        let measured = match settings.limits.profile {
            Profile::Lab => LAB,
            Profile::Quick => QUICK,
            Profile::Cluster | Profile::Long => return None,
        };
        let takes = by_measured(&measured, cases.len(), machine::processors());
        let text = format!(
            "{}, by what the reference agent's cases took on {PROCESSORS} processors",
            about(takes)
        );
        is_in_labs.then_some(text)
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
    use std::path::Path;

    use harness::limits::Limits;

    use super::*;
    use crate::run::process::tests::settings;

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
    fn without_a_last_run_labs_tell_what_was_measured_and_others_nothing() {
        let mut settings = settings(Path::new("out"), None, Duration::ZERO);
        let (none, all) = (Durations::default(), cases::ALL);
        let text = none.estimate(all, &settings, true).unwrap();
        assert!(
            text.starts_with("about ") && text.contains("on 2 processors"),
            "{text}"
        );
        assert_eq!(none.estimate(all, &settings, false), None);
        assert_eq!(none.estimate(&[], &settings, true), None);
        settings.limits = Limits::of(Profile::Long);
        assert_eq!(none.estimate(all, &settings, true), None, "it was not measured");
        let last = durations(&[("clusterip-from-pod", 40)], 45);
        let text = last
            .estimate(&cases(&["clusterip-from-pod"]), &settings, false)
            .unwrap();
        assert_eq!(text, "about 40 s, by the last run in this folder");
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
