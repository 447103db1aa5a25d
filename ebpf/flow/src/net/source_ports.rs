//! Source ports: of the node's address, or of a client whose own port is taken.

use lb_abi::{FrontendKey, Port, flow_flags};

use crate::{
    elapsed,
    net::{
        Hook, Outcome, conntrack,
        packet_state::{Old, PacketState},
        route,
        traits::{Entry, Inserted, Node, Socket},
    },
    slot,
};

/// Which source port the backend sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum SourcePort {
    /// The client's.
    Kept,
    /// One that is allocated, perhaps at another address.
    Allocated,
    /// One that is allocated if any is free, otherwise the client's.
    AllocatedIfFree,
}

/// Ports that are tried, at most: beyond that, a range is as good as full.
const MOST: u32 = 128;
/// After so many ports in use, one after the other, the range counts as nearly full: a port whose connection has ended is taken
/// before its time.
const NEARLY_FULL: u32 = 16;
/// Of the ports that no socket is given, one in so many, the last ones, are for addresses that are not the node's own. Another
/// machine gives out the same address's ports for the same backend, and neither sees the other's connections.
const SHARE: u32 = 8;
/// Fewer ports than that are not divided: each part has to be as long as a search.
const DIVIDED: u32 = SHARE * MOST;
/// For how long such a connection has been silent at least, in seconds: its last packets have arrived, and what follows on
/// them. (An end that has closed first, and waits for 2 MSL, takes a new connection all the same: RFC 6191, RFC 9293 3.6.1.)
const QUIET: u32 = 2;

/// Stores the reply's entry for a client that keeps its address and port. A port has to be allocated if the tuple is taken: by
/// another flow's replies, or by a socket of the node.
#[inline(always)]
pub(super) fn keep<N: Node>(
    hook: Hook,
    node: N,
    work: &mut PacketState,
    now: u32,
) -> Result<SourcePort, Outcome> {
    work.reply_key = work.to.inverse();
    if is_of_socket(hook, node, work) {
        return Ok(SourcePort::Allocated);
    }
    work.flow.flags = flow_flags::REPLY;
    match node.insert(&work.reply_key, &work.flow) {
        Inserted::New => Ok(SourcePort::Kept),
        Inserted::Full => Err(Outcome::DroppedFlowsFull),
        Inserted::Exists => {
            let Some(there) = node.flow(&work.reply_key) else {
                return Ok(SourcePort::Allocated);
            };
            if there.to() != work.flow.to && !replaces(node, work, there, now) {
                return Ok(SourcePort::Allocated);
            }
            if node.store(&work.reply_key, &work.flow) {
                Ok(SourcePort::Kept)
            } else {
                Err(Outcome::DroppedFlowsFull)
            }
        }
    }
}

/// Whether a socket of the node has the tuple that a packet of another one is about to become. A socket program has connected it
/// to the backend, and no packet of it was ever in CONNTRACK. (At this hook a source that is kept is the node's own; with a tuple that
/// stays as it is, the socket would be the client's.)
#[inline(always)]
fn is_of_socket<N: Node>(hook: Hook, node: N, work: &PacketState) -> bool {
    matches!(hook, Hook::NodeEgress)
        && work.to != work.headers.tuple
        && matches!(node.socket(&work.reply_key), Socket::Connected)
}

/// Allocates a port and stores the reply's entry. `kind`: SNAT, or OTHER_PORT where the client's address stays.
#[inline(always)]
pub(super) fn port<N: Node>(
    hook: Hook,
    node: N,
    work: &mut PacketState,
    now: u32,
    kind: u32,
) -> Result<(), Outcome> {
    work.flow.flags = flow_flags::REPLY | kind;
    let (first, last) = node.snat_ports();
    if first == 0 || last < first {
        return Err(Outcome::DroppedPortsExhausted);
    }
    let (local_first, local_last) = node.local_ports();
    let (first, last) = (u32::from(first), u32::from(last));
    let ports = last - first + 1;
    // Those of sockets that are in the range.
    let hole_first = if u32::from(local_first) > first {
        u32::from(local_first)
    } else {
        first
    };
    let hole_last = if u32::from(local_last) < last {
        u32::from(local_last)
    } else {
        last
    };
    let hole = if hole_first <= hole_last {
        hole_last - hole_first + 1
    } else {
        0
    };
    let all = ports - hole;
    let share = if all < DIVIDED { 0 } else { all / SHARE };
    // At the other hooks the client is here.
    let (skipped, others) =
        if share != 0 && kind == flow_flags::OTHER_PORT && matches!(hook, Hook::NodeIngress) {
            (all - share, share)
        } else {
            (0, all - share)
        };
    let before = u32::from(work.old_reply_key.destination_port.get());
    let pool = if others == 0 { hole } else { others };
    work.trial = Trial {
        first,
        hole_at: hole_first.wrapping_sub(first),
        hole,
        skipped,
        others,
        next: slot(node.random(), pool),
        left: if pool < MOST { pool } else { MOST },
        tried: 0,
        ended: 0,
        clients: false,
        now,
        own: route::is_own(node, work.to.source),
        again: matches!(work.old, Old::Replaced) && first <= before && before <= last,
    };
    match node.attempts(work) {
        Attempt::Stored => Ok(()),
        Attempt::Full => Err(Outcome::DroppedFlowsFull),
        Attempt::Taken | Attempt::Exhausted => Err(Outcome::DroppedPortsExhausted),
    }
}

