//! What a case spends its time on, for `cargo xtask bench e2e`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use serde::{Deserialize, Serialize};

/// What a case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Its clients, its fence, and its pods come up.
    Staging,
    /// Rounds of probes until a control or a witness is seen.
    Control,
    /// A write is awaited in the datapath.
    Fence,
    /// Probes that a verdict follows from.
    Judging,
    /// What must not happen does not for T_hold.
    Hold,
    /// An agent starts until it says that it is ready.
    Healing,
    /// Evidence and clean-up.
    Closing,
}

/// What a case has spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Seconds by activity. Those that go on at once count by themselves, so they may be more than the case took.
    pub seconds: BTreeMap<Activity, f64>,
    /// Seconds of processors that the case's own process took, user and system. Its clients and helpers are programs of the lab.
    pub processor_seconds: f64,
}

/// The clock of a case.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<BTreeMap<Activity, Duration>>);

/// Counts until it is dropped.
#[must_use = "an activity lasts as long as this"]
pub(crate) struct During<'a> {
    clock: &'a Clock,
    activity: Activity,
    began: Instant,
}

impl Clock {
    /// An activity begins.
    pub(crate) fn during(&self, activity: Activity) -> During<'_> {
        During {
            clock: self,
            activity,
            began: Instant::now(),
        }
    }

    /// What has been spent so far, by this process.
    pub(crate) fn spent(&self) -> Spent {
        let seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = seconds
            .iter()
            .map(|(activity, spent)| (*activity, spent.as_secs_f64()));
        Spent {
            seconds: seconds.collect(),
            processor_seconds: processor(UsageWho::RUSAGE_SELF),
        }
    }
}

impl Drop for During<'_> {
    fn drop(&mut self) {
        let mut seconds = self.clock.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seconds.entry(self.activity).or_default() += self.began.elapsed();
    }
}

/// getrusage(2): seconds of user and system. It fails for none of its arguments.
fn processor(who: UsageWho) -> f64 {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(who).map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_add_up_and_those_at_once_count_by_themselves() {
        let clock = Clock::default();
        let tick = || std::thread::sleep(Duration::from_millis(2));
        for _ in 0..2 {
            let hold = clock.during(Activity::Hold);
            let fence = clock.during(Activity::Fence);
            tick();
            drop(fence);
            tick();
            drop(hold);
        }
        let Spent {
            seconds,
            processor_seconds,
        } = clock.spent();
        assert_eq!(
            seconds.keys().copied().collect::<Vec<_>>(),
            [Activity::Fence, Activity::Hold]
        );
        assert!(seconds[&Activity::Hold] > seconds[&Activity::Fence]);
        assert!(seconds[&Activity::Fence] >= 0.004 && processor_seconds > 0.0);
    }
}
