//! How much there is, as metrics: looked at from time to time.

use std::time::{Duration, Instant};

use lb_abi::Counter;

use crate::{
    control::{Brain, Control, Statistics},
    datapath::Datapath,
    hooks::Hooks,
    maps::LbMaps,
    metrics::Metrics,
};

/// From one survey to the next; each walks over every service port.
const EVERY: Duration = Duration::from_secs(5);

/// When the last survey was.
#[derive(Debug, Default)]
pub(super) struct Survey {
    last: Option<Instant>,
}

impl Survey {
    /// Looks, if it is time.
    pub(super) fn look<B: Brain, D: Datapath>(
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
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the counters can't be read"),
        }
    }
}

fn statistics<B: Brain, M: LbMaps>(control: &Control<B, M>, metrics: &Metrics) {
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
