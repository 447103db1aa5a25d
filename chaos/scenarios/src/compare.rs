//! Compares what two clusters showed: outcomes, never their durations.

pub mod permitted;

use std::{collections::BTreeSet, fmt};

use self::permitted::Permitted;
use crate::{
    churn,
    observation::{Observation, Outcome, Peer},
    state::{Front, State},
    step::{Backend, Condition, Protocol, Service, To, Vantage},
};

/// Backends serve each of a scenario's own Services on a port of its own: Service n on this port plus n, so the port of an answer shows
/// its Service. Those of chaos share ports.
pub(crate) const TARGETS: u16 = 8080;

/// An exchange, and the state of the scenario at that time.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The client.
    pub from: Vantage,
    /// The kind of socket.
    pub protocol: Protocol,
    /// The destination.
    pub to: To,
    /// The source port, if the step chooses one.
    pub source_port: Option<u16>,
    /// For a kept socket: its earlier state.
    pub kept: Option<KeptSocket>,
    /// The state of Services, sockets and servers.
    pub state: &'a State,
}

/// A kept socket before the exchange, in each of the two clusters.
#[derive(Clone, Debug, Default)]
pub struct KeptSocket {
    /// The backend that last answered at this destination.
    pub before: [Option<String>; 2],
    /// Whether the socket is connected to this destination.
    pub is_connected: bool,
}

/// How two clusters can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// Answered, refused, silent or cut; and the server, if it is no endpoint of the dialled Service.
    Outcome,
    /// Which endpoints fresh sockets reach.
    Served,
    /// A kept socket leaves a backend that still serves.
    Moved,
    /// The error.
    Error,
    /// The client's address as the backend sees it.
    Source,
    /// The source address of the answer.
    Peer,
}

/// One difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The aspect that differs.
    pub aspect: Aspect,
    /// The results of the two clusters.
    pub shown: [String; 2],
    /// Why both are permitted, if they are.
    pub permitted: Option<&'static Permitted>,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) outcomes: BTreeSet<Outcome>,
    /// Servers that answered and are no endpoints of the dialled Service.
    pub(crate) others: BTreeSet<String>,
    endpoints: BTreeSet<String>,
    errors: BTreeSet<String>,
    pub(crate) sources: BTreeSet<String>,
    pub(crate) peers: BTreeSet<Peer>,
    moved: Option<String>,
}

