//! Health check node ports, as a client of HTTP sees them (KEP-1669).

use std::time::Instant;

use cluster::Family;
use oracle::{
    check::Observed,
    finding::Finding,
    health::{Health, health, status},
    history::{Attempt, Transport},
    observations,
};
use serde_json::Value;

use crate::{
    client::Client,
    context::Context,
    destination::{Destination, round},
    frontends::node_addresses,
    probing,
    time_spent::Activity,
    verdict::Halt,
    waiting::{Looks, Within},
};

/// The health check node port of a Service on one node.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The node.
    pub node: String,
    dialled: Destination,
}

/// The health check node port of a Service on each node.
///
/// # Errors
/// The harness's if its object has none.
pub fn at_nodes(cx: &Context, axis: &str, service: &Value, family: Family) -> Result<Vec<HealthCheck>, Halt> {
    let port = service["spec"]["healthCheckNodePort"].as_u64();
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0);
    let port = port.ok_or_else(|| {
        let name = &service["metadata"]["name"];
        Halt::Harness(format!("Service {name} has no health check node port"))
    })?;
    let nodes = node_addresses(cx, family).into_iter();
    let each = |(node, address)| HealthCheck {
        dialled: Destination::none(
            axis,
            &format!("health check {node}"),
            Transport::Http,
            (address, port).into(),
        ),
        node,
    };
    Ok(nodes.map(each).collect())
}

/// Verdict: within the limit each health check comes to show what it must, in a whole round.
pub async fn judge(
    cx: &Context,
    client: &Client,
    checks: &[(HealthCheck, Health)],
    within: Within,
) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Judging);
    let mut looks = Looks::within(within);
    loop {
        let began = Instant::now();
        let (found, attempts) = look(cx, client, checks).await?;
        if found.iter().all(|(_, findings)| findings.is_empty()) {
            let took = began.saturating_duration_since(within.since);
            found
                .iter()
                .for_each(|(axis, _)| cx.record_delay(axis, took, within.limit));
            judged(cx, found);
            // Its body is an implementation's own; other answers are in the history.
            let is_ok = |attempt: &&Attempt| status(&attempt.outcome) == Some(200);
            if attempts.iter().any(|attempt| is_ok(&attempt)) {
                let said = observations::line(&observations::outcomes(attempts.iter().filter(is_ok)));
                cx.record("health checks that were answered with 200", said);
            }
            return Ok(());
        }
        if !looks.again().await {
            judged(cx, found);
            return Ok(());
        }
    }
}

/// Verdict: for the hold time, each health check shows what it must in every round.
pub async fn hold(cx: &Context, client: &Client, checks: &[(HealthCheck, Health)]) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Hold);
    let mut looks = Looks::throughout(cx.limits().hold);
    loop {
        judged(cx, look(cx, client, checks).await?.0);
        if !looks.again().await {
            return Ok(());
        }
    }
}

/// What is not as expected, by axis.
type Found = Vec<(String, Vec<Finding>)>;

fn judged(cx: &Context, found: Found) {
    for (axis, findings) in found {
        cx.axes().judged(&axis, findings);
    }
}

/// One round: what is not as expected, by axis, and its attempts.
async fn look(
    cx: &Context,
    client: &Client,
    checks: &[(HealthCheck, Health)],
) -> Result<(Found, Vec<Attempt>), Halt> {
    let open: Vec<&(HealthCheck, Health)> = checks
        .iter()
        .filter(|(check, _)| cx.axes().is_open(&check.dialled.axis))
        .collect();
    let dialled: Vec<Destination> = open.iter().map(|(check, _)| check.dialled.clone()).collect();
    let entries = round(&dialled, Destination::fewest, cx.limits());
    let attempts: Vec<Attempt> = probing::run(cx, client, entries).await?;
    let found = {
        let observed = Observed::new(&attempts, &[], cx.limits().times());
        let each = |(check, expected): &&(HealthCheck, Health)| {
            let HealthCheck { dialled, .. } = check;
            let findings = health(&observed, &dialled.stream(client), *expected, dialled.fewest());
            (dialled.axis.clone(), findings)
        };
        open.iter().map(each).collect()
    };
    Ok((found, attempts))
}
