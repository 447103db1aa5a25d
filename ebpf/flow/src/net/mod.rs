//! What becomes of a packet.
//!
//! ```text
//! read::outermost ─▶ ADDRESSES ─▶ read::internet, transport ─▶ FLOWS ─┬─▶ known ───┐
//!  (inbound: most packets end here, passed;                           ├─▶ open ────┼─▶ Outcome, Work
//!   what may begin a connection: around)                              └─▶ icmp ────┘
//! Outcome ─▶ Disposition ─┬─ Leave
//!                         ├─ Translate ─▶ Work::to, Work::way ─▶ checksum, crc32c: by difference
//!                         ├─ Answer ────▶ reject ─▶ Work::answer
//!                         └─ Drop
//! ```
//!
//! | module | holds | section |
//! |---|---|---|
//! | `hook` | [`Hook`]: where a packet is seen | |
//! | `view` | [`Packet`], [`Node`], [`Entry`]: what decisions read and write | |
//! | `work` | [`Work`]: what is known of the packet at hand | |
//! | `read` | headers, options, extension headers | 1 |
//! | `icmp` | errors and what they quote | 3 |
//! | `conntrack` | states and time limits | 4 |
//! | `known` | packets of flows | 4 |
//! | `open` | packets that open flows | 5 |
//! | `around` | connections that are no flow's, but look like one's | 5 |
//! | `pieces` | fragments, in any order | 1 |
//! | `own` | what the node's own sockets have to do with node ports | 5 |
//! | `martian` | sources that nobody can have | 5 |
//! | `allocate` | source ports | 5 |
//! | `checksum`, `crc32c` | checksums by difference | 6 |
//! | `route` | where a translated packet goes | 7 |
//! | `reject`, `limit` | answers, and how many | 8 |
//! | `outcome` | [`Outcome`], and what it means and counts | |
//!
//! Sections are those of `ebpf/DATAPATH.md`.

mod allocate;
mod around;
pub mod checksum;
pub mod conntrack;
pub mod crc32c;
mod hook;
mod icmp;
mod known;
mod limit;
mod martian;
mod open;
mod outcome;
mod own;
mod pieces;
mod read;
pub mod reject;
mod route;
mod view;
mod work;

use lb_abi::{Address, SourceKey, address_flags};

pub use self::{
    allocate::{Attempt, attempt},
    hook::Hook,
    outcome::{Answer, Disposition, Outcome},
    pieces::MOST_HELD,
    read::{Options, has_jumbo, options},
    view::{Entry, Inserted, Node, Packet, Socket},
    work::{Fragment, Headers, Transport, Way, Work},
};
use self::{
    pieces::Pieces,
    read::{Part, Unread},
};

/// What [`lb_abi::Flow::claim`] is while an entry is being replaced: nobody else may.
pub const CLAIMED: u64 = u64::MAX;

/// What [`decide`] leaves to others: what few packets need, and what is long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Rest {
    /// [`icmp`].
    Icmp,
    /// [`open`].
    Open,
    /// [`around`].
    Around,
}

/// Decides what becomes of a packet, and writes FLOWS and FRAGMENTS; what the packet becomes is then in `work`. The
/// packet itself is not written.
#[inline(always)]
pub fn decide<P: Packet, N: Node>(hook: Hook, packet: P, node: N, work: &mut Work) -> Result<Outcome, Rest> {
    match read::outermost(packet, &mut work.headers) {
        Ok(()) => {}
        Err(Unread::Foreign) => return Ok(Outcome::Passed),
        Err(_) => return Ok(Outcome::Unreadable),
    }
    // Of what is at the loopback device most. Node ports answer there at sockets alone.
    if !hook.inbound() && work.headers.tuple.destination.is_loopback() {
        return Ok(Outcome::Passed);
    }
    // Most packets: one look-up, and nothing else is read of them.
    if hook.inbound() && flags(node, work.headers.tuple.destination).is_none() {
        return if read::may_start(packet, &work.headers) {
            Err(Rest::Around)
        } else {
            Ok(Outcome::Passed)
        };
    }
    if let Err(unread) = parts(packet, work) {
        return Ok(match unread {
            Unread::SourceRouted => wrong(hook, node, work, Outcome::DroppedSourceRoute),
            _ => wrong(hook, node, work, Outcome::DroppedMalformed),
        });
    }
    match work.headers.transport {
        Transport::Other => return Ok(stray(hook, node, work, Outcome::DroppedProtocol)),
        Transport::Icmp if !matches!(work.headers.fragment, Fragment::Later) => return Err(Rest::Icmp),
        Transport::Icmp | Transport::Ports => {}
    }
    if !matches!(work.headers.fragment, Fragment::Whole) {
        match pieces::find(hook, node, work) {
            Pieces::Known => {}
            Pieces::Held => return Ok(Outcome::Held),
            Pieces::Unknown => return Ok(wrong(hook, node, work, Outcome::DroppedFragment)),
        }
    }
    match known::decide(hook, node, work) {
        Ok(outcome) => Ok(outcome),
        Err(known::Unknown) if hook.opens() => Err(Rest::Open),
        Err(known::Unknown) => {
            around::end(node, work);
            own::note(hook, node, work);
            Ok(Outcome::Passed)
        }
    }
}

