//! The agent's parts: its watches, and a control plane over maps in memory.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Instant};

use kube::Client;
use rand::rngs::StdRng;
use reference_agent::{
    feed::{Arrival, queue},
    maps::{Contents, Map, faulty::FaultyMaps, memory::MemoryMaps},
    model::{Event, Host},
    reflect,
    reports::Reports,
    testing::{World, api_state::ApiState, witness::Witness},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{Desired, api::NODES};

/// The agent of the first node.
pub(crate) struct Agent {
    pub(crate) world: World<Desired>,
    /// All that it has been told.
    pub(crate) told: ApiState,
    arrivals: mpsc::Receiver<Arrival>,
    /// They end with it.
    _watches: JoinSet<()>,
}

impl Agent {
    /// Starts one over maps with contents.
    pub(crate) fn start(desired: Desired, contents: &Contents, client: &Client, random: &mut StdRng) -> Self {
        let (sender, arrivals) = queue();
        let mut watches = JoinSet::new();
        for feed in reflect::feeds(client, &Reports::new(None), random) {
            watches.spawn(feed.run(sender.clone()));
        }
        let mut agent = Self {
            world: World::with(desired, contents),
            told: ApiState::default(),
            arrivals,
            _watches: watches,
        };
        beginning().into_iter().for_each(|event| agent.take(event));
        agent
    }

    /// The next events; none if all watches have ended.
    pub(crate) async fn arrival(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }

    /// Takes events, and all others that have come.
    pub(crate) fn take_all(&mut self, first: Arrival) {
        first.events().for_each(|event| self.take(event));
        while let Ok(arrival) = self.arrivals.try_recv() {
            arrival.events().for_each(|event| self.take(event));
        }
    }

    fn take(&mut self, event: Event) {
        self.told.take(&event);
        self.world.control.apply(event);
    }

    /// Whether events wait.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Whether everything is written that it has been told.
    pub(crate) fn is_done(&self) -> bool {
        self.world.control.synced() && !self.world.control.outstanding() && self.deadline().is_none()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.world.control.deadline()
    }

    /// Audits a map, as the agent does in turn.
    pub(crate) fn audit(&mut self) {
        if self.world.control.synced() {
            // A map in memory can be read.
            drop(self.world.control.audit());
        }
    }

    /// Removes all entries of its maps behind its back.
    pub(crate) fn wipe(&mut self) {
        let empty = MemoryMaps::with_contents(&Contents::default());
        *self.world.maps_mut() = Witness::new(FaultyMaps::new(empty));
    }
}

/// The events with which every agent begins: the API servers that it knows, and the addresses of its node.
pub(crate) fn beginning() -> [Event; 2] {
    let (_, address) = NODES[0];
    let host = Host {
        addresses: [Ipv4Addr::from(address).into()].into(),
        probe: None,
    };
    [Event::ApiServers(BTreeSet::new()), Event::Host(host)]
}

/// Audits until every map has been looked at, and what is foreign has been removed.
pub(crate) const AUDITS: usize = 2 * Map::ALL.len();
