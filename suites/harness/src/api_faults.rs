//! Faults that a process at the other end of a lease keeps in force, in the history of a case that makes them: of the
//! API servers, of nodes that lose their power, of ways with a narrow hop, of agents whose writes to the kernel can fail.

use std::{
    net::IpAddr,
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
pub struct LeasedFault {
    held: FaultLease,
    what: String,
    history: Arc<History>,
}

/// Lets something be wrong with the API servers for at most so long ([`cluster::LONGEST`] bounds it); it is in
/// force when this returns.
pub async fn begin(cx: &Context, fault: &ApiFault, lasts: Duration) -> Result<LeasedFault, Halt> {
    let held = cx.cluster().control_plane()?.begin(fault, lasts).await?;
    Ok(LeasedFault::of(cx, held, fault.to_string()))
}

/// Takes the power of a node for at most so long; when this returns, nothing of it runs, sends or answers.
pub async fn lose_power(cx: &Context, node: &str, lasts: Duration) -> Result<LeasedFault, Halt> {
    let held = cx.cluster().nodes()?.lose_power(node, lasts).await?;
    Ok(LeasedFault::of(cx, held, format!("{node} has no power")))
}

/// Starts the agent of a node once more, so that its writes to the kernel can be made to fail, for at most so long
/// ([`cluster::AgentControl::fail_writes`]). At its end the agent is started without that.
pub async fn watch_writes(cx: &Context, node: &str, lasts: Duration) -> Result<LeasedFault, Halt> {
    let held = cx.cluster().agents()?.watch_writes(node, lasts).await?;
    let what = format!("writes of the agent of {node} can fail");
    Ok(LeasedFault::of(cx, held, what))
}

/// Gives the client outside addresses behind a hop of [`cluster::NARROW`] bytes, for at most so long.
pub async fn narrow_hop(cx: &Context, lasts: Duration) -> Result<(LeasedFault, Vec<IpAddr>), Halt> {
    let (held, addresses) = cx.cluster().outside()?.narrow_hop(lasts).await?;
    let what = format!("the client outside is behind a narrow hop at {addresses:?}");
    Ok((LeasedFault::of(cx, held, what), addresses))
}

impl LeasedFault {
    fn of(cx: &Context, held: FaultLease, what: String) -> Self {
        cx.fault(&what);
        Self {
            held,
            what,
            history: Arc::clone(cx.history()),
        }
    }

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
