//! Cold starts: an agent whose programs and state were removed, until it serves all Services again.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use cluster::{Place, Stop};
use harness::{history::now_us, verdict::Halt};

use super::{
    BenchError, SAMPLED, Start,
    site::{FILLED, Site},
};

impl Site {
    /// Stops the agent of the first node, removes what it left, and starts it again, while a client of that node asks for a sample of
    /// the Services.
    pub(super) async fn cold_start(&self, services: usize, round: usize) -> Result<Start, BenchError> {
        let took = self.try_start().await.map_err(|error| self.halt(error))?;
        Ok(Start {
            target: self.name.clone(),
            services,
            round,
            took,
        })
    }

    async fn try_start(&self) -> Result<Duration, Halt> {
        let node = self.servers[0].node.clone();
        let agents = self.cx.cluster().agents()?;
        agents.stop(&node, Stop::Term).await?;
        agents.clean_up(&node).await?;
        let at = |address: IpAddr| SocketAddr::new(address, FILLED);
        let asked: Vec<SocketAddr> = sample(&self.fillers, SAMPLED).into_iter().map(at).collect();
        let place = Place::Host { node: node.clone() };
        // Changes have moved some of them.
        let watching = self.until(&place, &asked, &self.servers).await?;
        let told_us = now_us();
        agents.start(&node, None).await?;
        let seen = watching.seen().await?;
        Ok(Duration::from_micros(seen.began_us.saturating_sub(told_us)))
    }
}

/// At most so many of them, evenly spread, the first and the last among them.
fn sample<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    let last = all.len().saturating_sub(1);
    let gaps = count.saturating_sub(1).max(1);
    (0..count)
        .filter_map(|at| all.get(at * last / gaps).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_first_and_the_last() {
        let all: Vec<usize> = (0..10_000).collect();
        let found = sample(&all, SAMPLED);
        assert_eq!((found.len(), found[0], found[SAMPLED - 1]), (SAMPLED, 0, 9_999));
        assert!(found.is_sorted_by(|one, next| (39..=40).contains(&(next - one))));
        assert_eq!(sample(&all[..3], SAMPLED), [0, 1, 2]);
        assert_eq!(sample(&all[..1], SAMPLED), [0]);
        assert!(sample(&all[..0], SAMPLED).is_empty());
    }
}
