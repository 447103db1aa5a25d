//! Section 3: ICMP errors, which quote a packet.

use lb_abi::{Counter, SCTP, TCP, Tuple, UDP, flow_flags};

use super::{
    Frame, Outcome, Read,
    answer::Answer,
    decide::{Run, tuple},
    read::{Lengths, internet},
    rewrite,
    translate::FlowSide,
};

impl Run<'_> {
    /// Any ICMP but neighbour discovery.
    pub(super) fn icmp(mut self, frame: &Frame, kind: u8) -> Outcome {
        let error = if frame.v4 {
            matches!(kind, 3 | 11 | 12)
        } else {
            matches!(kind, 1..=4)
        };
        let related = || {
            let (inner, quoted) = self.quoted(frame)?;
            let flow = *self.state.flows.get(&quoted.inverse())?;
            let own = flow.flags & flow_flags::OWN != 0;
            (frame.destination == quoted.source && !own).then_some((inner, quoted, flow))
        };
        let Some((inner, quoted, flow)) = error.then(related).flatten() else {
            return self.drop_if_only_services(frame.destination, Counter::DroppedIcmp);
        };
        // A message has no ports of its own.
        let around = flow.flags & flow_flags::OTHER_PORT != 0 && flow.to.destination == frame.destination;
        let way = FlowSide::of(&flow, around);
        let to = flow.to.inverse();
        let code = self.input.frame[frame.payload + 1];
        let unreachable = [kind, code] == if frame.v4 { [3, 3] } else { [1, 4] };
        let by_client = flow.flags & flow_flags::REPLY == 0 && frame.source == quoted.destination;
        if quoted.protocol == UDP && unreachable && by_client {
            self.flows.remove(&quoted.inverse());
            if self
                .flows
                .get(&flow.to.inverse())
                .is_some_and(|reply| reply.to == quoted)
            {
                self.flows.remove(&flow.to.inverse());
            }
        }
        if self.expires(frame, way, to.source) {
            return self.answer(frame, Answer::TimeExceeded, Counter::AnsweredTimeExceeded);
        }
        let source = if frame.source == quoted.destination {
            to.destination
        } else {
            frame.source
        };
        let outer = Tuple {
            source,
            destination: to.source,
            ..flow.to
        };
        match self.exit(frame, &outer, way) {
            Err(stop) => self.stop(frame, stop),
            Ok(exit) => {
                let bytes = self.rewritten(frame, &inner, &to, &outer);
                self.leave(frame, exit, Counter::FlowRelated, bytes)
            }
        }
    }

    /// The packet that an error quotes, and its tuple.
    fn quoted(&self, frame: &Frame) -> Option<(Frame, Tuple)> {
        let bytes = &self.input.frame[..frame.end];
        let lengths = Lengths {
            is_gso: false,
            quoted: true,
        };
        let Read::Whole(inner) = internet(bytes, frame.payload + 8, frame.v4, lengths) else {
            return None;
        };
        let ported = matches!(inner.protocol, TCP | UDP | SCTP);
        if !ported || inner.later() || inner.payload + 8 > inner.end {
            return None;
        }
        let port = |at: usize| lb_abi::Port([bytes[at], bytes[at + 1]]);
        let tuple = tuple(&inner, port(inner.payload), port(inner.payload + 2));
        Some((inner, tuple))
    }

    fn rewritten(&self, frame: &Frame, inner: &Frame, quoted: &Tuple, outer: &Tuple) -> Vec<u8> {
        let (old, observed) = (self.input.frame, self.left(frame));
        let observed = observed.as_slice();
        let mut new = old.to_vec();
        rewrite::addresses(&mut new, inner, quoted.source, quoted.destination);
        rewrite::ports(&mut new, inner, quoted);
        if inner.v4 {
            rewrite::header(old, &mut new, inner, observed);
        }
        rewrite::transport(old, &mut new, inner, frame, observed);
        rewrite::addresses(&mut new, frame, outer.source, outer.destination);
        let at = frame.payload + 2;
        let message = (at + 2, frame.end);
        let checksum = if frame.v4 {
            rewrite::difference(old, &new, at, &[message])
        } else {
            rewrite::difference(old, &new, at, &[message, (frame.ip + 8, frame.ip + 40)])
        };
        rewrite::put(&mut new, at, checksum, observed);
        if frame.v4 {
            rewrite::header(old, &mut new, frame, observed);
        }
        new
    }
}
