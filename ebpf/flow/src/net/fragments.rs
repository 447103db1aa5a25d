//! Fragments: the first of a datagram has the ports, which FRAGMENTS keeps for the others.
//!
//! Those that come before it are held, with their bytes, and come in once more right after it. Both are bounded: a datagram
//! waits for [`SECONDS`], at most [`MOST_HELD`] fragments of it are held, and of all datagrams as many as HELD has room for.

use lb_abi::{FragmentKey, HeldKey, Port, Ports};

use crate::{
    elapsed,
    net::{
        Hook,
        packet_state::{Fragment, PacketState, Transport},
        traits::Node,
    },
};

/// For how long other fragments may follow the first, or wait for it, in seconds (as the kernel's
/// `net.ipv4.ipfrag_time`).
const SECONDS: u32 = 30;
/// Most fragments that are held of one datagram: 64 KiB in pieces of 1,400 bytes are 47.
pub const MOST_HELD: u32 = 48;

/// What is known of a fragment's datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Datagram {
    /// Its ports, which are now the packet's.
    Known,
    /// Nothing.
    Unknown,
    /// Nothing yet: the packet is held; or it was the first, and comes in once more with those that were.
    Held,
}

/// Notes the ports of a first fragment, or finds those of another one.
#[inline(never)]
pub(super) fn find<N: Node>(hook: Hook, node: N, work: &mut PacketState) -> Datagram {
    let tuple = &mut work.headers.tuple;
    let key = FragmentKey {
        source: tuple.source,
        destination: tuple.destination,
        id: work.headers.fragment_id,
        protocol: tuple.protocol,
        pad: [0; 3],
    };
    let now = node.now();
    // No `Option`: its copy without a value would be a read of what was not written, which older verifiers refuse.
    let none = Ports {
        source: Port::new(0),
        destination: Port::new(0),
        seconds: now,
        held: 0,
    };
    let (there, is_there) = match node.ports(&key) {
        Some(ports) if elapsed(now, ports.seconds) <= SECONDS => (ports, true),
        _ => (none, false),
    };
    if matches!(work.headers.fragment, Fragment::First) {
        let ports = Ports {
            source: tuple.source_port,
            destination: tuple.destination_port,
            seconds: now,
            held: 0,
        };
        node.keep_ports(&key, &ports);
        if there.held == 0 || !hook.inbound() {
            return Datagram::Known;
        }
        work.held = HeldKey {
            datagram: key,
            number: there.held,
        };
        node.release(work);
        return Datagram::Held;
    }
    if is_there && there.held == 0 {
        (tuple.source_port, tuple.destination_port) = (there.source, there.destination);
        return Datagram::Known;
    }
    // Of ICMP nothing is noted that others could wait for; and what leaves this node comes in order.
    if !hook.inbound() || !matches!(work.headers.transport, Transport::Ports) {
        return Datagram::Unknown;
    }
    let number = there.held;
    work.held = HeldKey {
        datagram: key,
        number,
    };
    if number >= MOST_HELD || !node.hold(work) {
        return Datagram::Unknown;
    }
    let ports = Ports {
        held: number + 1,
        ..there
    };
    if is_there {
        node.keep_ports(&key, &ports);
    } else if !node.insert_ports(&key, &ports) {
        // One that is too old; or the first came by another processor in this moment, and the sender sends again.
        return again(node, work, &ports);
    }
    Datagram::Held
}

/// An entry was in the way.
#[inline(always)]
fn again<N: Node>(node: N, work: &mut PacketState, ports: &Ports) -> Datagram {
    match node.ports(&work.held.datagram) {
        Some(there) if there.held == 0 && elapsed(ports.seconds, there.seconds) <= SECONDS => {
            work.headers.tuple.source_port = there.source;
            work.headers.tuple.destination_port = there.destination;
            Datagram::Known
        }
        _ => {
            node.keep_ports(&work.held.datagram, ports);
            Datagram::Held
        }
    }
}
