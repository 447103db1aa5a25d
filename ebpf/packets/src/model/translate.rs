//! Sections 6 and 7 in their order: what is stored, what is written, and where the packet goes then.

use lb_abi::{Address, Counter, Flow, SCTP, TCP, Tuple, UDP, flow_flags};

use super::{
    Device, Frame, Outcome, Route, Translated, Verdict,
    answer::Answer,
    decide::{Packet, Run},
    rewrite,
};

/// The direction of a packet, whether its flow is an SNAT, which the node routes, and whether it was routed to its backend before.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSide {
    pub(super) reply: bool,
    pub(super) snat: bool,
    pub(super) around: bool,
}

impl FlowSide {
    /// Of packets that have this entry; `around`: see [`around`](super::decide::around).
    pub(super) fn of(flow: &Flow, around: bool) -> Self {
        Self {
            reply: flow.flags & flow_flags::REPLY != 0,
            snat: flow.flags & flow_flags::SNAT != 0,
            around,
        }
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    /// To the stack, or out of the device.
    On,
    /// Into the stack, by the loopback device.
    In,
    /// By the route that was looked up.
    Routed,
}

/// Why a packet goes nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    NoRoute,
    /// For the next hop, and to be cut by us.
    ToBeCut,
    /// For the next hop, which takes so much.
    TooBig(u32),
}

/// What is stored for a packet.
#[derive(Clone, Default, Debug)]
pub(super) struct Change {
    pub(super) remove: Vec<Tuple>,
    pub(super) put: Vec<(Tuple, Flow)>,
    pub(super) traffic: Option<Translated>,
}

impl Change {
    /// Nothing but that the packet is counted.
    pub(super) fn of(flow: &Flow, packet: &Packet, opened: bool) -> Self {
        Self {
            traffic: Some(Translated {
                service: flow.service,
                backend: flow.backend,
                opened,
                bytes: (packet.frame.end - packet.frame.ip) as u64,
            }),
            ..Self::default()
        }
    }
}

impl Run<'_> {
    /// Whether it is the program that decides where the packet goes.
    fn directed(&self, way: FlowSide) -> bool {
        match self.input.hook {
            Device::NodeIngress | Device::PodIngress => way.snat,
            Device::NodeEgress => !way.reply && !way.around,
            Device::PodEgress => false,
        }
    }

    /// Whether this is the last hop that a packet may make.
    pub(super) fn expires(&self, frame: &Frame, way: FlowSide, destination: Address) -> bool {
        let hops = self.input.frame[frame.ip + if frame.v4 { 8 } else { 7 }];
        self.input.hook.inbound() && self.directed(way) && !self.own(destination) && hops <= 1
    }

    /// The frame that the program left, with room for the tags that it may have taken away.
    pub(super) fn left(&self, frame: &Frame) -> Vec<u8> {
        let gone = self.input.frame.len().saturating_sub(self.observed.frame.len());
        let tags = if gone == frame.ip - 14 { gone } else { 0 };
        [&[0; 8][..tags], self.observed.frame].concat()
    }

    /// A packet of a flow.
    pub(super) fn translate(
        mut self,
        packet: &Packet,
        to: &Tuple,
        way: FlowSide,
        counter: Counter,
        change: Change,
    ) -> Outcome {
        let frame = &packet.frame;
        if self.expires(frame, way, to.destination) {
            return self.answer(frame, Answer::TimeExceeded, Counter::AnsweredTimeExceeded);
        }
        for key in change.remove {
            self.flows.remove(&key);
        }
        self.flows.extend(change.put);
        self.traffic = change.traffic;
        let exit = match self.exit(frame, to, way) {
            Ok(exit) => exit,
            Err(stop) => return self.stop(frame, stop),
        };
        let ports = |tuple: &Tuple| (tuple.source_port, tuple.destination_port);
        if packet.tuple.protocol == SCTP && frame.fragment.is_some() && ports(to) != ports(&packet.tuple) {
            return self.drop(Counter::DroppedFragment);
        }
        let bytes = rewrite::packet(self.input.frame, frame, to, &self.left(frame));
        self.leave(frame, exit, counter, bytes)
    }

    /// Where a packet goes when it has been translated.
    pub(super) fn exit(&self, frame: &Frame, to: &Tuple, way: FlowSide) -> Result<Exit, Stop> {
        let inward = if self.input.hook.inbound() {
            (way.reply && to.source != frame.source) || (way.snat && self.own(to.source))
        } else {
            self.directed(way)
        };
        if inward && self.own(to.destination) {
            return Ok(Exit::In);
        }
        if !self.directed(way) || self.own(to.destination) {
            return Ok(Exit::On);
        }
        let mtu = match self.input.routes.to(to.destination) {
            Route::Via { mtu } if self.input.forwards => mtu,
            _ => return Err(Stop::NoRoute),
        };
        let length = self.longest(frame);
        if length <= usize::try_from(mtu).expect("an MTU is small") {
            Ok(Exit::Routed)
        } else if frame.v4 && self.input.frame[frame.ip + 6] & 0x40 == 0 {
            Err(Stop::ToBeCut)
        } else {
            Err(Stop::TooBig(mtu))
        }
    }

    /// Of what the packet leaves as: itself, or what a device cuts it into, whose length is not known of every protocol.
    fn longest(&self, frame: &Frame) -> usize {
        let gso = usize::try_from(self.input.gso_size).expect("a size is small");
        let header = match frame.protocol {
            // Of a fragment other than the first there may be less than a header.
            TCP => match self.input.frame.get(frame.payload + 12) {
                Some(offset) => usize::from(offset >> 4) * 4,
                None => 0,
            },
            UDP => 8,
            _ => 0,
        };
        match (gso, header) {
            (0, _) => frame.end - frame.ip,
            (0xffff.., _) | (_, 0) => 0,
            (size, header) => frame.payload - frame.ip + header + size,
        }
    }

    /// What becomes of one that goes nowhere.
    pub(super) fn stop(self, frame: &Frame, stop: Stop) -> Outcome {
        match stop {
            Stop::NoRoute => self.drop(Counter::DroppedRoute),
            Stop::ToBeCut => self.drop(Counter::DroppedTooBig),
            Stop::TooBig(mtu) => self.answer(frame, Answer::TooBig(mtu), Counter::AnsweredTooBig),
        }
    }

    /// What has been translated goes where it has to.
    pub(super) fn leave(self, frame: &Frame, exit: Exit, counter: Counter, mut bytes: Vec<u8>) -> Outcome {
        match exit {
            Exit::On => self.outcome(Verdict::Pass, counter, bytes),
            Exit::In => {
                bytes[..12].fill(0);
                bytes.drain(12..frame.ip - 2);
                self.outcome(Verdict::Redirect, counter, bytes)
            }
            Exit::Routed => {
                if self.input.hook.inbound() {
                    rewrite::one_hop_less(&mut bytes, frame, &self.left(frame));
                }
                // Tags go: the device that the packet leaves by adds its own.
                bytes.drain(12..frame.ip - 2);
                self.outcome(Verdict::Redirect, counter, bytes)
            }
        }
    }
}