/// Tries one port after the other. For [`Node::attempts`], which is what others call.
#[inline(always)]
pub fn attempts<N: Node>(node: N, work: &mut PacketState) -> Attempt {
    // The port that it had, those of sockets, the change to them, and one whose connection has ended, on top.
    for _ in 0..MOST + MOST / 2 + 3 {
        match node.attempt(work) {
            Attempt::Taken => {}
            attempt => return attempt,
        }
    }
    Attempt::Exhausted
}

/// The search for a port. In memory, where a verifier does not follow it: it would go through the loop for every number
/// that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Trial {
    /// First port of the range.
    first: u32,
    /// Where in it those are that the kernel gives to sockets, counted from the first port; and how many. They come last: a socket
    /// that gets one later may want the same backend.
    hole_at: u32,
    hole: u32,
    /// How many others come before those that may be tried.
    skipped: u32,
    /// How many others may be tried.
    others: u32,
    /// The next one to try, counted among the others; of those of sockets, once the others have been tried, among those.
    next: u32,
    /// How many may still be tried.
    left: u32,
    /// How many were.
    tried: u32,
    /// A port whose connection has ended; 0: none was seen.
    ended: u32,
    /// Whether that was this client's: where its timestamps go on, a backend that still waits for the end of the old connection takes
    /// the new one at once (RFC 6191).
    clients: bool,
    /// Seconds, as of when it began.
    now: u32,
    /// Whether the ports are those of the node's own address, which sockets have, too.
    own: bool,
    /// Whether the port is to be tried first that the connection had which this one replaces.
    again: bool,
}

impl Trial {
    /// None.
    pub(crate) const NONE: Self = Self {
        first: 0,
        hole_at: 0,
        hole: 0,
        skipped: 0,
        others: 0,
        next: 0,
        left: 0,
        tried: 0,
        ended: 0,
        clients: false,
        now: 0,
        own: false,
        again: false,
    };
}

/// What came of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Attempt {
    /// It is this connection's.
    Stored,
    /// It is another one's, a socket's, or a frontend's.
    Taken,
    /// There was none left to try.
    Exhausted,
    /// There is no room.
    Full,
}

/// Tries to store the reply's entry with the next port.
#[inline(always)]
pub fn attempt<N: Node>(node: N, work: &mut PacketState) -> Attempt {
    let trial = &mut work.trial;
    if trial.again {
        trial.again = false;
        return its_own(node, work);
    }
    let among_others = trial.others != 0;
    if trial.ended != 0 && (trial.tried >= NEARLY_FULL || trial.left == 0) {
        return again(node, work);
    }
    if trial.left == 0 {
        if !among_others || trial.hole == 0 {
            return Attempt::Exhausted;
        }
        // Those of sockets now.
        trial.others = 0;
        trial.left = if trial.hole < MOST / 2 {
            trial.hole
        } else {
            MOST / 2
        };
        trial.next = slot(node.random(), trial.hole);
        return Attempt::Taken;
    }
    trial.left -= 1;
    trial.tried += 1;
    let next = trial.next;
    let (ports, at) = if !among_others {
        (trial.hole, trial.hole_at + next)
    } else if trial.skipped + next < trial.hole_at || trial.hole == 0 {
        (trial.others, trial.skipped + next)
    } else {
        (trial.others, trial.skipped + next + trial.hole)
    };
    trial.next = if next + 1 < ports { next + 1 } else { 0 };
    let now = trial.now;
    // `as`: within the range, whose last port has 16 bits.
    let port = trial.first.wrapping_add(at) as u16;
    work.to.source_port = Port::new(port);
    work.reply_key = work.to.inverse();
    if has_other_owner(node, work) {
        return Attempt::Taken;
    }
    // Looked for first: to write what is there already would cost another connection its entry, where the map is full.
    let Some(there) = node.flow(&work.reply_key) else {
        return match node.insert(&work.reply_key, &work.flow) {
            Inserted::New => Attempt::Stored,
            Inserted::Full => Attempt::Full,
            Inserted::Exists => Attempt::Taken,
        };
    };
    if replaces(node, work, there, now) {
        return stored(node, work);
    }
    let clients = there.to().destination == work.headers.tuple.source;
    if (work.trial.ended == 0 || clients && !work.trial.clients) && has_ended(node, there, now) {
        (work.trial.ended, work.trial.clients) = (u32::from(port), clients);
    }
    Attempt::Taken
}

