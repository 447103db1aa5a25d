//! Maps and programs in the kernel: writes of the maps what differs, runs a program, reads what it wrote.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lb_abi::{BackendId, Counter, ServiceId, Traffic};
use lb_loader::{Counts, Detached, DeviceHook, Input, LoaderError, MapError, Maps, Plain, Table};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

use super::scenario;
use crate::{
    model::{self, Device, NodeSockets, Rejects, State, Verdict},
    test_node::CLOSED,
};

/// Entries of CONNTRACK.
const CONNTRACK: u32 = 16_384;

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The programs can't be loaded or run.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A map can't be read or written.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The thread can't be kept on a processor, or has no clock.
    #[error("failed to keep to one processor and read its clock")]
    Processor(#[from] Errno),
    /// A verdict that the programs are not to have.
    #[error(
        "the program returned {0}; TC_ACT_UNSPEC, TC_ACT_SHOT or TC_ACT_REDIRECT (-1, 2, 7) was expected"
    )]
    Verdict(i32),
    /// Every packet counts once.
    #[error("a packet counted {0:?}; once was expected")]
    Counted(Vec<Counter>),
}

/// A packet at a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shot {
    /// The program.
    pub hook: Device,
    /// The device.
    pub ifindex: u32,
    /// Whether it is the node's own, and goes out.
    pub own: bool,
    /// Of the merged packet.
    pub gso_size: u32,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

impl Shot {
    /// As the model wants it.
    pub(super) fn input<'a>(
        &'a self,
        now: u32,
        rejects: Rejects,
        (routes, sockets): (&'a model::Routes, &'a NodeSockets),
    ) -> model::Input<'a> {
        model::Input {
            hook: self.hook,
            frame: &self.frame,
            own: self.own,
            gso_size: self.gso_size,
            forwards: self.ifindex != CLOSED,
            now,
            routes,
            sockets,
            rejects,
        }
    }
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Observation {
    /// What it returned.
    pub verdict: Verdict,
    /// Where it counted.
    pub counter: Counter,
    /// The frame that it left.
    pub frame: Vec<u8>,
    /// The maps afterwards.
    pub state: State,
    /// What was added for each service port and each backend.
    pub traffic: (BTreeMap<ServiceId, Traffic>, BTreeMap<BackendId, Traffic>),
    /// The clock before and after, in seconds.
    pub clock: (u32, u32),
}

/// Maps and programs, and what is in them.
#[derive(Debug)]
pub struct Kernel {
    detached: Detached,
    /// What the maps hold.
    holds: State,
    counts: Counts,
    traffic: (BTreeMap<ServiceId, Traffic>, BTreeMap<BackendId, Traffic>),
    /// Packets that were answered, with the clock before and after, and whether there was a limit.
    answered: VecDeque<(u32, u32, bool)>,
}

impl Kernel {
    /// Loads the programs, and keeps the calling thread on one processor, of which some of their maps are. The
    /// thread should be in a [`TestNode`](crate::test_node::TestNode).
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn load() -> Result<Self, KernelError> {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this)?;
        let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0))?;
        sched_setaffinity(this, &one)?;
        let detached = Detached::load(CONNTRACK)?;
        let counts = detached.maps().counters()?;
        Ok(Self {
            detached,
            holds: State::default(),
            counts,
            traffic: Default::default(),
            answered: VecDeque::new(),
        })
    }

    /// Its maps and programs.
    pub const fn detached(&self) -> &Detached {
        &self.detached
    }

    /// Seconds as the programs read them.
    ///
    /// # Errors
    /// [`KernelError::Processor`]
    pub fn now() -> Result<u32, KernelError> {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE)?;
        Ok(u32::try_from(time.tv_sec()).unwrap_or(u32::MAX))
    }

    /// Writes the maps, of which only what differs.
    ///
    /// # Errors
    /// [`KernelError::Map`]
    pub fn set(&mut self, state: &State) -> Result<(), KernelError> {
        write_all(self.detached.maps(), &self.holds, state)?;
        self.holds = state.clone();
        Ok(())
    }

    /// What has been answered in this second, as far as one can know.
    pub fn rejects(&self, now: u32) -> Rejects {
        let within = |least: bool| {
            let in_second = self.answered.iter().filter(|(before, after, limited)| {
                if least {
                    *before == now && *after == now && *limited
                } else {
                    *before == now || *after == now
                }
            });
            u32::try_from(in_second.count()).unwrap_or(u32::MAX)
        };
        Rejects {
            least: within(true),
            most: within(false),
        }
    }

    /// Runs a program on a packet.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn run(&mut self, shot: &Shot) -> Result<Observation, KernelError> {
        let hook = match shot.hook {
            Device::NodeIngress => DeviceHook::NodeIngress,
            Device::NodeEgress => DeviceHook::NodeEgress,
            Device::PodIngress => DeviceHook::PodIngress,
            Device::PodEgress => DeviceHook::PodEgress,
        };
        let input = Input {
            packet: &shot.frame,
            ifindex: shot.ifindex,
            own: shot.own,
            gso_size: shot.gso_size,
            repeat: 1,
        };
        let before = Self::now()?;
        let run = self.detached.run(hook, &input)?;
        let after = Self::now()?;
        let verdict = match run.verdict {
            -1 => Verdict::Pass,
            2 => Verdict::Drop,
            7 => Verdict::Redirect,
            other => return Err(KernelError::Verdict(other)),
        };
        let counter = self.counted()?;
        let maps = self.detached.maps();
        self.holds.flows = maps.conntrack.entries()?.into_iter().collect();
        self.holds.affinity = maps.affinity.entries()?.into_iter().collect();
        self.holds.fragments = maps.fragments.entries()?.into_iter().collect();
        let answer = matches!(
            counter,
            Counter::RejectedNoBackend
                | Counter::RejectedUnknownPort
                | Counter::RejectedNoFlow
                | Counter::AnsweredTimeExceeded
                | Counter::AnsweredTooBig
        );
        if answer && verdict == Verdict::Redirect {
            self.answered
                .push_back((before, after, self.holds.config.rejects_per_second != 0));
            while self.answered.front().is_some_and(|(_, then, _)| then + 2 < after) {
                self.answered.pop_front();
            }
        }
        Ok(Observation {
            verdict,
            counter,
            frame: run.packet,
            state: self.holds.clone(),
            traffic: self.added(),
            clock: (before, after),
        })
    }

    /// The one counter that has gone up by one.
    fn counted(&mut self) -> Result<Counter, KernelError> {
        let counts = self.detached.maps().counters()?;
        let mut up = Vec::new();
        // That a port was taken before its time shows in CONNTRACK.
        for counter in Counter::ALL
            .into_iter()
            .filter(|counter| *counter != Counter::SnatReused)
        {
            let times = counts.get(counter) - self.counts.get(counter);
            up.extend((0..times).map(|_| counter));
        }
        self.counts = counts;
        match up.as_slice() {
            [counter] => Ok(*counter),
            _ => Err(KernelError::Counted(up)),
        }
    }

    fn added(&mut self) -> (BTreeMap<ServiceId, Traffic>, BTreeMap<BackendId, Traffic>) {
        let maps = self.detached.maps();
        let services: BTreeMap<_, _> = (0..=scenario::SERVICES)
            .map(|id| (id, maps.service_traffic.get(id)))
            .collect();
        let backends: BTreeMap<_, _> = (0..=scenario::BACKENDS)
            .map(|id| (id, maps.backend_traffic.get(id)))
            .collect();
        let added = (more(&self.traffic.0, &services), more(&self.traffic.1, &backends));
        self.traffic = (services, backends);
        added
    }
}

