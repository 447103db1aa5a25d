//! Schedules as data: which writes and faults, and when. Any part of a schedule is a schedule too, so it can be shrunk.

use std::collections::BTreeSet;

use oracle::chaos::Excuses;
use serde::{Deserialize, Serialize};

/// Services, by number: those of [`HOMES`].
pub const SERVICES: u8 = 5;
/// EndpointSlices: two of each Service, until they move.
pub const SLICES: u8 = 2 * SERVICES;
/// Backends, on the nodes in turn.
pub const BACKENDS: u8 = 4;
/// Node ports that Services pass on to each other.
pub const NODE_PORTS: u8 = 2;
/// The longest schedule, in milliseconds: clients hold connections for a quarter of an hour at most, and a history is judged as a whole.
/// Longer runs are several seeds.
pub const LONGEST_MS: u32 = 10 * 60 * 1000;

/// The longest fault, in milliseconds: less than [`cluster::LONGEST`], when it would end by itself.
pub const LONGEST_FAULT_MS: u32 = 500 * 1000;

/// Namespace and name of each Service. Names in the first namespace are the beginnings of others; those in the two other ones are
/// equal.
pub const HOMES: [(Namespace, &str); SERVICES as usize] = [
    (Namespace::Prefixes, "t"),
    (Namespace::Prefixes, "t-ext"),
    (Namespace::Prefixes, "t-ext-2"),
    (Namespace::First, "u"),
    (Namespace::Second, "u"),
];

/// The namespaces of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// Its names are the beginnings of each other.
    Prefixes,
    /// Its names are also those of [`Namespace::Second`].
    First,
    /// Its names are also those of [`Namespace::First`].
    Second,
}

/// What a run does, in the order of its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The seed that it was generated from. It decides nothing any more.
    pub seed: u64,
    /// How long clients go on after the control, in milliseconds; no action begins later.
    pub lasts_ms: u32,
    /// Its actions.
    pub actions: Vec<Action>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// When it begins, in milliseconds after the control. A write begins later if the one before it takes longer.
    pub at_ms: u32,
    /// What it does.
    #[serde(rename = "do")]
    pub does: Does,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    /// A Service is created, changed or deleted.
    Service(ServiceWrite),
    /// A Service, by number, gets another annotation: an event that changes nothing.
    Annotate(u8),
    /// An EndpointSlice is created, changed, moved or deleted.
    Slice(SliceWrite),
    /// Something is wrong for a while.
    Fault(Fault),
}

/// The state of a Service from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceWrite {
    /// Its number.
    pub service: u8,
    /// `None`: it is deleted. A Service that is created again has its cluster IP of before.
    pub to: Option<Service>,
}

