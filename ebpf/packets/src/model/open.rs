//! Section 5: packets that no flow knows.

use lb_abi::{
    Address, Counter, Flow, Frontend, SCTP, Service, TCP, Tuple, UDP, address_flags, backend_flags,
    flow_flags, frontend_flags,
};

use super::{
    Device, Outcome,
    answer::Answer,
    decide::{Packet, Run, around},
    known::{ACK, INIT, RST, SYN, answering, shows},
    translate::{Change, FlowSide},
};

impl Run<'_> {
    /// A packet to an address of ours; `old`: what CONNTRACK had for it, that counts no more.
    pub(super) fn open(self, packet: &Packet, old: Option<Flow>) -> Outcome {
        let tuple = packet.tuple;
        let external = self.input.hook == Device::NodeIngress;
        let Some((frontend, id)) = self.frontend(&tuple, external) else {
            return self.no_frontend(packet, old);
        };
        let flags = self.flags_or_range(tuple.destination).unwrap_or(0);
        let has = |flag: u32| flags & flag != 0;
        if packet.frame.later() {
            return if has(address_flags::VIP) || has(address_flags::LOAD_BALANCER) {
                self.drop(Counter::DroppedFragment)
            } else {
                self.pass(Counter::PacketPassed)
            };
        }
        let opens = match (tuple.protocol, packet.signal) {
            (TCP, Some(flags)) => flags & (SYN | ACK | RST) == SYN,
            (SCTP, Some(chunk)) => chunk == INIT,
            _ => true,
        };
        let sockets = self.input.sockets;
        let takes = match tuple.protocol {
            TCP => !opens && sockets.receive(&tuple),
            UDP => sockets.connected.contains(&tuple.inverse()),
            _ => false,
        };
        let machines = !external && !has(address_flags::VIP) && !has(address_flags::NODE);
        let hashed = frontend.flags & frontend_flags::MAGLEV != 0;
        let moves = hashed && has(address_flags::LOAD_BALANCER);
        let elsewhere = machines || (has(address_flags::NODE) && !moves);
        if (elsewhere && !opens) || (has(address_flags::NODE) && takes) {
            return self.pass_without_service(packet, old);
        }
        if self.martian(tuple.source) {
            return self.drop(Counter::DroppedMartian);
        }
        if frontend.flags & frontend_flags::SOURCE_RANGES != 0 && !self.admits(&frontend, tuple.source) {
            return self.drop(Counter::DroppedSourceRange);
        }
        let service = self.state.services.get(&id).copied().unwrap_or_default();
        if service.generation == 0 {
            return self.drop(Counter::DroppedHole);
        }
        if service.slots == 0 {
            return self.no_backend(packet, &frontend, external);
        }
        match (tuple.protocol, packet.signal) {
            (TCP, Some(flags)) if flags & RST != 0 => return self.drop(Counter::DroppedNoFlow),
            (TCP, Some(flags)) if flags & (SYN | ACK) != SYN && !hashed => {
                return self.answer(&packet.frame, Answer::Reset, Counter::RejectedNoFlow);
            }
            (SCTP, Some(chunk)) if chunk != INIT && !hashed => return self.drop(Counter::DroppedNoFlow),
            _ => {}
        }
        self.begin(packet, &frontend, id, service, old)
    }

    fn begin(
        mut self,
        packet: &Packet,
        frontend: &Frontend,
        id: u32,
        service: Service,
        old: Option<Flow>,
    ) -> Outcome {
        let tuple = packet.tuple;
        let Some((backend_id, backend)) = self.choose(frontend, id, service, &tuple) else {
            return self.drop(Counter::DroppedHole);
        };
        if backend.address.is_v4() != packet.frame.v4 {
            return self.drop(Counter::DroppedHole);
        }
        let own = self.flags(tuple.source) & address_flags::NODE != 0;
        let mut snat = match self.input.hook {
            Device::NodeIngress => backend.flags & backend_flags::LOCAL == 0,
            Device::NodeEgress => !own,
            _ => false,
        };
        snat |= backend.address == tuple.source;
        // A connection of the same client and port to the same backend may be there that this node knows nothing of.
        let tries = !snat && self.input.hook == Device::NodeIngress && self.is_of_cluster(tuple.source);
        let keeps_address = frontend.flags & frontend_flags::SILENT != 0 || self.own(backend.address);
        // Or of one that its socket has begun itself, by another frontend, where this one is left to packets.
        let ranged = frontend.flags & frontend_flags::SOURCE_RANGES != 0;
        let datagram = self.input.hook == Device::PodIngress && tuple.protocol == UDP;
        let at_node = self.flags_or_range(tuple.destination).unwrap_or(0) & address_flags::NODE != 0;
        let moves = !snat && self.input.hook != Device::NodeIngress && (ranged || (datagram && at_node));
        let mut to = Tuple {
            destination: backend.address,
            destination_port: backend.port,
            ..tuple
        };
        let kept = to;
        let node = self.node(packet.frame.v4);
        if snat && node.is_none() {
            return self.drop(Counter::DroppedRoute);
        }
        if let Some(node) = node.filter(|_| snat || (tries && !keeps_address)) {
            to.source = node;
        }
        let tries = tries || moves;
        let another = |holder: Option<Tuple>| holder.is_some_and(|holder| holder != tuple);
        let mut allocated =
            snat || tries || another(self.holder(&to.inverse())) || self.is_of_socket(&tuple, &kept);
        let mut way = FlowSide {
            reply: false,
            snat: allocated && to.source != tuple.source,
            around: false,
        };
        if self.expires(&packet.frame, way, to.destination) {
            return self.answer(&packet.frame, Answer::TimeExceeded, Counter::AnsweredTimeExceeded);
        }
        if allocated {
            let own_address = self.own(to.source);
            match self.allocate(&tuple, &to, own_address, tries, old.as_ref()) {
                Some(port) => to.source_port = lb_abi::Port::new(port),
                None if tries
                    && !another(self.holder(&kept.inverse()))
                    && !self.is_of_socket(&tuple, &kept) =>
                {
                    (to, way.snat, allocated) = (kept, false, false);
                }
                None => return self.drop(Counter::DroppedPortsExhausted),
            }
        }
        let flow = Flow {
            to,
            seen: shows(packet, false),
            last_seen: self.input.now,
            service: id,
            backend: backend_id,
            flags: match (allocated, way.snat) {
                (false, _) => 0,
                (true, false) => flow_flags::OTHER_PORT,
                (true, true) => flow_flags::SNAT,
            },
            pad: 0,
            claim: 0,
        };
        self.open_flow(packet, flow, old)
    }

    /// Stores both entries of a flow; `old`: the one that it replaces.
    pub(super) fn open_flow(self, packet: &Packet, flow: Flow, old: Option<Flow>) -> Outcome {
        let tuple = packet.tuple;
        let mut change = Change::of(&flow, packet, true);
        if let Some(old) = old {
            change.remove.extend(self.left_behind(&tuple, &old, &flow.to));
        }
        change
            .put
            .push((flow.to.inverse(), answering(&tuple, &flow, self.input.now)));
        change.put.push((tuple, flow));
        let way = FlowSide::of(&flow, around(&tuple, &flow));
        self.translate(packet, &flow.to, way, Counter::FlowOpened, change)
    }

    /// Whether another socket of the node has the tuple that a client of the node would have with its own port.
    fn is_of_socket(&self, tuple: &Tuple, kept: &Tuple) -> bool {
        self.input.hook == Device::NodeEgress && kept != tuple && self.input.sockets.connected.contains(kept)
    }

    /// The reply's key that a flow had, if that was its own and is not the new one's.
    fn left_behind(&self, tuple: &Tuple, old: &Flow, to: &Tuple) -> Option<Tuple> {
        let key = old.to.inverse();
        let reply = self.state.flows.get(&key)?;
        (reply.to.inverse() == *tuple && key != to.inverse()).then_some(key)
    }

    fn no_frontend(self, packet: &Packet, old: Option<Flow>) -> Outcome {
        if self.reserved(packet.tuple.destination) {
            self.reject(packet, Counter::RejectedUnknownPort)
        } else {
            self.pass_without_service(packet, old)
        }
    }

    fn no_backend(self, packet: &Packet, frontend: &Frontend, external: bool) -> Outcome {
        if external && frontend.flags & frontend_flags::SILENT != 0 {
            self.drop(Counter::DroppedNoLocalBackend)
        } else {
            self.reject(packet, Counter::RejectedNoBackend)
        }
    }

    /// RST or port unreachable.
    fn reject(self, packet: &Packet, counter: Counter) -> Outcome {
        match (packet.tuple.protocol, packet.signal) {
            (TCP, Some(flags)) if flags & RST != 0 => self.drop(Counter::DroppedNoFlow),
            (TCP, _) => self.answer(&packet.frame, Answer::Reset, counter),
            _ => self.answer(&packet.frame, Answer::PortUnreachable, counter),
        }
    }

    /// A source that no host can have.
    pub(super) fn martian(&self, source: Address) -> bool {
        let first = if source.is_v4() {
            source.last4()[0]
        } else {
            source.octets()[0]
        };
        let multicast = if source.is_v4() {
            (224..240).contains(&first)
        } else {
            first == 0xff
        };
        let ours = self.flags(source) & (address_flags::NODE | address_flags::VIP) != 0;
        [Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6].contains(&source)
            || source.is_loopback()
            || multicast
            || source == Address::v4([255; 4])
            || (ours && self.input.hook == Device::NodeIngress)
    }
}
