//! What packets show of a connection, and for how long it is remembered.

use lb_abi::{SCTP, TCP, UDP, seen};

use crate::elapsed;

/// TCP: FIN. SCTP: SHUTDOWN, SHUTDOWN ACK.
pub const FIN: u8 = 1;
/// TCP: SYN. SCTP: INIT.
pub const SYN: u8 = 1 << 1;
/// TCP: RST. SCTP: ABORT, SHUTDOWN COMPLETE.
pub const RST: u8 = 1 << 2;
/// TCP: ACK.
pub const ACK: u8 = 1 << 4;

/// Longest silence of a TCP connection that was opened, in seconds: a day, as long as neither end has closed it. RFC 5382,
/// REQ-5 asks for 2 h 4 min at least, which is two keepalives.
const TCP_ESTABLISHED: u32 = 86_400;
/// And of one that one side has closed: the other may still send, which takes as long as it takes.
const TCP_HALF_CLOSED: u32 = 3600;
/// And of one that both have closed: 2 MSL (RFC 9293, 3.6.1).
const TCP_CLOSED: u32 = 120;
/// And of one without an answer, or whose client has sent nothing since, as of a flood of SYN from addresses that no host has: SYN
/// and its answer are sent again for about as long (RFC 6298, 2: 1, 2, 4 … s).
const TCP_OPENING: u32 = 60;
/// Longest silence of an SCTP association, and of one that is being closed, or not answered.
const SCTP_ESTABLISHED: u32 = 86_400;
const SCTP_CLOSED: u32 = 120;
const SCTP_OPENING: u32 = 60;
/// After a reset: for what is still on its way.
const RESET: u32 = 10;
/// After so long, what has not answered may have left its service, and another have its address: of what the client sends again
/// (TCP: after 1, 2, 4 … s) a backend is chosen again. Seconds are whole ones, and two copies of one packet may come on both sides
/// of the end of one.
const ASKED_AGAIN: u32 = 2;
/// Longest silence of a UDP conversation (RFC 4787, REQ-5: 2 min at least), and of one without an answer.
const UDP_ANSWERED: u32 = 120;
const UDP_UNANSWERED: u32 = 30;

/// What the first chunk of an SCTP packet means, in TCP's flags.
#[inline(always)]
pub const fn chunk(kind: u8) -> u8 {
    match kind {
        1 => SYN,
        7 | 8 => FIN,
        6 | 14 => RST,
        _ => 0,
    }
}

/// Whether a packet opens a connection where one may still be remembered: SYN without ACK, or INIT.
#[inline(always)]
pub const fn starts(protocol: u8, signals: u8) -> bool {
    match protocol {
        TCP | SCTP => signals & (SYN | ACK) == SYN,
        _ => false,
    }
}

/// What a packet adds to [`Flow::seen`](lb_abi::Flow::seen). `signals` of UDP, and of fragments other than the first,
/// are 0.
#[inline(always)]
pub const fn shows(protocol: u8, signals: u8, reply: bool) -> u32 {
    let mut bits = 0;
    if reply {
        bits |= seen::ANSWER;
    } else if signals & SYN != 0 {
        bits |= seen::OPEN;
    }
    // SCTP's INIT ACK has no ACK.
    if protocol != UDP && signals & (SYN | RST) == 0 && (!reply || signals & ACK != 0) {
        bits |= seen::ESTABLISHED;
    }
    if signals & FIN != 0 {
        bits |= if reply {
            seen::BACKEND_FIN
        } else {
            seen::CLIENT_FIN
        };
    }
    if signals & RST != 0 {
        bits |= seen::RESET;
    }
    bits
}

/// Whether a connection is being closed: a client that opens one with the same ports means a new one.
#[inline(always)]
pub const fn closing(seen: u32) -> bool {
    seen & (seen::CLIENT_FIN | seen::BACKEND_FIN | seen::RESET) != 0
}

/// Whether a connection has ended: both ends have closed it, or one has reset it.
#[inline(always)]
pub const fn closed(seen: u32) -> bool {
    const FINS: u32 = seen::CLIENT_FIN | seen::BACKEND_FIN;
    seen & FINS == FINS || seen & seen::RESET != 0
}

/// For how many seconds a connection may be silent.
#[inline(always)]
pub const fn time_limit(protocol: u8, seen: u32) -> u32 {
    const FINS: u32 = seen::CLIENT_FIN | seen::BACKEND_FIN;
    const BOTH: u32 = seen::ANSWER | seen::ESTABLISHED;
    let answered = seen & seen::ANSWER != 0;
    match protocol {
        UDP if answered => UDP_ANSWERED,
        UDP => UDP_UNANSWERED,
        _ if seen & seen::RESET != 0 => RESET,
        SCTP if seen & FINS != 0 => SCTP_CLOSED,
        SCTP if seen & BOTH == BOTH => SCTP_ESTABLISHED,
        SCTP => SCTP_OPENING,
        _ if seen & FINS == FINS => TCP_CLOSED,
        _ if seen & FINS != 0 => TCP_HALF_CLOSED,
        _ if seen & BOTH == BOTH => TCP_ESTABLISHED,
        _ => TCP_OPENING,
    }
}

/// Whether a backend has not answered what was sent to it a while ago.
#[inline(always)]
pub const fn is_unanswered(seen: u32, last_seen: u32, now: u32) -> bool {
    const ABOUT: u32 = seen::OPEN | seen::ANSWER | seen::ESTABLISHED;
    seen & ABOUT == seen::OPEN && elapsed(now, last_seen) >= ASKED_AGAIN
}

/// Whether a connection has been silent for longer than that.
#[inline(always)]
pub const fn is_over(protocol: u8, seen: u32, last_seen: u32, now: u32) -> bool {
    elapsed(now, last_seen) > time_limit(protocol, seen)
}

#[cfg(test)]
mod tests;
