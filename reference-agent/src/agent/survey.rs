//! How much there is, as metrics: looked at from time to time.

use std::time::{Duration, Instant};

use lb_abi::Counter;

use crate::{
    control::{Control, DesiredState, Statistics},
    datapath::Datapath,
    hooks::Hooks,
    maps::LbMaps,
    metrics::Metrics,
};

/// From one survey to the next; each walks over every service port.
const EVERY: Duration = Duration::from_secs(5);

/// Warnings about ports are at least so far apart.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// When the last survey was.
#[derive(Debug, Default)]
pub(super) struct Survey {
    last: Option<Instant>,
    ports: Ports,
}

/// Whether ports for packets to remote backends run out.
#[derive(Debug, Default)]
struct Ports {
    /// What was counted when this was looked at first, or when a warning was given last: maps outlive agents.
    before: Option<Shortage>,
    warned: Option<Instant>,
}

/// What the programs count when ports run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortage {
    /// Connections that got the port of a closed one before its time.
    reused: u64,
    /// Connections that got none.
    refused: u64,
}

impl Ports {
    /// What has been counted since the last warning, if there is to be another one.
    fn look(&mut self, counted: Shortage, now: Instant) -> Option<Shortage> {
        let before = *self.before.get_or_insert(counted);
        let recent = self
            .warned
            .is_some_and(|warned| now.duration_since(warned) < WARN_EVERY);
        if counted == before || recent {
            return None;
        }
        (self.before, self.warned) = (Some(counted), Some(now));
        Some(Shortage {
            reused: counted.reused.saturating_sub(before.reused),
            refused: counted.refused.saturating_sub(before.refused),
        })
    }
}

impl Survey {
    /// Looks, if it is time.
    pub(super) fn look<B: DesiredState, D: Datapath>(
        &mut self,
        control: &Control<B, D::Maps>,
        hooks: &Hooks<D>,
        metrics: &Metrics,
        now: Instant,
    ) {
        if self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            return;
        }
        self.last = Some(now);
        statistics(control, metrics);
        match hooks.datapath().counts() {
            Ok(Some(counts)) => {
                for counter in Counter::ALL {
                    // The kernel's sums stand for themselves.
                    let sum = counts.get(counter);
                    let shown = metrics.decisions.at([counter.name()]);
                    shown.inc_by(sum.saturating_sub(shown.get()));
                }
                let counted = Shortage {
                    reused: counts.get(Counter::SnatReused),
                    refused: counts.get(Counter::DroppedPortsExhausted),
                };
                if let Some(Shortage { reused, refused }) = self.ports.look(counted, now) {
                    tracing::warn!(
                        reused,
                        refused,
                        "ports for connections from outside to backends on other nodes run out: widen --snat-ports, narrow \
                         net.ipv4.ip_local_port_range, whose ports are taken last, or give the Services more backends"
                    );
                }
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the counters can't be read"),
        }
    }
}

fn statistics<B: DesiredState, M: LbMaps>(control: &Control<B, M>, metrics: &Metrics) {
    let Statistics {
        services,
        frontends,
        backends,
        slots,
        maps,
    } = control.statistics();
    for (what, count) in [
        ("services", services),
        ("frontends", frontends),
        ("backends", backends),
        ("slots", slots),
    ] {
        metrics.serving.at([what]).set(number(count));
    }
    for pressure in maps {
        metrics
            .map_entries
            .at([pressure.map])
            .set(number(pressure.entries));
        metrics
            .map_capacity
            .at([pressure.map])
            .set(pressure.capacity.into());
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_ports_is_told_at_most_once_a_minute_and_with_all_that_was_counted_since() {
        let start = Instant::now();
        let mut ports = Ports::default();
        let mut look = |seconds, reused, refused| {
            let now = start + Duration::from_secs(seconds);
            let told = ports.look(Shortage { reused, refused }, now);
            told.map(|Shortage { reused, refused }| (reused, refused))
        };
        assert_eq!(look(0, 7, 1), None, "an earlier start's");
        assert_eq!(look(5, 7, 1), None);
        assert_eq!(look(10, 9, 1), Some((2, 0)));
        assert_eq!(look(15, 10, 3), None, "too early");
        assert_eq!(look(70, 10, 4), Some((1, 3)));
        assert_eq!(look(200, 10, 4), None, "over");
        assert_eq!(look(205, 10, 5), Some((0, 1)));
    }
}
