//! Turns of rounds of probes at the full rate of clients, where one machine is the clusters of many cases.
//!
//! Several rounds of thousands of probes at once use up a machine's processors. Then answers come late, more are asked for
//! meanwhile, and what was not answered in time decides nothing: of sixteen cases at once on two processors, three had to be tried
//! again. So of the rounds that are more than a second's work of a client, no more go on at once than a machine bears, over all
//! runs on it; others wait, and none that has a limit waits beyond it: what comes too late must show.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    thread::available_parallelism,
    time::{Duration, Instant},
};

use oracle::history::PlanEntry;
use tokio::time::sleep;

use crate::limits::Limits;

/// From one look for a turn to the next.
const LOOK: Duration = Duration::from_millis(100);
/// Rounds without a limit wait so long at most: longer than a turn takes. They begin without one then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The turns of a machine.
#[derive(Clone, Debug)]
pub struct Turns {
    name: String,
    count: usize,
}

/// A turn, until it is dropped or its process ends.
#[derive(Debug)]
pub(crate) struct Turn {
    /// A name that only one may have; the kernel lets go of it with its holder, however that ends.
    _name: UnixDatagram,
}

impl Turns {
    /// Those of this machine: one for each processor, and one more. Four clients at their rate use a third of a processor, and
    /// what else cases do meanwhile (windows, pods, agents that start) uses as much again.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self {
            name: "plumbline-turn".to_owned(),
            count: available_parallelism().map_or(1, usize::from) + 1,
        }
    }

    /// Waits for one, so long at most, if such a round of all its clients is one that needs it.
    pub(crate) async fn take(
        &self,
        round: &[Vec<PlanEntry>],
        limits: &Limits,
        patience: Duration,
    ) -> Option<Turn> {
        let probes: u64 = round.iter().flatten().map(|entry| u64::from(entry.count)).sum();
        if probes <= u64::from(limits.rate) {
            return None;
        }
        let began = Instant::now();
        loop {
            if let Some(turn) = (0..self.count).find_map(|number| self.number(number)) {
                return Some(turn);
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return None;
            }
            sleep(LOOK.min(left)).await;
        }
    }

    fn number(&self, number: usize) -> Option<Turn> {
        let name = SocketAddr::from_abstract_name(format!("{}-{number}", self.name)).ok()?;
        let socket = UnixDatagram::bind_addr(&name).ok()?;
        Some(Turn { _name: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use oracle::history::Transport;
    use tokio::time::timeout;

    use super::*;

    fn entries(count: u32) -> Vec<PlanEntry> {
        vec![PlanEntry {
            target: "t".into(),
            transport: Transport::Tcp,
            address: Ipv4Addr::LOCALHOST.into(),
            port: 80,
            count,
            interval_ms: 1,
            limit_ms: 1,
            until: None,
            flows: None,
            source_ports: None,
            at_once: None,
            one_way: false,
        }]
    }

    #[tokio::test]
    async fn what_is_more_than_a_seconds_work_of_a_client_waits_for_a_turn() {
        let limits = Limits::default();
        let turns = Turns {
            name: format!("plumbline-test-{}", std::process::id()),
            count: 1,
        };
        let heavy = [entries(limits.rate / 2), entries(limits.rate / 2 + 1)];
        let held = turns.take(&heavy, &limits, PATIENCE).await;
        assert!(held.is_some());
        let light = [entries(limits.rate)];
        assert!(
            turns.take(&light, &limits, PATIENCE).await.is_none(),
            "it needs none"
        );
        let other = turns.clone();
        assert!(
            timeout(LOOK * 3, other.take(&heavy, &limits, PATIENCE))
                .await
                .is_err(),
            "it waits"
        );
        assert!(
            other.take(&heavy, &limits, LOOK * 2).await.is_none(),
            "and begins without one"
        );
        drop(held);
        assert!(other.take(&heavy, &limits, Duration::ZERO).await.is_some());
    }
}
