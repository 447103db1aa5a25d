//! What is dialled and what is permitted, and the plans that dial it.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use oracle::{
    check::{Expectation, Permitted, Stream},
    finding,
    history::{Plan, PlanEntry, Transport},
};

use crate::{client::Client, limits::Limits};

/// Attempts of one target that run side by side at most: with silence at 3 s each, 200 take 30 s.
const LANES: usize = 20;

/// From one attempt to the next in a round that waits for a change.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// How many attempts one after the other such a round has.
const SETTLE_DEPTH: usize = 4;

/// One frontend by one transport, and what is permitted of it.
#[derive(Clone, Debug)]
pub struct Target {
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

impl Target {
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

    /// Must be refused. UDP has no handshake that could be refused, so an unconnected datagram may also be silent,
    /// as long as it is delivered nowhere.
    #[must_use]
    pub fn refuses(axis: &str, name: &str, transport: Transport, address: SocketAddr) -> Self {
        let permitted = match transport {
            Transport::Tcp => Permitted::Refuse,
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

    fn backends(&self) -> usize {
        match &self.permitted {
            Permitted::Serves(identities) => identities.len(),
            Permitted::Refuse | Permitted::Silent | Permitted::None => 1,
        }
    }

    fn label(&self) -> String {
        format!(
            "[{}] {} {}",
            self.axis,
            self.name,
            finding::transport(self.transport)
        )
    }

    fn may_be_silent(&self) -> bool {
        matches!(self.permitted, Permitted::Silent | Permitted::None)
    }

    fn entry(&self, count: usize, interval: Duration, limits: &Limits) -> PlanEntry {
        PlanEntry {
            target: self.label(),
            transport: self.transport,
            address: self.address.ip(),
            port: self.address.port(),
            count: u32::try_from(count.max(1)).unwrap_or(u32::MAX),
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            limit_ms: u64::try_from(limits.probe.as_millis()).unwrap_or(u64::MAX),
            until: None,
        }
    }

    /// `probes` attempts, some side by side.
    fn lanes(&self, probes: usize, lanes: usize, interval: Duration, limits: &Limits) -> Vec<PlanEntry> {
        let lanes = lanes.clamp(1, probes.max(1));
        (0..lanes)
            .map(|_| self.entry(probes.div_ceil(lanes), interval, limits))
            .collect()
    }

    /// Enough attempts to decide, as fast as they go.
    pub(crate) fn burst(&self, probes: usize, limits: &Limits) -> Vec<PlanEntry> {
        self.lanes(probes, LANES, Duration::ZERO, limits)
    }

    /// The fewest attempts that show the set, with a pause between them: rounds of it wait for a change.
    pub(crate) fn round(&self, limits: &Limits) -> Vec<PlanEntry> {
        let probes = self.fewest();
        let depth = if self.may_be_silent() { 1 } else { SETTLE_DEPTH };
        self.lanes(probes, probes.div_ceil(depth), SETTLE_INTERVAL, limits)
    }

    /// Attempts at an even pace that yield N within `window`, and go on for `rounds` times as long.
    pub(crate) fn pace(&self, window: Duration, rounds: u32, limits: &Limits) -> PlanEntry {
        let probes = self.probes(limits);
        let interval = window / u32::try_from(probes).unwrap_or(u32::MAX);
        self.entry(probes * rounds as usize, interval, limits)
    }
}

/// A client's plan.
pub(crate) fn plan(client: &Client, entries: Vec<PlanEntry>) -> Plan {
    Plan {
        client: client.name.clone(),
        entries,
    }
}

/// Longer than any run of the plan: then its client hangs.
pub(crate) fn longest(plan: &Plan) -> Duration {
    let entry = |entry: &PlanEntry| {
        let one = entry.limit_ms.max(entry.interval_ms);
        Duration::from_millis(one.saturating_mul(u64::from(entry.count)))
    };
    plan.entries.iter().map(entry).max().unwrap_or_default() + Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(permitted: Permitted) -> Target {
        Target {
            axis: "a".into(),
            name: "t".into(),
            transport: Transport::Tcp,
            address: "10.96.0.1:80".parse().unwrap(),
            permitted,
        }
    }

    fn total(entries: &[PlanEntry]) -> u32 {
        entries.iter().map(|entry| entry.count).sum()
    }

    #[test]
    fn a_burst_has_at_least_the_probes_asked_for() {
        let entries = target(Permitted::Refuse).burst(200, &Limits::default());
        assert_eq!((entries.len(), total(&entries)), (20, 200));
        assert!(total(&target(Permitted::Refuse).burst(205, &Limits::default())) >= 205);
    }

    #[test]
    fn a_round_shows_the_set_and_waits_once_for_silence() {
        let limits = Limits::default();
        let two = Permitted::Serves(["a/TCP/1".to_owned(), "b/TCP/1".to_owned()].into());
        assert!(total(&target(two).round(&limits)) >= 28);
        assert!(
            target(Permitted::None)
                .round(&limits)
                .iter()
                .all(|entry| entry.count == 1)
        );
    }

    #[test]
    fn a_pace_yields_n_within_the_window() {
        let limits = Limits::default();
        let entry = target(Permitted::Refuse).pace(limits.hold, 4, &limits);
        assert_eq!((entry.interval_ms, entry.count), (150, 800));
    }
}
