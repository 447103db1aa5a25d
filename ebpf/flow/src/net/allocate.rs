//! Source ports: those of a node's address, or of a client whose own is taken.

use lb_abi::{Port, flow_flags};

use crate::{
    net::{
        Outcome, conntrack, route,
        view::{Entry, Inserted, Node},
        work::Work,
    },
    slot,
};

/// Where the backend sees the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Place {
    /// Where it is.
    Kept,
    /// At another port, perhaps of another address.
    Allocated,
    /// At a port of the node's own address, as long as one is free; otherwise where it is.
    Preferred,
}

/// Ports that are tried, at most: beyond that, a range is as good as full.
const MOST: u32 = 128;

/// Stores the reply's entry for a client that keeps its address and port. If another one's replies have the tuple, a
/// port has to be allocated.
#[inline(always)]
pub(super) fn keep<N: Node>(node: N, work: &mut Work, now: u32) -> Result<Place, Outcome> {
    work.key = work.to.inverse();
    work.flow.flags = flow_flags::REPLY;
    match node.insert(&work.key, &work.flow) {
        Inserted::New => Ok(Place::Kept),
        Inserted::Full => Err(Outcome::DroppedFlowsFull),
        Inserted::Exists => {
            let Some(there) = node.flow(&work.key) else {
                return Ok(Place::Allocated);
            };
            if there.to() != work.flow.to && !replaces(node, work, there, now) {
                return Ok(Place::Allocated);
            }
            if node.store(&work.key, &work.flow) {
                Ok(Place::Kept)
            } else {
                Err(Outcome::DroppedFlowsFull)
            }
        }
    }
}

/// Allocates a port and stores the reply's entry.
#[inline(always)]
pub(super) fn port<N: Node>(node: N, work: &mut Work, now: u32) -> Result<(), Outcome> {
    work.flow.flags = flow_flags::REPLY | flow_flags::SNAT;
    let (first, last) = node.snat_ports();
    if first == 0 || last < first {
        return Err(Outcome::DroppedPortsExhausted);
    }
    let ports = u32::from(last) - u32::from(first) + 1;
    work.trial = Trial {
        first: u32::from(first),
        ports,
        next: slot(node.random(), ports),
        left: if ports < MOST { ports } else { MOST },
        now,
        own: route::is_own(node, work.to.source),
    };
    for _ in 0..MOST {
        match node.attempt(work) {
            Attempt::Stored => return Ok(()),
            Attempt::Taken => {}
            Attempt::Exhausted => return Err(Outcome::DroppedPortsExhausted),
            Attempt::Full => return Err(Outcome::DroppedFlowsFull),
        }
    }
    Err(Outcome::DroppedPortsExhausted)
}

/// The search for a port. In memory, where a verifier does not follow it: it would go through the loop for every number
/// that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Trial {
    /// First port of the range.
    first: u32,
    /// How many there are.
    ports: u32,
    /// The next one to try, counted from the first.
    next: u32,
    /// How many may still be tried.
    left: u32,
    /// Seconds, as of when it began.
    now: u32,
    /// Whether the ports are those of the node's own address, which sockets have, too.
    own: bool,
}

impl Trial {
    /// None.
    pub(crate) const NONE: Self = Self {
        first: 0,
        ports: 0,
        next: 0,
        left: 0,
        now: 0,
        own: false,
    };
}

/// What came of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Attempt {
    /// It is this connection's.
    Stored,
    /// It is another one's, or a socket's.
    Taken,
    /// There was none left to try.
    Exhausted,
    /// There is no room.
    Full,
}

/// Tries to store the reply's entry with the next port.
#[inline(always)]
pub fn attempt<N: Node>(node: N, work: &mut Work) -> Attempt {
    let Trial {
        first,
        ports,
        next,
        left,
        now,
        own,
    } = work.trial;
    if left == 0 {
        return Attempt::Exhausted;
    }
    work.trial.left = left - 1;
    work.trial.next = if next + 1 < ports { next + 1 } else { 0 };
    // `as`: `next` is below the number of ports, and the last of them has 16 bits.
    work.to.source_port = Port::new((first + next) as u16);
    work.key = work.to.inverse();
    if own && node.has_socket(&work.key) {
        return Attempt::Taken;
    }
    match node.insert(&work.key, &work.flow) {
        Inserted::New => Attempt::Stored,
        Inserted::Full => Attempt::Full,
        Inserted::Exists => match node.flow(&work.key) {
            Some(there) if replaces(node, work, there, now) => {
                if node.store(&work.key, &work.flow) {
                    Attempt::Stored
                } else {
                    Attempt::Full
                }
            }
            _ => Attempt::Taken,
        },
    }
}

/// Whether an entry belongs to a flow that is over, and this processor is the one to replace it.
#[inline(always)]
fn replaces<N: Node>(node: N, work: &mut Work, there: N::Entry, now: u32) -> bool {
    let over = if there.flags() & flow_flags::REPLY == 0 {
        conntrack::is_over(work.key.protocol, there.seen(), there.last_seen(), now)
    } else {
        match node.flow(&there.to().inverse()) {
            None => true,
            Some(forward) => conntrack::is_over(work.key.protocol, forward.seen(), forward.last_seen(), now),
        }
    };
    over && there.take()
}
