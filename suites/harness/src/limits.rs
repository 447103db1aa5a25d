//! Every limit of the suite, in one place.

use std::{fmt, str::FromStr, time::Duration};

use oracle::check::{PROBES_PER_BACKEND, Times};
use serde::{Deserialize, Serialize};

/// All limits. The names in brackets are those of the catalogue of claims, which is the source of the numbers
/// unless something else is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// What kind of cluster and run they are for.
    pub profile: Profile,
    /// By what [`Limits::scaled`] has multiplied the limits below, except `hold`, `hold_probe` and `exchange`.
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
    /// An agent that says that it is ready has so long until a control Service must be served.
    pub ready: Duration,
    /// One probe; silence is nothing within it.
    pub probe: Duration,
    /// A refusal comes within it.
    pub refuse: Duration,
    /// Probes for each vantage and node, at least (N).
    pub probes: usize,
    /// Probes that one client begins in a second at most; own choice: a fraction of what one slow core can take, so
    /// that probes measure the datapath and not the machine.
    pub rate: u32,
    /// From one probe of a client to the next, to a target that is held after N probes of it have been judged: the hold is
    /// about time, not about chance. Never scaled: fewer would see less. Own choice: what lasts a second shows in each
    /// vantage, what lasts less shows in one of several.
    pub hold_probe: Duration,
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
    /// Evidence and clean-up of a case that has ended, in whatever way; own choice, longer than `cleanup`.
    pub closing: Duration,
    /// Start and end of a case's process, beyond the case itself and its closing; own choice.
    pub process: Duration,
    /// An agent that does not say whether it is ready has to last so long before the first case begins; own choice,
    /// one that ends by itself for a wrong option does so at once.
    pub agent_lasts: Duration,
}

/// What kind of cluster and run limits are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The catalogue's limits, for a cluster on this machine.
    #[default]
    Lab,
    /// Machines of a real cluster: pods wait for images, namespaces for their controllers, and a client leaves more
    /// of its machine to others. The limits that claims name are the same.
    Cluster,
    /// Negatives hold for 10 min, the longest that a row of the catalogue asks for, with five times the probes: what
    /// shows with the next resync or garbage collection shows here.
    Long,
    /// One axis of each row ([`crate::quick_run`]): for a look at a change, and no conformance. The limits that claims name are
    /// the same, but for how long a negative holds.
    Quick,
}

impl Profile {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("lab", Self::Lab),
        ("cluster", Self::Cluster),
        ("long", Self::Long),
        ("quick", Self::Quick),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Cluster => "cluster",
            Self::Long => "long",
            Self::Quick => "quick",
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, profile)| *profile).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("expected one of {names}, found {text:?}")
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            profile: Profile::Lab,
            scale: 1.0,
            endpoints: Duration::from_secs(30),
            service: Duration::from_secs(30),
            heal: Duration::from_secs(90),
            hold: Duration::from_secs(30),
            ready: Duration::from_secs(60),
            probe: Duration::from_secs(3),
            refuse: Duration::from_secs(1),
            probes: 200,
            rate: 400,
            hold_probe: Duration::from_secs(1),
            exchange: Duration::from_millis(100),
            lost_of: 100,
            own_watch: Duration::from_secs(10),
            pods: Duration::from_secs(60),
            cleanup: Duration::from_secs(30),
            closing: Duration::from_secs(60),
            process: Duration::from_secs(30),
            agent_lasts: Duration::from_secs(3),
        }
    }
}

