//! Time limits, what packets show, and what is over when.

use lb_abi::seen::{ANSWER, BACKEND_FIN, CLIENT_FIN, ESTABLISHED, OPEN, RESET};

use super::*;

#[test]
fn time_limits_are_as_documented() {
    for (protocol, seen, seconds) in [
        (TCP, 0, 60),
        (TCP, OPEN, 60),
        (TCP, OPEN | ANSWER, 60),
        (TCP, ESTABLISHED, 60),
        (TCP, OPEN | ANSWER | ESTABLISHED, 86_400),
        (TCP, ANSWER | ESTABLISHED, 86_400),
        (TCP, OPEN | ANSWER | CLIENT_FIN, 3600),
        (TCP, OPEN | ANSWER | BACKEND_FIN, 3600),
        (TCP, CLIENT_FIN, 3600),
        (TCP, OPEN | ANSWER | CLIENT_FIN | BACKEND_FIN, 120),
        (TCP, OPEN | RESET, 10),
        (TCP, OPEN | ANSWER | CLIENT_FIN | BACKEND_FIN | RESET, 10),
        (UDP, 0, 30),
        (UDP, ANSWER, 120),
        (UDP, RESET | CLIENT_FIN, 30),
        (SCTP, 0, 60),
        (SCTP, OPEN, 60),
        (SCTP, OPEN | ANSWER, 60),
        (SCTP, OPEN | ANSWER | ESTABLISHED, 86_400),
        (SCTP, OPEN | ANSWER | BACKEND_FIN, 120),
        (SCTP, OPEN | ANSWER | CLIENT_FIN | BACKEND_FIN, 120),
        (SCTP, OPEN | ANSWER | CLIENT_FIN | RESET, 10),
    ] {
        assert_eq!(
            time_limit(protocol, seen),
            seconds,
            "protocol {protocol}, seen {seen:#b}"
        );
        assert!(!is_over(protocol, seen, 1000, 1000 + seconds), "not at the limit");
        assert!(is_over(protocol, seen, 1000, 1001 + seconds), "but beyond it");
    }
}

#[test]
fn a_connection_seen_after_now_is_not_over() {
    assert!(
        !is_over(TCP, RESET, 1001, 1000),
        "seen by a processor whose clock was read later"
    );
}

#[test]
fn more_that_is_seen_of_a_closing_connection_never_makes_it_last_longer() {
    for protocol in [TCP, SCTP] {
        for seen in 0..=seen::ALL {
            for bit in [CLIENT_FIN, BACKEND_FIN, RESET] {
                if closing(seen) {
                    assert!(
                        time_limit(protocol, seen | bit) <= time_limit(protocol, seen),
                        "{protocol}, {seen:#b}"
                    );
                }
            }
        }
    }
}

#[test]
fn signals_are_of_their_direction() {
    for (signals, reply, bits) in [
        (0, false, ESTABLISHED),
        (0, true, ANSWER),
        (ACK, false, ESTABLISHED),
        (ACK, true, ANSWER | ESTABLISHED),
        (SYN, false, OPEN),
        (SYN | ACK, false, OPEN),
        (SYN | ACK, true, ANSWER),
        (FIN | ACK, false, CLIENT_FIN | ESTABLISHED),
        (FIN | ACK, true, ANSWER | BACKEND_FIN | ESTABLISHED),
        (RST, false, RESET),
        (RST | ACK, true, ANSWER | RESET),
        (SYN | FIN, false, OPEN | CLIENT_FIN),
        (0b1110_1000, false, ESTABLISHED),
    ] {
        assert_eq!(shows(TCP, signals, reply), bits, "{signals:#b}, reply {reply}");
    }
    assert_eq!(
        (shows(UDP, 0, false), shows(UDP, 0, true)),
        (0, ANSWER),
        "nothing more is needed of UDP"
    );
}

#[test]
fn chunks_mean_what_flags_mean() {
    for kind in 0..=u8::MAX {
        let expected = match kind {
            1 => SYN,
            6 | 14 => RST,
            7 | 8 => FIN,
            _ => 0,
        };
        assert_eq!(chunk(kind), expected, "chunk {kind}");
    }
}

#[test]
fn only_a_syn_without_ack_starts_anew() {
    assert!(starts(TCP, SYN) && starts(TCP, SYN | RST) && starts(SCTP, chunk(1)));
    assert!(!starts(TCP, SYN | ACK) && !starts(TCP, 0) && !starts(SCTP, chunk(2)) && !starts(UDP, SYN));
}

#[test]
fn one_fin_or_a_reset_is_closing() {
    assert!(closing(CLIENT_FIN) && closing(BACKEND_FIN | OPEN) && closing(RESET));
    assert!(!closing(OPEN | ANSWER) && !closing(0));
}

#[test]
fn what_was_not_answered_for_two_seconds_is_asked_again() {
    assert!(is_unanswered(OPEN, 7, 9) && is_unanswered(OPEN, 7, 60));
    assert!(!is_unanswered(OPEN, 7, 8), "the same SYN once more");
    assert!(!is_unanswered(OPEN | ANSWER, 7, 60));
    assert!(
        !is_unanswered(OPEN | ESTABLISHED, 7, 60),
        "its answers go elsewhere"
    );
    assert!(!is_unanswered(0, 7, 60), "found in the middle");
    assert!(!is_unanswered(OPEN, 8, 7), "another processor's clock");
}
