//! Section 8: packets that answer.

use lb_abi::{Address, Counter, ICMP, ICMPV6, TCP, address_flags};

use super::{
    Frame, Outcome, Transport, Verdict, checksum,
    decide::Run,
    known::{ACK, FIN, RST, SYN},
    transport,
};

/// What is sent back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// RST.
    Reset,
    /// ICMP 3/3, ICMPv6 1/4.
    PortUnreachable,
    /// ICMP 11/0, ICMPv6 3/0.
    TimeExceeded,
    /// ICMP 3/4, ICMPv6 2/0.
    TooBig(u32),
}

impl Run<'_> {
    /// Answers a packet as it came, unless nothing may be sent about it.
    pub(super) fn answer(self, frame: &Frame, answer: Answer, counter: Counter) -> Outcome {
        let group = self.input.frame[0] & 1 == 1;
        let icmp = matches!(
            transport(self.input.frame, frame, self.is_gso()),
            Transport::Icmp(_)
        );
        if group || icmp || frame.later() || self.martian(frame.source) {
            return self.drop(counter);
        }
        let limit = self.state.config.rejects_per_second;
        let rejects = self.input.rejects;
        let may = limit != 0 && rejects.most >= limit && self.observed.counter == Counter::DroppedRejectLimit;
        if may || (limit != 0 && rejects.least >= limit) {
            return self.drop(Counter::DroppedRejectLimit);
        }
        let source = match answer {
            Answer::Reset | Answer::PortUnreachable => frame.destination,
            Answer::TimeExceeded | Answer::TooBig(_)
                if self.flags(frame.destination) & address_flags::NODE != 0 =>
            {
                frame.destination
            }
            Answer::TimeExceeded | Answer::TooBig(_) => self.node(frame.v4).unwrap_or(frame.destination),
        };
        let bytes = match answer {
            Answer::Reset => self.packet(frame, source, TCP, reset(self.input.frame, frame)),
            _ => {
                let protocol = if frame.v4 { ICMP } else { ICMPV6 };
                self.packet(
                    frame,
                    source,
                    protocol,
                    icmp_error(self.input.frame, frame, answer),
                )
            }
        };
        let answered = Self {
            traffic: None,
            ..self
        };
        answered.outcome(Verdict::Redirect, counter, bytes)
    }

    /// The link's header the other way around, IP, and what is in it, of which the checksum is zero yet.
    fn packet(&self, frame: &Frame, source: Address, protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
        let came = self.input.frame;
        let length = u16::try_from(payload.len()).expect("answers are short");
        let mut bytes = [&came[6..12], &came[..6], &came[12..frame.ip]].concat();
        let mut pseudo = Vec::new();
        if frame.v4 {
            let addresses = [source.last4(), frame.source.last4()].concat();
            let [high, low] = (length + 20).to_be_bytes();
            let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header.extend(&addresses);
            let [high, low] = checksum::internet(&header).to_be_bytes();
            header[10..12].copy_from_slice(&[high, low]);
            bytes.extend(header);
            if protocol == TCP {
                pseudo.extend(addresses);
            }
        } else {
            let addresses = [source.octets(), frame.source.octets()].concat();
            let [high, low] = length.to_be_bytes();
            bytes.extend([0x60, 0, 0, 0, high, low, protocol, 64]);
            bytes.extend(&addresses);
            pseudo.extend(addresses);
        }
        if !pseudo.is_empty() {
            pseudo.extend([0, protocol]);
            pseudo.extend(length.to_be_bytes());
        }
        pseudo.extend(&payload);
        let at = if protocol == TCP { 16 } else { 2 };
        payload[at..at + 2].copy_from_slice(&checksum::internet(&pseudo).to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}

/// RFC 9293, 3.10.7.1.
fn reset(bytes: &[u8], frame: &Frame) -> Vec<u8> {
    let segment = &bytes[frame.payload..frame.end];
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().expect("four bytes"));
    let flags = segment[13];
    let data = segment.len() - usize::from(segment[12] >> 4) * 4;
    let data = u32::try_from(data).expect("a segment is short");
    let (sequence, acknowledged, sent) = if flags & ACK != 0 {
        (number(8), 0, RST)
    } else {
        let length = data + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, number(4).wrapping_add(length), RST | ACK)
    };
    let mut reset = [&segment[2..4], &segment[..2]].concat();
    reset.extend(sequence.to_be_bytes());
    reset.extend(acknowledged.to_be_bytes());
    reset.extend([0x50, sent, 0, 0, 0, 0, 0, 0]);
    reset
}

fn icmp_error(bytes: &[u8], frame: &Frame, answer: Answer) -> Vec<u8> {
    let (kind, code, rest) = match (answer, frame.v4) {
        (Answer::TimeExceeded, true) => (11, 0, 0),
        (Answer::TimeExceeded, false) => (3, 0, 0),
        (Answer::TooBig(mtu), true) => (3, 4, mtu),
        (Answer::TooBig(mtu), false) => (2, 0, mtu),
        (_, true) => (3, 3, 0),
        (_, false) => (1, 4, 0),
    };
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    let mut quote = &bytes[frame.ip..frame.payload + 8];
    if !frame.v4 {
        quote = &quote[..quote.len().min(128)];
    }
    message.extend(quote);
    message
}
