//! Every limit of the suite, in one place.

use std::{fmt, time::Duration};

use oracle::check::{PROBES_PER_BACKEND, Times};
use serde::{Deserialize, Serialize};

/// All limits. The names in brackets are those of the catalogue of claims, which is the source of the numbers
/// unless something else is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// By what [`Limits::scaled`] has multiplied the limits below, except `hold` and `exchange`.
    pub scale: f64,
    /// An endpoint change is effective on every node (T_ep); upstream's e2e allows a proxy 30 s.
    pub endpoints: Duration,
    /// A Service change is effective on every node (T_svc); this suite's choice.
    pub service: Duration,
    /// Recovery after a fault has ended or the agent is ready (T_heal): about 30 s of watch back-off, its jitter,
    /// and T_ep.
    pub heal: Duration,
    /// How long a negative must hold (T_hold). Never scaled: a longer hold is another claim.
    pub hold: Duration,
    /// One probe; silence is nothing within it.
    pub probe: Duration,
    /// A refusal comes within it.
    pub refuse: Duration,
    /// Probes for each vantage and node, at least (N).
    pub probes: usize,
    /// Probes that one client begins in a second at most; own choice: a fraction of what one slow core can take, so
    /// that probes measure the datapath and not the machine.
    pub rate: u32,
    /// From one exchange of an established flow to the next. Never scaled: fewer would see less.
    pub exchange: Duration,
    /// Fewer than one exchange of so many may be lost.
    pub lost_of: usize,
    /// The suite's own watch has a version that the API has acknowledged; own choice, upstream's watch cache is
    /// behind by milliseconds.
    pub own_watch: Duration,
    /// Pods of the suite run and are ready; own choice, enough for an image pull.
    pub pods: Duration,
    /// Namespaces of the suite and what is in them are gone; own choice.
    pub cleanup: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            scale: 1.0,
            endpoints: Duration::from_secs(30),
            service: Duration::from_secs(30),
            heal: Duration::from_secs(90),
            hold: Duration::from_secs(30),
            probe: Duration::from_secs(3),
            refuse: Duration::from_secs(1),
            probes: 200,
            rate: 400,
            exchange: Duration::from_millis(100),
            lost_of: 100,
            own_watch: Duration::from_secs(10),
            pods: Duration::from_secs(60),
            cleanup: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The defaults, for a machine that is `scale` times as slow.
    #[must_use]
    pub fn scaled(scale: f64) -> Self {
        let base = Self::default();
        Self {
            scale,
            endpoints: base.endpoints.mul_f64(scale),
            service: base.service.mul_f64(scale),
            heal: base.heal.mul_f64(scale),
            hold: base.hold,
            probe: base.probe.mul_f64(scale),
            refuse: base.refuse.mul_f64(scale),
            probes: base.probes,
            rate: base.rate,
            exchange: base.exchange,
            lost_of: base.lost_of,
            own_watch: base.own_watch.mul_f64(scale),
            pods: base.pods.mul_f64(scale),
            cleanup: base.cleanup.mul_f64(scale),
        }
    }

    /// What the oracle needs of them.
    #[must_use]
    pub fn times(&self) -> Times {
        Times {
            refuse: self.refuse,
            probe: self.probe,
        }
    }

    /// N for a service with so many backends: [`Limits::probes`], and at least 14 for each.
    #[must_use]
    pub fn probes_for(&self, backends: usize) -> usize {
        self.probes.max(Self::fewest_for(backends))
    }

    /// The fewest probes that show a set of backends: 14 for each, which miss one with a fair share with p < 10⁻⁶.
    #[must_use]
    pub fn fewest_for(backends: usize) -> usize {
        PROBES_PER_BACKEND * backends.max(1)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "T_ep {:?}, T_svc {:?}, T_heal {:?}, T_hold {:?}, probe {:?}, REFUSE {:?}, N {} and ≥ {}·k, \
             {} probes/s per client, flows {:?} and < 1 of {} lost, own watch {:?}, pods {:?}, clean-up {:?}, scale {}",
            self.endpoints,
            self.service,
            self.heal,
            self.hold,
            self.probe,
            self.refuse,
            self.probes,
            PROBES_PER_BACKEND,
            self.rate,
            self.exchange,
            self.lost_of,
            self.own_watch,
            self.pods,
            self.cleanup,
            self.scale
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_lengthens_every_limit_but_the_hold_and_the_number_of_probes() {
        let (base, slow) = (Limits::default(), Limits::scaled(2.0));
        assert_eq!(slow.endpoints, base.endpoints * 2);
        assert_eq!(slow.refuse, base.refuse * 2);
        assert_eq!((slow.hold, slow.probes), (base.hold, base.probes));
    }

    #[test]
    fn n_is_200_until_14_for_each_backend_are_more() {
        let limits = Limits::default();
        assert_eq!(limits.probes_for(1), 200);
        assert_eq!(limits.probes_for(14), 200);
        assert_eq!(limits.probes_for(15), 210);
        assert_eq!(Limits::fewest_for(2), 28);
    }
}
