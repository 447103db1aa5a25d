//! Faults of the API servers, in the history of a case that makes them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{ApiFault, FaultLease};

use crate::{
    context::Context,
    history::{Event, History},
    verdict::Halt,
};

/// A fault that is in force. Dropped, it ends soon after, and at the latest when its time is over.
#[must_use = "the fault ends when this is dropped"]
pub struct ApiFaultGuard {
    held: FaultLease,
    what: String,
    history: Arc<History>,
}

/// Lets something be wrong with the API servers for at most so long ([`cluster::LONGEST`] bounds it); it is in
/// force when this returns.
pub async fn begin(cx: &Context, fault: &ApiFault, lasts: Duration) -> Result<ApiFaultGuard, Halt> {
    let held = cx.cluster().control_plane()?.begin(fault, lasts).await?;
    let what = fault.to_string();
    cx.fault(&what);
    Ok(ApiFaultGuard {
        held,
        what,
        history: Arc::clone(cx.history()),
    })
}

impl ApiFaultGuard {
    /// Ends it. Returns when it was over.
    ///
    /// # Errors
    /// Inconclusive if its time was over before.
    pub async fn heal(self) -> Result<Instant, Halt> {
        self.held.end().await?;
        let what = format!("over: {}", self.what);
        self.history.add(&Event::Fault { what });
        Ok(Instant::now())
    }
}
