//! Both entries of a flow.

use lb_abi::{BackendId, Flow, Port, ServiceId, Tuple, flow_flags};

use super::{BACKEND, SERVICE};
use crate::build::End;

/// A flow: as its client sends, and as its backend sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The client's packets.
    pub forward: Tuple,
    /// What they become.
    pub to: Tuple,
    /// [`lb_abi::seen`].
    pub seen: u32,
    /// When a packet was seen last: seconds before the row began. `None`: while it went on, or, before it, now.
    pub age: Option<i32>,
    /// By which service port.
    pub service: ServiceId,
    /// To which backend.
    pub backend: BackendId,
    /// Which of its two entries are there: forward, reply.
    pub there: [bool; 2],
    /// Is it no flow, but what one of the node's own sockets expects?
    pub own: bool,
}

/// What packets from one end to another become.
pub fn connection(protocol: u8, [source, destination]: [End; 2], [from, to]: [End; 2]) -> Connection {
    Connection {
        forward: tuple(protocol, source, destination),
        to: tuple(protocol, from, to),
        seen: 0,
        age: None,
        service: SERVICE,
        backend: BACKEND,
        there: [true; 2],
        own: false,
    }
}

/// The flags of a flow by what becomes of its client's source.
pub fn allocated(forward: &Tuple, to: &Tuple) -> u32 {
    if forward.source != to.source {
        flow_flags::SNAT
    } else if forward.source_port != to.source_port {
        flow_flags::OTHER_PORT
    } else {
        0
    }
}

/// A tuple.
fn tuple(protocol: u8, source: End, destination: End) -> Tuple {
    Tuple {
        source: source.0.into(),
        destination: destination.0.into(),
        source_port: Port::new(source.1),
        destination_port: Port::new(destination.1),
        protocol,
        pad: [0; 3],
    }
}

impl Connection {
    /// With [`lb_abi::seen`].
    #[must_use]
    pub const fn seen(mut self, seen: u32) -> Self {
        self.seen = seen;
        self
    }

    /// Seen last so many seconds ago.
    #[must_use]
    pub const fn age(mut self, seconds: i32) -> Self {
        self.age = Some(seconds);
        self
    }

    /// Of another service port or backend.
    #[must_use]
    pub const fn by(mut self, service: ServiceId, backend: BackendId) -> Self {
        self.service = service;
        self.backend = backend;
        self
    }

    /// Without the backend's entry.
    #[must_use]
    pub const fn without_reply(mut self) -> Self {
        self.there = [true, false];
        self
    }

    /// Without the client's entry.
    #[must_use]
    pub const fn without_forward(mut self) -> Self {
        self.there = [false, true];
        self
    }

    /// Datagrams that one of the node's own sockets expects: one entry, of no service port.
    #[must_use]
    pub const fn own(mut self) -> Self {
        self.own = true;
        self.there = [true, false];
        self.by(0, 0)
    }

    /// Its entries, at a time in seconds.
    pub fn entries(&self, now: u32) -> Vec<(Tuple, Flow)> {
        let last_seen = now.wrapping_sub_signed(self.age.unwrap_or_default());
        let entry = |to: Tuple, flags: u32| Flow {
            to,
            seen: self.seen,
            last_seen,
            service: self.service,
            backend: self.backend,
            flags: flags | allocated(&self.forward, &self.to) | if self.own { flow_flags::OWN } else { 0 },
            pad: 0,
            claim: u64::from(flags) + 1,
        };
        let forward = (self.forward, entry(self.to, 0));
        let reply = (
            self.to.inverse(),
            entry(self.forward.inverse(), flow_flags::REPLY),
        );
        [forward, reply]
            .into_iter()
            .zip(self.there)
            .filter_map(|(entry, there)| there.then_some(entry))
            .collect()
    }
}
