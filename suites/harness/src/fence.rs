//! The fence: the proof that a write has been handled.
//!
//! After write W, one Service and one slice of the suite of each family (the signals, `own_services.rs`) are changed and awaited in
//! the datapath of the node under test. Watches are ordered per kind, so W has then been handled too.
//!
//! Cases also put a fence between a new Service and their first dial of it. Conntrack leaves a connection
//! untranslated whose first packet came before the Service's rules, as long as its entry lives (two minutes for a TCP
//! handshake), and a client that comes by the same source port again meets that entry: a kernel hands source ports out
//! often enough for a case to see it. What becomes of a client that dials too early is a claim of its own
//! (`udp-not-ready-yet`).

use std::{net::SocketAddr, time::Duration};

use futures::future::try_join_all;
use oracle::{
    counted::{Counted, What},
    finding::{Finding, Weight},
    history::{Attempt, Outcome, PlanEntry, Transport, Until},
    observations,
};

use crate::{
    client::Client,
    context::Context,
    history::{Event, now_us},
    limits::Limits,
    own_services::Change,
    probing::begin,
    time_spent::Activity,
    verdict::Halt,
    write_effect::{Effect, breaks},
};

/// From one look to the next where clients bear it, and how long each may take: before the change nothing may answer there.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Looks side by side at each address: silent ones do not delay the one that is answered.
const LANES: usize = 4;

/// Looks are half of a second apart at most, [`LOOK_LIMIT`]; where one was later by so much the machine stood still, and no
/// target is judged to be late.
const GAP: Duration = Duration::from_secs(2);
/// The part of the limit that clients take to be started and to end, at most.
const SLACK: f64 = 0.1;

/// Everything written before is handled on every node when this returns.
pub async fn pass(cx: &Context) -> Result<(), Halt> {
    pass_on(cx, &cx.nodes()).await
}

/// Everything written before is handled on these nodes when this returns.
///
/// The signals are Services with a slice like any other. Where nothing has been done to the cluster but writes to its API,
/// and the suite's own watch holds them, a fence that comes later than T_ep, or not at all where one has come before, breaks
/// `service-change-live`.
///
/// # Errors
/// Inconclusive if it is not seen: within T_ep where there was a fault, and otherwise within twice that.
pub async fn pass_on(cx: &Context, nodes: &[String]) -> Result<(), Halt> {
    let _spent = cx.clock().during(Activity::Fence);
    let change = cx.own_services().change_signal(cx.objects()).await?;
    let clients = cx.clients().in_pods();
    let clients = clients.iter().filter(|client| nodes.contains(&client.node));
    try_join_all(clients.map(|client| is_seen_by(cx, client, &change))).await?;
    Ok(())
}

