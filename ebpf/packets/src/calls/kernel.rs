//! The programs in the kernel, at a cgroup of their own, and the sockets of a case.

use std::{collections::BTreeMap, fs, io, os::unix::fs::MetadataExt as _, path::Path};

use lb_abi::{BackendId, Counter, Meta, ServiceId};
use lb_loader::{Counts, Detached, LoaderError, MapError};
use nix::time::{ClockId, clock_gettime};
use test_network::{EnteredNamespace, NetworkError};

use super::{
    client::{self, Client},
    initial_services::MOST,
    model::{CallResult, Ids, Outcome, State},
    network::Network,
    step::Call,
};
use crate::{
    cgroup::{CgroupError, enter},
    fuzz::{write, write_all},
};

/// Entries of CONNTRACK, which sockets do not use: the least.
const CONNTRACK: u32 = lb_abi::capacity::CONNTRACK_LEAST;
/// How long is waited for what must come, in milliseconds: on one loopback device it is there when the call returns, or a busy
/// machine comes to it later.
const PATIENCE: u16 = 20_000;
/// The same where something is known not to come, and is tried again and again by fewer steps.
const HURRY: u16 = 100;

/// What was counted: by counters, and for service ports and backends.
type Counted = (BTreeMap<Counter, u64>, [BTreeMap<u32, u64>; 2]);

