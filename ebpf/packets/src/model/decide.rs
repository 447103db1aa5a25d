//! Sections 2 and 3: which packets matter.

use std::collections::BTreeMap;

use lb_abi::{
    Address, Affinity, AffinityKey, Counter, Flow, FragmentKey, FrontendKey, ICMPV6, Port, Ports, SCTP, TCP,
    Tuple, UDP, address_flags, flow_flags,
};

use crate::test_node::NODE_LINK;

use super::{
    Device, Frame, Input, Observed, Outcome, Read, State, Translated, Transport, Verdict,
    known::{begins, ended, over, shows},
    read, transport,
};

/// For how long the ports of a first fragment are remembered, in seconds.
const FRAGMENT_SECONDS: i32 = 30;

/// How many fragments of a datagram are held, and the longest frame.
const MOST_HELD: u32 = 48;
const LONGEST_HELD: usize = 2048;

/// Seconds, modulo 2³² and signed.
pub(super) fn elapsed(now: u32, then: u32) -> i32 {
    now.wrapping_sub(then).cast_signed()
}

/// What a packet is to become: of what is permitted, what was observed.
pub fn expected(state: &State, input: &Input<'_>, observed: &Observed<'_>) -> Outcome {
    let run = Run {
        state,
        input,
        observed,
        flows: state.flows.clone(),
        affinity: state.affinity.clone(),
        fragments: state.fragments.clone(),
        traffic: None,
    };
    run.frame()
}

/// One packet on its way through the rules, and what it has changed so far.
pub(super) struct Run<'a> {
    pub(super) state: &'a State,
    pub(super) input: &'a Input<'a>,
    pub(super) observed: &'a Observed<'a>,
    pub(super) flows: BTreeMap<Tuple, Flow>,
    pub(super) affinity: BTreeMap<AffinityKey, Affinity>,
    pub(super) fragments: BTreeMap<FragmentKey, Ports>,
    pub(super) traffic: Option<Translated>,
}

/// A packet with ports, as it came.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    pub(super) tuple: Tuple,
    /// TCP flags or SCTP chunk, of what has ports of its own.
    pub(super) signal: Option<u8>,
}

