//! Established flows: sockets that talk through a case from before its fault to its end.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use oracle::{
    check::Observed,
    flow::{self, wandering},
    history::{Attempt, Outcome},
};

use crate::{
    client::{Client, Run},
    context::Context,
    probing::Within,
    target::{Target, plan},
    verdict::Halt,
    waiting::{eventually, has_lasted},
};

/// Flows are planned for so long at most, unscaled: longer than any case runs that has some.
const LONGEST: Duration = Duration::from_secs(900);

/// Flows that are under way, dealt to clients in turn. Ended by drop.
#[must_use = "flows that nobody ends decide nothing"]
pub struct Flows {
    /// Each with its number of flows to each target.
    clients: Vec<(Client, u32)>,
    targets: Vec<Target>,
    runs: Vec<Run>,
}

impl Context {
    /// Opens so many flows (`each`) to every target, dealt to the clients in turn, at 10 exchanges a second each
    /// ([`crate::limits::Limits::exchange`]), and returns when every one of them has been answered: the control. A target's
    /// transport says what they are: connections, connected or unconnected sockets.
    ///
    /// # Errors
    /// Inconclusive if one of them has not been answered within the limit.
    pub async fn flows(
        &self,
        clients: &[Client],
        targets: &[Target],
        each: u32,
        within: Within,
    ) -> Result<Flows, Halt> {
        let targets = self.open_targets(targets);
        let clients = deal(clients, each);
        let plans: Vec<_> = clients
            .iter()
            .map(|(client, flows)| {
                let entry = |target: &Target| {
                    target.established(*flows, self.limits().longest(LONGEST), self.limits())
                };
                (client, plan(client, targets.iter().map(entry).collect()))
            })
            .collect();
        let starts = plans
            .iter()
            .map(|(client, plan)| Run::start(&*self.cluster, client, plan, self.history.clone()));
        let flows = Flows {
            runs: try_join_all(starts).await?,
            clients,
            targets,
        };
        eventually("control failed (every flow is answered)", within, async || {
            Ok(flows.are_answered().then_some(()))
        })
        .await?;
        Ok(flows)
    }

    /// Lets the flows go on for a window from now, ends them, and judges: none has ended, none has changed its backend,
    /// fewer than 1 % of the exchanges were lost. Returns all exchanges since they began.
    ///
    /// # Errors
    /// If a client ends before, which would be a hole in the window.
    pub async fn hold_flows(&self, flows: Flows, window: Duration) -> Result<Vec<Attempt>, Halt> {
        has_lasted(Instant::now(), window).await;
        let Flows {
            clients,
            targets,
            runs,
        } = flows;
        let attempts = try_join_all(runs.into_iter().map(Run::stop)).await?.concat();
        let logs = self.logs_if_needed(&targets, &attempts).await?;
        let observed = Observed::new(&attempts, &logs, self.limits().times());
        for target in self.open_targets(&targets) {
            let expected = |(client, flows): &(Client, u32)| target.flows(client, *flows, self.limits());
            let findings = clients
                .iter()
                .flat_map(|one| flow::flows(&observed, &expected(one)));
            self.judged(&target.axis, findings.collect());
        }
        self.record(
            "unconnected sockets that met more than one backend",
            wandering(&attempts).to_string(),
        );
        Ok(attempts)
    }
}

impl Flows {
    fn are_answered(&self) -> bool {
        self.clients.iter().zip(&self.runs).all(|((_, flows), run)| {
            let answered = |attempts: &[Attempt], target: &Target| {
                let label = target.label();
                let mut seen: Vec<u32> = attempts
                    .iter()
                    .filter(|one| one.target == label && one.transport == target.transport)
                    .filter(|one| matches!(one.outcome, Outcome::Answered { .. }))
                    .filter_map(|one| Some(one.exchange?.flow))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                seen.len() == *flows as usize
            };
            run.with_attempts(|attempts| self.targets.iter().all(|target| answered(attempts, target)))
        })
    }
}

/// How many flows each client has; those that have none are left out.
fn deal(clients: &[Client], each: u32) -> Vec<(Client, u32)> {
    let count = u32::try_from(clients.len()).unwrap_or(u32::MAX).max(1);
    (0..)
        .zip(clients)
        .map(|(at, client)| (client.clone(), each / count + u32::from(at < each % count)))
        .filter(|(_, flows)| *flows > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use lab::cluster::Place;

    use super::*;

    #[test]
    fn flows_are_dealt_in_turn() {
        let clients: Vec<Client> = ["a", "b", "c", "d"]
            .map(|name| Client {
                name: name.to_owned(),
                node: name.to_owned(),
                place: Place::Outside,
            })
            .to_vec();
        let numbers = |each| -> Vec<u32> { deal(&clients, each).iter().map(|(_, flows)| *flows).collect() };
        assert_eq!(numbers(10), [3, 3, 2, 2]);
        assert_eq!(numbers(2), [1, 1]);
        assert_eq!(deal(&[], 10), []);
    }
}
