//! What is dialled and what is permitted, and the plans that dial it.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    time::Duration,
};

use oracle::{
    check::{Expectation, Permitted, Stream},
    flow::Flows,
    history::{PlanEntry, Transport, WHILE_LATE},
};

use crate::{client::Client, limits::Limits};

/// Clients and what they dial.
pub type Vantage = (Vec<Client>, Vec<Destination>);

/// Handshakes of TLS of a client with a target that are under way at once in a window. Where the machine can't keep the pace,
/// more of them only slow each other and the server down, until none is done in its time: those that are late then begin
/// late, and the window lasts longer.
const HANDSHAKES_AT_ONCE: u32 = 4;
/// Of a client's rate, a probe over TLS takes as much as so many others.
const HANDSHAKE: usize = 4;
/// Windows that N may take at most, if a client's rate allows that.
const SLOWEST: f64 = 2.5;
/// No round of probes is shorter: rounds that wait for a change follow each other.
const SHORTEST: Duration = Duration::from_millis(200);

/// One frontend by one transport, and what is permitted of it.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The axis that it decides.
    pub axis: String,
    /// Name within the axis.
    pub name: String,
    /// How it is dialled.
    pub transport: Transport,
    /// What is dialled.
    pub address: SocketAddr,
    /// What may happen.
    pub permitted: Permitted,
}

impl Destination {
    /// Must be served by exactly these identities.
    pub fn serves(
        axis: &str,
        name: &str,
        transport: Transport,
        address: SocketAddr,
        identities: impl IntoIterator<Item = String>,
    ) -> Self {
        let permitted = Permitted::Serves(identities.into_iter().collect::<BTreeSet<_>>());
        Self {
            axis: axis.to_owned(),
            name: name.to_owned(),
            transport,
            address,
            permitted,
        }
    }

    /// Must be served by one of these identities, whichever.
    pub fn serves_one_of(
        axis: &str,
        name: &str,
        transport: Transport,
        address: SocketAddr,
        identities: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            permitted: Permitted::ServesOneOf(identities.into_iter().collect()),
            ..Self::refuses(axis, name, transport, address)
        }
    }

    /// May be refused, or served by one of these identities.
    pub fn serves_or_refuses(
        axis: &str,
        name: &str,
        transport: Transport,
        address: SocketAddr,
        identities: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            permitted: Permitted::ServesOrRefuses(identities.into_iter().collect()),
            ..Self::refuses(axis, name, transport, address)
        }
    }

    /// May be served by one of these identities, or reach no backend.
    pub fn serves_or_none(
        axis: &str,
        name: &str,
        transport: Transport,
        address: SocketAddr,
        identities: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            permitted: Permitted::ServesOrNone(identities.into_iter().collect()),
            ..Self::refuses(axis, name, transport, address)
        }
    }

    /// Must answer TLS with a certificate that is valid for this name.
    pub fn certified(axis: &str, name: &str, address: SocketAddr, valid_for: &str) -> Self {
        Self {
            permitted: Permitted::Certified(valid_for.to_owned()),
            ..Self::refuses(axis, name, Transport::Tls, address)
        }
    }

    /// Must be refused. UDP has no handshake that could be refused, so an unconnected datagram may also be silent,
    /// as long as it is delivered nowhere.
    #[must_use]
    pub fn refuses(axis: &str, name: &str, transport: Transport, address: SocketAddr) -> Self {
        let permitted = match transport {
            Transport::Tcp | Transport::Sctp | Transport::Http | Transport::Tls => Permitted::Refuse,
            Transport::Udp | Transport::UdpConnected => Permitted::None,
        };
        Self {
            axis: axis.to_owned(),
            name: name.to_owned(),
            transport,
            address,
            permitted,
        }
    }

    /// Must be delivered nowhere: refused or silent.
    #[must_use]
    pub fn none(axis: &str, name: &str, transport: Transport, address: SocketAddr) -> Self {
        Self {
            permitted: Permitted::None,
            ..Self::refuses(axis, name, transport, address)
        }
    }

    /// How many probes decide.
    #[must_use]
    pub fn probes(&self, limits: &Limits) -> usize {
        limits.probes_for(self.backends())
    }

    /// The fewest probes that show its set.
    #[must_use]
    pub fn fewest(&self) -> usize {
        Limits::fewest_for(self.backends())
    }

    /// Probes of a hold of so long after N have been judged: one in each [`Limits::hold_probe`], and no fewer than show its set.
    pub(crate) fn held(&self, hold: Duration, limits: &Limits) -> usize {
        let steady = hold.as_millis() / limits.hold_probe.as_millis().max(1);
        self.fewest().max(usize::try_from(steady).unwrap_or(usize::MAX))
    }

    /// What a client must see of it.
    #[must_use]
    pub fn expectation(&self, client: &Client, at_least: usize) -> Expectation {
        Expectation {
            stream: self.stream(client),
            at_least,
            permitted: self.permitted.clone(),
        }
    }

    /// A client's attempts to it.
    #[must_use]
    pub fn stream(&self, client: &Client) -> Stream {
        Stream {
            client: client.name.clone(),
            target: self.label(),
            transport: self.transport,
        }
    }

    /// How many identities it must be served by; 1 if another outcome is permitted.
    pub(crate) fn backends(&self) -> usize {
        match &self.permitted {
            Permitted::Serves(identities) => identities.len(),
            _ => 1,
        }
    }

    /// Unique for what is dialled: streams are told apart by it.
    #[must_use]
    pub fn label(&self) -> String {
        format!("[{}] {} ({})", self.axis, self.name, self.address)
    }

    fn entry(&self, count: usize, over: Duration, limits: &Limits) -> PlanEntry {
        let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        PlanEntry {
            target: self.label(),
            transport: self.transport,
            address: self.address.ip(),
            port: self.address.port(),
            count,
            // 0 would be another way to pace: each when the last has ended.
            interval_ms: milliseconds(over / count).max(1),
            limit_ms: milliseconds(limits.probe),
            until: None,
            flows: None,
            source_ports: None,
            at_once: None,
            one_way: false,
        }
    }

    /// One probe.
    pub(crate) fn once(&self, limits: &Limits) -> PlanEntry {
        self.entry(1, limits.probe, limits)
    }

    /// So many flows that go on for so long. What is delivered, and not answered, asks for no answer.
    pub(crate) fn established(&self, flows: u32, over: Duration, limits: &Limits) -> PlanEntry {
        let count = (over.as_millis() / limits.exchange.as_millis().max(1)) as usize;
        PlanEntry {
            flows: Some(flows),
            one_way: matches!(self.permitted, Permitted::Delivered(_)),
            ..self.entry(count, over, limits)
        }
    }

    /// What so many flows of a client must show: each has at least half of the exchanges that T_hold has room for.
    pub(crate) fn flows(&self, client: &Client, flows: u32, limits: &Limits) -> Flows {
        Flows {
            stream: self.stream(client),
            flows: flows as usize,
            at_least: half_of(limits.hold, limits.exchange),
            identities: self.permitted.identities().cloned().unwrap_or_default(),
            lost_of: limits.lost_of,
        }
    }
}

