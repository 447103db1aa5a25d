//! What becomes of a packet.
//!
//! ```text
//! packet ─▶ read::outermost ─▶ ADDRESSES ─▶ read::internet, transport ─▶ fragments ─┬─▶ established ─┐
//!              (inbound: most packets end here, passed;                              ├─▶ new_flow ────┼─▶ Outcome, PacketState
//!               what may begin a connection: direct_to_backend)                      └─▶ icmp ────────┘
//!
//! Outcome ─▶ Disposition ─┬─ Leave
//!                         ├─ Translate ─▶ PacketState::to, PacketState::delivery ─▶ checksum, crc32c: by difference
//!                         ├─ Answer ────▶ reject ─▶ PacketState::answer
//!                         └─ Drop
//! ```
//!
//! | module | holds | section |
//! |---|---|---|
//! | `hook` | [`Hook`]: where a packet is seen | |
//! | `traits` | [`Packet`], [`Node`], [`Entry`]: what decisions read and write | |
//! | `packet_state` | [`PacketState`]: what is known of the packet at hand | |
//! | `read` | headers, options, extension headers | 1 |
//! | `icmp` | errors and what they quote | 3 |
//! | `conntrack` | states and time limits | 4 |
//! | `established` | packets of flows | 4 |
//! | `new_flow` | packets that open flows | 5 |
//! | `direct_to_backend` | connections to a backend's own address, which look like a flow's | 5 |
//! | `fragments` | fragments, in any order | 1 |
//! | `node_sockets` | the node's own sockets at node ports | 5 |
//! | `martian` | sources that no host can have | 5 |
//! | `source_ports` | source ports | 5 |
//! | `checksum`, `crc32c` | checksums by difference | 6 |
//! | `route` | where a translated packet goes | 7 |
//! | `reject`, `answer_rate` | answers, and how many | 8 |
//! | `outcome` | [`Outcome`], and what it means and counts | |
//!
//! Sections are those of `ebpf/DATAPATH.md`.

mod answer_rate;
pub mod checksum;
pub mod conntrack;
pub mod crc32c;
mod direct_to_backend;
mod established;
mod fragments;
mod hook;
mod icmp;
mod martian;
mod new_flow;
mod node_sockets;
mod outcome;
mod packet_state;
mod read;
pub mod reject;
mod route;
mod source_ports;
mod traits;

use lb_abi::{Address, SourceKey, address_flags};

use self::{
    fragments::Datagram,
    read::{Part, Unread},
};
pub use self::{
    fragments::MOST_HELD,
    hook::Hook,
    outcome::{Answer, Disposition, Outcome},
    packet_state::{Delivery, Fragment, Headers, PacketState, Transport},
    read::{Options, has_jumbo, options},
    source_ports::{Attempt, attempt, attempts},
    traits::{Entry, Inserted, Node, Packet, Socket},
};

/// What [`lb_abi::Flow::claim`] is while an entry is being replaced: no other processor may replace it.
pub const CLAIMED: u64 = u64::MAX;

/// The stage that decides in place of [`decide`]: what few packets need, and what is long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Rest {
    /// [`icmp`].
    Icmp,
    /// [`open()`], and what it leaves to [`create`].
    Open,
    /// [`around()`].
    Around,
}

/// Decides what becomes of a packet, and writes CONNTRACK and FRAGMENTS; what the packet becomes is then in `work`. The
/// packet itself is not written.
#[inline(always)]
pub fn decide<P: Packet, N: Node>(
    hook: Hook,
    packet: P,
    node: N,
    work: &mut PacketState,
) -> Result<Outcome, Rest> {
    match read::outermost(packet, &mut work.headers) {
        Ok(()) => {}
        Err(Unread::Foreign) => return Ok(Outcome::Passed),
        Err(_) => return Ok(Outcome::Unreadable),
    }
    // Most packets of the loopback device. Node ports answer there at sockets alone.
    if !hook.inbound() && work.headers.tuple.destination.is_loopback() {
        return Ok(Outcome::Passed);
    }
    if hook.inbound() {
        match flags(node, work.headers.tuple.destination) {
            Some(flags) => work.destination_flags = flags,
            // Most packets: one look-up, and nothing else is read of them.
            None if read::may_start(packet, &work.headers) => return Err(Rest::Around),
            None => return Ok(Outcome::Passed),
        }
    }
    if let Err(unread) = parts(packet, work) {
        return Ok(match unread {
            Unread::SourceRouted => drop_if_reserved(hook, node, work, Outcome::DroppedSourceRoute),
            _ => drop_if_reserved(hook, node, work, Outcome::DroppedMalformed),
        });
    }
    match work.headers.transport {
        Transport::Other => return Ok(drop_if_only_services(hook, node, work, Outcome::DroppedProtocol)),
        Transport::Icmp if !matches!(work.headers.fragment, Fragment::Later) => return Err(Rest::Icmp),
        Transport::Icmp | Transport::Ports => {}
    }
    if !matches!(work.headers.fragment, Fragment::Whole) {
        match fragments::find(hook, node, work) {
            Datagram::Known => {}
            Datagram::Held => return Ok(Outcome::Held),
            Datagram::Unknown => return Ok(drop_if_reserved(hook, node, work, Outcome::DroppedFragment)),
        }
    }
    match established::decide(hook, node, work) {
        Ok(outcome) => Ok(outcome),
        Err(established::Unknown) if hook.opens() || node.is_locally_generated() => Err(Rest::Open),
        Err(established::Unknown) => {
            direct_to_backend::end(node, work);
            node_sockets::note(hook, node, work);
            Ok(Outcome::Passed)
        }
    }
}

