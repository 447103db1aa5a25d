//! Dials of the API endpoint by a host process, which is no client of the API: they show only whether connections are
//! accepted.

use std::sync::atomic::{AtomicBool, Ordering};

use cluster::Place;
use harness::{client::Client, context::Context, probing, verdict::Halt};
use oracle::{
    finding::{Finding, SHOWN, Weight},
    history::{Attempt, Outcome, PlanEntry, Stage, Transport},
    observations::{line, outcomes},
};

use super::ApiService;

/// Interval of dials, as the claim names it.
const INTERVAL_MS: u64 = 100;
/// Dials of one run of the client; runs follow each other.
const DIALS: u32 = 10;

/// Dials the Service from the host of a node, every 100 ms while some steps run, and judges that all dials were
/// accepted. An API server does not answer what the client sends then.
pub(in crate::b_apiserver) async fn all_accepted(
    cx: &Context,
    axis: &str,
    node: &str,
    service: &ApiService,
    steps: impl Future<Output = Result<(), Halt>>,
) -> Result<(), Halt> {
    let is_host = |client: &&Client| matches!(client.place, Place::Host { .. });
    let clients = cx.clients().on(node);
    let client = clients.iter().find(is_host);
    let client = client.ok_or_else(|| Halt::Inconclusive(format!("no client runs on the host of {node}")))?;
    let entry = PlanEntry {
        target: format!("[{axis}] dials of {}", service.address),
        transport: Transport::Tcp,
        address: service.address.ip(),
        port: service.address.port(),
        count: DIALS,
        interval_ms: INTERVAL_MS,
        limit_ms: u64::try_from(cx.limits().probe.as_millis()).unwrap_or(u64::MAX),
        until: None,
        flows: None,
        source_ports: None,
        at_once: None,
        one_way: false,
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
        .filter(|attempt| !is_accepted(attempt))
        .collect();
    let finding = (!failed.is_empty()).then(|| Finding {
        weight: Weight::Violation,
        subject: format!("dials of {} by {}", service.address, client.name),
        expected: "every connection accepted".to_owned(),
        found: line(&outcomes(&failed)),
        first: failed.iter().take(SHOWN).cloned().collect(),
        counted: None,
    });
    cx.axes().judged(axis, finding.into_iter().collect());
    Ok(())
}

/// Whether the connection was established, however it ended.
fn is_accepted(attempt: &Attempt) -> bool {
    match &attempt.outcome {
        Outcome::Answered { .. } | Outcome::Garbled { .. } => true,
        Outcome::Failed { stage, .. } | Outcome::Timeout { stage } => {
            matches!(stage, Stage::Send | Stage::Receive)
        }
    }
}