impl Run<'_> {
    pub(super) fn is_gso(&self) -> bool {
        self.input.gso_size != 0
    }

    /// What ADDRESSES has.
    pub(super) fn flags(&self, address: Address) -> u32 {
        self.state.addresses.get(&address).copied().unwrap_or(0)
    }

    /// The flags of a destination in ADDRESSES; or VIP, if it is in a range of cluster IPs.
    pub(super) fn flags_or_range(&self, address: Address) -> Option<u32> {
        let there = self.state.addresses.get(&address).copied();
        let ranges = &self.state.config.service_ranges;
        let free = || ranges.iter().any(|range| range.contains(address)) && !self.is_of_cluster(address);
        there.or_else(|| free().then_some(address_flags::VIP))
    }

    /// Whether ports without a frontend there belong to no machine.
    pub(super) fn reserved(&self, address: Address) -> bool {
        let flags = self.flags_or_range(address).unwrap_or(0);
        let has = |flag: u32| flags & flag != 0;
        let outside = self.input.hook == Device::NodeIngress;
        has(address_flags::VIP) || (outside && has(address_flags::LOAD_BALANCER) && !has(address_flags::NODE))
    }

    pub(super) fn outcome(self, verdict: Verdict, counter: Counter, frame: Vec<u8>) -> Outcome {
        Outcome {
            verdict,
            counter,
            frame,
            flows: self.flows,
            affinity: self.affinity,
            fragments: self.fragments,
            traffic: self.traffic,
        }
    }

    /// Left alone.
    pub(super) fn pass(self, counter: Counter) -> Outcome {
        let frame = self.input.frame.to_vec();
        self.outcome(Verdict::Pass, counter, frame)
    }

    pub(super) fn drop(self, counter: Counter) -> Outcome {
        let dropped = Self {
            traffic: None,
            ..self
        };
        let frame = dropped.input.frame.to_vec();
        dropped.outcome(Verdict::Drop, counter, frame)
    }

    /// A packet that can't be read is dropped if its destination is reserved.
    pub(super) fn drop_if_reserved(self, destination: Address, counter: Counter) -> Outcome {
        if self.reserved(destination) && self.input.hook != Device::PodEgress {
            self.drop(counter)
        } else {
            self.pass(Counter::PacketPassed)
        }
    }

    /// A packet without ports is dropped if its destination is reserved and not the node's.
    pub(super) fn drop_if_only_services(self, destination: Address, counter: Counter) -> Outcome {
        let node = self.flags(destination) & address_flags::NODE != 0;
        if self.reserved(destination) && !node && self.input.hook != Device::PodEgress {
            self.drop(counter)
        } else {
            self.pass(Counter::PacketPassed)
        }
    }

    fn frame(self) -> Outcome {
        if let Some(to) = self.input.frame.first_chunk::<6>()
            && self.input.hook.inbound()
            && to[0] & 1 == 0
            && *to != NODE_LINK
        {
            return self.pass(Counter::PacketPassed); // Another host's.
        }
        let frame = match read(self.input.frame, self.is_gso()) {
            Read::Other => return self.pass(Counter::PacketPassed),
            Read::Unreadable => return self.pass(Counter::PacketUnreadable),
            Read::Malformed(destination) => {
                return self.drop_if_reserved(destination, Counter::DroppedMalformed);
            }
            Read::SourceRouted(destination) => {
                return self.drop_if_reserved(destination, Counter::DroppedSourceRoute);
            }
            Read::Whole(frame) => frame,
        };
        if !self.input.hook.inbound() && frame.destination.is_loopback() {
            return self.pass(Counter::PacketPassed);
        }
        let ours = self.flags_or_range(frame.destination).is_some();
        if self.input.hook.inbound() && !ours {
            return match transport(self.input.frame, &frame, self.is_gso()) {
                Transport::Ports {
                    source,
                    destination,
                    signal,
                } => {
                    let packet = Packet {
                        tuple: tuple(&frame, source, destination),
                        signal: Some(signal),
                        frame,
                    };
                    self.pass_without_service(&packet, None)
                }
                _ => self.pass(Counter::PacketPassed),
            };
        }
        match transport(self.input.frame, &frame, self.is_gso()) {
            Transport::Malformed => self.drop_if_reserved(frame.destination, Counter::DroppedMalformed),
            Transport::Other => self.drop_if_only_services(frame.destination, Counter::DroppedProtocol),
            Transport::Icmp(133..=137) if frame.protocol == ICMPV6 => self.pass(Counter::PacketPassed),
            Transport::Icmp(kind) => self.icmp(&frame, kind),
            Transport::Later => match self.remembered(&frame) {
                None => self.hold(&frame),
                Some(ports) => self.ported(&Packet {
                    tuple: tuple(&frame, ports.source, ports.destination),
                    signal: None,
                    frame,
                }),
            },
            Transport::Ports {
                source,
                destination,
                signal,
            } => self.ported(&Packet {
                tuple: tuple(&frame, source, destination),
                signal: Some(signal),
                frame,
            }),
        }
    }

    /// What is noted of a datagram.
    fn pieces(&self, frame: &Frame) -> Option<Ports> {
        let ports = self.state.fragments.get(&fragment_key(frame)?)?;
        (elapsed(self.input.now, ports.seconds) <= FRAGMENT_SECONDS).then_some(*ports)
    }

    /// The ports of a datagram's first fragment.
    fn remembered(&self, frame: &Frame) -> Option<Ports> {
        self.pieces(frame).filter(|ports| ports.held == 0)
    }

    /// A fragment whose first one has not come.
    fn hold(mut self, frame: &Frame) -> Outcome {
        let before = self.pieces(frame);
        let number = before.map_or(0, |ports| ports.held);
        let ported = matches!(frame.protocol, TCP | UDP | SCTP);
        let room = ported && number < MOST_HELD && self.input.frame.len() <= LONGEST_HELD;
        let (true, true, Some(key)) = (self.input.hook.inbound(), room, fragment_key(frame)) else {
            return self.drop_if_reserved(frame.destination, Counter::DroppedFragment);
        };
        let ports = Ports {
            source: Port::new(0),
            destination: Port::new(0),
            seconds: before.map_or(self.input.now, |ports| ports.seconds),
            held: number + 1,
        };
        self.fragments.insert(key, ports);
        self.drop(Counter::FragmentHeld)
    }

    /// Keeps the ports of a first fragment for those that follow.
    pub(super) fn remember(&mut self, packet: &Packet) {
        let first = packet.frame.fragment.is_some_and(|fragment| fragment.first);
        if let (true, Some(key)) = (first, fragment_key(&packet.frame)) {
            let ports = Ports {
                source: packet.tuple.source_port,
                destination: packet.tuple.destination_port,
                seconds: self.input.now,
                held: 0,
            };
            self.fragments.insert(key, ports);
        }
    }

    fn ported(mut self, packet: &Packet) -> Outcome {
        let first = packet.frame.fragment.is_some_and(|fragment| fragment.first);
        let waiting = self.pieces(&packet.frame).is_some_and(|ports| ports.held > 0);
        self.remember(packet);
        if first && waiting && self.input.hook.inbound() {
            // In its place, those that were held come in once more: which they are the maps that are modelled don't say.
            let frame = self.observed.frame.to_vec();
            return self.outcome(Verdict::Drop, Counter::FragmentHeld, frame);
        }
        match self.state.flows.get(&packet.tuple).copied() {
            Some(flow) if flow.flags & flow_flags::OWN != 0 => self.answered(packet, flow),
            Some(flow) if flow.flags & flow_flags::REPLY != 0 => self.reply(packet, flow),
            Some(flow) if self.input.hook != Device::PodEgress || around(&packet.tuple, &flow) => {
                self.forward(packet, flow)
            }
            _ => self.unknown(packet, None),
        }
    }

    /// No flow that counts.
    pub(super) fn unknown(self, packet: &Packet, old: Option<Flow>) -> Outcome {
        let ours = self.flags_or_range(packet.frame.destination).is_some();
        if self.input.hook == Device::PodEgress || !ours {
            return self.pass_without_service(packet, old);
        }
        self.open(packet, old)
    }

    /// What one of the node's own sockets has asked for.
    fn answered(mut self, packet: &Packet, flow: Flow) -> Outcome {
        if over(&packet.tuple, &flow, self.input.now) {
            return self.unknown(packet, Some(flow));
        }
        let answered = Flow {
            seen: flow.seen | shows(packet, true),
            last_seen: self.input.now,
            ..flow
        };
        self.flows.insert(packet.tuple, answered);
        self.pass(Counter::PacketPassed)
    }

    /// Notes what the node's own sockets send from node ports, over UDP.
    fn note(&mut self, packet: &Packet) {
        let node_port = FrontendKey {
            address: if packet.frame.v4 {
                Address::UNSPECIFIED_V4
            } else {
                Address::UNSPECIFIED_V6
            },
            port: packet.tuple.source_port,
            protocol: UDP,
            pad: 0,
        };
        let own = self.flags(packet.tuple.source) & address_flags::NODE != 0;
        let outbound = !self.input.hook.inbound() && !packet.frame.later();
        if packet.tuple.protocol != UDP || !outbound || !own || !self.state.frontends.contains_key(&node_port)
        {
            return;
        }
        let key = packet.tuple.inverse();
        let now = self.input.now;
        let new = Flow {
            to: key,
            seen: 0,
            last_seen: now,
            service: 0,
            backend: 0,
            flags: flow_flags::OWN,
            pad: 0,
            claim: 0,
        };
        let flow = match self.flows.get(&key) {
            None => new,
            Some(there) if there.flags & flow_flags::OWN != 0 => Flow {
                last_seen: now,
                ..*there
            },
            Some(_) if self.free(&key) => new,
            // The peer of a process of the node, or of a pod that is masqueraded: an answer of it was taken for a datagram of a client.
            Some(there) if there.flags & flow_flags::REPLY == 0 => {
                let reply = there.to.inverse();
                if self.flows.get(&reply).is_some_and(|flow| flow.to == packet.tuple) {
                    self.flows.remove(&reply);
                }
                new
            }
            Some(_) => return,
        };
        self.flows.insert(key, flow);
    }

    /// No service's: left alone; and if it begins a connection, a flow that has ended makes way for that.
    /// `old`: what CONNTRACK had for it, that counts no more.
    pub(super) fn pass_without_service(mut self, packet: &Packet, old: Option<Flow>) -> Outcome {
        let reply_key = packet.tuple.inverse();
        let reply = self.flows.get(&reply_key);
        let key = reply
            .filter(|reply| reply.flags & flow_flags::REPLY != 0)
            .map(|reply| reply.to.inverse());
        if let (true, Some(key)) = (begins(packet), key)
            && let Some(forward) = self.flows.get(&key)
            && forward.to == packet.tuple
            && ended(forward)
        {
            self.flows.remove(&key);
            self.flows.remove(&reply_key);
        }
        if self.shares_port(packet)
            && let Some(port) = self.allocate(&packet.tuple, &packet.tuple, true, true, old.as_ref())
        {
            return self.keep_apart(packet, port, old);
        }
        self.note(packet);
        self.pass(Counter::PacketPassed)
    }

    /// Whether the node's own socket begins from a port at which the node serves another client of that backend.
    fn shares_port(&self, packet: &Packet) -> bool {
        let tuple = &packet.tuple;
        let datagram = tuple.protocol == UDP && !packet.frame.later();
        let own = self.flags(tuple.source) & address_flags::NODE != 0;
        let key = tuple.inverse();
        let anothers = |flow: &Flow| {
            flow.flags & flow_flags::REPLY != 0 && flow.to.destination != tuple.source && !self.free(&key)
        };
        !self.input.hook.inbound()
            && self.input.own
            && own
            && (datagram || begins(packet))
            && self.flows.get(&key).is_some_and(anothers)
    }

    /// What the node's own socket sends to a backend goes on from another port.
    fn keep_apart(self, packet: &Packet, port: u16, old: Option<Flow>) -> Outcome {
        let to = Tuple {
            source_port: lb_abi::Port::new(port),
            ..packet.tuple
        };
        let flow = Flow {
            to,
            seen: shows(packet, false),
            last_seen: self.input.now,
            service: 0,
            backend: 0,
            flags: flow_flags::OTHER_PORT,
            pad: 0,
            claim: 0,
        };
        self.open_flow(packet, flow, old)
    }
}

pub(super) fn tuple(frame: &Frame, source_port: lb_abi::Port, destination_port: lb_abi::Port) -> Tuple {
    Tuple {
        source: frame.source,
        destination: frame.destination,
        source_port,
        destination_port,
        protocol: frame.protocol,
        pad: [0; 3],
    }
}

fn fragment_key(frame: &Frame) -> Option<FragmentKey> {
    Some(FragmentKey {
        source: frame.source,
        destination: frame.destination,
        id: frame.fragment?.id,
        protocol: frame.protocol,
        pad: [0; 3],
    })
}

/// Whether a flow changes nothing but its client's port.
pub(super) fn around(from: &Tuple, flow: &Flow) -> bool {
    flow.flags & flow_flags::OTHER_PORT != 0
        && (from.destination, from.destination_port) == (flow.to.destination, flow.to.destination_port)
}