/// A connection that [`create`] opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum New {
    /// Of a service.
    Service = 1,
    /// Of none, with a tuple that a flow has.
    Direct,
}

/// Decides what becomes of a packet of no connection that is known, and writes AFFINITY; or which connection it opens, whose way
/// is in `work` then.
#[inline(always)]
pub fn open<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Result<Outcome, New> {
    let found = if hook.opens() {
        new_flow::backend(hook, node, work)
    } else {
        Err(Outcome::Passed)
    };
    match found {
        Ok(()) => Err(New::Service),
        Err(Outcome::Passed) => pass(hook, node, work),
        Err(outcome) => Ok(outcome),
    }
}

/// A packet that is no service's goes on as it came, unless a flow has its port.
#[inline(always)]
fn pass<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Result<Outcome, New> {
    direct_to_backend::end(node, work);
    if direct_to_backend::shares_port(hook, node, work) {
        return Err(New::Direct);
    }
    node_sockets::note(hook, node, work);
    Ok(Outcome::Passed)
}

/// Opens the connection, to [`PacketState::to`]: writes both entries of CONNTRACK, or says why not.
#[inline(always)]
pub fn create<N: Node>(hook: Hook, node: N, work: &mut PacketState, new: New) -> Outcome {
    match (new_flow::store(hook, node, work), new) {
        // Better a port that two have than a packet lost.
        (Err(_), New::Direct) => Outcome::Passed,
        (Ok(outcome) | Err(outcome), _) => outcome,
    }
}

/// Decides what becomes of a packet for an address without services that may begin a connection: it goes on, and a flow that
/// would be mistaken for that connection is removed from CONNTRACK.
#[inline(always)]
pub fn around<P: Packet, N: Node>(packet: P, node: N, work: &mut PacketState) -> Outcome {
    direct_to_backend::decide(packet, node, work)
}

/// Decides what becomes of a message of the family's ICMP.
#[inline(always)]
pub fn icmp<P: Packet, N: Node>(hook: Hook, packet: P, node: N, work: &mut PacketState) -> Outcome {
    icmp::decide(hook, packet, node, work)
}

#[inline(always)]
fn parts<P: Packet>(packet: P, work: &mut PacketState) -> Result<(), Unread> {
    read::internet(packet, &mut work.headers, Part::Packet)?;
    read::transport(packet, &mut work.headers, Part::Packet)
}

/// The flags of an address: those that ADDRESSES has; or VIP, if ADDRESSES does not have it, it is in a range of cluster IPs, and
/// neither a Node nor a pod has it.
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

/// Whether ports of an address without a frontend belong to no machine: at those of Services alone, and at those of load balancers
/// for what comes in from outside, which would be routed out again.
#[inline(always)]
const fn reserved(hook: Hook, flags: u32) -> bool {
    const MACHINES: u32 = address_flags::LOAD_BALANCER | address_flags::NODE;
    flags & address_flags::VIP != 0
        || matches!(hook, Hook::NodeIngress) && flags & MACHINES == address_flags::LOAD_BALANCER
}

/// A packet that can't be read is dropped if its destination is reserved, and passed otherwise.
#[inline(always)]
fn drop_if_reserved<N: Node>(hook: Hook, node: N, work: &PacketState, outcome: Outcome) -> Outcome {
    let flags = flags(node, work.headers.tuple.destination).unwrap_or(0);
    if hook.opens() && reserved(hook, flags) {
        outcome
    } else {
        Outcome::Passed
    }
}

/// A packet without ports is dropped if its destination is reserved and not the node's, and passed otherwise.
#[inline(always)]
fn drop_if_only_services<N: Node>(hook: Hook, node: N, work: &PacketState, outcome: Outcome) -> Outcome {
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
