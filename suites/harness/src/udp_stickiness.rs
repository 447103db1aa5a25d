//! Sockets of UDP that are not connected: has each of them one backend, and do many of them have several?

use oracle::{
    history::Attempt,
    stickiness::{spreads, sticks},
};

use crate::{
    client::Client,
    context::Context,
    destination::Destination,
    probing::{open_targets, probe_briefly},
    verdict::Halt,
};

/// Verdict: so many fresh sockets of each client (`sockets`, no more than the fewest probes that show its set) reach
/// `fewest` so many of each target's backends.
///
/// # Errors
/// If a client ends before.
pub async fn judge_spread(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    sockets: usize,
    fewest: usize,
) -> Result<(), Halt> {
    let targets = open_targets(cx, targets);
    for client in clients {
        let attempts = probe_briefly(cx, client, &targets).await?;
        for target in &targets {
            let finding = spreads(&attempts, &target.stream(client), sockets, fewest);
            cx.axes().judged(&target.axis, finding.into_iter().collect());
        }
    }
    Ok(())
}

/// Verdict: of these exchanges, each of so many sockets (`sockets`) of every client was answered by one backend of a target;
/// decided by `datagrams` so many answers of each.
pub fn judge_sticking(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    attempts: &[Attempt],
    sockets: u32,
    datagrams: u32,
) {
    for target in targets {
        let of = |client| {
            sticks(
                attempts,
                &target.stream(client),
                sockets as usize,
                datagrams as usize,
            )
        };
        cx.axes()
            .judged(&target.axis, clients.iter().flat_map(of).collect());
    }
}
