//! Section 4: packets of flows that are known.

use std::collections::BTreeMap;

use lb_abi::{Backend, BackendId, Counter, Flow, SCTP, TCP, Tuple, UDP, flow_flags, seen};

use super::{
    Outcome,
    decide::{Packet, Run, around, elapsed},
    translate::{Change, FlowSide},
};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// The chunk that opens an association.
pub(super) const INIT: u8 = 1;

/// How long a flow may be silent, in seconds.
fn limit(protocol: u8, seen: u32) -> i32 {
    let has = |bits: u32| seen & bits != 0;
    let fins = u32::from(has(seen::CLIENT_FIN)) + u32::from(has(seen::BACKEND_FIN));
    match protocol {
        UDP if has(seen::ANSWER) => 120,
        UDP => 30,
        _ if has(seen::RESET) => 10,
        TCP if fins == 2 => 120,
        TCP if fins == 1 => 3600,
        SCTP if fins > 0 => 120,
        _ if has(seen::ANSWER) && has(seen::ESTABLISHED) => 86400,
        _ => 60,
    }
}

/// Whether a flow, by its forward entry, is over.
pub(super) fn over(key: &Tuple, forward: &Flow, now: u32) -> bool {
    elapsed(now, forward.last_seen) > limit(key.protocol, forward.seen)
}

/// Whether what the flow sends to is no more what its backend is.
fn gone(backends: &BTreeMap<BackendId, Backend>, flow: &Flow) -> bool {
    !backends.get(&flow.backend).is_some_and(|backend| {
        backend.address == flow.to.destination
            && backend.port == flow.to.destination_port
            && backend.protocol == flow.to.protocol
    })
}

/// Whether a packet means to begin a connection.
pub(super) fn begins(packet: &Packet) -> bool {
    match (packet.tuple.protocol, packet.signal) {
        (TCP, Some(flags)) => flags & (SYN | ACK) == SYN,
        (SCTP, Some(chunk)) => chunk == INIT,
        _ => false,
    }
}

/// Whether an end of a connection has finished it.
pub(super) fn ended(forward: &Flow) -> bool {
    forward.seen & (seen::CLIENT_FIN | seen::BACKEND_FIN | seen::RESET) != 0
}

/// What a packet shows of its connection.
pub(super) fn shows(packet: &Packet, reply: bool) -> u32 {
    let Some(signal) = packet.signal else { return 0 };
    let (open, fin, reset) = match packet.tuple.protocol {
        TCP => (signal & SYN != 0, signal & FIN != 0, signal & RST != 0),
        SCTP => (signal == INIT, matches!(signal, 7 | 8), matches!(signal, 6 | 14)),
        _ => (false, false, false),
    };
    let mut bits = 0;
    if reply {
        bits |= seen::ANSWER;
    }
    if open && !reply {
        bits |= seen::OPEN;
    }
    // Before a backend has received more than the opening, it sends SYN with ACK, or RST; over SCTP, anything.
    let heard = !reply || (packet.tuple.protocol == TCP && signal & ACK != 0);
    if packet.tuple.protocol != UDP && heard && !open && !reset {
        bits |= seen::ESTABLISHED;
    }
    if fin {
        bits |= if reply {
            seen::BACKEND_FIN
        } else {
            seen::CLIENT_FIN
        };
    }
    if reset {
        bits |= seen::RESET;
    }
    bits
}

impl Run<'_> {
    /// CONNTRACK has the packet as a client's.
    pub(super) fn forward(mut self, packet: &Packet, flow: Flow) -> Outcome {
        let now = self.input.now;
        if over(&packet.tuple, &flow, now) {
            return self.unknown(packet, Some(flow));
        }
        let gone = !around(&packet.tuple, &flow) && gone(&self.state.backends, &flow);
        // Two seconds after its last packet, the backend may have left the service.
        let about = seen::OPEN | seen::ANSWER | seen::ESTABLISHED;
        let unanswered = flow.seen & about == seen::OPEN && elapsed(now, flow.last_seen) >= 2;
        if (begins(packet) && (ended(&flow) || gone || unanswered)) || (packet.tuple.protocol == UDP && gone)
        {
            return self.unknown(packet, Some(flow));
        }
        let reply_key = flow.to.inverse();
        let mut change = Change::of(&flow, packet, false);
        match self.state.flows.get(&reply_key) {
            Some(reply) if reply.to.inverse() != packet.tuple => {
                self.flows.remove(&packet.tuple);
                return self.unknown(packet, None);
            }
            Some(_) => {}
            None => {
                let reply = answering(&packet.tuple, &flow, now);
                change.put.push((reply_key, reply));
            }
        }
        let renewed = Flow {
            seen: flow.seen | shows(packet, false),
            last_seen: now,
            ..flow
        };
        change.put.push((packet.tuple, renewed));
        self.translate(
            packet,
            &flow.to,
            FlowSide::of(&flow, around(&packet.tuple, &flow)),
            Counter::FlowForwarded,
            change,
        )
    }

    /// CONNTRACK has the packet as a backend's.
    pub(super) fn reply(self, packet: &Packet, flow: Flow) -> Outcome {
        let now = self.input.now;
        let key = flow.to.inverse();
        // Translated where it leaves, unless it is for the node itself.
        let snat = flow.flags & flow_flags::SNAT != 0;
        if self.input.hook.inbound() && !snat && !self.own(flow.to.destination) {
            return self.pass(Counter::PacketPassed);
        }
        let forward = match self.state.flows.get(&key) {
            // Another flow has taken the client's place.
            Some(forward) if forward.to.inverse() != packet.tuple => return self.unknown(packet, None),
            Some(forward) if over(&key, forward, now) => return self.unknown(packet, None),
            Some(forward) => *forward,
            None => Flow {
                to: packet.tuple.inverse(),
                flags: flow.flags & !flow_flags::REPLY,
                ..flow
            },
        };
        let renewed = Flow {
            seen: forward.seen | shows(packet, true),
            last_seen: now,
            ..forward
        };
        let mut change = Change::of(&flow, packet, false);
        change.put.push((key, renewed));
        self.translate(
            packet,
            &flow.to,
            FlowSide::of(&flow, around(&packet.tuple, &flow)),
            Counter::FlowReplied,
            change,
        )
    }
}

/// The reply's entry of a flow.
pub(super) fn answering(key: &Tuple, forward: &Flow, now: u32) -> Flow {
    Flow {
        to: key.inverse(),
        last_seen: now,
        flags: forward.flags | flow_flags::REPLY,
        ..*forward
    }
}
