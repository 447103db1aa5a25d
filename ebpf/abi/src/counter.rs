//! What has happened, counted.

/// Defines [`Counter`], its number and its names in one place.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// What became of a socket operation or a packet: index into the per-CPU array COUNTERS.
        ///
        /// Every packet that a program sees counts exactly once, but on those that say otherwise.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Counter {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; COUNTERS as usize] = [$(Self::$name,)+];

            /// Its name in metrics and dumps.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }

        /// Number of [`Counter`]s.
        pub const COUNTERS: u32 = [$(Counter::$name as u32,)+].len() as u32;
    };
}

counters! {
    /// connect: the destination is no frontend; left alone.
    ConnectPassed = 0, "connect_passed";
    /// connect: sent to a backend.
    ConnectTranslated = 1, "connect_translated";
    /// connect: the service has no backend, or its address no such port; ECONNREFUSED.
    ConnectRefused = 2, "connect_refused";
    /// sendmsg: the destination is no frontend; left alone.
    SendmsgPassed = 3, "sendmsg_passed";
    /// sendmsg: sent to a backend.
    SendmsgTranslated = 4, "sendmsg_translated";
    /// sendmsg: the service has no backend, or its address no such port; ECONNREFUSED.
    SendmsgRefused = 5, "sendmsg_refused";
    /// recvmsg: the source was shown as the frontend.
    RecvmsgReversed = 6, "recvmsg_reversed";
    /// getpeername: the peer was shown as the frontend.
    GetpeernameReversed = 7, "getpeername_reversed";
    /// A slot or backend that the service names is not there; the socket is refused. Never, by the order of writes:
    /// a defect.
    SocketHole = 8, "socket_hole";
    /// The reverse entry could not be stored; the socket sees the backend's address.
    ReverseFull = 9, "reverse_full";
    /// connect, sendmsg: left to the packet programs, which know the source that the frontend asks for.
    SocketDeferred = 10, "socket_deferred";
    /// connect, sendmsg of the agent: a service without backends; sent to one that it had.
    OwnKept = 11, "own_kept";
    /// connect, sendmsg of the agent: a service without backends, none of which are kept; left alone.
    OwnPassed = 12, "own_passed";
    /// bind: refused, because it is a node port.
    BindRefused = 13, "bind_refused";
    /// A socket with reverse entries was closed, and they were removed.
    SocketReleased = 14, "socket_released";

    /// Packet: neither its destination nor its connection is a service's; left alone.
    PacketPassed = 15, "packet_passed";
    /// Packet: has no whole IP header, so that its destination is not known; left to the kernel.
    PacketUnreadable = 16, "packet_unreadable";
    /// Packet: the first of a connection; sent to a backend.
    FlowOpened = 17, "flow_opened";
    /// Packet: of a connection; sent to its backend.
    FlowForwarded = 18, "flow_forwarded";
    /// Packet: an answer; shown to the client as the frontend's.
    FlowReplied = 19, "flow_replied";
    /// ICMP error about a connection; translated, and with it what it quotes.
    FlowRelated = 20, "flow_related";
    /// Rejected (TCP: RST, otherwise ICMP port unreachable): the service has no backend.
    RejectedNoBackend = 21, "rejected_no_backend";
    /// Rejected in the same way: the address is a service's, the port and protocol are not.
    RejectedUnknownPort = 22, "rejected_unknown_port";
    /// Rejected by RST: TCP that opens nothing, of no connection known.
    RejectedNoFlow = 23, "rejected_no_flow";
    /// Answered with ICMP time exceeded: the hop limit would be 0.
    AnsweredTimeExceeded = 24, "answered_time_exceeded";
    /// Answered with ICMP fragmentation needed or packet too big.
    AnsweredTooBig = 25, "answered_too_big";
    /// Dropped: for a service, but cut off, or with lengths or headers that contradict each other.
    DroppedMalformed = 26, "dropped_malformed";
    /// Dropped: for a service's address, by a protocol that no service has.
    DroppedProtocol = 27, "dropped_protocol";
    /// Held: a fragment that came before the first of its datagram. Or that first one: it comes in once more, with those that
    /// were held for it, each of which counts again.
    FragmentHeld = 28, "fragment_held";
    /// Dropped: from outside the ranges of clients that are served.
    DroppedSourceRange = 29, "dropped_source_range";
    /// Dropped: no backend on this node, and the policy is Local.
    DroppedNoLocalBackend = 30, "dropped_no_local_backend";
    /// Dropped: an ICMP message to a service's address, about no connection known.
    DroppedIcmp = 31, "dropped_icmp";
    /// Dropped: a fragment whose first one was not seen, or has lost its connection.
    DroppedFragment = 32, "dropped_fragment";
    /// Dropped: of no connection known, and no answer is defined (RST, SCTP).
    DroppedNoFlow = 33, "dropped_no_flow";
    /// Dropped: every port tried for a connection to a remote backend is in use.
    DroppedPortsExhausted = 34, "dropped_ports_exhausted";
    /// Dropped: the connection could not be stored.
    DroppedFlowsFull = 35, "dropped_flows_full";
    /// Dropped: there is no way to the backend or back to the client, or no node address to send from.
    DroppedRoute = 36, "dropped_route";
    /// Dropped: sent from an address that no host can have.
    DroppedMartian = 37, "dropped_martian";
    /// Dropped: source routed (RFC 791, 3.1; RFC 5095).
    DroppedSourceRoute = 38, "dropped_source_route";
    /// Dropped: larger than the way allows, and not to be answered.
    DroppedTooBig = 39, "dropped_too_big";
    /// Dropped: a rejection or an answer beyond the limit.
    DroppedRejectLimit = 40, "dropped_reject_limit";
    /// Dropped: the kernel refused to change the packet.
    DroppedRewrite = 41, "dropped_rewrite";
    /// Dropped: a slot or backend that the service names is not there. Never, by the order of writes: a defect.
    DroppedHole = 42, "dropped_hole";

    /// Beside what became of the packet: its connection to a remote backend got the port of one that both ends had closed,
    /// before its time. Ports are running out.
    SnatReused = 43, "snat_reused";
}

/// Value of SERVICE_TRAFFIC (by [`ServiceId`](crate::ServiceId)) and BACKEND_TRAFFIC (by
/// [`BackendId`](crate::BackendId)), arrays that are mapped into the agent's memory; added to atomically, by all
/// processors. What socket programs translate counts as connections only: its packets are not seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(C)]
pub struct Traffic {
    /// Connections opened; for sendmsg, datagrams.
    pub connections: u64,
    /// Packets translated, both directions.
    pub packets: u64,
    /// Their bytes from the IP header on.
    pub bytes: u64,
    /// Zero.
    pub pad: u64,
}
