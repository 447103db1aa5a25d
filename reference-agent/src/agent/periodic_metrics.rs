//! Metrics that are read at intervals: sizes of maps, and the programs' counters.

use std::time::{Duration, Instant};

use lb_abi::Counter;

use crate::{
    control::{Control, DesiredState, Statistics},
    datapath::Datapath,
    hooks::Hooks,
    maps::LbMaps,
    metrics::Metrics,
};

/// Time between two surveys; each walks over every service port.
const EVERY: Duration = Duration::from_secs(5);

/// Shortest time between two warnings about ports.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The surveys so far.
#[derive(Debug, Default)]
pub(super) struct Survey {
    last: Option<Instant>,
    ports: Ports,
}

/// Warns when SNAT ports run out.
#[derive(Debug, Default)]
struct Ports {
    /// The counts at the first survey, or at the last warning. Maps outlive agents, so that they do not begin at 0.
    before: Option<Shortage>,
    warned: Option<Instant>,
}

/// Connections for which SNAT ports were short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortage {
    /// They got the port of a closed connection before its timeout.
    reused: u64,
    /// They got no port.
    refused: u64,
}

impl Ports {
    /// Counts since the last warning, if another warning is due.
    fn warning(&mut self, counted: Shortage, now: Instant) -> Option<Shortage> {
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
    /// Updates the metrics, if a survey is due.
    pub(super) fn update<B: DesiredState, D: Datapath>(
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
                    let sum = counts.get(counter);
                    let shown = metrics.decisions.at([counter.name()]);
                    shown.inc_by(sum.saturating_sub(shown.get()));
                }
                let counted = Shortage {
                    reused: counts.get(Counter::SnatReused),
                    refused: counts.get(Counter::DroppedPortsExhausted),
                };
                if let Some(Shortage { reused, refused }) = self.ports.warning(counted, now) {
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
    fn warnings_of_a_port_shortage_are_a_minute_apart_and_have_all_counts_since() {
        let start = Instant::now();
        let mut ports = Ports::default();
        let mut warning = |seconds, reused, refused| {
            let now = start + Duration::from_secs(seconds);
            let counted = ports.warning(Shortage { reused, refused }, now);
            counted.map(|Shortage { reused, refused }| (reused, refused))
        };
        assert_eq!(warning(0, 7, 1), None, "an earlier start's");
        assert_eq!(warning(5, 7, 1), None);
        assert_eq!(warning(10, 9, 1), Some((2, 0)));
        assert_eq!(warning(15, 10, 3), None, "too early");
        assert_eq!(warning(70, 10, 4), Some((1, 3)));
        assert_eq!(warning(200, 10, 4), None, "over");
        assert_eq!(warning(205, 10, 5), Some((0, 1)));
    }
}
