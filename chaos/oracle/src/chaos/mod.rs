//! Attempts judged while Services change and faults come and go: by the API's order of states, and stated tolerances.
//!
//! ```text
//! states of each frontend, in the API's order ─┐
//! disturbances: what was wrong, where, how long ├─▶ for each attempt: the states that its node may have been in ─▶ findings
//! attempts of clients ─────────────────────────┘     (never an earlier one than an attempt before has shown)
//! ```
//!
//! - `window.rs`: until when a node may go on with a state, and when its clients may get no answer.
//! - `judge.rs`: the verdict on each attempt; `connections.rs`: on what follows on an established connection; `affinity.rs`: on the
//!   backend that a client is bound to.
//! - `coverage.rs`: which faults came while which frontends, in which states, were dialled.
//! - `tests.rs`: histories, good and bad.
mod affinity;
mod connections;
mod coverage;
mod judge;
#[cfg(test)]
mod tests;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use serde::{Deserialize, Serialize};

use crate::history::{Attempt, Transport};

pub use self::{
    coverage::{Coverage, Covered},
    judge::{Broken, Outside, judge},
};

/// All that a chaos run has seen. It is judged from this alone, at once or later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChaosHistory {
    /// When the schedule began: the control had passed.
    pub began_us: u64,
    /// What clients dialled.
    pub frontends: Vec<Frontend>,
    /// Endpoints of each Service, whichever frontends it had: for each identity, from when until when.
    ///
    /// A node learns of Services and of slices by separate watches. Where a frontend has passed to another Service, it may know of
    /// that, and not yet of the newest endpoints.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, BTreeMap<String, Vec<Listed>>>,
    /// What was wrong meanwhile.
    pub disturbances: Vec<Disturbance>,
    /// What is tolerated.
    pub tolerance: Tolerance,
    /// The node of each client by the client's name; empty outside the cluster.
    pub clients: BTreeMap<String, String>,
    /// Flows of datagrams that were there before it began: a datagram of one of them goes on with it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flows: BTreeSet<UsedFlow>,
    /// What clients did, in any order.
    pub attempts: Vec<Attempt>,
    /// Datagrams without an answer that a backend has logged all the same: its identity, by the nonce of the attempt.
    ///
    /// Flows of datagrams are ended whose endpoint serves no more (claim `udp-backend-replaced`), and an answer that is on its way goes with its flow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<String, String>,
}

/// When an endpoint was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// When the write that lists it was sent.
    pub from_us: u64,
    /// When the API acknowledged the one that does not list it any more.
    pub until_us: u64,
}

/// A flow of datagrams.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsedFlow {
    /// The node of its client, some of which share its network; a client outside the cluster by its name.
    pub node: String,
    /// Its source port.
    pub port: u16,
    /// Where it goes.
    pub destination: SocketAddr,
}

/// One address and port of a Service, by one transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frontend {
    /// [`Attempt::target`] of the attempts to it.
    pub target: String,
    /// Their transport.
    pub transport: Transport,
    /// What it is: `cluster IP`, `node port` or `load balancer`. It decides nothing; empty in histories of before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The node at whose address it is, which may serve it as well as the client's own node.
    pub node: Option<String>,
    /// The clients that it is this to, by their names; empty: all. Traffic policies make it another one to clients elsewhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub clients: BTreeSet<String>,
    /// Its states, in the order in which the API had them; at least one.
    pub states: Vec<State>,
}

/// What a frontend is from one write to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// When the write was sent: no node can be in this state before. Microseconds since the Unix epoch, as all times here.
    pub sent_us: u64,
    /// When the API acknowledged it.
    pub done_us: u64,
    /// The write in words.
    pub by: String,
    /// The Service that has it then; empty: none. It matters where it passes from one to another.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Identities that new connections may reach. Empty: none is served, as no endpoint is left or the frontend is no Service's.
    pub serves: BTreeSet<String>,
    /// What else is promised, or is not.
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    pub terms: Terms,
}

/// What a frontend promises, or does not, besides the backends that serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Terms {
    /// Connections may fail, although there are endpoints: implementations differ on this way (a pod, or a host, to a node port under
    /// `externalTrafficPolicy: Local`).
    pub may_fail: bool,
    /// Backends see the client's own address: a pod's at a cluster IP, that of one outside under `externalTrafficPolicy: Local`.
    pub keeps_source: bool,
    /// A client stays with one backend (`sessionAffinity: ClientIP`).
    pub sticks: bool,
    /// Established connections may end: the address may come in on another node, which does not know them (a load balancer's, under
    /// `externalTrafficPolicy: Local`).
    pub may_cut: bool,
}

impl Terms {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Frontend {
    /// Whether an attempt is one to it, by one of its clients.
    fn takes(&self, attempt: &Attempt) -> bool {
        let is_to_it = attempt.target == self.target && attempt.transport == self.transport;
        is_to_it && (self.clients.is_empty() || self.clients.contains(&attempt.client))
    }
}

/// Something that was wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disturbance {
    /// In words.
    pub what: String,
    /// The name of the fault. It decides nothing; empty in histories of before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fault: String,
    /// The node; `None`: all of them.
    pub node: Option<String>,
    /// When it began.
    pub from_us: u64,
    /// When it was over. The node may take [`Tolerance::heal_us`] from then on.
    pub until_us: u64,
    /// What it excuses.
    pub excuses: Excuses,
}

/// What a disturbance excuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excuses {
    /// Changes take effect late: the API or the agent was disturbed, and the datapath goes on with what it has.
    Late,
    /// Besides, connections fail: packets are lost, or the datapath itself was taken away.
    Lost,
}

/// What is tolerated, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// From the acknowledgement of a write until its effect on every node (T_ep of the catalogue).
    pub change_us: u64,
    /// From the end of a disturbance until all is as the API says (T_heal).
    pub heal_us: u64,
}

impl Tolerance {
    /// In these times.
    #[must_use]
    pub fn new(change: std::time::Duration, heal: std::time::Duration) -> Self {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            change_us: us(change),
            heal_us: us(heal),
        }
    }
}