/// Returns when a client has seen a change of the signals.
async fn is_seen_by(cx: &Context, client: &Client, change: &Change<'_>) -> Result<(), Halt> {
    let Change {
        number,
        addresses,
        identity,
        ..
    } = change;
    let limit = cx.limits().endpoints;
    let is_the_targets = !cx.has_faults();
    // So that late and never are told apart.
    let longest = if is_the_targets { limit * 2 } else { limit };
    let lanes = LANES * addresses.len();
    let (interval, look_limit) = look(lanes, cx.limits());
    let looks = longest.as_millis().div_ceil(interval.as_millis());
    let entry = |address: &SocketAddr| PlanEntry {
        target: format!("fence {number}"),
        transport: Transport::Tcp,
        address: address.ip(),
        port: address.port(),
        count: u32::try_from(looks).unwrap_or(u32::MAX),
        interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        limit_ms: u64::try_from(look_limit.as_millis()).unwrap_or(u64::MAX),
        until: Some(Until::Identity(identity.clone())),
        flows: None,
        source_ports: None,
        at_once: None,
        one_way: false,
    };
    let entries = addresses.iter().cycle().take(lanes).map(entry).collect();
    let run = begin(cx, client, entries).await?;
    let attempts = tokio::time::timeout(longest, run.finish(longest + look_limit)).await;
    let mut is_even = false;
    let found = match attempts {
        Ok(attempts) => {
            let attempts = attempts?;
            is_even = are_even(&attempts, GAP.mul_f64(cx.limits().scale.max(1.0)));
            unseen(addresses, identity, &attempts)
        }
        Err(_) => Some("no end of the probes".to_owned()),
    };
    let took = change.written.elapsed();
    // A look that began in time may end later; and starting and ending a client is no matter of the target's.
    let is_late = found.is_some() || took > limit.mul_f64(1.0 + SLACK) + look_limit;
    let was_seen_before = cx.own_services().was_seen_before(&client.node, found.is_none());
    if is_the_targets && is_even && is_late && (was_seen_before || found.is_none()) {
        breaks_in_time(cx, &client.node, change, (limit, took), found.as_deref());
    }
    if let Some(found) = found {
        return Err(Halt::Inconclusive(format!(
            "fence {number} was not seen on {} within {longest:?}: expected {address} served by {identity}, \
             found {found}; what was written before it may not have been handled",
            client.node,
            address = listed(addresses),
        )));
    }
    cx.history().add(&Event::Fence {
        number: u32::from(*number),
        node: client.node.clone(),
        took_ms: u64::try_from(change.began.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    Ok(())
}

fn breaks_in_time(
    cx: &Context,
    node: &str,
    change: &Change<'_>,
    (limit, took): (Duration, Duration),
    found: Option<&str>,
) {
    let now = now_us();
    let counted = Counted {
        what: What::Change {
            node: node.to_owned(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            came: found.is_none(),
        },
        dialled: None,
        outside: 1,
        of: 1,
        endings: Vec::new(),
        first_us: now.saturating_sub(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        last_us: now,
        until_us: now,
    };
    let words = found.map_or_else(
        || format!("that after {:.1} s", took.as_secs_f64()),
        |found| format!("in {:.1} s {found}", took.as_secs_f64()),
    );
    let finding = Finding {
        weight: Weight::Violation,
        subject: format!("fence {} on {node}", change.number),
        expected: format!(
            "{} served by {} within {limit:?} of the write",
            listed(&change.addresses),
            change.identity
        ),
        found: words,
        first: Vec::new(),
        counted: Some(counted),
    };
    let axis = format!("the fence on {node}");
    cx.axes().judged(&axis, Vec::new());
    let what = "a changed port is in force";
    breaks(cx, &axis, Effect::Changed, what, vec![finding]);
}

/// What was found at the addresses where a change was not seen; none if it was at all of them.
fn unseen(addresses: &[SocketAddr], identity: &str, attempts: &[Attempt]) -> Option<String> {
    let at = |address: &SocketAddr| -> Vec<&Attempt> {
        let dialled = attempts.iter().filter(|attempt| attempt.destination == *address);
        dialled.collect()
    };
    let is_it = |attempt: &&Attempt| matches!(&attempt.outcome, Outcome::Answered { answer, .. } if answer.identity == identity);
    let missing: Vec<_> = addresses
        .iter()
        .map(at)
        .filter(|attempts| !attempts.iter().any(is_it))
        .collect();
    (!missing.is_empty()).then(|| observations::line(&observations::outcomes(missing.concat())))
}

fn listed(addresses: &[SocketAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    all.join(" and ")
}

/// Whether looks have followed each other as they should: a machine that did not let them would have kept the target waiting, too.
fn are_even(attempts: &[Attempt], gap: Duration) -> bool {
    let mut starts: Vec<u64> = attempts.iter().map(|attempt| attempt.start_us).collect();
    starts.sort_unstable();
    starts.len() > 1
        && starts
            .windows(2)
            .all(|two| Duration::from_micros(two[1] - two[0]) < gap)
}

/// From one look to the next, and how long each may take. All lanes of a client together keep to its rate, and limits are
/// lengthened as all are: a machine that is emulated answers none of eighty looks in a second within half of one.
fn look(lanes: usize, limits: &Limits) -> (Duration, Duration) {
    let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
    let kept = Duration::from_secs(1) * lanes / limits.rate.max(1);
    (LOOK.max(kept), LOOK_LIMIT.mul_f64(limits.scale.max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_a_machine_delayed_do_not_make_a_target_late() {
        let at = |start_us| Attempt {
            start_us,
            end_us: start_us + 1,
            client: String::new(),
            target: String::new(),
            transport: Transport::Tcp,
            destination: "10.0.0.1:80".parse().unwrap(),
            local: None,
            nonce: String::new(),
            exchange: None,
            fragments: None,
            outcome: Outcome::Timeout {
                stage: oracle::history::Stage::Connect,
            },
        };
        let looks = |starts: &[u64]| starts.iter().map(|start| at(start * 1_000)).collect::<Vec<_>>();
        assert!(are_even(&looks(&[0, 700, 100, 1_200]), GAP));
        assert!(!are_even(&looks(&[0, 100, 2_300]), GAP));
        assert!(!are_even(&looks(&[0]), GAP));
    }

    #[test]
    fn a_change_is_seen_when_it_is_at_the_address_of_each_family() {
        let addresses: [SocketAddr; 2] =
            ["10.96.0.9:20001", "[fd00:96::9]:20001"].map(|text| text.parse().unwrap());
        let answered = |destination: SocketAddr, identity: &str| Attempt {
            start_us: 0,
            end_us: 1,
            client: String::new(),
            target: String::new(),
            transport: Transport::Tcp,
            destination,
            local: None,
            nonce: String::new(),
            exchange: None,
            fragments: None,
            outcome: Outcome::Answered {
                answer: oracle::history::Answer {
                    identity: identity.to_owned(),
                    source: destination,
                    destination,
                    nonce: String::new(),
                    pod: None,
                },
                peer: destination,
            },
        };
        let [v4, v6] = addresses;
        assert_eq!(
            unseen(&addresses, "new", &[answered(v4, "new"), answered(v6, "new")]),
            None
        );
        let found = unseen(&addresses, "new", &[answered(v4, "new"), answered(v6, "old")]).unwrap();
        assert!(found.contains("old"), "{found}");
        assert!(unseen(&addresses, "new", &[answered(v4, "new")]).is_some());
    }

    #[test]
    fn looks_keep_to_what_clients_and_machines_bear() {
        let of = |rate, scale| look(LANES, &Limits::default().with_rate(rate).scaled(scale));
        assert_eq!(of(400, 1.0), (LOOK, LOOK_LIMIT));
        assert_eq!(of(20, 10.0), (Duration::from_millis(200), Duration::from_secs(5)));
        let lanes = Duration::from_secs(1).div_duration_f64(of(20, 1.0).0) * LANES as f64;
        assert!(lanes <= 20.0, "all lanes together: {lanes} in a second");
    }
}
