//! What a watch or a list may see of the store.

use tokio::time::Instant;

use super::{Client, Fault, Faults};
use crate::store::Horizon;

/// Effects of the active faults on an open watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchFaults {
    /// When it breaks.
    pub(crate) cut: Option<Instant>,
    /// It ends with 410.
    pub(crate) expire: bool,
    /// Its events are lost.
    pub(crate) lose: bool,
    pub(crate) horizon: Horizon,
}

impl Faults {
    /// The current effects on a client's watch that was opened at a moment.
    pub(crate) fn watch(&self, client: &Client, opened: Instant) -> WatchFaults {
        let mut met = WatchFaults {
            cut: None,
            expire: false,
            lose: false,
            horizon: Horizon::Now,
        };
        for active in self.active_for(client) {
            match active.fault {
                Fault::CutWatches { after } => {
                    let cut = opened.max(active.since) + after;
                    met.cut = Some(met.cut.map_or(cut, |other| other.min(cut)));
                }
                Fault::Expire => met.expire = true,
                Fault::DropEvents => met.lose = true,
                // A lagging cache hides more than any delay.
                Fault::Lag if !matches!(met.horizon, Horizon::Until(_)) => {
                    met.horizon = Horizon::Until(active.since);
                }
                Fault::DelayEvents { by } => {
                    met.horizon = match met.horizon {
                        Horizon::Now => Horizon::Late(by),
                        Horizon::Late(other) => Horizon::Late(other.max(by)),
                        stands @ Horizon::Until(_) => stands,
                    };
                }
                Fault::Lag
                | Fault::Refuse { .. }
                | Fault::SlowBodies { .. }
                | Fault::TruncateBodies { .. } => {}
            }
        }
        met
    }

    /// How much of the history a client's cache shows.
    pub(crate) fn cache(&self, client: &Client) -> Horizon {
        let met = self.active_for(client).into_iter();
        let mut still = met.filter(|active| active.fault == Fault::Lag);
        still
            .next()
            .map_or(Horizon::Now, |active| Horizon::Until(active.since))
    }

    /// Whether a client's versions are expired.
    pub(crate) fn expires(&self, client: &Client) -> bool {
        self.active_for(client)
            .iter()
            .any(|active| active.fault == Fault::Expire)
    }
}
