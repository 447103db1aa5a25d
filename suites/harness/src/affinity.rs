//! Session affinity: is each client bound to one backend of a Service, and is it released after the timeout?
//!
//! What a client is for an implementation (its address, its network namespace), and whether transports and frontends
//! share a binding, is no claim: each client, target and transport is looked at by itself.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use oracle::{
    check::Stream,
    history::Attempt,
    stickiness::{is_bound, is_released},
};

use crate::{
    context::Context,
    destination::permitted_at,
    probing::probe_briefly,
    vantages::Vantages,
    verdict::Halt,
    write_effect::{Effect, breaks},
};

/// Verdict: these attempts of each client to each target, at least so many answered (`at_least`), were answered by one
/// backend.
pub fn judge_bound(cx: &Context, vantages: &Vantages, attempts: &[Attempt], at_least: usize) {
    for (clients, targets) in vantages.groups() {
        for target in targets {
            let of = |client| is_bound(attempts, &target.stream(client), at_least);
            let findings = clients.iter().filter_map(of).collect();
            cx.axes().judged(&target.axis, findings);
        }
    }
}

/// A burst of every client to each target: the fewest probes that show its set, but datagrams that go on with a flow of
/// an earlier one. A client that meets several backends in it breaks the claim that it is bound to one.
pub async fn burst(cx: &Context, vantages: &Vantages) -> Result<Vec<Attempt>, Halt> {
    let of_each = vantages.groups().iter().flat_map(|(clients, targets)| {
        clients.iter().map(move |client| async move {
            let attempts = probe_briefly(cx, client, targets).await?;
            let (attempts, _) = cx
                .known_flows()
                .without_repeated(&permitted_at(targets), attempts);
            Ok::<_, Halt>((client, targets, attempts))
        })
    });
    let mut all = Vec::new();
    for (client, targets, attempts) in try_join_all(of_each).await? {
        for target in targets {
            let unbound = is_bound(&attempts, &target.stream(client), 0);
            if let Some(finding) = unbound {
                let what = "a client meets one backend in a burst of connections";
                breaks(cx, &target.axis, Effect::Bound, what, vec![finding]);
            }
        }
        cx.known_flows().add(&attempts);
        all.extend(attempts);
    }
    Ok(all)
}

/// Verdict: of bursts between which clients were silent, each client meets another backend than before in at least one,
/// over all its targets of a transport; so many pauses decide.
pub fn judge_released(cx: &Context, axis: &str, vantages: &Vantages, rounds: &[Vec<Attempt>], pauses: usize) {
    for (clients, targets) in vantages.groups() {
        for client in clients {
            let mut by_transport: BTreeMap<_, Vec<Stream>> = BTreeMap::new();
            for target in targets.iter().filter(|target| target.axis == axis) {
                let streams = by_transport.entry(target.transport).or_default();
                streams.push(target.stream(client));
            }
            let of = |streams: &Vec<Stream>| is_released(rounds, streams, pauses);
            cx.axes()
                .judged(axis, by_transport.values().filter_map(of).collect());
        }
    }
}
