//! Dials of an API server by somebody else than the agent, who is none of its clients: whether they are taken is all that
//! they say.

use std::sync::atomic::{AtomicBool, Ordering};

use cluster::Place;
use harness::{client::Client, context::Context, probing, verdict::Halt};
use oracle::{
    finding::{Finding, SHOWN, Weight},
    history::{Attempt, Outcome, PlanEntry, Stage, Transport},
    record::{line, outcomes},
};

use super::Way;

/// From one dial to the next: the row says so.
const INTERVAL_MS: u64 = 100;
/// Dials of one run of the client; runs follow each other.
const DIALS: u32 = 10;

/// Dials the way from the host of a node, every 100 ms as long as some steps take, and judges that all of them were taken.
/// What is said afterwards is nothing that an API server answers.
pub(in crate::b_apiserver) async fn all_taken(
    cx: &Context,
    axis: &str,
    node: &str,
    way: &Way,
    steps: impl Future<Output = Result<(), Halt>>,
) -> Result<(), Halt> {
    let is_host = |client: &&Client| matches!(client.place, Place::Host { .. });
    let clients = cx.clients().on(node);
    let client = clients.iter().find(is_host);
    let client = client.ok_or_else(|| Halt::Inconclusive(format!("no client runs on the host of {node}")))?;
    let entry = PlanEntry {
        target: format!("[{axis}] dials of {}", way.address),
        transport: Transport::Tcp,
        address: way.address.ip(),
        port: way.address.port(),
        count: DIALS,
        interval_ms: INTERVAL_MS,
        limit_ms: u64::try_from(cx.limits().probe.as_millis()).unwrap_or(u64::MAX),
        until: None,
        flows: None,
        source_ports: None,
        at_once: None,
    };
    let over = AtomicBool::new(false);
    let dials = async {
        let mut all = Vec::new();
        while !over.load(Ordering::Relaxed) {
            all.extend(probing::run(cx, client, vec![entry.clone()]).await?);
        }
        Ok(all)
    };
    let steps = async {
        let done = steps.await;
        over.store(true, Ordering::Relaxed);
        done
    };
    let ((), attempts) = futures::try_join!(steps, dials)?;
    cx.record(
        &format!("{axis}: dials from the host"),
        attempts.len().to_string(),
    );
    let failed: Vec<Attempt> = attempts
        .into_iter()
        .filter(|attempt| !is_taken(attempt))
        .collect();
    let finding = (!failed.is_empty()).then(|| Finding {
        weight: Weight::Violation,
        subject: format!("dials of {} by {}", way.address, client.name),
        expected: "every connection taken".to_owned(),
        found: line(&outcomes(&failed)),
        first: failed.iter().take(SHOWN).cloned().collect(),
    });
    cx.axes().judged(axis, finding.into_iter().collect());
    Ok(())
}

/// Whether a connection came about, whatever became of it.
fn is_taken(attempt: &Attempt) -> bool {
    match &attempt.outcome {
        Outcome::Answered { .. } | Outcome::Garbled { .. } => true,
        Outcome::Failed { stage, .. } | Outcome::Timeout { stage } => {
            matches!(stage, Stage::Send | Stage::Receive)
        }
    }
}