impl Limits {
    /// Those of a profile.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let base = Self {
            profile,
            ..Self::default()
        };
        match profile {
            Profile::Lab => base,
            Profile::Cluster => Self {
                rate: 100,
                own_watch: Duration::from_secs(30),
                pods: Duration::from_secs(300),
                cleanup: Duration::from_secs(120),
                closing: Duration::from_secs(180),
                ..base
            },
            Profile::Long => Self {
                hold: Duration::from_secs(600),
                probes: 1000,
                ..base
            },
            Profile::Quick => Self {
                // As long as one probe: what is silent all the while shows.
                hold: base.probe,
                probes: PROBES_PER_BACKEND,
                ..base
            },
        }
    }

    /// The same, where no client begins more probes than `rate` in a second.
    #[must_use]
    pub fn with_rate(self, rate: u32) -> Self {
        let rate = rate.clamp(1, self.rate);
        Self { rate, ..self }
    }

    /// The same, for a machine that is `scale` times as slow.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        let base = self;
        Self {
            profile: base.profile,
            scale,
            endpoints: base.endpoints.mul_f64(scale),
            service: base.service.mul_f64(scale),
            heal: base.heal.mul_f64(scale),
            hold: base.hold,
            ready: base.ready.mul_f64(scale),
            probe: base.probe.mul_f64(scale),
            refuse: base.refuse.mul_f64(scale),
            probes: base.probes,
            rate: base.rate,
            hold_probe: base.hold_probe,
            exchange: base.exchange,
            lost_of: base.lost_of,
            own_watch: base.own_watch.mul_f64(scale),
            pods: base.pods.mul_f64(scale),
            cleanup: base.cleanup.mul_f64(scale),
            closing: base.closing.mul_f64(scale),
            process: base.process.mul_f64(scale),
            agent_lasts: base.agent_lasts.mul_f64(scale),
        }
    }

    /// What a case that takes no longer than `longest` with the limits of [`Profile::Lab`] may take with these: it may
    /// do nothing but hold and wait for pods.
    #[must_use]
    pub fn longest(&self, longest: Duration) -> Duration {
        let base = Self::default();
        let holds = self.hold.as_secs_f64() / base.hold.as_secs_f64();
        let rounds = f64::from(base.rate) / f64::from(self.rate);
        longest.mul_f64(self.scale.max(1.0) * holds.max(rounds)) + self.pods + self.cleanup
    }

    /// All of them by the names that reports have, with the unit in the name.
    #[must_use]
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("T_ep_seconds", self.endpoints.as_secs_f64()),
            ("T_svc_seconds", self.service.as_secs_f64()),
            ("T_heal_seconds", self.heal.as_secs_f64()),
            ("T_hold_seconds", self.hold.as_secs_f64()),
            ("ready_seconds", self.ready.as_secs_f64()),
            ("probe_seconds", self.probe.as_secs_f64()),
            ("refuse_seconds", self.refuse.as_secs_f64()),
            ("probes", self.probes as f64),
            ("probes_per_backend", PROBES_PER_BACKEND as f64),
            ("probes_per_second_and_client", f64::from(self.rate)),
            ("hold_probe_seconds", self.hold_probe.as_secs_f64()),
            ("exchange_seconds", self.exchange.as_secs_f64()),
            ("exchanges_of_which_fewer_than_one_is_lost", self.lost_of as f64),
            ("own_watch_seconds", self.own_watch.as_secs_f64()),
            ("pods_seconds", self.pods.as_secs_f64()),
            ("cleanup_seconds", self.cleanup.as_secs_f64()),
            ("closing_seconds", self.closing.as_secs_f64()),
            ("process_seconds", self.process.as_secs_f64()),
            ("agent_lasts_seconds", self.agent_lasts.as_secs_f64()),
            ("scale", self.scale),
        ]
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
            "endpoint propagation {:?}, Service propagation {:?}, recovery {:?}, hold {:?}, ready {:?}, probe {:?}, refusal {:?}, \
             probes {} and ≥ {} per backend, {} probes/s per client, held {:?}, flows {:?} and < 1 of {} lost, own watch {:?}, pods {:?}, \
             clean-up {:?}, closing {:?}, process {:?}, agent lasts {:?}, scale {}, profile {}",
            self.endpoints,
            self.service,
            self.heal,
            self.hold,
            self.ready,
            self.probe,
            self.refuse,
            self.probes,
            PROBES_PER_BACKEND,
            self.rate,
            self.hold_probe,
            self.exchange,
            self.lost_of,
            self.own_watch,
            self.pods,
            self.cleanup,
            self.closing,
            self.process,
            self.agent_lasts,
            self.scale,
            self.profile.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_lengthens_every_limit_but_the_hold_and_the_number_of_probes() {
        let (base, slow) = (Limits::default(), Limits::default().scaled(2.0));
        assert_eq!(slow.endpoints, base.endpoints * 2);
        assert_eq!(slow.refuse, base.refuse * 2);
        assert_eq!((slow.hold, slow.probes), (base.hold, base.probes));
    }

    #[test]
    fn a_rate_is_lowered_and_never_raised_and_cases_may_take_as_much_longer() {
        let base = Limits::default();
        assert_eq!(base.clone().with_rate(u32::MAX), base);
        let slow = base.clone().with_rate(100);
        assert_eq!((slow.rate, base.clone().with_rate(0).rate), (100, 1));
        let minute = Duration::from_secs(60);
        assert_eq!(slow.longest(minute), base.longest(minute) + 3 * minute);
    }

    #[test]
    fn n_is_200_until_14_for_each_backend_are_more() {
        let limits = Limits::default();
        assert_eq!(limits.probes_for(1), 200);
        assert_eq!(limits.probes_for(14), 200);
        assert_eq!(limits.probes_for(15), 210);
        assert_eq!(Limits::fewest_for(2), 28);
    }

    #[test]
    fn a_profile_changes_no_limit_that_a_claim_names_but_how_long_a_negative_holds() {
        let [lab, cluster, long, quick] = Profile::ALL.map(|(name, profile)| {
            assert_eq!((name.parse(), profile.name()), (Ok(profile), name));
            Limits::of(profile)
        });
        assert_eq!(lab, Limits::default());
        for other in [&cluster, &long, &quick] {
            assert_eq!(
                (
                    other.endpoints,
                    other.service,
                    other.heal,
                    other.probe,
                    other.refuse
                ),
                (lab.endpoints, lab.service, lab.heal, lab.probe, lab.refuse)
            );
        }
        for other in [&cluster, &long] {
            assert!(other.longest(Duration::from_secs(60)) > lab.longest(Duration::from_secs(60)));
        }
        assert_eq!((cluster.hold, cluster.probes), (lab.hold, lab.probes));
        assert!(cluster.pods > lab.pods && cluster.closing > cluster.cleanup);
        assert!(long.hold == lab.hold * 20 && long.probes > lab.probes);
        assert!(quick.hold < lab.hold && quick.hold >= quick.probe);
        for backends in [1, 2, 10] {
            assert_eq!(quick.probes_for(backends), Limits::fewest_for(backends));
        }
        assert_eq!((quick.ready, quick.pods), (lab.ready, lab.pods));
        assert!(
            "Lab"
                .parse::<Profile>()
                .unwrap_err()
                .contains("lab, cluster, long, quick")
        );
    }

    #[test]
    fn every_limit_is_shown_and_reported() {
        let slow = Limits::of(Profile::Long).scaled(3.0);
        let shown = slow.to_string();
        for part in [
            "hold 600s",
            "probes 1000",
            "closing 180s",
            "scale 3",
            "profile long",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let fields = serde_json::to_value(&slow).unwrap();
        // All but the profile, and the probes for each backend, which are the oracle's.
        assert_eq!(slow.values().len(), fields.as_object().unwrap().len());
    }
}
