//! SERVICE_TRAFFIC and BACKEND_TRAFFIC, as memory that programs add to.

use std::{
    ops::Deref,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use lb_abi::Traffic;

use super::mmap_array::{Access, Memory};
use crate::{LoaderError, MapName};

/// Words of an element: connections, packets, bytes, zero.
const WORDS: usize = 4;
const _: () = assert!(size_of::<Traffic>() == WORDS * size_of::<u64>());

/// What has passed, by service port or by backend, to be read.
#[derive(Debug)]
pub struct TrafficView {
    memory: Memory,
}

impl TrafficView {
    /// The map must have the layout of its name, which is one of the two.
    pub(crate) fn new(name: MapName, map: &OwnedFd) -> Result<Self, LoaderError> {
        Memory::map(name, map, Access::Read).map(|memory| Self { memory })
    }

    /// Of an id; nothing if there is no such number. The three numbers are read one after the other, while programs
    /// add to them.
    pub fn get(&self, id: u32) -> Traffic {
        self.element(id).map_or_else(Traffic::default, read)
    }

    /// Every id with traffic, in the order of the ids.
    pub fn entries(&self) -> Vec<(u32, Traffic)> {
        let (elements, _) = self.memory.words().as_chunks::<WORDS>();
        (0..)
            .zip(elements)
            .map(|(id, element)| (id, read(element)))
            .filter(|(_, traffic)| *traffic != Traffic::default())
            .collect()
    }

    fn element(&self, id: u32) -> Option<&[AtomicU64; WORDS]> {
        let (elements, _) = self.memory.words().as_chunks::<WORDS>();
        elements.get(usize::try_from(id).ok()?)
    }
}

fn read([connections, packets, bytes, _]: &[AtomicU64; WORDS]) -> Traffic {
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    Traffic {
        connections: read(connections),
        packets: read(packets),
        bytes: read(bytes),
        pad: 0,
    }
}

/// What has passed, by service port or by backend, to be read and begun anew.
#[derive(Debug)]
pub struct TrafficTable(TrafficView);

impl TrafficTable {
    /// As [`TrafficView::new`].
    pub(crate) fn new(name: MapName, map: &OwnedFd) -> Result<Self, LoaderError> {
        Memory::map(name, map, Access::ReadWrite).map(|memory| Self(TrafficView { memory }))
    }

    /// Sets an id's numbers to zero, for the next that is given the id, and returns what they were.
    pub fn clear(&self, id: u32) -> Traffic {
        let take = |word: &AtomicU64| word.swap(0, Ordering::Relaxed);
        self.element(id).map_or_else(Traffic::default, |element| {
            let [connections, packets, bytes, _] = element;
            Traffic {
                connections: take(connections),
                packets: take(packets),
                bytes: take(bytes),
                pad: 0,
            }
        })
    }
}

impl Deref for TrafficTable {
    type Target = TrafficView;

    fn deref(&self) -> &TrafficView {
        &self.0
    }
}