/// What is permitted where they dial.
pub(crate) fn permitted_at(targets: &[Destination]) -> HashMap<SocketAddr, &Permitted> {
    let of_each = targets.iter().map(|target| (target.address, &target.permitted));
    of_each.collect()
}

/// Attempts at an even pace that yield so many for each target within `over`, see [`pace_of`], and go on for `lasts`, or a little
/// longer.
pub(crate) fn pace(
    targets: &[Destination],
    probes: impl Fn(&Destination) -> usize,
    over: Duration,
    lasts: Duration,
    limits: &Limits,
) -> Vec<PlanEntry> {
    let times = lasts.div_duration_f64(over).ceil().max(1.0) as u32;
    let entry = |target: &Destination| PlanEntry {
        at_once: (target.transport == Transport::Tls).then_some(HANDSHAKES_AT_ONCE),
        ..target.entry(probes(target) * times as usize, over * times, limits)
    };
    targets.iter().map(entry).collect()
}

/// How long so many probes of each target take: a window. Where that is more than half of a client's rate, as the other half is for rounds
/// beside it, up to [`SLOWEST`] windows; and where it is more than all of the rate then, as long as that takes: a machine that
/// is asked for more than it can do answers nothing in time, and decides nothing.
pub(crate) fn pace_of(
    targets: &[Destination],
    probes: impl Fn(&Destination) -> usize,
    window: Duration,
    limits: &Limits,
) -> Duration {
    let total: usize = targets.iter().map(probes).sum();
    let at_all_of_the_rate = Duration::from_secs(1).mul_f64(total as f64 / f64::from(limits.rate));
    let slowest = window.mul_f64(SLOWEST).max(at_all_of_the_rate);
    (at_all_of_the_rate * 2).max(window).min(slowest)
}

/// So many probes to each target, all evenly over one time, as fast as the rate of a client allows. They begin at
/// their times whatever becomes of those before: silence delays nothing.
pub(crate) fn round(
    targets: &[Destination],
    probes: impl Fn(&Destination) -> usize,
    limits: &Limits,
) -> Vec<PlanEntry> {
    let share = |target: &Destination| match target.transport {
        Transport::Tls => HANDSHAKE * probes(target),
        _ => probes(target),
    };
    let total: usize = targets.iter().map(share).sum();
    let over = Duration::from_secs(1)
        .mul_f64(total as f64 / f64::from(limits.rate))
        .max(SHORTEST);
    targets
        .iter()
        .map(|target| target.entry(probes(target), over, limits))
        .collect()
}

