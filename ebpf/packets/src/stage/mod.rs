//! Plays rows on the programs in the kernel.
//!
//! | module | holds |
//! |---|---|
//! | `maps` | fills the maps and empties them |
//! | `play` | a row as it is written |
//! | `truncation` | a row with a packet that is cut off, or with an entry missing |
//! | `mismatch` | what a row expected and what was seen |

mod maps;
mod mismatch;
mod play;
mod truncation;

use std::{io, net::IpAddr};

use lb_abi::{COUNTERS, Counter, ServiceId, Traffic};
use lb_loader::{Detached, Input, LoaderError, MapError};

pub use self::{maps::Scene, mismatch::Mismatch};
use crate::table::Step;

/// CONNTRACK: the least that the loader takes; rows have a handful.
const CONNTRACK: u32 = lb_abi::capacity::CONNTRACK_LEAST;

/// Programs and maps, to play rows on, in the calling thread's [`TestNode`](crate::test_node::TestNode).
#[derive(Debug)]
pub struct Stage {
    detached: Detached,
    /// What SERVICES has: the array is too long to be searched for each row.
    services: Vec<ServiceId>,
}

/// What one packet has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepResult {
    /// What the program returned.
    pub verdict: i32,
    /// The packet as it left it.
    pub packet: Vec<u8>,
    /// What was counted, each as often as it was.
    pub counted: Vec<Counter>,
}

/// Why a row could not be played, or did not hold.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The programs could not be loaded or run.
    #[error("failed to run the programs")]
    Loader(#[from] LoaderError),
    /// A map could not be read or written.
    #[error("failed to use a map")]
    Map(#[from] MapError),
    /// A socket that a row holds could not be opened.
    #[error("failed to open a socket at {0} port {1}: is the thread in a test node?")]
    Socket(IpAddr, u16, #[source] io::Error),
    /// The row does not hold.
    #[error(transparent)]
    Mismatch(#[from] Box<Mismatch>),
}

impl Stage {
    /// Loads the programs.
    ///
    /// # Errors
    /// [`StageError::Loader`].
    pub fn new() -> Result<Self, StageError> {
        Ok(Self {
            detached: Detached::load(CONNTRACK)?,
            services: Vec::new(),
        })
    }

    /// Its maps and programs.
    pub const fn detached(&self) -> &Detached {
        &self.detached
    }

    /// Runs a step's program on a frame in the place of its packet's.
    ///
    /// # Errors
    /// [`StageError::Loader`], [`StageError::Map`].
    pub fn see(&self, step: &Step, frame: &[u8]) -> Result<StepResult, StageError> {
        let before = self.detached.maps().counters()?;
        let input = Input {
            packet: frame,
            ifindex: step.device,
            own: step.own,
            gso_size: step.gso_size,
            repeat: 1,
        };
        let run = self.detached.run(step.hook, &input)?;
        let after = self.detached.maps().counters()?;
        let mut counted = Vec::with_capacity(COUNTERS as usize);
        for counter in Counter::ALL {
            for _ in before.get(counter)..after.get(counter) {
                counted.push(counter);
            }
        }
        Ok(StepResult {
            verdict: run.verdict,
            packet: run.packet,
            counted,
        })
    }

    /// How many packets and calls have been counted, on whatever.
    fn counted(&self) -> Result<u64, StageError> {
        let counts = self.detached.maps().counters()?;
        let all = Counter::ALL
            .into_iter()
            .map(|counter| counts.get(counter))
            .sum::<u64>();
        // It counts beside what became of the packet.
        Ok(all - counts.get(Counter::SnatReused))
    }

    /// Traffic of the service port and the backend that a step names, since this was asked last.
    fn traffic(&self, step: &Step) -> [Traffic; 2] {
        let maps = self.detached.maps();
        let (service, backend) = step.traffic;
        [
            maps.service_traffic.clear(service),
            maps.backend_traffic.clear(backend),
        ]
    }
}