/// Decides what becomes of a packet of no connection that is known, and writes FLOWS and AFFINITY.
#[inline(always)]
pub fn open<N: Node>(hook: Hook, node: N, work: &mut Work) -> Outcome {
    let outcome = open::decide(hook, node, work);
    if matches!(outcome, Outcome::Passed) {
        around::end(node, work);
        own::note(hook, node, work);
    }
    outcome
}

/// Decides what becomes of a packet for nobody's address that may begin a connection: it goes on, and FLOWS forgets what
/// would be mistaken for that connection.
#[inline(always)]
pub fn around<P: Packet, N: Node>(packet: P, node: N, work: &mut Work) -> Outcome {
    around::decide(packet, node, work)
}

/// Decides what becomes of a message of the family's ICMP.
#[inline(always)]
pub fn icmp<P: Packet, N: Node>(hook: Hook, packet: P, node: N, work: &mut Work) -> Outcome {
    icmp::decide(hook, packet, node, work)
}

#[inline(always)]
fn parts<P: Packet>(packet: P, work: &mut Work) -> Result<(), Unread> {
    read::internet(packet, &mut work.headers, Part::Packet)?;
    read::transport(packet, &mut work.headers, Part::Packet)
}

/// What is said of an address: by ADDRESSES; or, where that has nothing, as of a Service's that is none, if it is one of those
/// that Services get, and neither a node nor a pod has it.
#[inline(always)]
fn flags<N: Node>(node: N, address: Address) -> Option<u32> {
    match node.address(&address) {
        None if node.in_service_range(address)
            && !node.admits(&SourceKey::client(SourceKey::CLUSTER, address)) =>
        {
            Some(address_flags::VIP)
        }
        flags => flags,
    }
}

/// Whether what is no frontend at an address is nobody's: at those of Services alone, and at those of load balancers for what
/// comes in from outside, which would be routed out again.
#[inline(always)]
const fn reserved(hook: Hook, flags: u32) -> bool {
    const MACHINES: u32 = address_flags::LOAD_BALANCER | address_flags::NODE;
    flags & address_flags::VIP != 0
        || matches!(hook, Hook::NodeIngress) && flags & MACHINES == address_flags::LOAD_BALANCER
}

/// What is wrong is dropped if it is for a service.
#[inline(always)]
fn wrong<N: Node>(hook: Hook, node: N, work: &Work, outcome: Outcome) -> Outcome {
    let flags = flags(node, work.headers.tuple.destination).unwrap_or(0);
    if hook.opens() && reserved(hook, flags) {
        outcome
    } else {
        Outcome::Passed
    }
}

/// What no service asked for is dropped if the address is a service's alone.
#[inline(always)]
fn stray<N: Node>(hook: Hook, node: N, work: &Work, outcome: Outcome) -> Outcome {
    let flags = flags(node, work.headers.tuple.destination).unwrap_or(0);
    if hook.opens() && reserved(hook, flags) && flags & address_flags::NODE == 0 {
        outcome
    } else {
        Outcome::Passed
    }
}

/// A number of an entry's own, for [`lb_abi::Flow::claim`].
#[inline(always)]
fn claim<N: Node>(node: N) -> u64 {
    // The upper bit is 0: never `CLAIMED`.
    u64::from(node.random() >> 1) << 32 | u64::from(node.random())
}

#[cfg(test)]
mod tests;