/// Whether a socket of the node or a frontend has the address and port to which answers go: a load balancer's address may be a
/// node's. All nodes have that frontend, so the backend's node would handle the answer as a client's packet.
#[inline(always)]
fn has_other_owner<N: Node>(node: N, work: &PacketState) -> bool {
    let answered = FrontendKey {
        address: work.reply_key.destination,
        port: work.reply_key.destination_port,
        protocol: work.reply_key.protocol,
        pad: 0,
    };
    node.frontend(&answered).is_some()
        || work.trial.own && !matches!(node.socket(&work.reply_key), Socket::None)
}

/// Takes the port that this very client's connection has had which is replaced, if the backend is the same: what the backend
/// remembers of it is of that client port, as without a translation. So a client that has reset what its backend still knew of an
/// earlier connection reaches it when it asks again (RFC 9293, 3.5.2 and 3.10.7.3).
#[inline(always)]
fn its_own<N: Node>(node: N, work: &mut PacketState) -> Attempt {
    work.to.source_port = work.old_reply_key.destination_port;
    work.reply_key = work.to.inverse();
    if work.reply_key != work.old_reply_key || has_other_owner(node, work) {
        return Attempt::Taken;
    }
    match node.flow(&work.reply_key) {
        Some(there)
            if there.flags() & (flow_flags::SNAT | flow_flags::OTHER_PORT) != 0
                && there.to().inverse() == work.headers.tuple
                && there.take() =>
        {
            stored(node, work)
        }
        _ => Attempt::Taken,
    }
}

/// Takes the port of a connection that has ended, as others are hard to find.
#[inline(always)]
fn again<N: Node>(node: N, work: &mut PacketState) -> Attempt {
    // `as`: a port.
    work.to.source_port = Port::new(work.trial.ended as u16);
    work.reply_key = work.to.inverse();
    work.trial.ended = 0;
    match node.flow(&work.reply_key) {
        Some(there) if has_ended(node, there, work.trial.now) && there.take() => {
            node.count_reused();
            stored(node, work)
        }
        _ => Attempt::Taken,
    }
}

#[inline(always)]
fn stored<N: Node>(node: N, work: &PacketState) -> Attempt {
    if node.store(&work.reply_key, &work.flow) {
        Attempt::Stored
    } else {
        Attempt::Full
    }
}

/// Whether a reply's entry is that of a connection that both ends have closed, some time ago.
#[inline(always)]
fn has_ended<N: Node>(node: N, there: N::Entry, now: u32) -> bool {
    if there.flags() & flow_flags::REPLY == 0 {
        return false;
    }
    match node.flow(&there.to().inverse()) {
        None => false,
        Some(forward) => conntrack::closed(forward.seen()) && elapsed(now, forward.last_seen()) >= QUIET,
    }
}

/// Whether an entry belongs to a flow that is over, and this processor is the one to replace it.
#[inline(always)]
fn replaces<N: Node>(node: N, work: &PacketState, there: N::Entry, now: u32) -> bool {
    is_over(node, there, work.reply_key.protocol, now) && there.take()
}

/// Whether an entry belongs to a flow that is over: the forward entry has what was seen, and when. Without one it is, unless it is
/// so young that another processor may be about to write that.
#[inline(always)]
pub(super) fn is_over<N: Node>(node: N, there: N::Entry, protocol: u8, now: u32) -> bool {
    let over = |entry: N::Entry| conntrack::is_over(protocol, entry.seen(), entry.last_seen(), now);
    if there.flags() & flow_flags::REPLY == 0 {
        return over(there);
    }
    match node.flow(&there.to().inverse()) {
        None => elapsed(now, there.last_seen()) >= QUIET,
        Some(forward) => over(forward),
    }
}
