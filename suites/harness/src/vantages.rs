//! Clients that dial different targets at the same time: inside and outside, and where policies make nodes differ.

use std::time::Duration;

use futures::future::try_join_all;
use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Transport},
};

use crate::{
    background::Background,
    context::Context,
    flows::Flows,
    frontends::{Vantage, permitting},
    probing::{self, open_targets},
    verdict::Halt,
    waiting::{Looks, Within},
    write_effect::{self, Effect},
};

/// Groups of clients, each with its targets.
#[derive(Clone, Debug, Default)]
pub struct Vantages(Vec<Vantage>);

/// Windows of all groups. Ended by drop.
#[must_use = "windows that are not ended decide nothing"]
pub struct Windows(Vec<Background>);

impl FromIterator<Vantage> for Vantages {
    /// The targets of the same clients are dialled together.
    fn from_iter<I: IntoIterator<Item = Vantage>>(vantages: I) -> Self {
        let mut groups: Vec<Vantage> = Vec::new();
        for (clients, targets) in vantages {
            match groups.iter_mut().find(|(known, _)| *known == clients) {
                Some((_, all)) => all.extend(targets),
                None => groups.push((clients, targets)),
            }
        }
        Self(groups)
    }
}

impl Vantages {
    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Vantage] {
        &self.0
    }

    /// Only the targets of one transport.
    #[must_use]
    pub fn only(mut self, transport: Transport) -> Self {
        for (_, targets) in &mut self.0 {
            targets.retain(|target| target.transport == transport);
        }
        self.0.retain(|(_, targets)| !targets.is_empty());
        self
    }

    /// The same targets, of which this is permitted.
    #[must_use]
    pub fn permitting(mut self, permitted: &Permitted) -> Self {
        for (_, targets) in &mut self.0 {
            *targets = permitting(targets, permitted);
        }
        self
    }

    /// As [`probing::control`].
    ///
    /// # Errors
    /// If no axis is left.
    pub async fn control(&self, cx: &Context, what: &str, within: Within) -> Result<(), Halt> {
        probing::control_all(cx, what, &self.0, within).await
    }

    /// As [`write_effect::takes_effect`]; without a target, nothing has to.
    ///
    /// # Errors
    /// If no axis is left.
    pub async fn takes_effect(
        &self,
        cx: &Context,
        effect: Effect,
        what: &str,
        within: Within,
    ) -> Result<(), Halt> {
        if self.0.is_empty() {
            return Ok(());
        }
        write_effect::takes_effect_for_all(cx, effect, what, &self.0, within).await
    }

    /// Whether all come to be what is permitted, as of [`probing::settle`]; nothing is judged by it.
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn settles(&self, cx: &Context, within: Within) -> Result<bool, Halt> {
        let settled = probing::settle_all(cx, &self.0, within).await?;
        Ok(settled.took().is_some())
    }

    /// Returns when a probe of one of the targets was not answered: nothing is judged by it. `false`: each was, until the limit.
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn fails_once(&self, cx: &Context, within: Within) -> Result<bool, Halt> {
        let mut looks = Looks::within(within);
        loop {
            let groups = self.0.iter();
            let once = groups.flat_map(|(clients, targets)| {
                let of_each = |client| probing::probe_once(cx, client, targets);
                clients.iter().map(of_each)
            });
            let attempts = try_join_all(once).await?.concat();
            let is_answered = |attempt: &Attempt| matches!(attempt.outcome, Outcome::Answered { .. });
            if !attempts.iter().all(is_answered) {
                return Ok(true);
            }
            if !looks.again().await {
                return Ok(false);
            }
        }
    }

    /// As [`probing::judge`]. Returns the N probes of all.
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn judge(&self, cx: &Context, within: Within) -> Result<Vec<Attempt>, Halt> {
        probing::judge_all(cx, &self.0, within).await
    }

    /// As [`probing::judge_briefly`].
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn judge_briefly(&self, cx: &Context, within: Within) -> Result<(), Halt> {
        probing::judge_all_briefly(cx, &self.0, within).await
    }

    /// As [`Background::start`].
    ///
    /// # Errors
    /// If a client can't be started.
    pub async fn start(&self, cx: &Context, window: Duration) -> Result<Windows, Halt> {
        let groups = self.0.iter();
        let each = groups.map(|(clients, targets)| Background::start(cx, clients, targets, window));
        try_join_all(each).await.map(Windows)
    }

    /// As [`Background::start_from`], each client from these ports.
    ///
    /// # Errors
    /// If a client can't be started.
    pub async fn start_from(&self, cx: &Context, ports: [u16; 2], window: Duration) -> Result<Windows, Halt> {
        let each = self.0.iter().map(|(clients, targets)| async move {
            let clients: Vec<_> = clients.iter().map(|client| (client.clone(), ports)).collect();
            Background::start_from(cx, &clients, targets, window).await
        });
        try_join_all(each).await.map(Windows)
    }

    /// As [`Background::steadily`].
    ///
    /// # Errors
    /// If a client can't be started.
    pub async fn steadily(&self, cx: &Context, window: Duration) -> Result<Windows, Halt> {
        let groups = self.0.iter();
        let each = groups.map(|(clients, targets)| Background::steadily(cx, clients, targets, window));
        try_join_all(each).await.map(Windows)
    }

    /// As [`Flows::open`], so many flows of every client to each of its targets.
    ///
    /// # Errors
    /// Inconclusive if one of them has not been answered within the limit.
    pub async fn flows(&self, cx: &Context, of_each: u32, within: Within) -> Result<Flows, Halt> {
        let each = self.open(cx).into_iter().map(async |(clients, targets)| {
            let flows = of_each * u32::try_from(clients.len()).unwrap_or(1);
            Flows::open(cx, &clients, &targets, flows, within).await
        });
        let opened = try_join_all(each).await?;
        Ok(opened.into_iter().fold(Flows::none(), Flows::and))
    }

    /// Groups with the targets whose axes have no verdict yet; none without any.
    fn open(&self, cx: &Context) -> Vec<Vantage> {
        let open = self
            .0
            .iter()
            .map(|(clients, targets)| (clients.clone(), open_targets(cx, targets)));
        open.filter(|(_, targets)| !targets.is_empty()).collect()
    }
}