/// A Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// One of the node ports, by number. The Service that has it loses it first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u8>,
    /// `sessionAffinity: ClientIP`.
    #[serde(skip_serializing_if = "is_false")]
    pub affinity: bool,
    /// `internalTrafficPolicy: Local`.
    #[serde(skip_serializing_if = "is_false")]
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`, which only a Service with frontends for that has.
    #[serde(skip_serializing_if = "is_false")]
    pub external_local: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The state of an EndpointSlice from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceWrite {
    /// Its number. Its name and namespace are those of Service `slice / 2`, its home.
    pub slice: u8,
    /// `None`: it is deleted.
    pub to: Option<Slice>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// The Service that it is labelled with: one of its home's namespace.
    pub of: u8,
    /// Its endpoints; `None`: `endpoints: null`.
    pub endpoints: Option<Vec<Endpoint>>,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Number of the backend.
    pub backend: u8,
    /// Its condition.
    #[serde(default, skip_serializing_if = "Condition::is_ready")]
    pub condition: Condition,
}

/// Condition of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Ready.
    #[default]
    Ready,
    /// Neither ready nor serving.
    Unready,
    /// Terminating, and still serving.
    Terminating,
    /// Terminating, and not serving any more.
    Stopped,
    /// Ready without serving, as `publishNotReadyAddresses` makes it.
    Published,
}

impl Condition {
    fn is_ready(&self) -> bool {
        *self == Self::Ready
    }

    /// The fields `ready`, `serving` and `terminating`.
    #[must_use]
    pub fn fields(self) -> (bool, bool, bool) {
        match self {
            Self::Ready => (true, true, false),
            Self::Unready => (false, false, false),
            Self::Terminating => (false, true, true),
            Self::Stopped => (false, false, true),
            Self::Published => (true, false, false),
        }
    }
}

/// A fault, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which.
    pub kind: FaultKind,
    /// Number of the node, from 1, or the last one if there are fewer; `None`: all nodes, or the API servers for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u8>,
    /// How long, in milliseconds. Faults of a moment ignore it.
    pub lasts_ms: u32,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Watches break off again and again.
    WatchesCut,
    /// Events come late.
    EventsDelayed,
    /// Watches stay open without events; those that lost one end with 410 afterwards.
    EventsDropped,
    /// Watches end with 410 Gone, so that agents list again.
    VersionsExpired,
    /// The API's cache stands still.
    ApiBehind,
    /// Requests are refused with 503.
    ApiUnavailable,
    /// Requests are refused with 429.
    ApiBusy,
    /// Answers come slowly.
    ApiSlow,
    /// Answers break off.
    ListsTruncated,
    /// One API server is killed.
    ApiServerDown,
    /// The API servers restart, and are all at one other address for a while.
    ApiElsewhere,
    /// Changes of other Services come all the time, up to a thousand in a second.
    ChangesStorm,
    /// The resourceVersion jumps.
    VersionsJump,
    /// The agent is killed, and started at once.
    AgentKilled,
    /// The agent is stopped for a while.
    AgentDown,
    /// The agent's process stands still (SIGSTOP).
    AgentFrozen,
    /// The agent is killed again and again.
    AgentCrashLoop,
    /// The agent is started a second time, beside itself.
    AgentTwice,
    /// The agent starts without anything that it kept: stopped, cleaned up, started.
    AgentAfresh,
    /// The agent is killed, its pins are deleted, and it is started.
    PinsLost,
    /// Programs of the agent's former load stay attached to its cgroup beside those of a new agent, which finds no pin of them.
    ProgramsLeft,
    /// The agent runs in its other configuration for a while.
    AgentOtherMode,
    /// Some of the agent's writes to the kernel fail.
    WritesFail,
    /// The entries of the agent's maps are removed.
    EntriesWiped,
    /// The values in the agent's maps are filled with zeros.
    ValuesOverwritten,
    /// The agent's maps are full of entries that are not its own.
    MapsFull,
    /// The agent's programs are detached.
    ProgramsDetached,
    /// Programs of another owner, which change nothing, are at the same hooks.
    ProgramsForeign,
    /// The node has one address more.
    AddressAdded,
    /// The node drops one of twenty packets.
    PacketsLost,
    /// The node gets nothing from the other nodes.
    NodesApart,
    /// The node's device to the others is down.
    DeviceDown,
    /// The node has no power.
    PowerLost,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::WatchesCut,
        Self::EventsDelayed,
        Self::EventsDropped,
        Self::VersionsExpired,
        Self::ApiBehind,
        Self::ApiUnavailable,
        Self::ApiBusy,
        Self::ApiSlow,
        Self::ListsTruncated,
        Self::ApiServerDown,
        Self::ApiElsewhere,
        Self::ChangesStorm,
        Self::VersionsJump,
        Self::AgentKilled,
        Self::AgentDown,
        Self::AgentFrozen,
        Self::AgentCrashLoop,
        Self::AgentTwice,
        Self::AgentAfresh,
        Self::PinsLost,
        Self::ProgramsLeft,
        Self::AgentOtherMode,
        Self::WritesFail,
        Self::EntriesWiped,
        Self::ValuesOverwritten,
        Self::MapsFull,
        Self::ProgramsDetached,
        Self::ProgramsForeign,
        Self::AddressAdded,
        Self::PacketsLost,
        Self::NodesApart,
        Self::DeviceDown,
        Self::PowerLost,
    ];

    /// Name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WatchesCut => "watches-cut",
            Self::EventsDelayed => "events-delayed",
            Self::EventsDropped => "events-dropped",
            Self::VersionsExpired => "versions-expired",
            Self::ApiBehind => "api-behind",
            Self::ApiUnavailable => "api-unavailable",
            Self::ApiBusy => "api-busy",
            Self::ApiSlow => "api-slow",
            Self::ListsTruncated => "lists-truncated",
            Self::ApiServerDown => "api-server-down",
            Self::ApiElsewhere => "api-elsewhere",
            Self::ChangesStorm => "changes-storm",
            Self::VersionsJump => "versions-jump",
            Self::AgentKilled => "agent-killed",
            Self::AgentDown => "agent-down",
            Self::AgentFrozen => "agent-frozen",
            Self::AgentCrashLoop => "agent-crash-loop",
            Self::AgentTwice => "agent-twice",
            Self::AgentAfresh => "agent-afresh",
            Self::PinsLost => "pins-lost",
            Self::ProgramsLeft => "programs-left",
            Self::AgentOtherMode => "agent-other-mode",
            Self::WritesFail => "writes-fail",
            Self::EntriesWiped => "entries-wiped",
            Self::ValuesOverwritten => "values-overwritten",
            Self::MapsFull => "maps-full",
            Self::ProgramsDetached => "programs-detached",
            Self::ProgramsForeign => "programs-foreign",
            Self::AddressAdded => "address-added",
            Self::PacketsLost => "packets-lost",
            Self::NodesApart => "nodes-apart",
            Self::DeviceDown => "device-down",
            Self::PowerLost => "power-lost",
        }
    }

    /// What happens, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::WatchesCut => "watches break off again and again",
            Self::EventsDelayed => "events come 5 s late",
            Self::EventsDropped => "watches stay open without events",
            Self::VersionsExpired => "watches end with 410 Gone",
            Self::ApiBehind => "the API's cache stands still",
            Self::ApiUnavailable => "requests are refused with 503",
            Self::ApiBusy => "requests are refused with 429",
            Self::ApiSlow => "answers of the API come slowly",
            Self::ListsTruncated => "answers of the API break off",
            Self::ApiServerDown => "an API server is killed",
            Self::ApiElsewhere => "the API servers restart, and are at one other address for a while",
            Self::ChangesStorm => "other Services change all the while, up to a thousand times a second",
            Self::VersionsJump => "the resourceVersion jumps by a thousand",
            Self::AgentKilled => "the agent is killed and started",
            Self::AgentDown => "the agent is stopped for a while",
            Self::AgentFrozen => "the agent's process stands still (SIGSTOP)",
            Self::AgentCrashLoop => "the agent is killed again and again",
            Self::AgentTwice => "the agent is started a second time, beside itself",
            Self::AgentAfresh => "the agent is stopped, cleaned up and started",
            Self::PinsLost => "the agent is killed, its pins are deleted, and it is started",
            Self::ProgramsLeft => "programs of a former load stay attached beside a new agent's",
            Self::AgentOtherMode => "the agent runs in its other configuration for a while",
            Self::WritesFail => "one of four of the agent's writes to the kernel fails",
            Self::EntriesWiped => "the entries of the agent's maps are removed",
            Self::ValuesOverwritten => "the values in the agent's maps are filled with zeros",
            Self::MapsFull => "the agent's maps are filled up with entries of another program",
            Self::ProgramsDetached => "the agent's programs are detached",
            Self::ProgramsForeign => "programs of another owner are at the same hooks",
            Self::AddressAdded => "the node has one address more for a while",
            Self::PacketsLost => "one of twenty packets is dropped",
            Self::NodesApart => "the node gets nothing from the other nodes for a while",
            Self::DeviceDown => "the node's device to the others is down for a while",
            Self::PowerLost => "the node has no power for a while",
        }
    }

    /// What it excuses, until T_heal after its end.
    #[must_use]
    pub fn excuses(self) -> Excuses {
        match self {
            Self::AgentAfresh
            | Self::PinsLost
            | Self::ProgramsLeft
            | Self::AgentOtherMode
            | Self::EntriesWiped
            | Self::ValuesOverwritten
            | Self::ProgramsDetached
            | Self::PacketsLost
            | Self::NodesApart
            | Self::DeviceDown
            | Self::PowerLost => Excuses::Lost,
            _ => Excuses::Late,
        }
    }

    /// The claim of the catalogue that is about this fault alone. A target that is known not to keep it gets seeds without the fault.
    #[must_use]
    pub fn claim(self) -> Option<&'static str> {
        match self {
            Self::AgentOtherMode => Some("mode-switch-clean"),
            Self::WritesFail => Some("write-failure-retried"),
            Self::EntriesWiped | Self::ValuesOverwritten | Self::MapsFull | Self::ProgramsDetached => {
                Some("state-wiped-recovers")
            }
            Self::ProgramsForeign => Some("foreign-programs-kept"),
            Self::AddressAdded => Some("node-addresses-followed"),
            _ => None,
        }
    }

    /// Whether the API is what is disturbed, or busy, and not a node.
    #[must_use]
    pub fn is_of_api(self) -> bool {
        self <= Self::VersionsJump
    }

    /// Whether it is there for all nodes alike, or for none.
    #[must_use]
    pub fn is_of_all(self) -> bool {
        matches!(
            self,
            Self::ApiServerDown | Self::ApiElsewhere | Self::ChangesStorm | Self::VersionsJump
        )
    }

    /// Whether it is over as soon as it is done.
    #[must_use]
    pub fn is_of_a_moment(self) -> bool {
        matches!(
            self,
            Self::VersionsJump
                | Self::AgentKilled
                | Self::AgentAfresh
                | Self::PinsLost
                | Self::EntriesWiped
                | Self::ValuesOverwritten
                | Self::MapsFull
                | Self::ProgramsDetached
        )
    }

    /// Whether a third party takes an implementation's state away, or the room for it: it notices that by itself, or not at all.
    #[must_use]
    pub fn is_of_state(self) -> bool {
        matches!(
            self,
            Self::EntriesWiped | Self::ValuesOverwritten | Self::MapsFull | Self::ProgramsDetached
        )
    }

    /// Whether clients of other nodes meet it, too: packets between theirs and this one are lost.
    #[must_use]
    pub fn is_of_links(self) -> bool {
        matches!(
            self,
            Self::PacketsLost | Self::NodesApart | Self::DeviceDown | Self::PowerLost
        )
    }
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A number names nothing.
    #[error("action {action}: expected {what} below {limit}, found {found}")]
    Number {
        /// The action, from 1.
        action: usize,
        /// What the number is of.
        what: &'static str,
        /// The first number that is too large.
        limit: u8,
        /// The number.
        found: u8,
    },
    /// A slice of a Service in another namespace.
    #[error("action {action}: slice {slice} can't be of Service {of}, which is in another namespace")]
    Namespace {
        /// The action, from 1.
        action: usize,
        /// The slice.
        slice: u8,
        /// The Service.
        of: u8,
    },
    /// A time after the end.
    #[error("action {action}: expected a time up to {limit} ms, found {found} ms")]
    Time {
        /// The action, from 1.
        action: usize,
        /// The limit.
        limit: u32,
        /// The time.
        found: u32,
    },
    /// The whole lasts too long.
    #[error("expected at most {LONGEST_MS} ms, found {found} ms")]
    TooLong {
        /// How long.
        found: u32,
    },
}

impl Schedule {
    /// Checks what a file may contain otherwise, and sorts the actions by their times.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn checked(mut self) -> Result<Self, ScheduleError> {
        if self.lasts_ms > LONGEST_MS {
            return Err(ScheduleError::TooLong { found: self.lasts_ms });
        }
        for (number, action) in self.actions.iter().enumerate() {
            action.check(number + 1, self.lasts_ms)?;
        }
        self.actions.sort_by_key(|action| action.at_ms);
        Ok(self)
    }

    /// Its faults, in order.
    pub fn faults(&self) -> impl Iterator<Item = (u32, Fault)> + '_ {
        self.actions.iter().filter_map(|action| match action.does {
            Does::Fault(fault) => Some((action.at_ms, fault)),
            Does::Service(_) | Does::Annotate(_) | Does::Slice(_) => None,
        })
    }

    /// Its kinds of faults.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<FaultKind> {
        self.faults().map(|(_, fault)| fault.kind).collect()
    }
}

impl Action {
    /// When it ends, in milliseconds after the control.
    #[must_use]
    pub fn ends_ms(&self) -> u32 {
        match &self.does {
            Does::Fault(fault) => self.at_ms.saturating_add(fault.lasts_ms),
            Does::Service(_) | Does::Annotate(_) | Does::Slice(_) => self.at_ms,
        }
    }

    /// Checks what a file may contain otherwise. `action`: its number, from 1.
    pub(crate) fn check(&self, action: usize, lasts_ms: u32) -> Result<(), ScheduleError> {
        let below = |what, limit, found| {
            if found < limit {
                return Ok(());
            }
            Err(ScheduleError::Number {
                action,
                what,
                limit,
                found,
            })
        };
        let until = |limit, found| {
            if found <= limit {
                return Ok(());
            }
            Err(ScheduleError::Time { action, limit, found })
        };
        until(lasts_ms, self.at_ms)?;
        match &self.does {
            Does::Service(write) => {
                below("a Service", SERVICES, write.service)?;
                let port = write.to.and_then(|service| service.node_port);
                below("a node port", NODE_PORTS, port.unwrap_or_default())
            }
            Does::Annotate(service) => below("a Service", SERVICES, *service),
            Does::Slice(write) => {
                below("a slice", SLICES, write.slice)?;
                let Some(to) = &write.to else { return Ok(()) };
                below("a Service", SERVICES, to.of)?;
                for endpoint in to.endpoints.iter().flatten() {
                    below("a backend", BACKENDS, endpoint.backend)?;
                }
                if home(write.slice).0 != HOMES[usize::from(to.of)].0 {
                    return Err(ScheduleError::Namespace {
                        action,
                        slice: write.slice,
                        of: to.of,
                    });
                }
                Ok(())
            }
            Does::Fault(fault) => until(LONGEST_FAULT_MS, fault.lasts_ms),
        }
    }
}

/// Namespace and name of the Service that a slice is called after.
#[must_use]
pub fn home(slice: u8) -> (Namespace, &'static str) {
    HOMES[usize::from(slice / 2) % HOMES.len()]
}
