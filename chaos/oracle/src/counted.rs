//! A finding in parts: what was counted, and how that ended, for reports in sentences.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use crate::{
    breakage::Ending,
    history::{Attempt, Transport},
    permitted::Permitted,
};

/// What was counted of a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Of what.
    #[serde(flatten)]
    pub what: What,
    /// What the first of those that were not as expected dialled; of changes, nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialled: Option<Dialled>,
    /// How many were not as expected.
    pub outside: usize,
    /// Of how many that were judged.
    pub of: usize,
    /// How these ended, most frequent first, and how many attempts did.
    pub endings: Vec<(Ending, usize)>,
    /// When the first of them began, microseconds since the Unix epoch; where none is one by itself, the first of all.
    pub first_us: u64,
    /// When the last of them began.
    pub last_us: u64,
    /// When the last began that was judged.
    pub until_us: u64,
}

/// What an attempt dialled, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialled {
    /// [`Attempt::client`].
    pub client: String,
    /// [`Attempt::target`].
    pub target: String,
    /// [`Attempt::transport`].
    pub transport: Transport,
    /// [`Attempt::destination`].
    pub destination: SocketAddr,
}

impl Dialled {
    fn of(attempt: &Attempt) -> Self {
        Self {
            client: attempt.client.clone(),
            target: attempt.target.clone(),
            transport: attempt.transport,
            destination: attempt.destination,
        }
    }
}

/// Of what something was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// Probes, each by itself.
    Probes {
        /// What may happen to each.
        permitted: Permitted,
    },
    /// Probes that should have reached all of these, and some of these did not get one.
    Unreached {
        /// What may happen to each probe.
        permitted: Permitted,
        /// The identities of those that got none.
        missing: Vec<String>,
    },
    /// Flows, and how the first exchange of each ended that was not as expected.
    Flows,
    /// Exchanges of flows.
    Exchanges {
        /// Fewer than one of this many may stay without an answer.
        lost_of: usize,
    },
    /// Answers, by the address that they show to the client.
    Peers,
    /// Answers, by the source address that their backends saw.
    Sources {
        /// The client's own.
        own: IpAddr,
    },
    /// Probes of which none may reach a former backend.
    Trap {
        /// Its server, what its identities begin with.
        server: String,
    },
    /// Probes of a Service that must be served, as an agent reports that it is ready.
    Ready {
        /// The node of the agent.
        node: String,
    },
    /// Changes of a Service, as one client sees them.
    Change {
        /// The node of the client.
        node: String,
        /// Within how many milliseconds it must be in force.
        limit_ms: u64,
        /// Whether it came into force later.
        came: bool,
    },
}

impl Counted {
    /// Attempts that are not as expected, of all that were judged; `None`, if none was judged.
    #[must_use]
    pub fn attempts(
        what: What,
        outside: &[&Attempt],
        all: &[&Attempt],
        ending: impl Fn(&Attempt) -> Ending,
    ) -> Option<Self> {
        let begins = |attempts: &[&Attempt]| {
            let starts = || attempts.iter().map(|attempt| attempt.start_us);
            Some((starts().min()?, starts().max()?))
        };
        let (first_of_all, until_us) = begins(all)?;
        let (first_us, last_us) = begins(outside).unwrap_or((first_of_all, until_us));
        let mut counts: BTreeMap<Ending, usize> = BTreeMap::new();
        for attempt in outside {
            *counts.entry(ending(attempt)).or_default() += 1;
        }
        let mut endings: Vec<(Ending, usize)> = counts.into_iter().collect();
        endings.sort_by_key(|(_, count)| Reverse(*count));
        let dialled = outside
            .first()
            .or(all.first())
            .map(|attempt| Dialled::of(attempt));
        Some(Self {
            what,
            dialled,
            outside: outside.len(),
            of: all.len(),
            endings,
            first_us,
            last_us,
            until_us,
        })
    }
}