impl Windows {
    /// As [`Background::hold`], of all groups at once.
    ///
    /// # Errors
    /// If a client ends before.
    pub async fn hold(self, cx: &Context) -> Result<Vec<Attempt>, Halt> {
        let each = self.0.into_iter().map(|window| window.hold(cx));
        Ok(try_join_all(each).await?.concat())
    }
}

#[cfg(test)]
mod tests {
    use cluster::Place;

    use super::*;
    use crate::{client::Client, destination::Destination};

    fn vantage(client: &str, target: &str) -> Vantage {
        let client = Client {
            name: client.to_owned(),
            node: String::new(),
            place: Place::Outside,
            private_cgroups: false,
        };
        let target = Destination::none("a", target, Transport::Tcp, "10.0.0.1:80".parse().unwrap());
        (vec![client], vec![target])
    }

    #[test]
    fn targets_of_the_same_clients_are_dialled_together() {
        let all: Vantages = [vantage("x", "1"), vantage("y", "2"), vantage("x", "3")]
            .into_iter()
            .collect();
        let names = |(clients, targets): &Vantage| {
            let targets = targets.iter().map(|target| target.name.as_str());
            (clients[0].name.clone(), targets.collect::<String>())
        };
        let groups: Vec<_> = all.groups().iter().map(names).collect();
        assert_eq!(
            groups,
            [
                ("x".to_owned(), "13".to_owned()),
                ("y".to_owned(), "2".to_owned())
            ]
        );
        assert!(all.only(Transport::Udp).groups().is_empty());
    }
}
