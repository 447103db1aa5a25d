//! What becomes of a packet.

use lb_abi::Counter;

/// What a packet's way ends with. Every packet has one.
///
/// Without payload, so that it is one register, which every kernel's verifier lets a function return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(
    missing_docs,
    reason = "each is the counter of that name, which is documented there"
)]
pub enum Outcome {
    Passed,
    Unreadable,
    Opened,
    Forwarded,
    Replied,
    Related,
    NoBackend,
    UnknownPort,
    NoFlow,
    TimeExceeded,
    TooBig,
    DroppedMalformed,
    DroppedProtocol,
    Held,
    DroppedSourceRange,
    DroppedNoLocalBackend,
    DroppedIcmp,
    DroppedFragment,
    DroppedNoFlow,
    DroppedPortsExhausted,
    DroppedFlowsFull,
    DroppedRoute,
    DroppedMartian,
    DroppedSourceRoute,
    DroppedTooBig,
    DroppedRejectLimit,
    DroppedRewrite,
    DroppedHole,
}

/// What that means for the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// It goes on as it came.
    Leave,
    /// It goes on as what its flow makes of it.
    Translate,
    /// It is answered with this, and does not go on.
    Answer(Answer),
    /// It does not go on, or not now.
    Drop,
}

/// What a packet is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Answer {
    /// RST to TCP, port unreachable to everything else.
    Reject,
    /// Its hop limit would be 0.
    TimeExceeded,
    /// It is larger than the way.
    TooBig,
}

impl Outcome {
    /// On which it counts, once.
    #[inline(always)]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Passed => Counter::PacketPassed,
            Self::Unreadable => Counter::PacketUnreadable,
            Self::Opened => Counter::FlowOpened,
            Self::Forwarded => Counter::FlowForwarded,
            Self::Replied => Counter::FlowReplied,
            Self::Related => Counter::FlowRelated,
            Self::NoBackend => Counter::RejectedNoBackend,
            Self::UnknownPort => Counter::RejectedUnknownPort,
            Self::NoFlow => Counter::RejectedNoFlow,
            Self::TimeExceeded => Counter::AnsweredTimeExceeded,
            Self::TooBig => Counter::AnsweredTooBig,
            Self::DroppedMalformed => Counter::DroppedMalformed,
            Self::DroppedProtocol => Counter::DroppedProtocol,
            Self::Held => Counter::FragmentHeld,
            Self::DroppedSourceRange => Counter::DroppedSourceRange,
            Self::DroppedNoLocalBackend => Counter::DroppedNoLocalBackend,
            Self::DroppedIcmp => Counter::DroppedIcmp,
            Self::DroppedFragment => Counter::DroppedFragment,
            Self::DroppedNoFlow => Counter::DroppedNoFlow,
            Self::DroppedPortsExhausted => Counter::DroppedPortsExhausted,
            Self::DroppedFlowsFull => Counter::DroppedFlowsFull,
            Self::DroppedRoute => Counter::DroppedRoute,
            Self::DroppedMartian => Counter::DroppedMartian,
            Self::DroppedSourceRoute => Counter::DroppedSourceRoute,
            Self::DroppedTooBig => Counter::DroppedTooBig,
            Self::DroppedRejectLimit => Counter::DroppedRejectLimit,
            Self::DroppedRewrite => Counter::DroppedRewrite,
            Self::DroppedHole => Counter::DroppedHole,
        }
    }

    /// What it means for the packet.
    #[inline(always)]
    pub const fn disposition(self) -> Disposition {
        match self {
            Self::Passed | Self::Unreadable => Disposition::Leave,
            Self::Opened | Self::Forwarded | Self::Replied | Self::Related => Disposition::Translate,
            Self::NoBackend | Self::UnknownPort | Self::NoFlow => Disposition::Answer(Answer::Reject),
            Self::TimeExceeded => Disposition::Answer(Answer::TimeExceeded),
            Self::TooBig => Disposition::Answer(Answer::TooBig),
            Self::DroppedMalformed
            | Self::DroppedProtocol
            | Self::Held
            | Self::DroppedSourceRange
            | Self::DroppedNoLocalBackend
            | Self::DroppedIcmp
            | Self::DroppedFragment
            | Self::DroppedNoFlow
            | Self::DroppedPortsExhausted
            | Self::DroppedFlowsFull
            | Self::DroppedRoute
            | Self::DroppedMartian
            | Self::DroppedSourceRoute
            | Self::DroppedTooBig
            | Self::DroppedRejectLimit
            | Self::DroppedRewrite
            | Self::DroppedHole => Disposition::Drop,
        }
    }
}
