//! Sections 2 and 3: which packets matter.

use std::collections::BTreeMap;

use lb_abi::{
    Address, Affinity, AffinityKey, Counter, Flow, FragmentKey, ICMPV6, Ports, Tuple, address_flags,
    flow_flags,
};

use super::{
    Device, Frame, Input, Observed, Outcome, Read, State, Translated, Transport, Verdict,
    known::{begins, ended},
    read, transport,
};

/// For how long the ports of a first fragment are remembered, in seconds.
const FRAGMENT_SECONDS: i32 = 30;

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
    pub(super) fn merged(&self) -> bool {
        self.input.gso_size != 0
    }

    pub(super) fn flags(&self, address: Address) -> u32 {
        self.state.addresses.get(&address).copied().unwrap_or(0)
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

    /// What is wrong is dropped if it was for a service.
    pub(super) fn wrong(self, destination: Address, counter: Counter) -> Outcome {
        let service = self.flags(destination) & address_flags::VIP != 0;
        if service && self.input.hook != Device::PodEgress {
            self.drop(counter)
        } else {
            self.pass(Counter::PacketPassed)
        }
    }

    /// What nobody asked for is dropped if the address is a service's alone.
    pub(super) fn stray(self, destination: Address, counter: Counter) -> Outcome {
        let flags = self.flags(destination) & (address_flags::VIP | address_flags::NODE);
        if flags == address_flags::VIP && self.input.hook != Device::PodEgress {
            self.drop(counter)
        } else {
            self.pass(Counter::PacketPassed)
        }
    }

    fn frame(self) -> Outcome {
        let frame = match read(self.input.frame, self.merged()) {
            Read::Other => return self.pass(Counter::PacketPassed),
            Read::Unreadable => return self.pass(Counter::PacketUnreadable),
            Read::Malformed(destination) => return self.wrong(destination, Counter::DroppedMalformed),
            Read::SourceRouted(destination) => return self.wrong(destination, Counter::DroppedSourceRoute),
            Read::Whole(frame) => frame,
        };
        let ours = self.state.addresses.contains_key(&frame.destination);
        if self.input.hook.inbound() && !ours {
            return match transport(self.input.frame, &frame, self.merged()) {
                Transport::Ports {
                    source,
                    destination,
                    signal,
                } => self.nobodys(&Packet {
                    tuple: tuple(&frame, source, destination),
                    signal: Some(signal),
                    frame,
                }),
                _ => self.pass(Counter::PacketPassed),
            };
        }
        match transport(self.input.frame, &frame, self.merged()) {
            Transport::Malformed => self.wrong(frame.destination, Counter::DroppedMalformed),
            Transport::Other => self.stray(frame.destination, Counter::DroppedProtocol),
            Transport::Icmp(133..=137) if frame.protocol == ICMPV6 => self.pass(Counter::PacketPassed),
            Transport::Icmp(kind) => self.icmp(&frame, kind),
            Transport::Later => match self.remembered(&frame) {
                None => self.wrong(frame.destination, Counter::DroppedFragment),
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

    /// The ports of a datagram's first fragment.
    fn remembered(&self, frame: &Frame) -> Option<Ports> {
        let ports = self.state.fragments.get(&fragment_key(frame)?)?;
        (elapsed(self.input.now, ports.seconds) <= FRAGMENT_SECONDS).then_some(*ports)
    }

    /// Keeps the ports of a first fragment for those that follow.
    pub(super) fn remember(&mut self, packet: &Packet) {
        let first = packet.frame.fragment.is_some_and(|fragment| fragment.first);
        if let (true, Some(key)) = (first, fragment_key(&packet.frame)) {
            let ports = Ports {
                source: packet.tuple.source_port,
                destination: packet.tuple.destination_port,
                seconds: self.input.now,
            };
            self.fragments.insert(key, ports);
        }
    }

    fn ported(mut self, packet: &Packet) -> Outcome {
        self.remember(packet);
        match self.state.flows.get(&packet.tuple).copied() {
            Some(flow) if flow.flags & flow_flags::REPLY != 0 => self.reply(packet, flow),
            Some(flow) if self.input.hook != Device::PodEgress => self.forward(packet, flow),
            _ => self.unknown(packet, None),
        }
    }

    /// No flow that counts.
    pub(super) fn unknown(self, packet: &Packet, old: Option<Flow>) -> Outcome {
        let ours = self.state.addresses.contains_key(&packet.frame.destination);
        if self.input.hook == Device::PodEgress || !ours {
            return self.nobodys(packet);
        }
        self.open(packet, old)
    }

    /// No service's: left alone; and if it begins a connection, a flow that has ended makes way for that.
    pub(super) fn nobodys(mut self, packet: &Packet) -> Outcome {
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
        self.pass(Counter::PacketPassed)
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
