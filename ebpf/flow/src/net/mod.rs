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
mod read;
pub mod reject;
mod route;
mod view;
mod work;

use lb_abi::{FragmentKey, Ports, address_flags};

use self::read::{Part, Unread};
pub use self::{
    allocate::{Attempt, attempt},
    hook::Hook,
    outcome::{Answer, Disposition, Outcome},
    read::{Options, has_jumbo, options},
    view::{Entry, Inserted, Node, Packet},
    work::{Fragment, Headers, Transport, Way, Work},
};
use crate::elapsed;

/// For how long other fragments may follow the first, in seconds.
const FRAGMENT_SECONDS: u32 = 30;

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
    // Most packets: one look-up, and nothing else is read of them.
    if hook.inbound() && node.address(&work.headers.tuple.destination).is_none() {
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
    if !matches!(work.headers.fragment, Fragment::Whole) && !fragment(node, work) {
        return Ok(wrong(hook, node, work, Outcome::DroppedFragment));
    }
    match known::decide(hook, node, work) {
        Ok(outcome) => Ok(outcome),
        Err(known::Unknown) if hook.opens() => Err(Rest::Open),
        Err(known::Unknown) => {
            around::end(node, work);
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

/// What is wrong is dropped if it is for a service.
#[inline(always)]
fn wrong<N: Node>(hook: Hook, node: N, work: &Work, outcome: Outcome) -> Outcome {
    let flags = node.address(&work.headers.tuple.destination).unwrap_or(0);
    if hook.opens() && flags & address_flags::VIP != 0 {
        outcome
    } else {
        Outcome::Passed
    }
}

/// What no service asked for is dropped if the address is a service's alone.
#[inline(always)]
fn stray<N: Node>(hook: Hook, node: N, work: &Work, outcome: Outcome) -> Outcome {
    const BOTH: u32 = address_flags::VIP | address_flags::NODE;
    let flags = node.address(&work.headers.tuple.destination).unwrap_or(0);
    if hook.opens() && flags & BOTH == address_flags::VIP {
        outcome
    } else {
        Outcome::Passed
    }
}

/// Notes the ports of a first fragment, or finds those of another one; `false`: they are not known.
#[inline(never)]
fn fragment<N: Node>(node: N, work: &mut Work) -> bool {
    let tuple = &mut work.headers.tuple;
    let key = FragmentKey {
        source: tuple.source,
        destination: tuple.destination,
        id: work.headers.fragment_id,
        protocol: tuple.protocol,
        pad: [0; 3],
    };
    let now = node.now();
    if matches!(work.headers.fragment, Fragment::First) {
        let ports = Ports {
            source: tuple.source_port,
            destination: tuple.destination_port,
            seconds: now,
        };
        node.keep_ports(&key, &ports);
        return true;
    }
    match node.ports(&key) {
        Some(ports) if elapsed(now, ports.seconds) <= FRAGMENT_SECONDS => {
            (tuple.source_port, tuple.destination_port) = (ports.source, ports.destination);
            true
        }
        _ => false,
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
