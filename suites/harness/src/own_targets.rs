//! Clients of which each dials something else, or must see something else of it. All of them do so at the same time.

use std::{collections::BTreeMap, net::IpAddr};

use futures::future::try_join_all;
use oracle::{
    check::{Observed, Permitted},
    history::Attempt,
    observations::{line, outcomes},
    source::{seen_sources, sources},
};

use crate::{
    background::Background,
    client::Client,
    context::Context,
    destination::Destination,
    frontends::Vantage,
    probing::{self, any_open, open_targets},
    verdict::Halt,
    waiting::Within,
};

/// Each client with what it dials.
#[derive(Clone, Debug, Default)]
pub struct OwnTargets(Vec<Vantage>);

impl OwnTargets {
    /// A client dials this, too.
    pub fn add(&mut self, client: &Client, target: Destination) {
        match self.0.iter_mut().find(|(clients, _)| clients[0] == *client) {
            Some((_, targets)) => targets.push(target),
            None => self.0.push((vec![client.clone()], vec![target])),
        }
    }

    /// These, and others: what a client dials in both is together.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        for (client, targets) in others.iter() {
            for target in targets {
                self.add(client, target.clone());
            }
        }
        self
    }

    /// The clients that dial something that this is true of, with those targets.
    #[must_use]
    pub fn only(&self, is_of_them: impl Fn(&Destination) -> bool) -> Self {
        let mut some = Self::default();
        for (client, targets) in self.iter() {
            for target in targets.iter().filter(|target| is_of_them(target)) {
                some.add(client, target.clone());
            }
        }
        some
    }

    /// The same clients, each of whose targets becomes another.
    #[must_use]
    pub fn map(self, change: impl Fn(Destination) -> Destination) -> Self {
        let changed = |(clients, targets): Vantage| {
            let targets = targets.into_iter().map(&change);
            (clients, targets.collect())
        };
        Self(self.0.into_iter().map(changed).collect())
    }

    /// Each client with what it dials.
    pub fn iter(&self) -> impl Iterator<Item = (&Client, &[Destination])> {
        self.0.iter().map(|(clients, targets)| (&clients[0], &**targets))
    }

    /// Those whose targets have an axis without a verdict.
    fn open(&self, cx: &Context) -> Result<Vec<&Vantage>, Halt> {
        let is_open = |(_, targets): &&Vantage| !open_targets(cx, targets).is_empty();
        let open: Vec<&Vantage> = self.0.iter().filter(is_open).collect();
        if open.is_empty() {
            any_open(cx, &[])?;
        }
        Ok(open)
    }

    /// As [`probing::control`].
    pub async fn control(&self, cx: &Context, what: &str, within: Within) -> Result<(), Halt> {
        let open = self.open(cx)?.into_iter();
        let each = open.map(|(clients, targets)| probing::control(cx, what, clients, targets, within));
        try_join_all(each).await.map(drop)
    }

    /// As [`probing::judge`].
    pub async fn judge(&self, cx: &Context, within: Within) -> Result<Vec<Attempt>, Halt> {
        let each = self
            .0
            .iter()
            .map(|(clients, targets)| probing::judge(cx, clients, targets, within));
        Ok(try_join_all(each).await?.concat())
    }

    /// As [`probing::judge_briefly`].
    pub async fn judge_briefly(&self, cx: &Context, within: Within) -> Result<(), Halt> {
        let each = self
            .0
            .iter()
            .map(|(clients, targets)| probing::judge_briefly(cx, clients, targets, within));
        try_join_all(each).await.map(drop)
    }

    /// Verdict: within the limit the targets come to be what is permitted, and N probes of each, evenly over T_hold,
    /// are inside the set.
    pub async fn hold(&self, cx: &Context, within: Within) -> Result<Vec<Attempt>, Halt> {
        let hold = async |(clients, targets): &Vantage| {
            // What has not settled shows in the window.
            let settled = probing::settle(cx, clients, targets, within).await?;
            probing::record_settled(cx, &settled);
            let window = Background::start(cx, clients, targets, cx.limits().hold).await?;
            window.hold(cx).await
        };
        Ok(try_join_all(self.0.iter().map(hold)).await?.concat())
    }

    /// Verdict: the backends that answered these attempts have seen their clients' own addresses, of which one of each
    /// family is given.
    pub fn judge_sources(&self, cx: &Context, attempts: &[Attempt], own: &[(Client, IpAddr)]) {
        let observed = Observed::new(attempts, &[], cx.limits().times());
        for (client, targets) in self.iter() {
            for target in open_targets(cx, targets) {
                let is_its = |(of, address): &&(Client, IpAddr)| {
                    of == client && address.is_ipv6() == target.address.is_ipv6()
                };
                if let Some((_, own)) = own.iter().find(is_its) {
                    let findings = sources(&observed, &target.stream(client), *own, target.fewest());
                    cx.axes().judged(&target.axis, findings);
                }
            }
        }
    }

    /// Records how attempts ended at targets whose backends they may not reach, by axis, transport and kind of client.
    pub fn record_unserved(&self, cx: &Context, attempts: &[Attempt]) {
        let mut groups: BTreeMap<String, Vec<&Attempt>> = BTreeMap::new();
        for (client, targets) in self.iter() {
            let kind = client.name.split('@').next().unwrap_or_default();
            for target in targets
                .iter()
                .filter(|target| target.permitted == Permitted::None)
            {
                let stream = target.stream(client);
                let of_it = attempts.iter().filter(|attempt| {
                    (&attempt.client, &attempt.target, attempt.transport)
                        == (&stream.client, &stream.target, stream.transport)
                });
                let group = format!(
                    "{}: {:?} from {kind} without a backend",
                    target.axis, target.transport
                );
                groups.entry(group).or_default().extend(of_it);
            }
        }
        for (group, attempts) in groups {
            cx.record(&group, line(&outcomes(attempts)));
        }
    }
}