/// Half of the exchanges that a time has room for.
pub(crate) fn half_of(time: Duration, every: Duration) -> usize {
    (time.as_millis() / every.as_millis().max(1) / 2) as usize
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Longer than any run of a plan of these: then its client hangs.
pub(crate) fn longest(entries: &[PlanEntry]) -> Duration {
    let entry = |entry: &PlanEntry| {
        let begins = entry.interval_ms.saturating_mul(u64::from(entry.count));
        Duration::from_millis(begins.saturating_add(entry.limit_ms))
    };
    // On a machine that has no time: answers are late, and each of the few that are under way then is silent to its limit.
    let silent = entries.iter().fold(0_u64, |sum, entry| {
        sum.saturating_add(entry.limit_ms.saturating_mul(u64::from(entry.count)))
    });
    let silent = Duration::from_millis(silent / WHILE_LATE as u64);
    entries.iter().map(entry).max().unwrap_or_default() + silent + Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::limits::Profile;

    fn target(permitted: Permitted) -> Destination {
        Destination {
            axis: "a".into(),
            name: "t".into(),
            transport: Transport::Tcp,
            address: "10.96.0.1:80".parse().unwrap(),
            permitted,
        }
    }

    const LASTS: Duration = Duration::from_secs(120);

    #[test]
    fn a_round_has_the_probes_asked_for_at_no_more_than_the_rate() {
        let limits = Limits::default();
        let targets = vec![target(Permitted::Refuse); 10];
        let entries = round(&targets, |_| 200, &limits);
        assert_eq!(entries.len(), 10);
        let rate: f64 = entries
            .iter()
            .map(|entry| 1000.0 / entry.interval_ms as f64)
            .sum();
        assert!(entries.iter().all(|entry| entry.count == 200));
        assert!(rate <= f64::from(limits.rate) * 1.05, "{rate}");
    }

    #[test]
    fn a_small_round_takes_its_time_and_shows_the_set() {
        let two = Permitted::Serves(["a/TCP/1".to_owned(), "b/TCP/1".to_owned()].into());
        let entries = round(&[target(two)], Destination::fewest, &Limits::default());
        assert_eq!((entries[0].count, entries[0].interval_ms), (28, 7));
    }

    #[test]
    fn a_pace_yields_n_within_the_window() {
        let limits = Limits::default();
        let entry = |targets: usize, limits: &Limits| {
            let all = vec![target(Permitted::Refuse); targets];
            let probes = |target: &Destination| target.probes(limits);
            let over = pace_of(&all, probes, limits.hold, limits);
            let entries = pace(&all, probes, over, LASTS, limits);
            assert_eq!(entries.len(), targets);
            (entries[0].interval_ms, entries[0].count)
        };
        assert_eq!(entry(1, &limits), (150, 800));
        assert_eq!(entry(30, &limits), (150, 800), "200 a second: half of the rate");
        assert_eq!(entry(60, &limits), (300, 400), "no more than that");
        assert_eq!(entry(150, &limits), (375, 400), "N within two and a half windows");
        assert_eq!(entry(600, &limits), (1500, 200), "400 a second: all of the rate");
        let slow = Limits { rate: 100, ..limits };
        assert_eq!(entry(15, &slow), (300, 400));
        let quick = Limits::of(Profile::Quick);
        assert_eq!(entry(1, &quick), (214, 14 * 40), "120 s, as the first one's");
    }

    #[test]
    fn a_hold_after_n_probes_goes_on_steadily_and_shows_the_set() {
        let limits = Limits::default();
        let of = |backends: usize| {
            let identities = (0..backends).map(|number| format!("b{number}/TCP/1"));
            target(Permitted::Serves(identities.collect()))
        };
        assert_eq!(of(1).held(limits.hold, &limits), 30, "one in a second");
        assert_eq!(of(10).held(limits.hold, &limits), 140, "14 for each backend");
    }

    #[test]
    fn handshakes_of_tls_are_few_at_once_in_a_window_and_slow_in_a_round() {
        let limits = Limits::default();
        let plain = target(Permitted::Refuse);
        let over_tls = Destination {
            transport: Transport::Tls,
            ..plain.clone()
        };
        let at_once = |target: &Destination| {
            let one = slice::from_ref(target);
            pace(one, Destination::fewest, limits.hold, LASTS, &limits)[0].at_once
        };
        assert_eq!((at_once(&plain), at_once(&over_tls)), (None, Some(4)));
        let interval = |target: Destination| round(&[target], |_| 200, &limits)[0].interval_ms;
        assert_eq!(
            interval(over_tls),
            4 * interval(plain) + 2,
            "a quarter of 400 a second"
        );
    }
}