impl Subject<'_> {
    /// The dialled Service, and its frontend.
    pub(crate) fn front(&self) -> Option<(&Service, Front)> {
        let (number, front) = self.state.front(self.to)?;
        Some((self.state.services.get(&number)?, front))
    }

    /// Backends that may answer: endpoints that get new connections, and for a kept socket those that still serve. For
    /// an existing connection, all listed endpoints: that an endpoint is not ready only keeps new ones from it.
    pub(crate) fn expected(&self) -> BTreeSet<String> {
        let Some((number, _)) = self.state.front(self.to) else {
            return BTreeSet::new();
        };
        let Some(service) = self.state.services.get(&number) else {
            return BTreeSet::new();
        };
        let mut all: BTreeSet<Backend> = service.eligible();
        if let Some(kept) = &self.kept {
            let is_there = self.protocol == Protocol::Tcp && kept.before.iter().any(Option::is_some);
            let serving = |condition: &Condition| is_there || *condition == Condition::Terminating;
            let serving = service.endpoints.iter().filter(|(_, one)| serving(one));
            all.extend(serving.map(|(backend, _)| *backend));
        }
        all.into_iter().map(|backend| identity(backend, number)).collect()
    }

    /// The same exchange in each state that implementations have seen since the last step.
    pub(crate) fn moments(&self) -> impl Iterator<Item = Subject<'_>> {
        let all = self.state.between.iter().chain([self.state]);
        all.map(|state| Subject {
            state,
            ..self.clone()
        })
    }

    /// Backends that get connections here, and have got them all along since the last step.
    fn lasting(&self) -> BTreeSet<String> {
        let all = self.moments().map(|moment| moment.near());
        all.reduce(|some, others| &some & &others).unwrap_or_default()
    }

    fn shown(&self, side: usize, seen: &[Observation]) -> Shown {
        let expected = self.expected();
        let lasting = self.lasting();
        let answered = |one: &&Observation| one.outcome == Outcome::Answered;
        let by: Vec<&String> = seen.iter().filter_map(|one| one.by.as_ref()).collect();
        let is_endpoint = |by: &&&String| expected.contains(**by);
        Shown {
            outcomes: seen.iter().map(|one| one.outcome).collect(),
            others: by
                .iter()
                .filter(|by| !is_endpoint(by))
                .map(|by| (*by).clone())
                .collect(),
            endpoints: by.iter().filter(is_endpoint).map(|by| (*by).clone()).collect(),
            errors: seen
                .iter()
                .filter(|one| !answered(one))
                .map(|one| one.words.clone())
                .collect(),
            sources: seen.iter().filter_map(|one| one.source.clone()).collect(),
            peers: seen.iter().filter_map(|one| one.peer).collect(),
            moved: self.moved(side, &lasting, &by),
        }
    }

    /// Backends that get connections here: of [`expected`](Self::expected), those on the node, where a policy requires
    /// that.
    pub(crate) fn near(&self) -> BTreeSet<String> {
        let mut all = self.expected();
        let Some((service, front)) = self.front() else {
            return all;
        };
        let node = match front {
            Front::ClusterIp if service.internal_local => self.from.node(),
            Front::NodePort | Front::External if service.external_local => match self.to {
                To::At { address, .. } => address.node().or(self.from.node()),
                To::ClusterIp { .. } | To::Loopback { .. } => self.from.node(),
            },
            Front::ClusterIp | Front::NodePort | Front::External => return all,
        };
        let elsewhere = Backend::ALL.into_iter().filter(|one| Some(one.node()) != node);
        for backend in elsewhere {
            all.retain(|by| !by.starts_with(backend.name()));
        }
        all
    }

    /// Whether another backend than before answered a kept UDP socket, although the earlier one has got connections all along.
    fn moved(&self, side: usize, lasting: &BTreeSet<String>, by: &[&String]) -> Option<String> {
        let before = self.kept.as_ref()?.before[side].as_ref();
        let mut all = before.into_iter().chain(by.iter().copied());
        let mut last = all.next()?;
        for next in all {
            if next != last && lasting.contains(last) {
                return Some(format!("{last}, then {next}"));
            }
            last = next;
        }
        None
    }

    /// All differences, with the reason of permitted ones. `deviations` are claims that one of the two is known not to
    /// keep.
    #[must_use]
    pub fn differences(&self, seen: [&[Observation]; 2], deviations: &BTreeSet<String>) -> Vec<Difference> {
        let shown = [self.shown(0, seen[0]), self.shown(1, seen[1])];
        let mut all = Vec::new();
        let mut note = |aspect: Aspect, differ: bool, words: &dyn Fn(&Shown) -> String| {
            if differ {
                all.push(Difference {
                    aspect,
                    shown: shown.each_ref().map(words),
                    permitted: permitted::find(self, aspect, &shown, deviations),
                });
            }
        };
        let [a, b] = &shown;
        let outcome = a.outcomes != b.outcomes || a.others != b.others;
        note(Aspect::Outcome, outcome, &Shown::words);
        note(Aspect::Moved, a.moved.is_some() != b.moved.is_some(), &|one| {
            one.moved.clone().unwrap_or_else(|| "the same backend".to_owned())
        });
        if !outcome {
            let is_by_chance = self.is_by_chance();
            let served = !is_by_chance && a.endpoints != b.endpoints;
            note(Aspect::Served, served, &|one| list(&one.endpoints));
            note(Aspect::Error, a.errors != b.errors, &|one| list(&one.errors));
            let source = if is_by_chance {
                !a.sources.is_empty() && a.sources.is_disjoint(&b.sources)
            } else {
                a.sources != b.sources
            };
            note(Aspect::Source, source, &|one| {
                format!("the backend sees {}", list(&one.sources))
            });
            note(Aspect::Peer, a.peers != b.peers, &|one| {
                format!("from {}", list(&one.peers))
            });
        }
        all
    }

    /// Whether each cluster chooses one backend by chance for all exchanges.
    fn is_by_chance(&self) -> bool {
        let affine = self.front().is_some_and(|(service, _)| service.affinity);
        self.kept.is_some() || self.source_port.is_some() || affine
    }
}

/// Identity of the server for a Service in a backend's pod.
pub(crate) fn identity(backend: Backend, service: u8) -> String {
    let port = churn::target(service).unwrap_or(TARGETS + u16::from(service));
    format!("{}:{port}", backend.name())
}

impl Shown {
    pub(crate) fn words(&self) -> String {
        let mut all: Vec<String> = Vec::new();
        for outcome in &self.outcomes {
            match outcome {
                Outcome::Answered => {
                    let by: BTreeSet<_> = self.others.union(&self.endpoints).collect();
                    all.push(format!("answered by {}", list(by)));
                }
                Outcome::Odd | Outcome::NotBound | Outcome::Cut => {
                    all.push(format!("{outcome}: {}", list(&self.errors)));
                }
                Outcome::Refused | Outcome::Silent => all.push(outcome.to_string()),
            }
        }
        all.join("; ")
    }

    /// No backend answered.
    pub(crate) fn is_none(&self) -> bool {
        let none = [Outcome::Refused, Outcome::Silent];
        self.outcomes.iter().all(|outcome| none.contains(outcome))
    }
}

fn list(things: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let things: Vec<String> = things.into_iter().map(|thing| thing.to_string()).collect();
    if things.is_empty() {
        "nobody".to_owned()
    } else {
        things.join(", ")
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outcome => "what comes of it",
            Self::Served => "which endpoints are served",
            Self::Moved => "whether a socket keeps its backend",
            Self::Error => "the error",
            Self::Source => "the source address that the backend sees",
            Self::Peer => "the address that the answer comes from",
        })
    }
}

#[cfg(test)]
mod tests;