/// Records which sources backends saw of each client's attempts.
pub fn record_sources(cx: &Context, attempts: &[Attempt]) {
    let mut clients: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        clients.entry(&attempt.client).or_default().push(attempt);
    }
    for (client, attempts) in clients {
        let seen = line(&seen_sources(attempts));
        cx.record(&format!("source that backends saw of {client}"), seen);
    }
}

#[cfg(test)]
mod tests {
    use cluster::Place;
    use oracle::history::Transport;

    use super::*;

    #[test]
    fn what_a_client_dials_is_together_and_others_dial_something_else() {
        let client = |node: &str| Client {
            name: format!("host@{node}"),
            node: node.to_owned(),
            place: Place::Host {
                node: node.to_owned(),
            },
            private_cgroups: false,
        };
        let target =
            |name: &str| Destination::none("a", name, Transport::Tcp, "10.0.0.1:80".parse().unwrap());
        let mut all = OwnTargets::default();
        for (node, name) in [("n1", "twin"), ("n2", "far"), ("n1", "far")] {
            all.add(&client(node), target(name));
        }
        let dialled = |targets: &OwnTargets| -> Vec<String> {
            let names = |(client, targets): (&Client, &[Destination])| {
                let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
                format!("{}: {}", client.node, names.join(" "))
            };
            targets.iter().map(names).collect()
        };
        assert_eq!(dialled(&all), ["n1: twin far", "n2: far"]);
        assert_eq!(dialled(&all.only(|target| target.name == "twin")), ["n1: twin"]);
        let both = all
            .only(|target| target.name == "far")
            .and(&all.only(|target| target.name == "twin"));
        assert_eq!(dialled(&both), ["n1: far twin", "n2: far"]);
        let renamed = all.map(|target| Destination {
            name: format!("{}2", target.name),
            ..target
        });
        assert_eq!(dialled(&renamed), ["n1: twin2 far2", "n2: far2"]);
    }
}
