//! What every client dials to meet some Services: ClusterIPs and node ports from inside, node ports from outside.
//!
//! Each judgement is that of the function of its name, for all vantages at the same time. Where N probes decide, node
//! ports get the fewest that show a set from inside: each of them is met by every client, and its node's programs by
//! the ClusterIP, too.

use futures::future::{try_join, try_join_all};
use oracle::{
    history::Attempt,
    observations::{line, outcomes},
};

use crate::{
    background::{Background, hold_steadily},
    context::Context,
    destination::Destination,
    frontends::{Vantage, vantages},
    probing,
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};

/// Destinations by the kind of frontend.
#[derive(Clone, Debug, Default)]
pub struct Dialled {
    at_cluster_ips: Vec<Destination>,
    at_nodes: Vec<Destination>,
}

/// Windows of all vantages.
#[must_use = "a window that is not ended decides nothing"]
pub struct Windows([Background; 2]);

impl Dialled {
    /// Destinations at ClusterIPs and at nodes.
    #[must_use]
    pub fn new(at_cluster_ips: Vec<Destination>, at_nodes: Vec<Destination>) -> Self {
        Self {
            at_cluster_ips,
            at_nodes,
        }
    }

    /// All of these together.
    #[must_use]
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.at_cluster_ips.extend(part.at_cluster_ips);
            all.at_nodes.extend(part.at_nodes);
        }
        all
    }

    /// Those at ClusterIPs alone.
    #[must_use]
    pub fn at_cluster_ips(self) -> Self {
        Self::new(self.at_cluster_ips, Vec::new())
    }

    /// [`probing::control`].
    ///
    /// # Errors
    /// The same.
    pub async fn control(&self, cx: &Context, what: &str, within: Within) -> Result<(), Halt> {
        let vantages = self.vantages(cx);
        let each = vantages
            .iter()
            .map(|(clients, targets)| probing::control(cx, what, clients, targets, within));
        try_join_all(each).await?;
        Ok(())
    }

    /// [`write_effect::takes_effect`].
    ///
    /// # Errors
    /// The same.
    pub async fn takes_effect(
        &self,
        cx: &Context,
        effect: Effect,
        what: &str,
        within: Within,
    ) -> Result<(), Halt> {
        let vantages = self.vantages(cx);
        let each = vantages
            .iter()
            .map(|(clients, targets)| write_effect::takes_effect(cx, effect, what, clients, targets, within));
        try_join_all(each).await?;
        Ok(())
    }

    /// [`probing::judge_briefly`].
    ///
    /// # Errors
    /// The same.
    pub async fn judge_briefly(&self, cx: &Context, within: Within) -> Result<(), Halt> {
        let vantages = self.vantages(cx);
        let each = vantages
            .iter()
            .map(|(clients, targets)| probing::judge_briefly(cx, clients, targets, within));
        try_join_all(each).await?;
        Ok(())
    }

    /// [`probing::judge`]. Returns the N probes.
    ///
    /// # Errors
    /// The same.
    pub async fn judge(&self, cx: &Context, within: Within) -> Result<Vec<Attempt>, Halt> {
        self.judge_briefly(cx, within).await?;
        let vantages = self.with_n(cx);
        let each = vantages
            .iter()
            .map(|(clients, targets)| probing::judge(cx, clients, targets, within));
        Ok(try_join_all(each).await?.concat())
    }

    /// [`hold_steadily`], for the hold time. Returns its probes.
    ///
    /// # Errors
    /// The same.
    pub async fn hold(&self, cx: &Context) -> Result<Vec<Attempt>, Halt> {
        let vantages = self.vantages(cx);
        let each = vantages
            .iter()
            .map(|(clients, targets)| hold_steadily(cx, clients, targets, cx.limits().hold));
        Ok(try_join_all(each).await?.concat())
    }

    /// A window of the hold time that begins now: [`Background::start`] at ClusterIPs, [`Background::steadily`] at node
    /// ports from outside.
    ///
    /// # Errors
    /// The same.
    pub async fn window(&self, cx: &Context) -> Result<Windows, Halt> {
        let hold = cx.limits().hold;
        let outside: Vec<_> = cx.clients().outside().into_iter().collect();
        let inside = Background::start(cx, cx.clients(), &self.at_cluster_ips, hold);
        let outside = Background::steadily(cx, &outside, &self.at_nodes, hold);
        let (inside, outside) = try_join(inside, outside).await?;
        Ok(Windows([inside, outside]))
    }

    /// What comes of the fewest probes that show a set, in a line: for what is recorded, and not judged.
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn observed(&self, cx: &Context) -> Result<String, Halt> {
        let mut attempts = Vec::new();
        for (clients, targets) in self.vantages(cx) {
            for client in &clients {
                attempts.extend(probing::probe_briefly(cx, client, &targets).await?);
            }
        }
        Ok(line(&outcomes(&attempts)))
    }

    /// Each client with all that it dials.
    fn vantages(&self, cx: &Context) -> Vec<Vantage> {
        let inside = [&*self.at_cluster_ips, &*self.at_nodes].concat();
        vantages(cx, inside, self.at_nodes.clone())
    }

    /// Each client with the frontends at which N probes decide.
    fn with_n(&self, cx: &Context) -> Vec<Vantage> {
        vantages(cx, self.at_cluster_ips.clone(), self.at_nodes.clone())
    }
}

impl Windows {
    /// [`Background::hold`]. Returns the probes since they began.
    ///
    /// # Errors
    /// The same.
    pub async fn hold(self, cx: &Context) -> Result<Vec<Attempt>, Halt> {
        Ok(try_join_all(self.0.into_iter().map(|one| one.hold(cx)))
            .await?
            .concat())
    }
}

#[cfg(test)]
mod tests {
    use oracle::history::Transport;

    use super::*;

    #[test]
    fn all_has_the_destinations_of_every_part_by_their_kind() {
        let at = |name: &str| Destination::none("a", name, Transport::Tcp, ([10, 0, 0, 1], 80).into());
        let part = |cluster_ip: &str, node: &str| Dialled::new(vec![at(cluster_ip)], vec![at(node)]);
        let all = Dialled::all([part("cip 1", "node 1"), part("cip 2", "node 2")]);
        let names = |of: &[Destination]| of.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&all.at_cluster_ips), ["cip 1", "cip 2"]);
        assert_eq!(names(&all.at_nodes), ["node 1", "node 2"]);
    }
}