fn more(before: &BTreeMap<u32, Traffic>, after: &BTreeMap<u32, Traffic>) -> BTreeMap<u32, Traffic> {
    let difference = after.iter().map(|(id, after)| {
        let before = before.get(id).copied().unwrap_or_default();
        let more = Traffic {
            connections: after.connections.wrapping_sub(before.connections),
            packets: after.packets.wrapping_sub(before.packets),
            bytes: after.bytes.wrapping_sub(before.bytes),
            pad: 0,
        };
        (*id, more)
    });
    difference
        .filter(|(_, more)| *more != Traffic::default())
        .collect()
}

/// Makes the maps that packets depend on hold what a state has; they hold `holds`.
pub(crate) fn write_all(maps: &Maps, holds: &State, state: &State) -> Result<(), MapError> {
    write(&maps.addresses, &holds.addresses, &state.addresses)?;
    write(&maps.frontends, &holds.frontends, &state.frontends)?;
    write(&maps.slots, &holds.slots, &state.slots)?;
    write(&maps.backends, &holds.backends, &state.backends)?;
    write(&maps.affinity, &holds.affinity, &state.affinity)?;
    write(&maps.conntrack, &holds.flows, &state.flows)?;
    write(&maps.fragments, &holds.fragments, &state.fragments)?;
    let ranges = |sources: &BTreeSet<_>| sources.iter().map(|range| (*range, 1_u32)).collect();
    write(&maps.sources, &ranges(&holds.sources), &ranges(&state.sources))?;
    for id in holds
        .services
        .keys()
        .filter(|id| !state.services.contains_key(*id))
    {
        maps.services.delete(id)?;
    }
    for (id, service) in &state.services {
        if holds.services.get(id) != Some(service) {
            maps.services.put(id, service)?;
        }
    }
    if holds.config != state.config {
        maps.config.put(&state.config)?;
    }
    Ok(())
}

/// Makes a map hold `after`; it holds `before`.
pub(crate) fn write<K, V>(
    table: &Table<K, V>,
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> Result<(), MapError>
where
    K: Plain + Ord,
    V: Plain + PartialEq,
{
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        table.delete(key)?;
    }
    for (key, value) in after {
        if before.get(key) != Some(value) {
            table.put(key, value)?;
        }
    }
    Ok(())
}

/// A state with every time in it moved from one present to another.
pub(super) fn moved(state: &State, from: u32, to: u32) -> State {
    let mut state = state.clone();
    let offset = to.wrapping_sub(from);
    let flows = state.flows.values_mut().map(|flow| &mut flow.last_seen);
    let affinity = state.affinity.values_mut().map(|affinity| &mut affinity.seconds);
    let fragments = state.fragments.values_mut().map(|ports| &mut ports.seconds);
    for time in flows.chain(affinity).chain(fragments) {
        *time = time.wrapping_add(offset);
    }
    state
}
