//! The maps of the stage.

use lb_abi::{Affinity, Ports, Service};
use lb_loader::{MapError, Plain, Table};
use nix::time::{ClockId, clock_gettime};
use socket2::Socket;

use super::{Stage, StageError};
use crate::{
    table::{Entry, Given, OpenSocket},
    test_node::sockets,
};

/// Maps that are filled, and sockets that are held for as long as this lives.
#[derive(Debug)]
pub struct Scene {
    /// When they were: seconds since the machine started.
    pub(super) begun: u32,
    _sockets: Vec<Socket>,
}

impl Scene {
    /// For how long, in seconds as the programs count them.
    pub fn elapsed(&self) -> u32 {
        now().wrapping_sub(self.begun)
    }
}

/// CLOCK_MONOTONIC, in seconds, as the programs read it: of the last tick.
pub(super) fn now() -> u32 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("a monotonic clock");
    time.tv_sec() as u32
}

impl Stage {
    /// Empties the maps and fills them with what is given.
    ///
    /// # Errors
    /// [`StageError::Map`], [`StageError::Socket`].
    pub fn set(&mut self, given: &Given) -> Result<Scene, StageError> {
        self.set_without(given, None)
    }

    /// The same, without the entry of an index.
    pub(super) fn set_without(&mut self, given: &Given, without: Option<usize>) -> Result<Scene, StageError> {
        self.clear()?;
        self.detached.put_meta(&given.meta)?;
        self.detached.maps().config.put(&given.config)?;
        let begun = now();
        for (index, entry) in given.entries.iter().enumerate() {
            if Some(index) != without {
                self.put(entry, begun)?;
            }
        }
        let sockets = given.sockets.iter().map(hold).collect::<Result<_, _>>()?;
        Ok(Scene {
            begun,
            _sockets: sockets,
        })
    }

    fn put(&mut self, entry: &Entry, now: u32) -> Result<(), MapError> {
        let ago = |age: i32| now.wrapping_sub_signed(age);
        let maps = self.detached.maps();
        match entry {
            Entry::Address(address, flags) => maps.addresses.put(address, flags),
            Entry::Frontend(key, frontend) => maps.frontends.put(key, frontend),
            Entry::Service(id, service) => {
                self.services.push(*id);
                maps.services.put(id, service)
            }
            Entry::Slot(key, backend) => maps.slots.put(key, backend),
            Entry::Backend(id, backend) => maps.backends.put(id, backend),
            Entry::Source(range) => maps.sources.put(range, &1),
            Entry::Affinity(key, backend, age) => {
                let affinity = Affinity {
                    backend: *backend,
                    seconds: ago(*age),
                };
                maps.affinity.put(key, &affinity)
            }
            Entry::Fragment(key, [source, destination], held, age) => {
                let ports = Ports {
                    source: *source,
                    destination: *destination,
                    seconds: ago(*age),
                    held: *held,
                };
                maps.fragments.put(key, &ports)
            }
            Entry::Connection(connection) => connection
                .entries(now)
                .iter()
                .try_for_each(|(tuple, flow)| maps.conntrack.put(tuple, flow)),
        }
    }

    fn clear(&mut self) -> Result<(), MapError> {
        let maps = self.detached.maps();
        for id in self.services.drain(..) {
            maps.services.put(&id, &Service::default())?;
        }
        empty(&maps.frontends)?;
        empty(&maps.addresses)?;
        empty(&maps.slots)?;
        empty(&maps.backends)?;
        empty(&maps.sources)?;
        empty(&maps.affinity)?;
        empty(&maps.fragments)?;
        empty(&maps.conntrack)
    }
}

fn empty<K: Plain + Ord, V: Plain>(table: &Table<K, V>) -> Result<(), MapError> {
    for (key, _) in table.entries()? {
        table.delete(&key)?;
    }
    Ok(())
}

fn hold(held: &OpenSocket) -> Result<Socket, StageError> {
    let (address, port) = held.end;
    let opened = match held.peer {
        None => sockets::bound(held.protocol, held.end.into()),
        Some(peer) => sockets::connected(held.protocol, held.end.into(), peer.into()),
    };
    opened.map_err(|source| StageError::Socket(address, port, source))
}