/// What is counted where maps are written.
const WRITERS: [Counter; 8] = [
    Counter::ConnectPassed,
    Counter::SocketDeferred,
    Counter::ConnectTranslated,
    Counter::SendmsgTranslated,
    Counter::SocketHole,
    Counter::OwnKept,
    Counter::OwnPassed,
    Counter::SocketReleased,
];

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The programs can't be loaded or attached.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A map can't be read or written.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The namespaces can't be made.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A socket can't be made, or a server not be asked.
    #[error("failed to use sockets in the two network namespaces")]
    Io(#[from] io::Error),
    /// The process can't be moved.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// What a call did.
#[derive(Clone, Debug)]
pub struct Observation {
    /// What was seen.
    pub seen: CallResult,
    /// The maps that programs write, afterwards; the others as they were.
    pub state: State,
    /// Of a socket that was made.
    pub cookie: Option<u64>,
}

/// Maps, programs, sockets.
#[derive(Debug)]
pub struct Kernel {
    open: BTreeMap<usize, Client>,
    detached: Detached,
    networks: [Network; 2],
    ids: Ids,
    /// What the maps hold.
    holds: State,
    counts: Counts,
    traffic: [BTreeMap<u32, u64>; 2],
    patience: u16,
    _entered: EnteredNamespace,
}

impl Kernel {
    /// Makes the namespaces, has the calling thread enter one and the whole process the cgroup, and attaches the programs to that.
    ///
    /// # Errors
    /// [`CallError`]
    pub fn load(cgroup: &Path) -> Result<Self, CallError> {
        // Before the process is in the cgroup: what servers do is not looked at.
        let (entered, networks) = Network::both()?;
        let ids = Ids {
            node: networks[0].cookie,
            pod: networks[1].cookie,
            cgroup: fs::metadata(cgroup)?.ino(),
        };
        let mut detached = Detached::load(CONNTRACK)?;
        detached.attach_sockets(cgroup)?;
        enter(cgroup)?;
        let counts = detached.maps().counters()?;
        Ok(Self {
            open: BTreeMap::new(),
            detached,
            networks,
            ids,
            holds: State::new(ids),
            counts,
            traffic: Default::default(),
            patience: PATIENCE,
            _entered: entered,
        })
    }

    /// Numbers of this run.
    pub const fn ids(&self) -> Ids {
        self.ids
    }

    /// Seconds as the programs read them.
    ///
    /// # Errors
    /// [`CallError::Io`]
    pub fn now() -> Result<u32, CallError> {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_err(io::Error::from)?;
        Ok(u32::try_from(time.tv_sec()).unwrap_or(u32::MAX))
    }

    /// Waits no longer than for what is there at once, or as long as for what must come.
    pub(super) const fn hurry(&mut self, hurry: bool) {
        self.patience = if hurry { HURRY } else { PATIENCE };
    }

    /// Closes all sockets, and writes the maps.
    ///
    /// # Errors
    /// [`CallError::Map`]
    pub fn begin(&mut self, state: &State) -> Result<(), CallError> {
        // So that nothing that was noted of them is left, whatever was tried before.
        self.set(&State {
            live: true,
            ..self.holds.clone()
        })?;
        self.open.clear();
        self.count()?;
        self.read()?;
        self.set(state)
    }

    /// The maps as they are.
    ///
    /// # Errors
    /// [`CallError::Map`]
    pub fn look(&mut self) -> Result<Observation, CallError> {
        self.read()?;
        Ok(Observation {
            seen: CallResult::default(),
            state: self.holds.clone(),
            cookie: None,
        })
    }

    /// Writes the maps, of which only what differs.
    ///
    /// # Errors
    /// [`CallError::Map`]
    pub fn set(&mut self, state: &State) -> Result<(), CallError> {
        let (maps, holds) = (self.detached.maps(), &self.holds);
        write_all(maps, &holds.maps, &state.maps)?;
        write(&maps.kept, &holds.kept, &state.kept)?;
        write(&maps.chosen, &holds.chosen, &state.chosen)?;
        write(&maps.socket_revnat, &holds.reverse, &state.reverse)?;
        write(&maps.socket_backend, &holds.sockets, &state.sockets)?;
        if holds.live != state.live {
            let abi = Meta::CURRENT.abi + u32::from(!state.live);
            self.detached.put_meta(&Meta { abi, ..Meta::CURRENT })?;
        }
        self.holds = state.clone();
        Ok(())
    }

    /// Makes a call. `outcomes`, of which one should come, say what is worth being waited for.
    ///
    /// # Errors
    /// [`CallError`]
    pub fn run(&mut self, slot: usize, call: Call, outcomes: &[Outcome]) -> Result<Observation, CallError> {
        let mut cookie = None;
        let mut seen = match call {
            Call::Open { kind, tcp, pod } => {
                self.open.remove(&slot);
                let client = self.inside(pod, || Client::open(kind, tcp, pod))?;
                cookie = Some(client.cookie()?);
                self.open.insert(slot, client);
                CallResult::default()
            }
            Call::Close => {
                self.open.remove(&slot);
                CallResult::default()
            }
            Call::Bind(bound) => self.inside(bound.pod, || client::bind(bound))?,
            call => {
                let client = self
                    .open
                    .get_mut(&slot)
                    .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
                let network = &self.networks[usize::from(client.pod)];
                client.call(network, call, outcomes, self.patience)?
            }
        };
        (seen.counters, [seen.services, seen.backends]) = self.count()?;
        // To read maps takes longer than a call. What is written without being counted shows at the case's end.
        if WRITERS.iter().any(|counter| seen.counters.contains_key(counter)) {
            self.read()?;
        }
        Ok(Observation {
            seen,
            state: self.holds.clone(),
            cookie,
        })
    }

    /// Does something in a namespace, which is the one of sockets that are made meanwhile.
    fn inside<T>(&self, pod: bool, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let [node, other] = &self.networks;
        if !pod {
            return work();
        }
        other.enter()?;
        let done = work();
        node.enter()?;
        done
    }

    /// What was counted.
    fn count(&mut self) -> Result<Counted, CallError> {
        let maps = self.detached.maps();
        let counts = maps.counters()?;
        let added = Counter::ALL
            .into_iter()
            .map(|counter| (counter, counts.get(counter) - self.counts.get(counter)))
            .filter(|(_, added)| *added != 0)
            .collect();
        self.counts = counts;
        let services: BTreeMap<ServiceId, _> = (1..=MOST)
            .map(|id| (id, maps.service_traffic.get(id).connections))
            .collect();
        let backends: BTreeMap<BackendId, _> = (1..=MOST)
            .map(|id| (id, maps.backend_traffic.get(id).connections))
            .collect();
        let now = [services, backends];
        let more = |which: usize| {
            let before = |id| self.traffic[which].get(id).copied().unwrap_or(0);
            let more = now[which].iter().map(|(id, number)| (*id, number - before(id)));
            more.filter(|(_, more)| *more != 0).collect()
        };
        let traffic = [more(0), more(1)];
        self.traffic = now;
        Ok((added, traffic))
    }

    /// What the programs have written.
    fn read(&mut self) -> Result<(), CallError> {
        let maps = self.detached.maps();
        self.holds.maps.affinity = maps.affinity.entries()?.into_iter().collect();
        self.holds.chosen = maps.chosen.entries()?.into_iter().collect();
        self.holds.reverse = maps.socket_revnat.entries()?.into_iter().collect();
        self.holds.sockets = maps.socket_backend.entries()?.into_iter().collect();
        Ok(())
    }
}
